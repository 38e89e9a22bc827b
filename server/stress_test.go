package server

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"
)

// Many callers in both eras at once: every answer is its caller's own.
func TestManyAtOnce(t *testing.T) {
	g := newRig(t, func(c *Config, _ *http.Server) { c.Keepalive, c.Progress = time.Millisecond, time.Millisecond })
	heads := []http.Header{g.initialize(anaToken), g.initialize(bobToken)}
	p := newPipe(t, g)
	p.initialize()
	var wg sync.WaitGroup
	const each = 40
	for w := range 8 {
		wg.Go(func() {
			for i := range each {
				text := fmt.Sprintf("w%d-%d", w, i)
				args := fmt.Sprintf(`,"arguments":{"t":%q}`, text)
				id := fmt.Sprintf(`"%d-%d"`, w, i)
				var r reply
				if w%2 == 0 {
					r = g.post(legacyCall(id, "echo", args), heads[w/2%2])
				} else {
					r = g.post(modernCall(id, "echo", "", args), modernHead("tools/call", "echo"))
				}
				if !strings.Contains(r.body, `"id":`+id) || !strings.Contains(r.body, `\"`+text+`\"`) {
					t.Errorf("%s: %s", text, r.body)
				}
			}
		})
	}
	// Held calls tell and are kept alive meanwhile.
	for i := range 20 {
		wg.Go(func() {
			id := fmt.Sprint(i)
			meta := fmt.Sprintf(`,"_meta":{"progressToken":"tok%d"}`, i)
			r := g.post(legacyCall(id, "hold-deny", meta), heads[i%2])
			if !strings.Contains(r.body, `"id":`+id+`,"error"`) || strings.Count(r.body, fmt.Sprintf(`"tok%d"`, i)) < 2 || strings.Count(r.body, `"tok`) != strings.Count(r.body, fmt.Sprintf(`"tok%d"`, i)) {
				t.Errorf("%d: %s", i, r.body)
			}
		})
	}
	// And one stdio client with all of its calls on one line.
	wg.Go(func() {
		for i := range each {
			p.say(legacyCall(fmt.Sprint(i+100), "echo", fmt.Sprintf(`,"arguments":{"t":"s%d"}`, i)))
		}
	})
	wg.Go(func() {
		seen := map[string]bool{}
		for range each {
			l := p.hear()
			for i := range each {
				if strings.Contains(l, fmt.Sprintf(`"id":%d,`, i+100)) && strings.Contains(l, fmt.Sprintf(`\"s%d\"`, i)) {
					seen[fmt.Sprint(i)] = true
				}
			}
		}
		if len(seen) != each {
			t.Errorf("stdio: %d of %d answers", len(seen), each)
		}
	})
	for range 20 {
		await(t, g.gate.held)
	}
	close(g.gate.release)
	wg.Wait()
}

// Clients that come, call, break off and go leave nothing behind.
func TestChurnLeavesNothing(t *testing.T) {
	before := goleak.IgnoreCurrent()
	g := newFakeGate()
	srv, err := New(Config{Gate: g, Auth: testTokens(t), Keepalive: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	hs := &http.Server{Handler: srv.Handler()}
	ln, err := srv.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- hs.Serve(ln) }()
	url := "http://" + ln.Addr().String() + "/mcp"
	tr := &http.Transport{}
	client := &http.Client{Transport: withToken{tr}}
	for i := range 20 {
		version := []string{modernVersion, "2025-11-25"}[i%2]
		c := mcp.NewClient(&mcp.Implementation{Name: "churn", Version: "1"}, nil)
		cs, err := c.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url, HTTPClient: client}, &mcp.ClientSessionOptions{ProtocolVersion: version})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "ok"}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = cs.CallTool(ctx, &mcp.CallToolParams{Name: "hold"}) // it is cancelled
		}()
		await(t, g.held)
		cancel()
		<-done
		await(t, g.ended)
		if err := cs.Close(); err != nil {
			t.Error(err)
		}
		// Some open a session and never say goodbye.
		resp, err := client.Do((&rig{t: t}).request(t.Context(), "POST", url, initializeOld, nil))
		if err != nil || resp.Header.Get(headSession) == "" {
			t.Fatalf("initialize: %v %v", resp, err)
		}
		resp.Body.Close()
	}
	// One is still waiting at the end.
	req := (&rig{t: t}).request(t.Context(), "POST", url, modernCall("1", "hold", "", ""), modernHead("tools/call", "hold"))
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	await(t, g.held)
	if err := srv.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if n := srv.sessions.count(); n != 0 {
		t.Errorf("%d sessions are left", n)
	}
	if err := hs.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	<-served
	resp.Body.Close()
	tr.CloseIdleConnections()
	goleak.VerifyNone(t, before)
}
