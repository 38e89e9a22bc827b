package server

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
)

// A token that is taken away ends the calls and sessions of its actor, and those
// of nobody else.
func TestRemovedTokensEndTheirCalls(t *testing.T) {
	for name, era := range map[string]func(g *rig, token string) (post func(id string) reply){
		"sessions": func(g *rig, token string) func(string) reply {
			head := g.initialize(token)
			return func(id string) reply { return g.post(legacyCall(id, "hold", ""), head) }
		},
		"stateless": func(g *rig, token string) func(string) reply {
			head := modernHead("tools/call", "hold", "Authorization", "Bearer "+token)
			return func(id string) reply { return g.post(modernCall(id, "hold", "", ""), head) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			tokens := testTokens(t)
			g := newRig(t, func(c *Config, _ *http.Server) { c.Auth = tokens })
			ana, bob := era(g, anaToken), era(g, bobToken)
			anas, bobs := make(chan reply, 1), make(chan reply, 1)
			go func() { anas <- ana("1") }()
			go func() { bobs <- bob("1") }()
			<-g.gate.held
			<-g.gate.held
			if err := tokens.Replace([]Token{{SHA256: hash(bobToken), Actor: "bob@acme.test", Owners: []string{"ana"}}}); err != nil {
				t.Fatal(err)
			}
			g.srv.Recheck()
			if r := <-anas; !strings.Contains(r.body, "was removed or changed") || strings.Contains(r.body, `"result"`) {
				t.Errorf("the call of the removed token: %d %s", r.status, r.body)
			}
			if r := ana("2"); r.status != 401 {
				t.Errorf("its next call: %d", r.status)
			}
			close(g.gate.release)
			if r := <-bobs; !strings.Contains(r.body, `"ok"`) {
				t.Errorf("another's call: %d %s", r.status, r.body)
			}
			if name == "sessions" && g.srv.sessions.count() != 1 {
				t.Errorf("%d sessions are left, want bob's", g.srv.sessions.count())
			}
		})
	}
}

// A token that stands for the same actor with other roles is another credential;
// its session goes on with the new one.
func TestChangedRolesEndTheCallAndNotTheSession(t *testing.T) {
	tokens := testTokens(t)
	g := newRig(t, func(c *Config, _ *http.Server) { c.Auth = tokens })
	head := g.initialize(anaToken)
	held := make(chan reply, 1)
	go func() { held <- g.post(legacyCall("1", "hold", ""), head) }()
	<-g.gate.held
	if err := tokens.Replace([]Token{{SHA256: hash(anaToken), Actor: "ana@acme.test", Roles: []string{"fewer"}}}); err != nil {
		t.Fatal(err)
	}
	g.srv.Recheck()
	if r := <-held; !strings.Contains(r.body, "was removed or changed") {
		t.Errorf("its call: %d %s", r.status, r.body)
	}
	if r := g.post(legacyCall("2", "ok", ""), head); r.status != 200 {
		t.Errorf("the session: %d %s", r.status, r.body)
	}
}

// The end of the session may be noticed before that of the token: its caller is told
// of the token all the same, but not after a cancellation, which nothing follows.
func TestRevokedIsToldBeforeEnded(t *testing.T) {
	over := func(why error) context.Context {
		ctx, end := context.WithCancelCause(t.Context())
		if why != nil {
			end(why)
		} else {
			t.Cleanup(func() { end(nil) })
		}
		return ctx
	}
	for _, tt := range []struct{ call, token, want error }{
		{errEnded, errRevoked, errRevoked},
		{errRevoked, errRevoked, errRevoked},
		{errEnded, nil, errEnded},
		{errCancelled, errRevoked, errCancelled},
		{errShutdown, errRevoked, errShutdown},
		{nil, errRevoked, nil},
		{nil, nil, nil},
	} {
		if got := (caller{until: over(tt.token)}).ended(over(tt.call)); !errors.Is(got, tt.want) {
			t.Errorf("call %v, token %v: got %v, want %v", tt.call, tt.token, got, tt.want)
		}
	}
	if got := (caller{}).ended(over(errEnded)); !errors.Is(got, errEnded) {
		t.Errorf("over a pipe: %v", got)
	}
}
