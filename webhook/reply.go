package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

const (
	replySlots = 32               // replies on their way at once
	replyTime  = 10 * time.Second // for one reply
)

// replies sends ephemeral sentences beside the request: Slack waits for the 200,
// not for them. What finds no slot is dropped; the card tells the truth anyway.
type replies struct {
	to    Replier
	log   *slog.Logger
	slots chan struct{}
	wg    sync.WaitGroup
}

func newReplies(to Replier, log *slog.Logger) *replies {
	return &replies{to: to, log: log, slots: make(chan struct{}, replySlots)}
}

func (r *replies) send(responseURL, text string) {
	if r.to == nil || responseURL == "" {
		return
	}
	select {
	case r.slots <- struct{}{}:
	default:
		r.log.Warn("a sentence for a clicker was dropped: too many are on their way")
		return
	}
	r.wg.Go(func() {
		defer func() { <-r.slots }()
		ctx, cancel := context.WithTimeout(context.Background(), replyTime)
		defer cancel()
		if err := r.to.Ephemeral(ctx, responseURL, text); err != nil {
			// The error may hold the response URL, which is a bearer of its own.
			r.log.Warn("a sentence for a clicker was not delivered", "timeout", errors.Is(err, context.DeadlineExceeded))
		}
	})
}

func (r *replies) close(ctx context.Context) error {
	done := make(chan struct{})
	go func() { r.wg.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for replies: %w", ctx.Err())
	}
}

// ResponseURLs is a Replier that posts to Slack's response URLs, and nowhere
// else.
type ResponseURLs struct {
	client *http.Client
	allow  map[string]bool // scheme://host
}

// NewResponseURLs allows https://hooks.slack.com, https://hooks.slack-gov.com and
// the given bases ("http://127.0.0.1:1234", for a Slack that is not Slack). A nil
// transport means a plain one without a proxy.
func NewResponseURLs(transport http.RoundTripper, bases ...string) (*ResponseURLs, error) {
	r := &ResponseURLs{allow: map[string]bool{"https://hooks.slack.com": true, "https://hooks.slack-gov.com": true}}
	for _, b := range bases {
		u, err := url.Parse(b)
		if err != nil || u.Host == "" || (u.Scheme != "https" && !(u.Scheme == "http" && loopbackHost(u.Hostname()))) {
			return nil, errors.New("webhook: a base of response URLs is https, or http on loopback")
		}
		r.allow[u.Scheme+"://"+u.Host] = true
	}
	if transport == nil {
		transport = &http.Transport{TLSHandshakeTimeout: 5 * time.Second, ResponseHeaderTimeout: 5 * time.Second, MaxIdleConnsPerHost: 4, IdleConnTimeout: time.Minute}
	}
	r.client = &http.Client{Transport: transport, Timeout: replyTime, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return r, nil
}

var slackEscape = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// Ephemeral posts text so that only the clicker sees it. Its errors never hold
// the URL.
func (r *ResponseURLs) Ephemeral(ctx context.Context, responseURL, text string) error {
	u, err := url.Parse(responseURL)
	if err != nil || u.User != nil || !r.allow[u.Scheme+"://"+u.Host] {
		return errors.New("webhook: not a response URL of Slack")
	}
	body, err := json.Marshal(map[string]any{
		"response_type": "ephemeral", "replace_original": false, "text": slackEscape.Replace(text),
	})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader(body))
	if err != nil {
		return errors.New("webhook: not a response URL of Slack")
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := r.client.Do(req)
	if err != nil {
		var ue *url.Error
		if errors.As(err, &ue) {
			err = ue.Err // without the URL
		}
		return fmt.Errorf("posting to a response URL: %w", err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 4<<10))
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("posting to a response URL: status %d", resp.StatusCode)
	}
	return nil
}
