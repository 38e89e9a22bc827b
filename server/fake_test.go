package server

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/server/gate"
)

// bigResult holds what a typed proxy would drop or round.
const bigResult = `{"content":[{"type":"text","text":"<&>","future":[1.50,9007199254740993]}],"structuredContent":{"n":9007199254740993},"unknown":{"a":1E2}}`

// fakeGate is a scripted gate: a tool's name says what becomes of the call.
type fakeGate struct {
	mu    sync.Mutex
	calls []gate.Request
	lists []json.RawMessage

	held    chan string   // a call that is held says its tool here
	release chan struct{} // closed: held calls go on
	ended   chan string   // a held call whose context ended says its tool here
	tools   string        // result of tools/list
}

func newFakeGate() *fakeGate {
	return &fakeGate{
		held: make(chan string, 1000), release: make(chan struct{}), ended: make(chan string, 1000),
		tools: `{"tools":[{"name":"ok","inputSchema":{"type":"object","maximum":9007199254740993},"future":true}]}`,
	}
}

func (g *fakeGate) Fronts() []string { return []string{"orders", "notes"} }

func (g *fakeGate) Info(front string) gate.Info {
	if front == "" {
		return gate.Info{}
	}
	return gate.Info{Name: "up-" + front, Version: "9.9", Instructions: "be " + front}
}

func (g *fakeGate) Tools(_ context.Context, _ string, _ action.Actor, params json.RawMessage) gate.Answer {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lists = append(g.lists, bytes.Clone(params))
	return gate.Answer{Result: json.RawMessage(g.tools)}
}

func (g *fakeGate) last(t *testing.T) gate.Request {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.calls) == 0 {
		t.Fatal("no call reached the gate")
	}
	return g.calls[len(g.calls)-1]
}

func (g *fakeGate) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.calls)
}

var (
	denied     = &gate.Error{Code: -32602, Message: "denied <by> policy", Data: json.RawMessage(`{"reason":"denied","big":9007199254740993}`)}
	okResult   = json.RawMessage(`{"content":[{"type":"text","text":"ok"}]}`)
	upstreamEr = &gate.Error{Code: -32050, Message: "up", Raw: json.RawMessage("{\"code\":-32050,\"message\":\"up\",\n\"data\":{\"n\":9007199254740993},\"extra\":\"<&>\"}")}
)

func (g *fakeGate) Call(ctx context.Context, r gate.Request) gate.Answer {
	tell := r.Tell
	r.Tell = nil
	g.mu.Lock()
	g.calls = append(g.calls, r)
	g.mu.Unlock()
	wait := func() bool {
		g.held <- r.Name
		select {
		case <-g.release:
			return true
		case <-ctx.Done():
			g.ended <- r.Name
			return false
		}
	}
	switch r.Name {
	case "deny":
		return gate.Answer{Error: denied}
	case "big":
		return gate.Answer{Result: json.RawMessage(bigResult)}
	case "lines":
		return gate.Answer{Result: json.RawMessage("{\n\"content\": [],\r\n\"x\":\"a\\nb\"}\n")}
	case "fault":
		return gate.Answer{Error: upstreamEr}
	case "echo":
		res := fmt.Sprintf(`{"content":[{"type":"text","text":%s}]}`, quote(string(r.Call.Args)))
		return gate.Answer{Result: json.RawMessage(res)}
	case "progress":
		tell(gate.Update{Progress: json.RawMessage(`{"progressToken":"ours","progress":0,"total":2,"future":9007199254740993}`)})
		tell(gate.Update{Progress: json.RawMessage(`{"progressToken":"ours","progress":0,"message":"again"}`)})
		tell(gate.Update{Progress: json.RawMessage(`{"progressToken":"ours","progress":1.5}`)})
		return gate.Answer{Result: okResult}
	case "hold", "hold-deny", "hold-fault":
		tell(gate.Update{Waiting: "waiting for ops", Left: 5 * time.Minute})
		tell(gate.Update{Progress: json.RawMessage(`{"progressToken":"ours","progress":0.5}`)})
		if !wait() {
			return gate.Answer{Error: failure(-32603, "the wait ended")}
		}
		switch r.Name {
		case "hold-deny":
			return gate.Answer{Error: denied}
		case "hold-fault":
			return gate.Answer{Error: upstreamEr}
		}
	case "quiet":
		if !wait() {
			return gate.Answer{Error: failure(-32603, "the wait ended")}
		}
	case "panic":
		panic("boom")
	case "nothing":
		return gate.Answer{}
	}
	return gate.Answer{Result: okResult}
}

const (
	anaToken = "ana-secret"
	bobToken = "bob-secret"
)

func hash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

func testTokens(t testing.TB) *Tokens {
	t.Helper()
	tokens, err := NewTokens([]Token{
		{SHA256: hash(anaToken), Actor: "ana@acme.test", Roles: []string{"operator"}},
		{SHA256: hash(bobToken), Actor: "bob@acme.test", Owners: []string{"ana"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return tokens
}

// rig is an edge over a scripted gate on a real listener.
type rig struct {
	t    testing.TB
	gate *fakeGate
	srv  *Server
	http *httptest.Server
	url  string
}

func newRig(t testing.TB, change ...func(*Config, *http.Server)) *rig {
	t.Helper()
	g := newFakeGate()
	cfg := Config{Gate: g, Auth: testTokens(t), Keepalive: time.Hour, Progress: time.Hour}
	ts := httptest.NewUnstartedServer(nil)
	for _, c := range change {
		c(&cfg, ts.Config)
	}
	srv, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ts.Config.Handler = srv.Handler()
	ts.Start()
	t.Cleanup(func() {
		if err := srv.Close(context.Background()); err != nil {
			t.Error(err)
		}
		ts.Close()
	})
	return &rig{t: t, gate: g, srv: srv, http: ts, url: ts.URL + "/mcp"}
}

// reply is a response that was read whole.
type reply struct {
	status int
	head   http.Header
	body   string
}

func (r reply) is(t *testing.T, status, code int) {
	t.Helper()
	if r.status != status {
		t.Errorf("status %d, want %d; body %s", r.status, status, r.body)
	}
	if got := errorCode(r.body); got != code {
		t.Errorf("error code %d, want %d; body %s", got, code, r.body)
	}
}

// errorCode is 0 when the body is no JSON-RPC error.
func errorCode(body string) int {
	var m struct{ Error struct{ Code int } }
	if err := json.Unmarshal([]byte(body), &m); err != nil {
		return 0
	}
	return m.Error.Code
}

func (g *rig) request(ctx context.Context, method, url, body string, head http.Header) *http.Request {
	g.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		g.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("Authorization", "Bearer "+anaToken)
	for k, v := range head {
		req.Header[http.CanonicalHeaderKey(k)] = v
	}
	if h := head.Get("Host"); h != "" {
		req.Host = h
	}
	return req
}

func (g *rig) send(req *http.Request) reply {
	g.t.Helper()
	resp, err := g.http.Client().Do(req)
	if err != nil {
		g.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header, string(b)}
}

func (g *rig) post(body string, head http.Header) reply {
	g.t.Helper()
	return g.send(g.request(g.t.Context(), "POST", g.url, body, head))
}

// open starts a POST whose answer is read as it comes.
func (g *rig) open(ctx context.Context, body string, head http.Header) *http.Response {
	g.t.Helper()
	resp, err := g.http.Client().Do(g.request(ctx, "POST", g.url, body, head))
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

func headers(kv ...string) http.Header {
	h := http.Header{}
	for i := 0; i+1 < len(kv); i += 2 {
		h.Add(kv[i], kv[i+1])
	}
	return h
}

const initializeOld = `{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"old","version":"1"}}}`

// initialize opens an older client's session and gives the headers that use it.
func (g *rig) initialize(token string) http.Header {
	g.t.Helper()
	head := headers("Authorization", "Bearer "+token)
	r := g.post(initializeOld, head)
	if r.status != 200 || r.head.Get(headSession) == "" {
		g.t.Fatalf("initialize: %d %s", r.status, r.body)
	}
	head.Set(headSession, r.head.Get(headSession))
	head.Set(headVersion, "2025-11-25")
	return head
}

const triple = `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"new","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}`

func modernHead(method, name string, more ...string) http.Header {
	h := headers(append([]string{headVersion, modernVersion, headMethod, method}, more...)...)
	if name != "" {
		h.Set(headName, name)
	}
	return h
}

// modernCall is a tools/call of the stateless era; meta and params are appended
// as they are.
func modernCall(id, name, meta, params string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%s,"_meta":{%s%s}%s}}`, id, quote(name), triple, meta, params)
}

func legacyCall(id, name, params string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%s%s}}`, id, quote(name), params)
}

// events reads an event stream: comments as ":…", messages as their data.
func events(body io.Reader) (next func() (string, error)) {
	r := bufio.NewReader(body)
	return func() (string, error) {
		for {
			l, err := r.ReadString('\n')
			if err != nil {
				return "", err
			}
			l = strings.TrimRight(l, "\n")
			if data, ok := strings.CutPrefix(l, "data: "); ok {
				return data, nil
			}
			if strings.HasPrefix(l, ":") {
				return l, nil
			}
		}
	}
}

func mustNext(t *testing.T, next func() (string, error)) string {
	t.Helper()
	s, err := next()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func await(t *testing.T, ch <-chan string) string {
	t.Helper()
	select {
	case s := <-ch:
		return s
	case <-time.After(20 * time.Second):
		t.Fatal("waited in vain")
		return ""
	}
}
