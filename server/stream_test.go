package server

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/server/gate"
)

// A held call's headers and first bytes come while it is held.
func TestLongHoldSendsItsHeaders(t *testing.T) {
	g := newRig(t)
	for name, send := range map[string]func() (net.Conn, *bufio.Reader){
		"legacy": func() (net.Conn, *bufio.Reader) {
			return g.rawPost(legacyCall("1", "hold", ""), g.initialize(anaToken))
		},
		"modern": func() (net.Conn, *bufio.Reader) {
			return g.rawPost(modernCall("1", "hold", "", ""), modernHead("tools/call", "hold"))
		},
	} {
		_, r := send()
		head := readHead(t, r) // the call is still held
		for _, want := range []string{"HTTP/1.1 200 OK\r\n", "Content-Type: text/event-stream\r\n", "X-Accel-Buffering: no\r\n", "no-transform"} {
			if !strings.Contains(head, want) {
				t.Errorf("%s: no %q in %q", name, want, head)
			}
		}
		if l, err := r.ReadString(':'); err != nil || !strings.HasSuffix(l, ":") {
			t.Errorf("%s: no comment: %q %v", name, l, err)
		}
		await(t, g.gate.held)
	}
	close(g.gate.release)
}

// A refusal that comes after the stream has begun is an event and arrives.
func TestRefusalAfterProgressArrives(t *testing.T) {
	g := newRig(t)
	want := `{"jsonrpc":"2.0","id":"n","error":{"code":-32602,"message":"denied <by> policy","data":{"reason":"denied","big":9007199254740993}}}`
	legacy := g.initialize(anaToken)
	const meta = `"progressToken":"tok"`
	a := g.open(t.Context(), legacyCall(`"n"`, "hold-deny", `,"_meta":{`+meta+`}`), legacy)
	b := g.open(t.Context(), modernCall(`"n"`, "hold-deny", ","+meta, ""), modernHead("tools/call", "hold-deny"))
	close(g.gate.release)
	for name, resp := range map[string]*http.Response{"legacy": a, "modern": b} {
		if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
			t.Errorf("%s: %d %s", name, resp.StatusCode, resp.Header.Get("Content-Type"))
		}
		next := events(resp.Body)
		if c := mustNext(t, next); !strings.HasPrefix(c, ":") {
			t.Errorf("%s: first %q, want a comment", name, c)
		}
		waiting := mustNext(t, next)
		if !strings.HasPrefix(waiting, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"tok","progress":0.000001,"message":"waiting for ops (`) ||
			!strings.Contains(waiting, " left)") {
			t.Errorf("%s: %s", name, waiting)
		}
		if p := mustNext(t, next); p != `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"tok","progress":0.5}}` {
			t.Errorf("%s: %s", name, p)
		}
		if got := mustNext(t, next); got != want {
			t.Errorf("%s: %s", name, got)
		}
		if l, err := next(); err != io.EOF {
			t.Errorf("%s: the stream goes on: %q %v", name, l, err)
		}
	}
}

// The exact framing of a late error, byte by byte.
func TestLateErrorFraming(t *testing.T) {
	g := newRig(t)
	_, r := g.rawPost(modernCall("7", "hold-fault", "", ""), modernHead("tools/call", "hold-fault", "Connection", "close"))
	readHead(t, r)
	close(g.gate.release)
	body, err := io.ReadAll(newChunkReader(r))
	if err != nil {
		t.Fatal(err)
	}
	want := ": waiting\n\nevent: message\ndata: " +
		`{"jsonrpc":"2.0","id":7,"error":{"code":-32050,"message":"up", "data":{"n":9007199254740993},"extra":"<&>"}}` + "\n\n"
	if string(body) != want {
		t.Errorf("got  %q\nwant %q", body, want)
	}
}

// An upstream's progress goes out with the client's token, in rising order.
func TestProgressIsRelayed(t *testing.T) {
	g := newRig(t)
	head := g.initialize(anaToken)
	r := g.post(legacyCall("1", "progress", `,"_meta":{"progressToken":7}`), head)
	var got []string
	next := events(strings.NewReader(r.body))
	for {
		e, err := next()
		if err != nil {
			break
		}
		got = append(got, e)
	}
	const p = `{"jsonrpc":"2.0","method":"notifications/progress","params":`
	want := []string{
		p + `{"progressToken":7,"progress":0,"total":2,"future":9007199254740993}}`,
		p + `{"progressToken":7,"progress":0.000001,"message":"again"}}`,
		p + `{"progressToken":7,"progress":1.5}}`,
		`{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"ok"}]}}`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	// Without a token there is nothing to say and the answer stays JSON.
	if r := g.post(legacyCall("1", "progress", ""), head); r.head.Get("Content-Type") != "application/json" || strings.Contains(r.body, "progress") {
		t.Errorf("without a token: %s %s", r.head.Get("Content-Type"), r.body)
	}
}

// While a call waits, its stream is kept alive and the client is told the time
// left, in rising values.
// written keeps what would go to a client.
type written struct{ params []string }

func (*written) comment() error                            { return nil }
func (*written) silent()                                   {}
func (*written) answer(json.RawMessage, gate.Answer) error { return nil }
func (w *written) notify(_ string, p json.RawMessage) error {
	w.params = append(w.params, string(p))
	return nil
}

// Clients reject a value that does not rise, however large it is.
func TestProgressRisesAtAnySize(t *testing.T) {
	for _, from := range []string{"0", "-5", "1e9", "1e15", "9007199254740993", "1e300", "-1e300", "1.7976931348623157e308"} {
		w := &written{}
		x := &exchange{s: newRig(t).srv, out: w, token: json.RawMessage("7"), wait: gate.Update{Waiting: "waiting"}}
		sent := json.RawMessage(`{"progress":` + from + `}`)
		for range 5 {
			x.relay(sent)
			x.tellWaiting()
		}
		last := math.Inf(-1)
		for _, p := range w.params {
			var n struct{ Progress float64 }
			if err := json.Unmarshal([]byte(p), &n); err != nil || n.Progress <= last {
				t.Errorf("from %s: %s after %v (%v)", from, p, last, err)
			}
			last = n.Progress
		}
		if len(w.params) == 0 || len(w.params) < 10 && last < math.MaxFloat64 {
			t.Errorf("from %s: %d of 10 are told", from, len(w.params))
		}
	}
}

func TestKeepaliveAndWaitingProgress(t *testing.T) {
	g := newRig(t, func(c *Config, _ *http.Server) { c.Keepalive, c.Progress = 5*time.Millisecond, 7*time.Millisecond })
	resp := g.open(t.Context(), modernCall("1", "hold", `,"progressToken":"t"`, ""), modernHead("tools/call", "hold"))
	next := events(resp.Body)
	comments, last, told := 0, -1.0, 0
	for comments < 5 || told < 5 {
		e := mustNext(t, next)
		if strings.HasPrefix(e, ":") {
			comments++
			continue
		}
		var n struct {
			Params struct {
				ProgressToken string
				Progress      float64
				Message       string
			}
		}
		if err := json.Unmarshal([]byte(e), &n); err != nil || n.Params.ProgressToken != "t" {
			t.Fatalf("%s: %v", e, err)
		}
		if n.Params.Progress <= last {
			t.Fatalf("progress %v after %v", n.Params.Progress, last)
		}
		last = n.Params.Progress
		if strings.HasPrefix(n.Params.Message, "waiting for ops (") {
			told++
		}
	}
	close(g.gate.release)
}

// A call that says nothing gets its headers with the first keepalive.
func TestQuietCallIsKeptAlive(t *testing.T) {
	g := newRig(t, func(c *Config, _ *http.Server) { c.Keepalive = 5 * time.Millisecond })
	resp := g.open(t.Context(), legacyCall("1", "quiet", ""), g.initialize(anaToken))
	next := events(resp.Body)
	for range 3 {
		if e := mustNext(t, next); !strings.HasPrefix(e, ":") {
			t.Fatalf("got %q", e)
		}
	}
	close(g.gate.release)
	for {
		e := mustNext(t, next)
		if strings.HasPrefix(e, ":") {
			continue
		}
		if want := `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"ok"}]}}`; e != want {
			t.Errorf("got %s", e)
		}
		return
	}
}

// A server's own timeouts are for requests, not for a held call.
func TestServerTimeoutsDoNotEndAHeldCall(t *testing.T) {
	const limit = 150 * time.Millisecond
	g := newRig(t, func(c *Config, h *http.Server) {
		c.Keepalive, c.WriteLimit, c.ReadLimit = 10*time.Millisecond, limit, limit
		h.WriteTimeout, h.ReadTimeout = limit, limit
	})
	began := time.Now()
	resp := g.open(t.Context(), modernCall("1", "hold", "", ""), modernHead("tools/call", "hold"))
	next := events(resp.Body)
	for time.Since(began) < 4*limit {
		mustNext(t, next) // a comment each 10 ms
	}
	close(g.gate.release)
	for {
		e := mustNext(t, next)
		if !strings.HasPrefix(e, ":") {
			if !strings.Contains(e, `"result"`) {
				t.Errorf("got %s", e)
			}
			break
		}
	}
	// Nor does a quiet one end that never wrote before the limit.
	g2 := newRig(t, func(c *Config, h *http.Server) {
		c.WriteLimit, c.ReadLimit = limit, limit
		h.WriteTimeout, h.ReadTimeout = limit, limit
	})
	timer := time.AfterFunc(3*limit, func() { close(g2.gate.release) })
	defer timer.Stop()
	if r := g2.post(modernCall("1", "quiet", "", ""), modernHead("tools/call", "quiet")); r.status != 200 || !strings.Contains(r.body, `"result"`) {
		t.Errorf("quiet: %d %s", r.status, r.body)
	}
}

// Close ends the waits and their callers are still told.
func TestCloseAnswersWhatWaits(t *testing.T) {
	g := newRig(t)
	resp := g.open(t.Context(), legacyCall("1", "hold", ""), g.initialize(anaToken))
	await(t, g.gate.held)
	if err := g.srv.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(b), "the wait ended") {
		t.Errorf("%q %v", b, err)
	}
	if r := g.post(legacyCall("2", "ok", ""), nil); r.status != 503 {
		t.Errorf("after Close: %d", r.status)
	}
}

// Whoever tells news is never held up by a slow client, and loses the oldest.
func TestMailboxNeverBlocks(t *testing.T) {
	m := mailbox{ready: make(chan struct{}, 1)}
	for i := range 1000 {
		m.put(gate.Update{Progress: json.RawMessage(fmt.Sprint(i)), Waiting: fmt.Sprint("w", i)})
	}
	wait, progress := m.take()
	if wait.Waiting != "w999" || len(progress) != mailboxMax || string(progress[mailboxMax-1]) != "999" || string(progress[0]) != "936" {
		t.Errorf("%v %d %s", wait, len(progress), progress[0])
	}
}
