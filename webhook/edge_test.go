package webhook

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/countersign-mcp/countersign/approvals"
)

func TestForeignHostsAndOrigins(t *testing.T) {
	w := newWorld(t, func(c *Config) {
		c.PublicURL, c.AllowedHosts = "https://approvals.acme.test", []string{"inner:8090"}
	})
	rows := []struct {
		host, origin string
		status       int
	}{
		{"", "", 200}, {"approvals.acme.test", "", 200}, {"Approvals.ACME.test:443", "", 200}, {"inner:8090", "", 200},
		{"evil.test", "", 403}, {"approvals.acme.test.evil.test", "", 403}, {"inner", "", 403}, {"127.0.0.1.evil.test", "", 403},
		{"approvals.acme.test", "https://approvals.acme.test", 200}, {"approvals.acme.test", "http://approvals.acme.test", 403},
		{"approvals.acme.test", "https://evil.test", 403}, {"approvals.acme.test", "null", 403}, {"", "http://localhost:1", 403}, {"", "https://evil.test", 403},
	}
	for _, r := range rows {
		for _, site := range []string{w.site.URL + linkPath, w.admin.URL + "/healthz"} {
			req := w.request("GET", site, nil, nil)
			if r.host != "" {
				req.Host = r.host
			}
			if r.origin != "" {
				req.Header.Set("Origin", r.origin)
			}
			a := w.send(req)
			if a.status != r.status {
				t.Errorf("%s host %q origin %q: %d, want %d", site, r.host, r.origin, a.status, r.status)
			}
			if r.status == 403 {
				mustProblem(t, a, 403)
			}
		}
	}
	req := w.request("GET", w.site.URL+linkPath, nil, http.Header{"Origin": {"https://approvals.acme.test", "https://evil.test"}})
	if a := w.send(req); a.status != 403 {
		t.Errorf("two origins: %d", a.status)
	}
	// A name for loopback counts only where the request came in on loopback.
	r := httptest.NewRequest("GET", "http://localhost/healthz", nil)
	rec := httptest.NewRecorder()
	w.s.AdminHandler().ServeHTTP(rec, r)
	if rec.Code != 403 {
		t.Errorf("localhost on an unknown address: %d", rec.Code)
	}
}

func TestHTTPSMakesHSTS(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.PublicURL = "https://approvals.acme.test" })
	if w.open(linkPath).header.Get("Strict-Transport-Security") == "" {
		t.Fatal("no HSTS")
	}
	for _, u := range []string{"http://approvals.acme.test", "approvals.acme.test", "ftp://x"} {
		cfg := w.cfg
		cfg.PublicURL = u
		if _, err := New(cfg); err == nil {
			t.Errorf("%s started", u)
		}
	}
}

func TestProblemsHaveOneShape(t *testing.T) {
	w := newWorld(t)
	mustProblem(t, w.open("/"), 404)
	mustProblem(t, w.open("/slack/interactions"), 405)
	mustProblem(t, w.open("/callbacks/jira"), 405)
	a := w.send(w.request("PUT", w.site.URL+linkPath, nil, nil))
	mustProblem(t, a, 405)
	if a.header.Get("Allow") == "" {
		t.Error("405 without Allow")
	}
	if a := w.send(w.request("HEAD", w.site.URL+"/", nil, nil)); a.status != 404 || a.body != "" {
		t.Error(a)
	}
	if c := w.desk.changes(); len(c) > 0 {
		t.Fatal(c)
	}
}

// A request id is ours: a client's is not repeated anywhere.
func TestRequestIDsAreOurs(t *testing.T) {
	w := newWorld(t)
	a := w.open("/", http.Header{"X-Request-Id": {"canary-request-id"}})
	id := a.header.Get("X-Request-Id")
	if len(id) != 20 || !strings.Contains(a.body, "urn:request:"+id) || !strings.Contains(w.log.String(), id) {
		t.Fatal(a, w.log.String())
	}
	if strings.Contains(a.body+w.log.String(), "canary-request-id") {
		t.Fatal("a client's request id was repeated")
	}
}

func TestPanicsAreNotRepeated(t *testing.T) {
	w := newWorld(t)
	e := w.s.echo()
	e.POST("/boom", func(echo.Context) error { panic("canary-panic-value") })
	site := serve(t, e, w.cfg.Log)
	a := w.send(w.request("POST", site.URL+"/boom", nil, nil))
	mustProblem(t, a, 500)
	if !strings.Contains(w.log.String(), "panic in a handler") || !strings.Contains(w.log.String(), "edge_test.go") {
		t.Fatal(w.log.String())
	}
	if strings.Contains(a.body+w.log.String(), "canary-panic-value") {
		t.Fatal("the panic's value was repeated")
	}
}

func TestClientAddresses(t *testing.T) {
	rows := []struct {
		trust []netip.Prefix
		peer  string
		xff   string
		want  string
	}{
		{nil, "192.0.2.1:1", "203.0.113.9", "192.0.2.1"},
		{nil, "127.0.0.1:1", "203.0.113.9", "127.0.0.1"},
		{[]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, "10.1.2.3:1", "203.0.113.9", "203.0.113.9"},
		{[]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, "10.1.2.3:1", "198.51.100.1, 203.0.113.9, 10.9.9.9", "203.0.113.9"},
		{[]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, "192.168.0.1:1", "203.0.113.9", "192.168.0.1"},
		{[]netip.Prefix{netip.MustParsePrefix("2001:db8::/32")}, "[2001:db8::1]:1", "203.0.113.9", "203.0.113.9"},
	}
	for _, r := range rows {
		w := newWorld(t, func(c *Config) { c.TrustedProxies = r.trust })
		req := httptest.NewRequest("GET", "/", nil)
		req.RemoteAddr = r.peer
		req.Header.Set("X-Forwarded-For", r.xff)
		if got := w.s.ipExtractor()(req); got != r.want {
			t.Errorf("%v %s %q: %s", r.trust, r.peer, r.xff, got)
		}
	}
}

// Everything secret that passes by carries the word canary. The log may hold
// none of it, whatever happens.
func TestNothingSecretIsLogged(t *testing.T) {
	w := newWorld(t)
	w.desk.set(func(t *approvals.Ticket) { t.View.Text = "canary-argument"; t.Title = "canary-title" })
	body := form(w.payload(ActionApprove, w.button(approvals.Approve), anaInSlack))
	w.mouth.fail = errors.New("post https://hooks.slack.com/actions/canary-response-url: timeout")
	w.approveClick("U0STRANGER")
	w.send(w.request("POST", w.site.URL+"/slack/interactions?payload=canary-query", body, slackHeaders("canary-wrong-secret", w.clock.now(), body)))
	w.send(w.request("POST", w.site.URL+"/slack/interactions", body, slackHeaders("canary-wrong-secret", w.clock.now(), body)))
	w.postHook("canary-webhook-id", w.decision(approvals.Approve, "canary-actor").Body(w.clock.now()))
	w.postHook("canary-webhook-id", []byte("canary-body"))
	w.open("/a/canary-link-token-that-is-not-known-aaaaaa")
	n := w.pageNonce()
	w.submit(answerForm(n, "deny", "reason", "canary-reason"))
	w.send(w.request("GET", w.admin.URL+"/v1/approvals/canary-id?canary=1", nil, bearerHeader(adminToken)))
	w.send(w.request("GET", w.admin.URL+"/v1/approvals", nil, bearerHeader("canary-wrong-token")))
	w.send(w.request("GET", w.admin.URL+"/canary-path", nil, bearerHeader(adminToken)))
	_, _ = w.client(adminToken).Decide(t.Context(), theID, approvals.Deny, "canary-reason", "canary-digest")
	_ = w.s.Close(t.Context())

	text := w.log.String()
	if !strings.Contains(text, "route=/a/:token") || !strings.Contains(text, "route=/slack/interactions") {
		t.Fatal("the log misses routes: ", text)
	}
	for line := range strings.Lines(text) {
		if strings.Contains(strings.ToLower(line), "canary") || strings.Contains(line, n) || strings.Contains(line, "v0=") || strings.Contains(line, hookSecret) {
			t.Error(line)
		}
	}
}

// A replier that hangs holds up no click, and no more than its slots.
func TestRepliesAreBounded(t *testing.T) {
	release := make(chan struct{})
	r := newReplies(stuck(release), slog.New(slog.DiscardHandler))
	for range replySlots + 20 {
		r.send("https://hooks.slack.com/x", "hello")
	}
	if len(r.slots) != replySlots {
		t.Fatalf("%d on their way", len(r.slots))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.close(ctx); err == nil {
		t.Fatal("close did not wait")
	}
	close(release)
	if err := r.close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

type stuck chan struct{}

func (s stuck) Ephemeral(context.Context, string, string) error { <-s; return nil }

func TestServerHasLimits(t *testing.T) {
	srv := NewServer(http.NotFoundHandler(), slog.New(slog.DiscardHandler))
	if srv.ReadHeaderTimeout == 0 || srv.ReadTimeout == 0 || srv.WriteTimeout == 0 || srv.IdleTimeout == 0 || srv.MaxHeaderBytes > 64<<10 {
		t.Fatalf("%+v", srv)
	}
	if srv.WriteTimeout < srv.ReadTimeout || srv.ReadTimeout < clickTime+time.Second {
		t.Fatal("a click would be cut off")
	}
}

func TestCleanReason(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "  a\n\tb  ": "a b", "x\u202ey\u200b": "xy", "\x1b[31mred": "[31mred", "\xff": "\uFFFD",
		"a\ufe0fb\u2800c\ufffcd\u3164e": "abcde",
		strings.Repeat("é", 501):        strings.Repeat("é", 499) + "…", strings.Repeat("é", 500): strings.Repeat("é", 500),
	} {
		if got := cleanReason(in); got != want {
			t.Errorf("%q: %q", in, got)
		}
	}
}
