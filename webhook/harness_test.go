package webhook

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/keys"
	"github.com/countersign-mcp/countersign/notifier/slacktest"
)

const (
	slackSecret   = "8f742231b10e8888abcd99yyyzzz85a5"
	hookSecret    = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	adminToken    = "canary-operator-token-ana"
	otherToken    = "canary-operator-token-eve"
	linkOfAna     = "canary-link-token-aaaaaaaaaaaaaaaaaaaaaaaaa"
	theID         = "op_01J9ZK3V"
	theChannel    = "C0APPROVALS"
	theApp        = "A0MCPAPPR1"
	theTeam       = "T0ACME0001"
	anaInSlack    = "U0ANA00001"
	bobInSlack    = "U0BOB00001"
	carolInSlack  = "U0CAROL001"
	cardTimestamp = "1764471000.000100"
)

// desk is a record-keeping stand-in for the store: real judging by
// approvals.Eligible, first decision wins, repeated nonces repeat their answer.
type desk struct {
	mu      sync.Mutex
	now     func() time.Time
	tickets map[string]approvals.Ticket
	links   map[string][2]string
	nonces  map[string]string
	votes   []approvals.Vote // counted
	refused []approvals.Vote
	adopted []approvals.Ref
	calls   []string              // everything that could change something
	fail    error                 // of every call
	lose    bool                  // Decide happens, its answer is lost
	block   func(context.Context) // runs in Ticket, before it answers
}

func (d *desk) Ticket(ctx context.Context, id string) (approvals.Ticket, error) {
	if d.block != nil {
		d.block(ctx)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fail != nil {
		return approvals.Ticket{}, d.fail
	}
	t, ok := d.tickets[id]
	if !ok {
		return approvals.Ticket{}, approvals.NotFound
	}
	return t, nil
}

func (d *desk) Decide(_ context.Context, v approvals.Vote) (approvals.Ticket, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, "decide")
	if d.fail != nil {
		return approvals.Ticket{}, d.fail
	}
	t, ok := d.tickets[v.ID]
	if !ok {
		return t, approvals.NotFound
	}
	if v.Nonce == "" {
		panic("a vote without a nonce")
	}
	if v.Refused != "" {
		d.refused = append(d.refused, v)
		return t, nil
	}
	mine := v.Verdict.String() + ":" + v.Person
	if seen, again := d.nonces[v.Nonce]; again {
		if seen == mine {
			return t, nil
		}
		return t, approvals.AlreadyVoted
	}
	if c := d.bar(t, v); c != "" {
		return t, c
	}
	d.nonces[v.Nonce] = mine
	d.votes = append(d.votes, v)
	t.Votes = append(t.Votes, approvals.Cast{Requirement: t.Requirements[0].Route, Person: v.Person, Verdict: v.Verdict, Source: v.Source, At: d.now()})
	t.Rev++
	switch {
	case v.Verdict == approvals.Deny:
		t.State, t.By, t.Reason = approvals.Denied, v.Person, v.Reason
	case len(t.Votes) >= t.Requirements[0].Quorum:
		t.State, t.By = approvals.Approved, v.Person
	}
	d.tickets[v.ID] = t
	if d.lose {
		return approvals.Ticket{}, approvals.StoreUnavailable
	}
	return t, nil
}

func (d *desk) bar(t approvals.Ticket, v approvals.Vote) approvals.Conflict {
	st := approvals.Eligible(t.Requirements[0], v.Person, v.Memberships, d.now())
	switch {
	case t.State == approvals.Expired:
		return approvals.IsExpired
	case t.State == approvals.Withdrawn:
		return approvals.IsWithdrawn
	case t.State != approvals.Pending:
		return approvals.AlreadyDecided
	case !d.now().Before(t.Deadline):
		return approvals.IsExpired
	case v.Bound != "" && v.Bound != t.Bound:
		return approvals.WrongDigest
	case v.Bound == "" && v.Source != "admin":
		return approvals.WrongDigest
	case v.Verdict == approvals.Approve && !st.MayApprove:
		return st.Why
	case !st.MayDeny:
		return st.Why
	case v.Link && v.Verdict == approvals.Approve && t.Links != "approve":
		return approvals.NotEligible
	case castBy(t, v.Person, v.Verdict):
		return approvals.AlreadyVoted
	}
	return ""
}

func (d *desk) Adopt(_ context.Context, id string, ref approvals.Ref) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, "adopt")
	d.adopted = append(d.adopted, ref)
	return d.fail
}

func (d *desk) Link(_ context.Context, token string) (string, string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fail != nil {
		return "", "", d.fail
	}
	l, ok := d.links[token]
	if !ok {
		return "", "", approvals.NotFound
	}
	return l[0], l[1], nil
}

func (d *desk) List(_ context.Context, states []approvals.State, max int) ([]approvals.Ticket, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []approvals.Ticket
	for _, t := range d.tickets {
		if len(out) < max && (len(states) == 0 || states[0] == t.State) {
			out = append(out, t)
		}
	}
	return out, d.fail
}

func (d *desk) End(_ context.Context, id string, to approvals.State, cause, by, why string) (approvals.Ticket, error) {
	return d.move(id, "end", func(t *approvals.Ticket) approvals.Conflict {
		if t.State != approvals.Approved {
			return approvals.AlreadyUsed
		}
		t.State, t.Cause, t.By, t.Reason = to, cause, by, why
		return ""
	})
}

func (d *desk) Resolve(_ context.Context, id string, ran bool, by, note string) (approvals.Ticket, error) {
	return d.move(id, "resolve", func(t *approvals.Ticket) approvals.Conflict {
		if t.State != approvals.Unknown {
			return approvals.AlreadyDecided
		}
		t.State, t.By, t.Reason = approvals.NotRun, by, note
		if ran {
			t.State = approvals.Succeeded
		}
		return ""
	})
}

func (d *desk) move(id, name string, f func(*approvals.Ticket) approvals.Conflict) (approvals.Ticket, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, name)
	t, ok := d.tickets[id]
	if !ok {
		return t, approvals.NotFound
	}
	if c := f(&t); c != "" {
		return t, c
	}
	d.tickets[id] = t
	return t, nil
}

func (d *desk) set(f func(*approvals.Ticket)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.tickets[theID]
	f(&t)
	d.tickets[theID] = t
}

func (d *desk) ticket() approvals.Ticket { t, _ := d.Ticket(context.Background(), theID); return t }

func (d *desk) changes() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]string{}, d.calls...)
}

// directory answers for Slack.
type directory struct {
	mu     sync.Mutex
	people map[string]string
	groups map[string][]string // by person
	errs   map[string]error    // by Slack user
	fail   error
	asked  int
	now    func() time.Time
}

func (d *directory) Person(_ context.Context, user, team, enterprise string) (string, approvals.Memberships, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked++
	if d.fail != nil {
		return "", approvals.Memberships{}, d.fail
	}
	p := d.people[user]
	return p, approvals.Memberships{Groups: d.groups[p], AsOf: d.now()}, d.errs[user]
}

func (d *directory) Memberships(_ context.Context, person string) (approvals.Memberships, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked++
	return approvals.Memberships{Groups: d.groups[person], AsOf: d.now()}, d.fail
}

// mouth keeps the sentences that people were told.
type mouth struct {
	said chan string
	fail error
}

func (m *mouth) Ephemeral(_ context.Context, _, text string) error { m.said <- text; return m.fail }

func (m *mouth) hear(t *testing.T) string {
	t.Helper()
	select {
	case s := <-m.said:
		return s
	case <-time.After(5 * time.Second):
		t.Fatal("the clicker was told nothing")
		return ""
	}
}

func (m *mouth) silent(t *testing.T, s *Server) {
	t.Helper()
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case text := <-m.said:
		t.Fatalf("the clicker was told %q", text)
	default:
	}
}

// world is a webhook server with everything around it.
type world struct {
	t     *testing.T
	s     *Server
	desk  *desk
	dir   *directory
	mouth *mouth
	ring  *keys.Ring
	log   *logBuffer
	clock *clockwork
	site  *httptest.Server
	admin *httptest.Server
	cfg   Config
}

// clockwork is a clock that a test moves.
type clockwork struct {
	mu sync.Mutex
	t  time.Time
}

func (c *clockwork) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clockwork) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func hash(token string) string { s := sha256.Sum256([]byte(token)); return hex.EncodeToString(s[:]) }

func testRoster(t *testing.T) *approvals.Roster {
	t.Helper()
	r, err := approvals.NewRoster([]approvals.Person{
		{ID: "ana", Actors: []string{"ana@acme.test"}, Slack: anaInSlack, Tickets: map[string]string{"jira": "acc-ana"}},
		{ID: "bob", Actors: []string{"bob@acme.test"}, Slack: bobInSlack, Tickets: map[string]string{"jira": "acc-bob"}},
		{ID: "carol", Slack: carolInSlack, Tickets: map[string]string{"jira": "acc-carol"}},
		{ID: "eve", Tickets: map[string]string{"jira": "acc-eve"}},
	}, map[string][]string{"ops": {"ana", "bob"}, "oncall": {"slack-group:S0ONCALL"}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func testTicket(now time.Time) approvals.Ticket {
	return approvals.Ticket{
		ID: theID, State: approvals.Pending, Rev: 1, Server: "orders", Tool: "cancel_order", Tier: "destructive",
		Title: "Cancel order 1042", Bound: "k1.bound", ShownDigest: "k1.shown",
		View:  approvals.View{Text: "{\n  \"order\": 1042\n}", Masked: []approvals.Mask{{Pointer: "/token", Type: "string", Len: 12}}},
		Actor: "bob@acme.test", Requester: "bob", Rules: []string{"tier:destructive"},
		Requirements: []approvals.Requirement{{Route: "default", Approvers: []string{"group:ops", "group:oncall"}, Quorum: 1,
			Deadline: now.Add(15 * time.Minute), Excluded: []string{"bob"}}},
		Channels: []string{"slack:" + theChannel, "link:ana"}, Links: "approve",
		CreatedAt: now.Add(-time.Minute), Deadline: now.Add(15 * time.Minute),
		Refs: []approvals.Ref{{Channel: "slack:" + theChannel, ID: theChannel + "/" + cardTimestamp, Rev: 1}},
	}
}

// newWorld builds a world; change it in the functions before anything starts.
func newWorld(t *testing.T, changes ...func(*Config)) *world {
	t.Helper()
	w := &world{t: t, log: &logBuffer{}, mouth: &mouth{said: make(chan string, 1000)}, clock: &clockwork{t: time.Now().Truncate(time.Second)}}
	now := w.clock.now
	w.desk = &desk{now: now, tickets: map[string]approvals.Ticket{theID: testTicket(now())}, nonces: map[string]string{},
		links: map[string][2]string{linkOfAna: {theID, "ana"}}}
	w.dir = &directory{now: now, errs: map[string]error{}, groups: map[string][]string{"carol": {"slack-group:S0ONCALL"}},
		people: map[string]string{anaInSlack: "ana", bobInSlack: "bob", carolInSlack: "carol"}}
	var err error
	if w.ring, err = keys.NewRing(keys.NewSecret()); err != nil {
		t.Fatal(err)
	}
	roster := testRoster(t)
	tokens, err := NewTokens([]Token{{hash(adminToken), "ana"}, {hash(otherToken), "eve"}, {hash("canary-token-of-nobody"), "ghost"}})
	if err != nil {
		t.Fatal(err)
	}
	w.cfg = Config{
		Decider: w.desk, Adopter: w.desk, Links: w.desk, Directory: w.dir, Replier: w.mouth, Ring: w.ring,
		Roster: func() *approvals.Roster { return roster },
		Slack: &Slack{SigningSecrets: []string{slackSecret, "the-next-signing-secret"}, AppID: func() string { return theApp },
			TeamID: func() string { return theTeam }},
		Callbacks: map[string]Inbound{"jira": {Scheme: SchemeStandard, Secrets: []string{hookSecret}}},
		Desk:      w.desk, Tokens: func() *Tokens { return tokens },
		Now: now, Log: slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, f := range changes {
		f(&w.cfg)
	}
	if w.s, err = New(w.cfg); err != nil {
		t.Fatal(err)
	}
	w.site = serve(t, w.s.Handler(), w.cfg.Log)
	w.admin = serve(t, w.s.AdminHandler(), w.cfg.Log)
	return w
}

func serve(t *testing.T, h http.Handler, log *slog.Logger) *httptest.Server {
	t.Helper()
	ts := httptest.NewUnstartedServer(nil)
	ts.Config = NewServer(h, log)
	ts.Start()
	t.Cleanup(ts.Close)
	return ts
}

// answerOf is an HTTP answer, read.
type answerOf struct {
	status int
	header http.Header
	body   string
}

func (w *world) send(req *http.Request) answerOf {
	w.t.Helper()
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return answerOf{resp.StatusCode, resp.Header, string(b)}
}

func (w *world) request(method, rawURL string, body []byte, h http.Header) *http.Request {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), method, rawURL, bytes.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	for k, v := range h {
		req.Header[k] = v
	}
	return req
}

// slackHeaders signs a body as Slack would.
func slackHeaders(secret string, at time.Time, body []byte) http.Header {
	ts := strconv.FormatInt(at.Unix(), 10)
	h := http.Header{}
	h.Set("Content-Type", "application/x-www-form-urlencoded")
	h.Set("X-Slack-Request-Timestamp", ts)
	h.Set("X-Slack-Signature", slacktest.Sign(secret, ts, body))
	return h
}

func form(payload string) []byte { return []byte(url.Values{"payload": {payload}}.Encode()) }

// postSlack signs and sends a form body.
func (w *world) postSlack(body []byte) answerOf {
	w.t.Helper()
	return w.send(w.request("POST", w.site.URL+"/slack/interactions", body, slackHeaders(slackSecret, w.clock.now(), body)))
}

func (w *world) button(verdict approvals.Verdict) string {
	return w.ring.Token(keys.Button, "v1", theID, "slack:"+theChannel, verdict.String(), "nonce-1")
}

var errDown = errors.New("canary: redis://user:canary-password@down")

func mustProblem(t *testing.T, a answerOf, status int) {
	t.Helper()
	if a.status != status {
		t.Fatalf("status %d, want %d: %s", a.status, status, a.body)
	}
	if ct := a.header.Get("Content-Type"); ct != "application/problem+json" {
		t.Fatalf("content type %q", ct)
	}
	for _, member := range []string{`"type":`, `"title":`, `"status":` + strconv.Itoa(status), `"instance":"urn:request:`} {
		if !strings.Contains(a.body, member) {
			t.Fatalf("no %s in %s", member, a.body)
		}
	}
}
