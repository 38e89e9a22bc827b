package server

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"testing"
	"time"
)

// fill opens held calls of the stateless era.
func (g *rig) fill(ctx context.Context, n int, token string) {
	g.t.Helper()
	for i := range n {
		g.open(ctx, modernCall(fmt.Sprint(i), "hold", "", ""), modernHead("tools/call", "hold", "Authorization", "Bearer "+token))
		await(g.t.(*testing.T), g.gate.held)
	}
}

func TestOneActorHasALimitOfItsOwn(t *testing.T) {
	g := newRig(t, func(c *Config, _ *http.Server) { c.MaxPerActor = 3 })
	session := g.initialize(anaToken)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	g.fill(ctx, 2, anaToken)
	third := g.open(t.Context(), legacyCall(`"c"`, "hold", ""), session)
	await(t, g.gate.held)

	r := g.post(modernCall("9", "ok", "", ""), modernHead("tools/call", "ok"))
	if r.status != 429 || r.head.Get("Retry-After") == "" || r.head.Get("Content-Type") != "application/problem+json" || strings.Contains(r.body, "jsonrpc") {
		t.Errorf("beyond the limit: %d %v %s", r.status, r.head, r.body)
	}
	if r := g.post(modernCall("9", "ok", "", ""), modernHead("tools/call", "ok", "Authorization", "Bearer "+bobToken)); r.status != 200 {
		t.Errorf("another actor: %d %s", r.status, r.body)
	}
	// A client at its limit can cancel, and has room again.
	cancelled := `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"c"}}`
	if r := g.post(cancelled, session); r.status != 202 {
		t.Fatalf("cancelling at the limit: %d %s", r.status, r.body)
	}
	await(t, g.gate.ended)
	if _, err := io.ReadAll(third.Body); err != nil {
		t.Fatal(err)
	}
	if r := g.post(modernCall("9", "ok", "", ""), modernHead("tools/call", "ok")); r.status != 200 {
		t.Errorf("after a cancellation: %d %s", r.status, r.body)
	}
}

// However many bodies somebody begins to send and never ends.
func TestUnfinishedBodiesAreLimited(t *testing.T) {
	g := newRig(t, func(c *Config, _ *http.Server) { c.MaxPerActor = 1 })
	g.http.Client().Transport.(*http.Transport).ExpectContinueTimeout = time.Hour
	reading := make(chan string)
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got100Continue: func() { reading <- "" }})
	var open []*io.PipeWriter
	var done sync.WaitGroup
	for range 1 + spareInFlight {
		in, out := io.Pipe()
		open = append(open, out)
		req := g.request(ctx, "POST", g.url, "", headers("Expect", "100-continue"))
		req.Body, req.ContentLength = in, -1
		done.Go(func() {
			if resp, err := g.http.Client().Do(req); err == nil {
				resp.Body.Close()
			}
		})
		await(t, reading)
	}
	if r := g.post("{}", nil); r.status != 429 {
		t.Errorf("one more: %d %s", r.status, r.body)
	}
	for _, out := range open {
		out.Close() // an empty body: it is answered
	}
	done.Wait()
	if r := g.post("{}", nil); r.status != 400 {
		t.Errorf("when they have ended: %d %s", r.status, r.body)
	}
}

func TestBytesInFlightAreLimited(t *testing.T) {
	g := newRig(t, func(c *Config, _ *http.Server) { c.Limits.Bytes, c.MaxBodyBytes = 10_000, 1 })
	long := func(fill int) string {
		return modernCall("1", "hold", "", `,"arguments":{"a":"`+strings.Repeat("x", fill)+`"}`)
	}
	head := modernHead("tools/call", "hold")
	g.open(t.Context(), long(9_000), head)
	await(t, g.gate.held)
	if r := g.post(long(9_000), head); r.status != 429 || r.head.Get("Retry-After") == "" {
		t.Errorf("beyond the actor's share: %d %s", r.status, r.body)
	}
	// 30 000 bytes of others leave less than one message.
	other := g.srv.load.enter("other")
	if err := other.take(9_000); err != nil {
		t.Fatal(err)
	}
	third, fourth := g.srv.load.enter("third"), g.srv.load.enter("fourth")
	if err := third.take(10_000); err != nil {
		t.Fatal(err)
	}
	if err := fourth.take(10_000); err != nil {
		t.Fatal(err)
	}
	bob := modernHead("tools/call", "hold", "Authorization", "Bearer "+bobToken)
	if r := g.post(long(9_000), bob); r.status != 503 || r.head.Get("Retry-After") == "" || strings.Contains(r.body, "jsonrpc") {
		t.Errorf("beyond the limit: %d %s", r.status, r.body)
	}
	third.leave()
	g.open(t.Context(), long(9_000), bob)
	await(t, g.gate.held)
	fourth.leave()
	other.leave()
	close(g.gate.release)
}
