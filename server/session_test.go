package server

import (
	"net/http"
	"testing"
	"time"
)

func TestSessionRules(t *testing.T) {
	g := newRig(t)
	head := g.initialize(anaToken)
	with := func(kv ...string) http.Header {
		h := head.Clone()
		for i := 0; i < len(kv); i += 2 {
			h.Del(kv[i])
			if kv[i+1] != "-" {
				h.Set(kv[i], kv[i+1])
			}
		}
		return h
	}
	call := legacyCall("1", "ok", "")
	for _, c := range []struct {
		name   string
		head   http.Header
		status int
	}{
		{"its own", head, 200},
		{"none", with(headSession, "-"), 400},
		{"unknown", with(headSession, "nope"), 404},
		{"another actor's", with("Authorization", "Bearer "+bobToken), 403},
		{"no version", with(headVersion, "-"), 200},
		{"bad version", with(headVersion, "2025-01-01"), 400},
		{"twice", http.Header{headSession: {head.Get(headSession), head.Get(headSession)}}, 400},
	} {
		if r := g.post(call, c.head); r.status != c.status {
			t.Errorf("%s: %d, want %d: %s", c.name, r.status, c.status, r.body)
		}
	}
	here := g.url
	g.url += "/orders"
	if r := g.post(call, head); r.status != 404 {
		t.Errorf("on another path: %d", r.status)
	}
	g.url = here
	// initialize in a session, and in one that is gone.
	g.post(initializeOld, head).is(t, 200, codeInvalidRequest)
	if r := g.post(initializeOld, with(headSession, "nope")); r.status != 404 {
		t.Errorf("initialize in an unknown session: %d", r.status)
	}
	// Nothing but initialize opens one, and a refused one leaves none.
	before := g.srv.sessions.count()
	for _, body := range []string{`{"jsonrpc":"2.0","id":1,"method":"ping"}`, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, `{"jsonrpc":"2.0","id":1,"result":{}}`, call} {
		if r := g.post(body, nil); r.status != 400 || r.head.Get(headSession) != "" {
			t.Errorf("%s: %d", body, r.status)
		}
	}
	if r := g.post(`{"jsonrpc":"2.0","id":1,"method":"initialize"}`, nil); r.head.Get(headSession) != "" || errorCode(r.body) == 0 {
		t.Errorf("initialize without params: %d %s", r.status, r.body)
	}
	if n := g.srv.sessions.count(); n != before {
		t.Errorf("%d sessions, want %d", n, before)
	}
}

func TestNotificationsAndPing(t *testing.T) {
	g := newRig(t)
	head := g.initialize(anaToken)
	for _, m := range []string{"notifications/initialized", "notifications/cancelled", "notifications/progress", "notifications/roots/list_changed", "notifications/unheard_of"} {
		body := `{"jsonrpc":"2.0","method":"` + m + `","params":{}}`
		if r := g.post(body, head); r.status != 202 || r.body != "" {
			t.Errorf("%s: %d %s", m, r.status, r.body)
		}
		if r := g.post(body, headers(headVersion, modernVersion)); r.status != 202 || r.body != "" {
			t.Errorf("%s, modern: %d %s", m, r.status, r.body)
		}
	}
	if r := g.post(`{"jsonrpc":"2.0","id":"p","method":"ping"}`, head); r.status != 200 || r.body != `{"jsonrpc":"2.0","id":"p","result":{}}` {
		t.Errorf("ping: %d %s", r.status, r.body)
	}
	if r := g.post(`{"jsonrpc":"2.0","id":1,"result":{}}`, head); r.status != 202 {
		t.Errorf("a response: %d", r.status)
	}
	g.post(`{"jsonrpc":"2.0","id":1,"result":{}}`, headers(headVersion, modernVersion)).is(t, 400, codeInvalidRequest)
	// A session id means nothing to the stateless era.
	h := modernHead("tools/call", "ok", headSession, "nope")
	if r := g.post(modernCall("1", "ok", "", ""), h); r.status != 200 || r.head.Get(headSession) != "" {
		t.Errorf("modern with a session id: %d %s", r.status, r.body)
	}
}

func TestDeleteEndsTheSessionAndItsCalls(t *testing.T) {
	g := newRig(t)
	head := g.initialize(anaToken)
	resp := g.open(t.Context(), legacyCall("1", "hold", ""), head)
	await(t, g.gate.held)
	del := func(h http.Header) int {
		return g.send(g.request(t.Context(), "DELETE", g.url, "", h)).status
	}
	bob := head.Clone()
	bob.Set("Authorization", "Bearer "+bobToken)
	for _, c := range []struct {
		name   string
		head   http.Header
		status int
	}{
		{"without an id", nil, 400},
		{"unknown", headers(headSession, "nope"), 404},
		{"another actor's", bob, 403},
		{"stateless era", headers(headSession, head.Get(headSession), headVersion, modernVersion), 405},
		{"its own", head, 204},
		{"again", head, 404},
	} {
		if got := del(c.head); got != c.status {
			t.Errorf("%s: %d, want %d", c.name, got, c.status)
		}
	}
	if got := await(t, g.gate.ended); got != "hold" {
		t.Errorf("%s ended", got)
	}
	next := events(resp.Body)
	for {
		e, err := next()
		if err != nil {
			break
		}
		if e[0] != ':' {
			t.Errorf("answered after the end: %s", e)
		}
	}
	if r := g.post(legacyCall("2", "ok", ""), head); r.status != 404 {
		t.Errorf("after the end: %d", r.status)
	}
}

func TestIdleSessionsEnd(t *testing.T) {
	g := newRig(t, func(c *Config, _ *http.Server) { c.SessionIdle = 20 * time.Millisecond })
	head := g.initialize(anaToken)
	g.open(t.Context(), legacyCall("1", "hold", ""), head)
	await(t, g.gate.held)
	idle := g.initialize(anaToken)
	deadline := time.Now().Add(20 * time.Second)
	for g.srv.sessions.count() > 1 {
		if time.Now().After(deadline) {
			t.Fatal("the idle session never ended")
		}
		time.Sleep(time.Millisecond)
	}
	if r := g.post(legacyCall("2", "ok", ""), idle); r.status != 404 {
		t.Errorf("the idle session: %d", r.status)
	}
	// The one with a held call is not idle, however long it is held.
	if r := g.post(legacyCall("2", "ok", ""), head); r.status != 200 {
		t.Errorf("the busy session: %d %s", r.status, r.body)
	}
	close(g.gate.release)
	for g.srv.sessions.count() > 0 {
		if time.Now().After(deadline) {
			t.Fatal("a session that was busy once never ended")
		}
		time.Sleep(time.Millisecond)
	}
}

func TestSessionCaps(t *testing.T) {
	g := newRig(t, func(c *Config, _ *http.Server) { c.MaxSessions, c.MaxSessionsPerActor = 3, 2 })
	first := g.initialize(anaToken)
	g.open(t.Context(), legacyCall("1", "hold", ""), first)
	await(t, g.gate.held)
	second := g.initialize(anaToken)
	third := g.initialize(anaToken) // makes room at the cost of the idle one
	for _, c := range []struct {
		name   string
		head   http.Header
		status int
	}{{"busy", first, 200}, {"oldest idle", second, 404}, {"newest", third, 200}} {
		if r := g.post(legacyCall("2", "ok", ""), c.head); r.status != c.status {
			t.Errorf("%s: %d, want %d", c.name, r.status, c.status)
		}
	}
	bob := g.initialize(bobToken)
	// All are taken: bob makes room at his own cost, never at ana's.
	bob2 := g.initialize(bobToken)
	if r := g.post(legacyCall("3", "ok", ""), bob); r.status != 404 {
		t.Errorf("bob's first: %d", r.status)
	}
	if r := g.post(legacyCall("3", "ok", ""), third); r.status != 200 {
		t.Errorf("ana's: %d", r.status)
	}
	g.open(t.Context(), legacyCall("4", "hold", ""), bob2)
	await(t, g.gate.held)
	if r := g.post(initializeOld, headers("Authorization", "Bearer "+bobToken)); r.status != 503 || r.head.Get(headSession) != "" {
		t.Errorf("no room: %d", r.status)
	}
	close(g.gate.release)
}
