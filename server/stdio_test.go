package server

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/approvals/action"
)

// lineChecker fails when anything but whole JSON-RPC lines is written.
type lineChecker struct {
	t testing.TB
	w io.Writer
}

func (l *lineChecker) Write(b []byte) (int, error) {
	s := string(b)
	if !strings.HasSuffix(s, "\n") || strings.Count(s, "\n") != 1 || strings.Contains(s, "\r") {
		l.t.Errorf("not one whole line: %q", s)
	}
	var m struct {
		JSONRPC string           `json:"jsonrpc"`
		ID      *json.RawMessage `json:"id"`
		Method  string           `json:"method"`
	}
	if err := json.Unmarshal(b, &m); err != nil || m.JSONRPC != "2.0" || (m.ID == nil && m.Method == "") {
		if !strings.Contains(s, `"id":null`) {
			l.t.Errorf("not a protocol line: %q (%v)", s, err)
		}
	}
	return l.w.Write(b)
}

// pipe is a stdio client's end.
type pipe struct {
	t    testing.TB
	g    *rig
	in   *io.PipeWriter
	out  *bufio.Reader
	done chan error
}

var stdioActor = action.Actor{ID: "me", Roles: []string{"operator"}, Auth: "none:stdio"}

func newPipe(t testing.TB, g *rig) *pipe {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	p := &pipe{t: t, g: g, in: inW, out: bufio.NewReader(outR), done: make(chan error, 1)}
	go func() {
		err := g.srv.ServeStdio(context.Background(), inR, &lineChecker{t, outW}, stdioActor)
		outW.Close()
		p.done <- err
	}()
	t.Cleanup(func() {
		inW.Close()
		outR.Close()
	})
	return p
}

func (p *pipe) say(lines ...string) {
	p.t.Helper()
	for _, l := range lines {
		if _, err := io.WriteString(p.in, l+"\n"); err != nil {
			p.t.Fatal(err)
		}
	}
}

func (p *pipe) hear() string {
	p.t.Helper()
	l, err := p.out.ReadString('\n')
	if err != nil {
		p.t.Fatal(err)
	}
	return strings.TrimSuffix(l, "\n")
}

func (p *pipe) ask(line, want string) {
	p.t.Helper()
	p.say(line)
	if got := p.hear(); !strings.HasPrefix(got, want) {
		p.t.Errorf("%.200s:\n got %s\nwant %s", line, got, want)
	}
}

func (p *pipe) initialize() {
	p.t.Helper()
	p.ask(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"old","version":"1"}}}`,
		`{"jsonrpc":"2.0","id":0,"result":{"capabilities":{"tools":{}}`)
	p.say(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

const okBody = `"result":{"content":[{"type":"text","text":"ok"}]}}`

func TestStdioBothErasOnOneLine(t *testing.T) {
	g := newRig(t)
	p := newPipe(t, g)
	p.ask(legacyCall("1", "ok", ""), `{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"initialize first"`)
	p.ask(`{"jsonrpc":"2.0","id":2,"method":"ping"}`, `{"jsonrpc":"2.0","id":2,"result":{}}`)
	p.ask(`{"jsonrpc":"2.0","id":3,"method":"server/discover","params":{"_meta":{`+triple+`}}}`, `{"jsonrpc":"2.0","id":3,"result":{`)
	p.initialize()
	p.ask(`{"jsonrpc":"2.0","id":4,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"old","version":"1"}}}`, `{"jsonrpc":"2.0","id":4,"error":{"code":-32600`)
	p.ask(legacyCall("1", "ok", ""), `{"jsonrpc":"2.0","id":1,`+okBody)
	c := g.gate.last(t)
	if c.Call.Version != "2025-06-18" || c.Client != "old" || c.Call.Actor.ID != "me" || c.Call.Actor.Auth != "none:stdio" || c.Front != "" {
		t.Errorf("legacy: %+v", c)
	}
	p.ask(modernCall("1", "ok", "", ""), `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"ok"}],"resultType":"complete"}}`)
	if c := g.gate.last(t); c.Call.Version != modernVersion || c.Client != "new" {
		t.Errorf("modern: %+v", c)
	}
	p.ask(`{"jsonrpc":"2.0","id":5,"method":"tools/list"}`, `{"jsonrpc":"2.0","id":5,"result":`+g.gate.tools+`}`)
	p.ask(`{"jsonrpc":"2.0","id":6,"method":"ping"}`, `{"jsonrpc":"2.0","id":6,"result":{}}`)
	p.ask(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"ok","_meta":{"io.modelcontextprotocol/protocolVersion":"2030-01-01","io.modelcontextprotocol/clientCapabilities":{}}}}`, `{"jsonrpc":"2.0","id":7,"error":{"code":-32022,`)
	p.ask(`{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"ok","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`, `{"jsonrpc":"2.0","id":8,"error":{"code":-32602,`)
	p.ask(`{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"ok","_meta":{"io.modelcontextprotocol/protocolVersion":7}}}`, `{"jsonrpc":"2.0","id":9,"error":{"code":-32602,`)
	p.ask(legacyCall("10", "panic", ""), `{"jsonrpc":"2.0","id":10,"error":{"code":-32603,`)
	p.ask(legacyCall("11", "lines", ""), `{"jsonrpc":"2.0","id":11,"result":{ "content": [],  "x":"a\nb"} }`)
	p.in.Close()
	if err := <-p.done; err != nil {
		t.Error(err)
	}
}

// A bad line is answered and costs nothing but itself.
func TestStdioBadLines(t *testing.T) {
	g := newRig(t)
	p := newPipe(t, g)
	p.initialize()
	const parse, invalid, params = `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,`, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,`, `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,`
	for _, c := range []struct{ line, want string }{
		{"nonsense", parse},
		{"{", parse},
		{"\xff", parse},
		{"\xef\xbb\xbf" + legacyCall("1", "ok", ""), parse},
		{"[" + legacyCall("1", "ok", "") + "]", invalid},
		{"[]", invalid},
		{legacyCall("null", "ok", ""), invalid},
		{legacyCall("1.5", "ok", ""), invalid},
		{`{"jsonrpc":"2.0","method":"tools/call","params":{"name":"ok"}}`, invalid},
		{legacyCall("1", "ok", `,"arguments":7`), params},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"ok","name":"big"}}`, `{"jsonrpc":"2.0","id":1,"error":{"code":-32700,`},
		{`{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{}}`, `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,`},
		{`{"jsonrpc":"2.0","id":1,"method":"resources/list"}`, `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,`},
		{`{"jsonrpc":"2.0","id":1,"method":"server/discover"}`, `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,`},
		{`{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":{` + triple + `}}}`, `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,`},
		{legacyCall("1", "ok", "") + "\r", `{"jsonrpc":"2.0","id":1,` + okBody},
	} {
		p.ask(c.line, c.want)
	}
	// What needs no answer gets none: the next line heard is the next answer.
	p.say("", "  ", "\r", `{"jsonrpc":"2.0","id":1,"result":{}}`, `{"jsonrpc":"2.0","method":"notifications/unheard_of"}`)
	p.ask(legacyCall("2", "ok", ""), `{"jsonrpc":"2.0","id":2,`+okBody)
	if n := g.gate.count(); n != 2 {
		t.Errorf("%d calls reached the gate", n)
	}
}

func TestStdioOverlongLine(t *testing.T) {
	g := newRig(t)
	g.srv.cfg.Limits.Bytes = 100_000 // more than the reader's buffer
	p := newPipe(t, g)
	p.initialize()
	const frame = `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"the message is too long"}}`
	pad := func(n int) string {
		l := legacyCall("1", "ok", `,"arguments":{"a":""}`)
		return strings.Replace(l, `""`, `"`+strings.Repeat("x", n-len(l))+`"`, 1)
	}
	p.ask(pad(100_000), `{"jsonrpc":"2.0","id":1,`+okBody)
	p.ask(pad(100_000)+"\r", `{"jsonrpc":"2.0","id":1,`+okBody)
	p.ask(pad(100_001), frame)
	p.ask(pad(100_002)+"\r", frame)
	p.ask(strings.Repeat("y", 1_000_000), frame)
	p.ask(legacyCall("2", "ok", ""), `{"jsonrpc":"2.0","id":2,`+okBody)
}

func TestStdioCallsRunAtOnce(t *testing.T) {
	g := newRig(t)
	p := newPipe(t, g)
	p.initialize()
	p.say(legacyCall("1", "hold", `,"_meta":{"progressToken":"t"}`), legacyCall("2", "quiet", ""))
	if l := p.hear(); !strings.HasPrefix(l, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t","progress":0.000001,"message":"waiting for ops (`) {
		t.Errorf("got %s", l)
	}
	if l := p.hear(); l != `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t","progress":0.5}}` {
		t.Errorf("got %s", l)
	}
	await(t, g.gate.held)
	await(t, g.gate.held)
	p.ask(legacyCall("3", "ok", ""), `{"jsonrpc":"2.0","id":3,`+okBody)
	p.ask(legacyCall("1", "ok", ""), `{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"a request with this id is in flight"`)
	p.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	if got := await(t, g.gate.ended); got != "hold" {
		t.Errorf("%s ended", got)
	}
	close(g.gate.release)
	if l := p.hear(); l != `{"jsonrpc":"2.0","id":2,`+okBody {
		t.Errorf("got %s, which is no answer to the call that was not cancelled", l)
	}
	p.ask(legacyCall("1", "ok", ""), `{"jsonrpc":"2.0","id":1,`+okBody)
}

func TestStdioTooManyAtOnce(t *testing.T) {
	g := newRig(t)
	g.srv.cfg.MaxInFlight = 2
	p := newPipe(t, g)
	p.initialize()
	p.say(legacyCall("1", "quiet", ""), legacyCall("2", "quiet", ""))
	await(t, g.gate.held)
	await(t, g.gate.held)
	p.ask(legacyCall("3", "ok", ""), `{"jsonrpc":"2.0","id":3,"error":{"code":-32603,`)
	close(g.gate.release)
	p.hear()
	p.hear()
}

// The end of stdin lets go of what waits for a person, and what runs is answered.
func TestStdioEnd(t *testing.T) {
	g := newRig(t)
	g.srv.cfg.Drain = time.Hour
	p := newPipe(t, g)
	p.initialize()
	p.say(legacyCall("1", "hold", `,"_meta":{"progressToken":"t"}`), legacyCall("2", "quiet", ""))
	p.hear() // it waits, and the edge knows
	p.hear()
	await(t, g.gate.held)
	await(t, g.gate.held)
	p.in.Close()
	if got := await(t, g.gate.ended); got != "hold" {
		t.Errorf("%s ended", got)
	}
	close(g.gate.release)
	if l := p.hear(); l != `{"jsonrpc":"2.0","id":2,`+okBody {
		t.Errorf("got %s", l)
	}
	if l, err := p.out.ReadString('\n'); err != io.EOF {
		t.Errorf("more: %q %v", l, err)
	}
	if err := <-p.done; err != nil {
		t.Error(err)
	}
}

// What runs past the grace is left to the gate.
func TestStdioEndIsBounded(t *testing.T) {
	g := newRig(t)
	g.srv.cfg.Drain = 10 * time.Millisecond
	p := newPipe(t, g)
	p.initialize()
	p.say(legacyCall("2", "quiet", ""))
	await(t, g.gate.held)
	p.in.Close()
	if got := await(t, g.gate.ended); got != "quiet" {
		t.Errorf("%s ended", got)
	}
	if err := <-p.done; err != nil {
		t.Error(err)
	}
}

func TestStdioLastLineWithoutABreak(t *testing.T) {
	g := newRig(t)
	var out strings.Builder
	in := strings.NewReader(modernCall("1", "ok", "", "") + "\n" + modernCall("2", "ok", "", ""))
	if err := g.srv.ServeStdio(t.Context(), in, &lineChecker{t, &out}, stdioActor); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{`"id":1,"result"`, `"id":2,"result"`} {
		if !strings.Contains(out.String(), id) {
			t.Errorf("no %s in %s", id, out.String())
		}
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }
func (f failing) Read([]byte) (int, error)  { return 0, f.err }

func TestStdioErrors(t *testing.T) {
	g := newRig(t)
	broken := errors.New("broken")
	if err := g.srv.ServeStdio(t.Context(), failing{broken}, io.Discard, stdioActor); !errors.Is(err, broken) {
		t.Errorf("stdin: %v", err)
	}
	// A client that closed our stdout ends the service, though stdin is open.
	r, w := io.Pipe()
	defer w.Close()
	done := make(chan error, 1)
	go func() { done <- g.srv.ServeStdio(context.Background(), r, failing{broken}, stdioActor) }()
	if _, err := io.WriteString(w, modernCall("1", "ok", "", "")+"\n"); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, broken) {
		t.Errorf("stdout: %v", err)
	}
	if err := g.srv.ServeStdio(t.Context(), r, io.Discard, action.Actor{}); err == nil {
		t.Error("stdio without an actor")
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(broken)
	if err := g.srv.ServeStdio(ctx, r, io.Discard, stdioActor); !errors.Is(err, broken) {
		t.Errorf("context: %v", err)
	}
}
