package webhook

import (
	"bytes"
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
		View:  approvals.View{Text: "{\n  \"order\": 1042\n}", Masked: []approvals.Mask{{Pointer: "/token", Type: "string", Len: 12, Digest: "k1.Zm9vYmFyYmF6cXV4"}}},
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
