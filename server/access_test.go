package server

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
)

// An invalid token is never somebody, whatever is asked and where.
func TestInvalidBearerIsRefusedEverywhere(t *testing.T) {
	g := newRig(t)
	base := g.http.URL
	auths := map[string][]string{
		"none": nil, "fabricated": {"Bearer nope"}, "empty": {"Bearer "}, "scheme": {"Basic " + anaToken},
		"twice": {"Bearer " + anaToken, "Bearer " + anaToken}, "bare": {anaToken}, "the hash": {"Bearer " + hash(anaToken)},
		"padded": {"Bearer " + anaToken + " x"},
	}
	for name, auth := range auths {
		for _, path := range []string{"/mcp", "/mcp/orders", "/mcp/none", "/", "/healthz", "/mcp?access_token=" + anaToken} {
			for _, method := range []string{"GET", "POST", "DELETE", "PUT", "OPTIONS", "HEAD"} {
				req := g.request(t.Context(), method, base+path, `{"jsonrpc":"2.0","id":1,"method":"ping"}`, nil)
				req.Header["Authorization"] = auth
				if auth == nil {
					delete(req.Header, "Authorization")
				}
				r := g.send(req)
				if r.status != 401 || !strings.HasPrefix(r.head.Get("WWW-Authenticate"), "Bearer ") {
					t.Errorf("%s: %s %s: %d, challenge %q", name, method, path, r.status, r.head.Get("WWW-Authenticate"))
				}
			}
		}
	}
	if g.gate.count() != 0 {
		t.Error("a call reached the gate")
	}
}

func TestTokensAreSwappedAtOnce(t *testing.T) {
	tokens := testTokens(t)
	g := newRig(t, func(c *Config, _ *http.Server) { c.Auth = tokens })
	head := g.initialize(anaToken)
	if err := tokens.Replace([]Token{{SHA256: "short", Actor: "x"}}); err == nil {
		t.Error("a short hash was taken")
	}
	if r := g.post(legacyCall("1", "ok", ""), head); r.status != 200 {
		t.Errorf("after a refused swap: %d", r.status)
	}
	if err := tokens.Replace([]Token{{SHA256: hash("new"), Actor: "ana@acme.test"}}); err != nil {
		t.Fatal(err)
	}
	if r := g.post(legacyCall("2", "ok", ""), head); r.status != 401 {
		t.Errorf("the old token after the swap: %d", r.status)
	}
	head.Set("Authorization", "Bearer new")
	if r := g.post(legacyCall("3", "ok", ""), head); r.status != 200 {
		t.Errorf("the new token of the same actor: %d %s", r.status, r.body)
	}
	if err := tokens.Replace(nil); err != nil {
		t.Fatal(err)
	}
	if r := g.post(legacyCall("4", "ok", ""), head); r.status != 401 {
		t.Errorf("no tokens left: %d", r.status)
	}
}

// Only the whole hash counts.
func TestTokenIsComparedWhole(t *testing.T) {
	near := hash(anaToken)
	last := "0"
	if strings.HasSuffix(near, last) {
		last = "1"
	}
	tokens, err := NewTokens([]Token{{SHA256: near[:63] + last, Actor: "x"}})
	if err != nil {
		t.Fatal(err)
	}
	if a, ok := tokens.Authenticate(t.Context(), anaToken); ok {
		t.Errorf("taken for %s", a.ID)
	}
	var none *Tokens
	if _, ok := none.Authenticate(t.Context(), ""); ok || none.Len() != 0 {
		t.Error("no tokens let somebody in")
	}
}

// A page of another site, or one whose name was rebound to this machine.
func TestForeignOriginHostAndForms(t *testing.T) {
	g := newRig(t, func(c *Config, _ *http.Server) {
		c.AllowedHosts = []string{"mcp.acme.test"}
		c.AllowedOrigins = []string{"https://app.acme.test"}
	})
	call := modernCall("1", "ok", "", "")
	for _, c := range []struct {
		name   string
		head   []string
		status int
	}{
		{"no origin", nil, 200},
		{"own origin", []string{"Origin", g.http.URL}, 200},
		{"allowed origin", []string{"Origin", "https://app.acme.test"}, 200},
		{"foreign origin", []string{"Origin", "https://evil.example"}, 403},
		{"null origin", []string{"Origin", "null"}, 403},
		{"empty origin", []string{"Origin", ""}, 403},
		{"another port's origin", []string{"Origin", "http://localhost:1"}, 403},
		{"two origins", []string{"Origin", g.http.URL, "Origin", "https://evil.example"}, 403},
		{"allowed host", []string{"Host", "mcp.acme.test"}, 200},
		{"allowed host, any port", []string{"Host", "MCP.acme.test:8443"}, 200},
		{"localhost", []string{"Host", "localhost:1"}, 200},
		{"loopback six", []string{"Host", "[::1]:1"}, 200},
		{"rebound host", []string{"Host", "evil.example"}, 403},
		{"rebound host with our origin", []string{"Host", "evil.example", "Origin", "http://evil.example"}, 403},
		{"looks like an allowed host", []string{"Host", "mcp.acme.test.evil.example"}, 403},
		{"looks like loopback", []string{"Host", "127.0.0.1.evil.example"}, 403},
		{"text/plain", []string{"Content-Type", "text/plain"}, 415},
		{"form", []string{"Content-Type", "application/x-www-form-urlencoded"}, 415},
		{"no type", []string{"Content-Type", ""}, 415},
		{"two types", []string{"Content-Type", "application/json", "Content-Type", "text/plain"}, 415},
		{"gzip", []string{"Content-Encoding", "gzip"}, 415},
		{"with a charset", []string{"Content-Type", "application/json; charset=utf-8"}, 200},
		{"accepts json alone", []string{"Accept", "application/json"}, 400},
		{"accepts events alone", []string{"Accept", "text/event-stream"}, 400},
		{"accepts anything", []string{"Accept", "*/*"}, 200},
		{"accepts both in two headers", []string{"Accept", "application/json", "Accept", "text/event-stream;q=0.9"}, 200},
	} {
		head := modernHead("tools/call", "ok", c.head...)
		before := g.gate.count()
		if r := g.post(call, head); r.status != c.status {
			t.Errorf("%s: %d, want %d: %s", c.name, r.status, c.status, r.body)
		}
		if reached := g.gate.count() > before; reached != (c.status == 200) {
			t.Errorf("%s: reached the gate: %v", c.name, reached)
		}
	}
	for _, method := range []string{"GET", "DELETE", "OPTIONS", "HEAD", "PUT"} {
		for _, head := range []http.Header{headers("Origin", "https://evil.example"), headers("Host", "evil.example")} {
			if r := g.send(g.request(t.Context(), method, g.url, "", head)); r.status != 403 {
				t.Errorf("%s with %v: %d", method, head, r.status)
			}
		}
	}
}

func TestOpenListenerDoesNotStart(t *testing.T) {
	none, err := NewTokens(nil)
	if err != nil {
		t.Fatal(err)
	}
	some := testTokens(t)
	for _, c := range []struct {
		addr string
		auth Authenticator
		ok   bool
	}{
		{"127.0.0.1:0", none, true}, {"localhost:0", nil, true}, {"[::1]:0", none, true},
		{":0", none, false}, {"0.0.0.0:0", none, false}, {"[::]:0", nil, false}, {"192.0.2.1:80", none, false},
		{"host.acme.test:80", none, false}, {"nonsense", none, false},
		{":0", some, true}, {"0.0.0.0:0", some, true},
	} {
		err := Validate(c.addr, c.auth)
		if open := (*OpenListenerError)(nil); c.ok != (err == nil) || (err != nil && !errors.As(err, &open)) {
			t.Errorf("%s: %v", c.addr, err)
		}
	}
	s, err := New(Config{Gate: newFakeGate(), Auth: none})
	if err != nil {
		t.Fatal(err)
	}
	if ln, err := s.Listen(t.Context(), "0.0.0.0:0"); err == nil {
		ln.Close()
		t.Error("an open listener was opened")
	}
	ln, err := s.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	if err := s.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

func TestBadConfig(t *testing.T) {
	for name, cfg := range map[string]Config{
		"no gate":     {},
		"host URL":    {Gate: newFakeGate(), AllowedHosts: []string{"https://x"}},
		"host *":      {Gate: newFakeGate(), AllowedHosts: []string{"*"}},
		"origin name": {Gate: newFakeGate(), AllowedOrigins: []string{"acme.test"}},
		"origin path": {Gate: newFakeGate(), AllowedOrigins: []string{"https://acme.test/x"}},
	} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	h := hash(anaToken)
	for name, list := range map[string][]Token{
		"no actor": {{SHA256: h}}, "not hex": {{SHA256: strings.Repeat("z", 64), Actor: "a"}},
		"twice": {{SHA256: h, Actor: "a"}, {SHA256: h, Actor: "b"}}, "short": {{SHA256: "00", Actor: "a"}},
		"twice, other case": {{SHA256: h, Actor: "a"}, {SHA256: strings.ToUpper(h), Actor: "b"}},
	} {
		if _, err := NewTokens(list); err == nil {
			t.Errorf("tokens: %s was taken", name)
		}
	}
}
