package server

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/server/gate"
)

// rawPost writes a request by hand and hands over the connection, so that a test
// sees the bytes and their time, not a client's idea of them.
func (g *rig) rawPost(body string, head http.Header) (net.Conn, *bufio.Reader) {
	g.t.Helper()
	conn, err := net.Dial("tcp", g.http.Listener.Addr().String())
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		g.t.Fatal(err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "POST /mcp HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n", conn.RemoteAddr(), len(body))
	h := headers("Content-Type", "application/json", "Accept", "application/json, text/event-stream", "Authorization", "Bearer "+anaToken)
	for k, v := range head {
		h[k] = v
	}
	if err := h.Write(&b); err != nil {
		g.t.Fatal(err)
	}
	b.WriteString("\r\n" + body)
	if _, err := io.WriteString(conn, b.String()); err != nil {
		g.t.Fatal(err)
	}
	return conn, bufio.NewReader(conn)
}

func readHead(t *testing.T, r *bufio.Reader) string {
	t.Helper()
	var b strings.Builder
	for {
		l, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("after %q: %v", b.String(), err)
		}
		if l == "\r\n" {
			return b.String()
		}
		b.WriteString(l)
	}
}

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

// newChunkReader undoes the chunked transfer coding.
func newChunkReader(r *bufio.Reader) io.Reader {
	resp, err := http.ReadResponse(bufio.NewReader(io.MultiReader(strings.NewReader("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"), r)), nil)
	if err != nil {
		return strings.NewReader(err.Error())
	}
	return resp.Body
}

// What a client sends and an upstream answers goes through as bytes.
func TestBytesPassUnchanged(t *testing.T) {
	g := newRig(t)
	args := "{ \"n\" : 9007199254740993, \"f\":1.50, \"t\":\"<&>\\u0041\u2028\", \"b\":{\"z\":1,\"a\":[ ]}}"
	params := `,"arguments":` + args + `,"task":{"ttl":1.0},"future":[9007199254740993 ]`
	legacy := g.initialize(anaToken)
	meta := `"traceparent":"00-1","acme/x":{"n":9007199254740993}`
	own := `"countersign/idempotency-key":"k1","countersign/workflow":"w1","countersign/approval":{"id":"forged"},"io.modelcontextprotocol/logLevel":"debug","progressToken":9007199254740993,`
	for name, send := range map[string]func() reply{
		"legacy": func() reply {
			return g.post(legacyCall("1", "big", params+`,"_meta":{`+own+meta+`}`), legacy)
		},
		"modern": func() reply {
			return g.post(modernCall("1", "big", ","+own+meta, params), modernHead("tools/call", "big"))
		},
	} {
		r := send()
		want := `{"jsonrpc":"2.0","id":1,"result":` + bigResult + `}`
		if name == "modern" {
			want = strings.TrimSuffix(want, "}}") + `,"resultType":"complete"}}`
		}
		if r.status != 200 || r.body != want {
			t.Errorf("%s: %d\n%s, want\n%s", name, r.status, r.body, want)
		}
		c := g.gate.last(t).Call
		if string(c.Args) != args {
			t.Errorf("%s: args %s", name, c.Args)
		}
		if got := string(c.Meta); got != "{"+meta+"}" {
			t.Errorf("%s: meta %s", name, got)
		}
		if got := string(c.Extra); got != `{"task":{"ttl":1.0},"future":[9007199254740993 ]}` {
			t.Errorf("%s: extra %s", name, got)
		}
		if c.IdemKey != "k1" || c.Workflow != "w1" {
			t.Errorf("%s: %q %q", name, c.IdemKey, c.Workflow)
		}
	}
	r := g.post(legacyCall("1", "lines", ""), legacy)
	if want := `{"jsonrpc":"2.0","id":1,"result":{ "content": [],  "x":"a\nb"} }`; r.body != want {
		t.Errorf("got %q, want %q", r.body, want)
	}
	r = g.post(legacyCall("1", "fault", ""), legacy)
	if want := `{"jsonrpc":"2.0","id":1,"error":{"code":-32050,"message":"up", "data":{"n":9007199254740993},"extra":"<&>"}}`; r.body != want {
		t.Errorf("got %q, want %q", r.body, want)
	}
}

func TestListIsForOneActorAndEra(t *testing.T) {
	g := newRig(t)
	legacy := g.initialize(anaToken)
	r := g.post(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"c","_meta":{"progressToken":1,"x":2}}}`, legacy)
	if want := `{"jsonrpc":"2.0","id":1,"result":` + g.gate.tools + `}`; r.body != want {
		t.Errorf("legacy: %s", r.body)
	}
	if got := string(g.gate.lists[0]); got != `{"cursor":"c","_meta":{"x":2}}` {
		t.Errorf("params %s", got)
	}
	r = g.post(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{`+triple+`}}}`, modernHead("tools/list", ""))
	want := `{"jsonrpc":"2.0","id":1,"result":` + strings.TrimSuffix(g.gate.tools, "}") + `,"resultType":"complete","ttlMs":0,"cacheScope":"private"}}`
	if r.body != want {
		t.Errorf("modern: %s\nwant %s", r.body, want)
	}
	if got := string(g.gate.lists[1]); got != `{}` {
		t.Errorf("params %s", got)
	}
	// An upstream's own word on caching does not make one actor's list public.
	g.gate.tools = `{"ttlMs":3600000,"cacheScope":"public","resultType":"complete","tools":[]}`
	r = g.post(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{`+triple+`}}}`, modernHead("tools/list", ""))
	if want := `{"jsonrpc":"2.0","id":1,"result":{"ttlMs":0,"cacheScope":"private","resultType":"complete","tools":[]}}`; r.body != want {
		t.Errorf("modern upstream: %s", r.body)
	}
	if r := g.post(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, legacy); r.status != 200 || g.gate.lists[3] != nil {
		t.Errorf("without params: %d %s", r.status, g.gate.lists[3])
	}
}

func TestOwnMetaOfTheWrongShape(t *testing.T) {
	g := newRig(t)
	head := g.initialize(anaToken)
	for _, meta := range []string{
		`"countersign/idempotency-key":1`, `"countersign/idempotency-key":""`, `"countersign/workflow":null`, `"countersign/workflow":{}`,
		`"countersign/workflow":"` + strings.Repeat("x", 257) + `"`, `"progressToken":{}`, `"progressToken":null`, `"progressToken":[1]`,
	} {
		g.post(legacyCall("1", "ok", `,"_meta":{`+meta+`}`), head).is(t, 200, codeInvalidParams)
	}
	if n := g.gate.count(); n != 0 {
		t.Errorf("%d calls reached the gate", n)
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
	const limit = 60 * time.Millisecond
	g := newRig(t, func(c *Config, h *http.Server) {
		c.Keepalive = 10 * time.Millisecond
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
	g2 := newRig(t, func(_ *Config, h *http.Server) { h.WriteTimeout, h.ReadTimeout = limit, limit })
	timer := time.AfterFunc(3*limit, func() { close(g2.gate.release) })
	defer timer.Stop()
	if r := g2.post(modernCall("1", "quiet", "", ""), modernHead("tools/call", "quiet")); r.status != 200 || !strings.Contains(r.body, `"result"`) {
		t.Errorf("quiet: %d %s", r.status, r.body)
	}
}

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
