package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestDisconnectIsACancelInTheNewEraOnly(t *testing.T) {
	g := newRig(t)
	legacy := g.initialize(anaToken)
	ctx, cut := context.WithCancel(t.Context())
	g.open(ctx, legacyCall("1", "hold", ""), legacy)
	g.open(ctx, modernCall("1", "hold-deny", "", ""), modernHead("tools/call", "hold-deny"))
	await(t, g.gate.held)
	await(t, g.gate.held)
	cut()
	if got := await(t, g.gate.ended); got != "hold-deny" {
		t.Errorf("%s ended first", got)
	}
	// The older one is still held: its id is busy.
	g.post(legacyCall("1", "ok", ""), legacy).is(t, 400, codeInvalidRequest)
	select {
	case got := <-g.gate.ended:
		t.Errorf("%s ended with its connection", got)
	default:
	}
	close(g.gate.release)
}

func TestCancelEndsTheWaitWithoutAnAnswer(t *testing.T) {
	g := newRig(t)
	head := g.initialize(anaToken)
	other := g.initialize(anaToken)
	resp := g.open(t.Context(), legacyCall(`"a/1"`, "hold", ""), head)
	await(t, g.gate.held)
	cancel := func(id string, head http.Header) reply {
		return g.post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+id+`,"reason":"x"}}`, head)
	}
	// Others' cancellations, and other ids, are nothing.
	for _, c := range []struct {
		id   string
		head http.Header
	}{{`"a/1"`, other}, {`"a/2"`, head}, {"1", head}, {"null", head}, {"{}", head}} {
		if r := cancel(c.id, c.head); r.status != 202 || r.body != "" {
			t.Errorf("%s: %d %s", c.id, r.status, r.body)
		}
	}
	if r := cancel(`"a/1"`, headers("Authorization", "Bearer "+bobToken, headSession, head.Get(headSession))); r.status != 403 {
		t.Errorf("another actor's cancellation: %d", r.status)
	}
	g.post(legacyCall(`"a/1"`, "ok", ""), head).is(t, 400, codeInvalidRequest) // still in flight
	// The id is compared by value.
	if r := cancel(`"\u0061\/1"`, head); r.status != 202 {
		t.Errorf("cancel: %d", r.status)
	}
	if got := await(t, g.gate.ended); got != "hold" {
		t.Errorf("%s ended", got)
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil || strings.Contains(string(b), "data:") {
		t.Errorf("an answer after the cancellation: %q %v", b, err)
	}
	if r := g.post(legacyCall(`"a/1"`, "ok", ""), head); r.status != 200 {
		t.Errorf("the id is free again: %d %s", r.status, r.body)
	}
	if r := cancel(`"a/1"`, head); r.status != 202 {
		t.Errorf("cancelling what has ended: %d", r.status)
	}
	// A quiet call had no headers yet; the end still isn't an answer.
	done := make(chan reply, 1)
	go func() { done <- g.post(legacyCall("5", "quiet", ""), head) }()
	await(t, g.gate.held)
	cancel("5", head)
	if r := <-done; r.status != 200 || r.body != "" || r.head.Get("Content-Type") != "text/event-stream" {
		t.Errorf("quiet: %d %q", r.status, r.body)
	}
}

func TestDuplicateIdInFlight(t *testing.T) {
	g := newRig(t)
	head := g.initialize(anaToken)
	g.open(t.Context(), legacyCall(`"a"`, "hold", ""), head)
	await(t, g.gate.held)
	g.post(legacyCall(`"\u0061"`, "ok", ""), head).is(t, 400, codeInvalidRequest)
	for _, h := range []http.Header{g.initialize(anaToken), head} {
		id := `"a"`
		if h.Get(headSession) == head.Get(headSession) {
			id = `"b"`
		}
		if r := g.post(legacyCall(id, "ok", ""), h); r.status != 200 {
			t.Errorf("%s: %d %s", id, r.status, r.body)
		}
	}
	// A stateless client's ids are its own: two clients of one actor may meet.
	g.open(t.Context(), modernCall(`"a"`, "hold", "", ""), modernHead("tools/call", "hold"))
	await(t, g.gate.held)
	if r := g.post(modernCall(`"a"`, "ok", "", ""), modernHead("tools/call", "ok")); r.status != 200 {
		t.Errorf("modern: %d %s", r.status, r.body)
	}
	close(g.gate.release)
}

// deafWriter is a client's end that a test controls.
type deafWriter struct {
	head  http.Header
	write func([]byte) (int, error)
}

func (d *deafWriter) Header() http.Header              { return d.head }
func (d *deafWriter) WriteHeader(int)                  {}
func (d *deafWriter) Write(b []byte) (int, error)      { return d.write(b) }
func (d *deafWriter) SetWriteDeadline(time.Time) error { return nil }

// A client that takes no more bytes is gone, though its connection looks alive:
// in the stateless era that is the end of the wait.
func TestUnreachableClient(t *testing.T) {
	g := newRig(t)
	deaf := func() http.ResponseWriter {
		return &deafWriter{head: http.Header{}, write: func([]byte) (int, error) { return 0, errors.New("full") }}
	}
	g.srv.Handler().ServeHTTP(deaf(), g.request(t.Context(), "POST", g.url, modernCall("1", "hold", "", ""), modernHead("tools/call", "hold")))
	if got := await(t, g.gate.ended); got != "hold" {
		t.Errorf("%s ended", got)
	}
	await(t, g.gate.held)
	head := g.initialize(anaToken)
	done := make(chan struct{})
	go func() {
		defer close(done)
		g.srv.Handler().ServeHTTP(deaf(), g.request(t.Context(), "POST", g.url, legacyCall("1", "hold", ""), head))
	}()
	await(t, g.gate.held)
	close(g.gate.release)
	<-done
	select {
	case got := <-g.gate.ended:
		t.Errorf("%s ended with its client", got)
	default:
	}
}

// Who has read an answer may use its id again at once.
func TestIdIsFreeBeforeItsAnswer(t *testing.T) {
	g := newRig(t)
	head := g.initialize(anaToken)
	var again reply
	w := &deafWriter{head: http.Header{}}
	w.write = func(b []byte) (int, error) {
		again = g.post(legacyCall("1", "ok", ""), head)
		return len(b), nil
	}
	g.srv.Handler().ServeHTTP(w, g.request(t.Context(), "POST", g.url, legacyCall("1", "ok", ""), head))
	if again.status != 200 {
		t.Errorf("%d %s", again.status, again.body)
	}
}
