package server

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// misfits are bodies that are no call, each with a word in it that must not be told
// anywhere.
func misfits() map[string]string {
	call := func(params string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + params + `}`
	}
	return map[string]string{
		"duplicate":         call(`{"name":"s3cret","name":"ok"}`),
		"case variant":      call(`{"name":"ok","Arguments":{"s3cret":1}}`),
		"long s":            call(`{"name":"ok","argumentſ":{"s3cret":1}}`),
		"NUL in a name":     call(`{"name":"ok","arguments":{"s3cret\u0000":1}}`),
		"prototype":         call(`{"name":"ok","arguments":{"__proto__":{"s3cret":1}}}`),
		"bad UTF-8":         call("{\"name\":\"s3cret\xff\"}"),
		"lone surrogate":    call(`{"name":"s3cret\ud800"}`),
		"two values":        call(`{"name":"ok"}`) + `"s3cret"`,
		"batch":             `[` + call(`{"name":"s3cret"}`) + `]`,
		"byte order mark":   "\ufeff" + call(`{"name":"s3cret"}`),
		"too deep":          call(`{"name":"ok","arguments":{"s3cret":` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + `}}`),
		"arguments a text":  call(`{"name":"ok","arguments":"s3cret"}`),
		"no name":           call(`{"arguments":{"s3cret":1}}`),
		"params a list":     call(`["s3cret"]`),
		"no version":        `{"id":1,"method":"tools/call","params":{"name":"s3cret"}}`,
		"id a list":         `{"jsonrpc":"2.0","id":["s3cret"],"method":"tools/call","params":{"name":"ok"}}`,
		"not JSON":          `s3cret`,
		"progress token":    call(`{"name":"ok","_meta":{"progressToken":{"s3cret":1}}}`),
		"idempotency key":   call(`{"name":"ok","_meta":{"countersign/idempotency-key":["s3cret"]}}`),
		"workflow too long": call(`{"name":"ok","_meta":{"countersign/workflow":"s3cret` + strings.Repeat("x", 300) + `"}}`),
		"version no text":   call(`{"name":"ok","_meta":{"io.modelcontextprotocol/protocolVersion":["s3cret"]}}`),
	}
}

// A tools/call that is refused before any policy saw it is heard of, once, on both
// transports and in both eras; nothing of it is told, and nothing runs.
func TestEveryMisfitIsReported(t *testing.T) {
	var mu sync.Mutex
	var got []Malformed
	heard := func() []Malformed {
		mu.Lock()
		defer mu.Unlock()
		out := got
		got = nil
		return out
	}
	g := newRig(t, func(c *Config, _ *http.Server) {
		c.Malformed = func(_ context.Context, m Malformed) {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, m)
		}
	})
	head := g.initialize(anaToken)
	p := newPipe(t, g)
	p.initialize()
	check := func(what, answer, actor string) {
		t.Helper()
		all := heard()
		if len(all) != 1 {
			t.Errorf("%s: heard of %d times (%s)", what, len(all), answer)
			return
		}
		m := all[0]
		if m.Actor.ID != actor || m.Reason == "" || strings.Contains(m.Reason+answer, "s3cret") || m.Code != errorCode(answer) {
			t.Errorf("%s: heard %+v, answered %s", what, m, answer)
		}
		if m.Code != codeParse && m.Code != codeInvalidRequest && m.Code != codeInvalidParams && m.Code != codeHeaderMismatch {
			t.Errorf("%s: code %d", what, m.Code)
		}
	}
	for name, body := range misfits() {
		check("HTTP, "+name, g.post(body, head).body, "ana@acme.test")
		if !strings.Contains(body, "\n") {
			p.say(body)
			check("stdio, "+name, p.hear(), "me")
		}
	}
	for name, head := range map[string]http.Header{
		"another tool":     modernHead("tools/call", "other"),
		"no name":          modernHead("tools/call", ""),
		"another method":   modernHead("tools/list", "ok"),
		"another version":  headers(headVersion, "2025-11-25", headMethod, "tools/call", headName, "ok"),
		"a version, twice": headers(headVersion, modernVersion, headVersion, modernVersion, headMethod, "tools/call", headName, "ok"),
	} {
		check("header, "+name, g.post(modernCall("1", "ok", "", ""), head).body, "ana@acme.test")
	}
	if n := g.gate.count(); n != 0 {
		t.Errorf("%d calls reached the gate", n)
	}
	if r := g.post(legacyCall("1", "ok", ""), head); r.status != 200 || len(heard()) != 0 {
		t.Errorf("a good call: %d, heard of", r.status)
	}
	// Every one of a flood is heard of, so that the listener can count; it is the
	// listener's to bound what it writes.
	for i := range 300 {
		g.post(fmt.Sprintf(`{"n":%d`, i), head)
	}
	if n := len(heard()); n != 300 {
		t.Errorf("heard of %d in a flood of 300", n)
	}
}
