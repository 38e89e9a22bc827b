package slacktest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// ErrNoButton means that the message has no such button any more.
var ErrNoButton = errors.New("slacktest: no such button on the message")

// Click says who presses which button of which message.
type Click struct {
	User    string
	Channel string
	TS      string
	// ActionID is the button's exact action_id. Instead, Verdict names the
	// label's beginning, ignoring case ("approve", "deny").
	ActionID string
	Verdict  string
	// Stale allows a button of an earlier version or a deleted message: the
	// person's client hadn't seen the change yet.
	Stale bool
	// Mutate changes the payload before it is signed.
	Mutate func(payload map[string]any)
	// Secret replaces the signing secret, At the time of signing.
	Secret string
	At     time.Time
	// Header changes the request's headers after signing, Body its bytes.
	Header func(http.Header)
	Body   func([]byte) []byte
	// Retry is the number of a redelivery; 0 is the first delivery.
	Retry int
	// URL replaces the interactions URL, to click on another replica.
	URL string
}

// Interaction is a signed request that is ready to send, any number of times.
type Interaction struct {
	URL         string
	Header      http.Header
	Body        []byte
	ResponseURL string
	TriggerID   string
}

// Answer is what came of sending an interaction.
type Answer struct {
	Status int // 0 when no answer came
	Header http.Header
	Body   string
	Took   time.Duration
	Late   bool  // no answer within the limit: Slack hung up
	Err    error // the request couldn't be built or sent
	// Seen is the error the person sees beside the button; "" is none.
	Seen    string
	Request *Interaction // nil if it couldn't be built
}

// Click builds the interaction and sends it once.
func (s *Slack) Click(ctx context.Context, c Click) Answer {
	in, err := s.Prepare(c)
	if err != nil {
		return Answer{Err: err, Seen: err.Error()}
	}
	return s.Send(ctx, in)
}

// ClickMany sends n clicks at the same moment, each an interaction of its own,
// as from n presses or n people with the same screen. urls, if any, are used
// in turn.
func (s *Slack) ClickMany(ctx context.Context, c Click, n int, urls ...string) []Answer {
	answers := make([]Answer, n)
	ins := make([]*Interaction, n)
	for i := range ins {
		one := c
		if len(urls) > 0 {
			one.URL = urls[i%len(urls)]
		}
		var err error
		if ins[i], err = s.Prepare(one); err != nil {
			answers[i] = Answer{Err: err, Seen: err.Error()}
		}
	}
	var wg sync.WaitGroup
	gate := make(chan struct{})
	for i, in := range ins {
		if in == nil {
			continue
		}
		wg.Go(func() {
			<-gate
			answers[i] = s.Send(ctx, in)
		})
	}
	close(gate)
	wg.Wait()
	return answers
}

// Prepare builds and signs the interaction without sending it. The message is
// read now: a change before Send isn't seen by the person who clicks.
func (s *Slack) Prepare(c Click) (*Interaction, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.find(c.Channel, c.TS)
	if m == nil {
		return nil, fmt.Errorf("slacktest: no message %s in %s", c.TS, c.Channel)
	}
	v, b, err := m.button(c)
	if err != nil {
		return nil, err
	}
	u, ok := s.user(c.User)
	if !ok {
		return nil, fmt.Errorf("slacktest: nobody is called %q here", c.User)
	}
	h := s.newHook(c.User, c.Channel, c.TS)
	trig := s.newTrigger(c.User)
	payload := s.payload(m, v, b, u, h, trig)
	if c.Mutate != nil {
		c.Mutate(payload)
	}
	return s.sealed(c, payload, h.url, trig)
}

// Send posts the interaction as it is. Sending it again is a replay.
func (s *Slack) Send(ctx context.Context, in *Interaction) Answer {
	a := Answer{Request: in}
	ctx, cancel := context.WithTimeoutCause(ctx, s.ack, errLate)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, in.URL, bytes.NewReader(in.Body))
	if err != nil {
		a.Err, a.Seen = err, err.Error()
		return a
	}
	req.Header = in.Header.Clone()
	// A connection of its own each time: pooled ones would queue concurrent
	// clicks and outlive the test's server.
	client := &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	start := time.Now()
	res, err := client.Do(req)
	if err == nil {
		var body []byte
		body, err = io.ReadAll(io.LimitReader(res.Body, 1<<20))
		res.Body.Close()
		a.Status, a.Header, a.Body = res.StatusCode, res.Header, string(body)
	}
	a.Took = time.Since(start)
	switch {
	case err != nil && context.Cause(ctx) == errLate:
		a.Status, a.Late = 0, true
		a.Seen = "Operation timed out. Apps need to respond within three seconds."
	case err != nil:
		a.Status, a.Err = 0, err
		a.Seen = "This app did not respond."
	case a.Status != http.StatusOK:
		a.Seen = "This app responded with status code " + strconv.Itoa(a.Status) + "."
	}
	return a
}

var errLate = errors.New("no answer within Slack's limit")

// To is the same interaction for another URL.
func (in *Interaction) To(url string) *Interaction {
	c := *in
	c.URL = url
	return &c
}

// button finds what is clicked and the version it is on.
func (m *Message) button(c Click) (Version, Button, error) {
	versions := m.Edits[len(m.Edits)-1:]
	switch {
	case c.Stale:
		versions = slices.Clone(m.Edits)
		slices.Reverse(versions)
	case m.Deleted:
		return Version{}, Button{}, fmt.Errorf("%w: it is deleted", ErrNoButton)
	}
	for _, v := range versions {
		for _, b := range v.Buttons() {
			if c.ActionID != "" && b.ActionID == c.ActionID ||
				c.ActionID == "" && c.Verdict != "" && strings.HasPrefix(strings.ToLower(b.Text), strings.ToLower(c.Verdict)) {
				return v, b, nil
			}
		}
	}
	return Version{}, Button{}, ErrNoButton
}

// payload is a block_actions payload in Slack's shape. Needs mu.
func (s *Slack) payload(m *Message, v Version, b Button, u User, h *hook, trigger string) map[string]any {
	team := map[string]any{"id": s.TeamID, "domain": s.TeamDomain}
	var enterprise any
	if s.EnterpriseID != "" {
		team["enterprise_id"], team["enterprise_name"] = s.EnterpriseID, s.TeamDomain
		enterprise = map[string]any{"id": s.EnterpriseID, "name": s.TeamDomain}
	}
	container := map[string]any{"type": "message", "message_ts": m.TS, "channel_id": m.Channel, "is_ephemeral": false}
	if m.ThreadTS != "" {
		container["thread_ts"] = m.ThreadTS
	}
	action := map[string]any{
		"type": "button", "action_id": b.ActionID, "block_id": b.BlockID,
		"text":      map[string]any{"type": "plain_text", "text": echoPlain(b.Text), "emoji": true},
		"action_ts": s.actionTS(),
	}
	if b.Value != "" {
		action["value"] = b.Value
	}
	if b.Style != "" {
		action["style"] = b.Style
	}
	return map[string]any{
		"type":                  "block_actions",
		"user":                  map[string]any{"id": u.ID, "username": u.Name, "name": u.Name, "team_id": u.ClickTeamID},
		"api_app_id":            s.AppID,
		"token":                 "deprecated-verification-token",
		"container":             container,
		"trigger_id":            trigger,
		"team":                  team,
		"enterprise":            enterprise,
		"is_enterprise_install": false,
		"channel":               map[string]any{"id": m.Channel, "name": s.channels[m.Channel].Name},
		"message":               s.echo(m, v, true),
		"state":                 map[string]any{"values": map[string]any{}},
		"response_url":          h.url,
		"actions":               []any{action},
	}
}

// actionTS is the time of a press, which isn't a message's timestamp. Needs mu.
func (s *Slack) actionTS() string {
	us := s.now().UnixMicro()
	return fmt.Sprintf("%d.%06d", us/1e6, us%1e6)
}

// sealed encodes and signs a payload. Needs mu.
func (s *Slack) sealed(c Click, payload map[string]any, responseURL, trigger string) (*Interaction, error) {
	raw, err := encode(payload)
	if err != nil {
		return nil, fmt.Errorf("slacktest: encoding the payload: %w", err)
	}
	body := []byte(url.Values{"payload": {string(raw)}}.Encode())
	secret, at, to := s.secret, s.now(), s.interactions
	if c.Secret != "" {
		secret = c.Secret
	}
	if !c.At.IsZero() {
		at = c.At
	}
	if c.URL != "" {
		to = c.URL
	}
	if to == "" {
		return nil, errors.New("slacktest: no interactions URL is set")
	}
	h := http.Header{}
	h.Set("Content-Type", "application/x-www-form-urlencoded")
	h.Set("User-Agent", "Slackbot 1.0 (+https://api.slack.com/robots)")
	ts := strconv.FormatInt(at.Unix(), 10)
	h.Set("X-Slack-Request-Timestamp", ts)
	h.Set("X-Slack-Signature", Sign(secret, ts, body))
	if c.Retry > 0 {
		h.Set("X-Slack-Retry-Num", strconv.Itoa(c.Retry))
		h.Set("X-Slack-Retry-Reason", "http_timeout")
	}
	if c.Header != nil {
		c.Header(h)
	}
	if c.Body != nil {
		body = c.Body(body)
	}
	return &Interaction{URL: to, Header: h, Body: body, ResponseURL: responseURL, TriggerID: trigger}, nil
}

// encode writes JSON as Slack does: without Go's escapes for HTML.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
