package server

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestBothErasOnOnePath(t *testing.T) {
	g := newRig(t)
	head := g.initialize(anaToken)
	r := g.post(legacyCall("1", "ok", ""), head)
	if want := `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"ok"}]}}`; r.status != 200 || r.body != want {
		t.Errorf("legacy: %d %s", r.status, r.body)
	}
	if c := g.gate.last(t); c.Call.Version != "2025-11-25" || c.Client != "old" || c.Call.Session == "" || string(c.Call.Args) != "{}" {
		t.Errorf("legacy call: %+v", c)
	}
	r = g.post(modernCall(`"x"`, "ok", "", ""), modernHead("tools/call", "ok"))
	if want := `{"jsonrpc":"2.0","id":"x","result":{"content":[{"type":"text","text":"ok"}],"resultType":"complete"}}`; r.status != 200 || r.body != want {
		t.Errorf("modern: %d %s", r.status, r.body)
	}
	c := g.gate.last(t)
	if c.Call.Version != modernVersion || c.Client != "new" || c.Call.Session != "" {
		t.Errorf("modern call: %+v", c)
	}
	if c.Call.Actor.ID != "ana@acme.test" || c.Call.Actor.Auth != "token" || !cmp.Equal(c.Call.Actor.Roles, []string{"operator"}) {
		t.Errorf("actor: %+v", c.Call.Actor)
	}
	if string(c.Call.RequestID) != `"x"` {
		t.Errorf("id: %s", c.Call.RequestID)
	}
}

func TestOlderRevisionsNegotiate(t *testing.T) {
	g := newRig(t)
	for _, v := range []string{"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"} {
		r := g.post(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"`+v+`","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`, nil)
		if !strings.Contains(r.body, `"protocolVersion":"`+v+`"`) || !strings.Contains(r.body, `"capabilities":{"tools":{}}`) {
			t.Errorf("%s: %s", v, r.body)
		}
		head := headers(headSession, r.head.Get(headSession))
		if a := g.post(legacyCall("1", "ok", ""), head); a.status != 200 {
			t.Errorf("%s: a call without a version header: %d %s", v, a.status, a.body)
		}
		if got := g.gate.last(t).Call.Version; got != v {
			t.Errorf("version %s, want %s", got, v)
		}
	}
}

func TestHandshakeOfAFront(t *testing.T) {
	g := newRig(t)
	g.url += "/orders"
	r := g.post(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`, nil)
	for _, want := range []string{`"name":"up-orders"`, `"version":"9.9"`, `"instructions":"be orders"`} {
		if !strings.Contains(r.body, want) {
			t.Errorf("initialize has no %s: %s", want, r.body)
		}
	}
	r = g.post(`{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{`+triple+`}}}`, modernHead("server/discover", ""))
	for _, want := range []string{`"name":"up-orders"`, `"instructions":"be orders"`, `"cacheScope":"private"`, `"resultType":"complete"`, `"supportedVersions":["2026-07-28","2025-11-25"`} {
		if !strings.Contains(r.body, want) {
			t.Errorf("discover has no %s: %s", want, r.body)
		}
	}
	for _, no := range []string{"elicitation", "sampling", "logging", "listChanged"} {
		if strings.Contains(r.body, no) {
			t.Errorf("discover declares %s: %s", no, r.body)
		}
	}
	g.post(modernCall("1", "ok", "", ""), modernHead("tools/call", "ok"))
	if got := g.gate.last(t).Front; got != "orders" {
		t.Errorf("front %q", got)
	}
}

func TestMethodsPathsAndSizes(t *testing.T) {
	g := newRig(t, func(c *Config, _ *http.Server) { c.Limits.Bytes = 1000 })
	for _, method := range []string{"GET", "PUT", "PATCH", "HEAD", "OPTIONS"} {
		if r := g.send(g.request(t.Context(), method, g.url, "", nil)); r.status != 405 || r.head.Get("Allow") != "POST, DELETE" {
			t.Errorf("%s: %d, Allow %q", method, r.status, r.head.Get("Allow"))
		}
	}
	for _, path := range []string{"/", "/mcp/", "/mcp/unknown", "/mcp/orders/", "/MCP", "/mcp/../mcp", "/mcp//orders"} {
		if r := g.send(g.request(t.Context(), "POST", g.http.URL+path, "{}", nil)); r.status != 404 {
			t.Errorf("%s: %d", path, r.status)
		}
	}
	if r := g.post(modernCall("1", "ok", "", `,"arguments":{"a":"`+strings.Repeat("x", 1000)+`"}`), modernHead("tools/call", "ok")); r.status != 413 {
		t.Errorf("too long: %d", r.status)
	}
	if r := g.post("", nil); r.status != 400 {
		t.Errorf("empty: %d", r.status)
	}
}

func TestStrictMessages(t *testing.T) {
	g := newRig(t)
	head := g.initialize(anaToken)
	deep := strings.Repeat("[", 40) + strings.Repeat("]", 40)
	for name, body := range map[string]string{
		"name twice":             `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"ok","name":"big"}}`,
		"name twice, escaped":    `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"ok","n\u0061me":"big"}}`,
		"arguments twice":        `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"ok","arguments":{},"arguments":{"a":1}}}`,
		"method twice":           `{"jsonrpc":"2.0","id":1,"method":"tools/list","method":"tools/call","params":{"name":"ok"}}`,
		"inner name twice":       `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"ok","arguments":{"a":1,"a":2}}}`,
		"case variant":           `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"ok","Name":"big"}}`,
		"case variant alone":     `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"ok","Arguments":{"a":1}}}`,
		"method by another case": `{"jsonrpc":"2.0","id":1,"METHOD":"tools/call","params":{"name":"ok"}}`,
		"byte order mark":        "\xef\xbb\xbf" + legacyCall("1", "ok", ""),
		"bad utf-8":              "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"ok\xff\"}}",
		"trailing":               legacyCall("1", "ok", "") + "{}",
		"two messages":           legacyCall("1", "ok", "") + "\n" + legacyCall("2", "ok", ""),
		"batch":                  "[" + legacyCall("1", "ok", "") + "," + legacyCall("2", "ok", "") + "]",
		"batch of one":           "[" + legacyCall("1", "ok", "") + "]",
		"empty batch":            "[]",
		"no version":             `{"id":1,"method":"tools/list"}`,
		"version 1":              `{"jsonrpc":"1.0","id":1,"method":"tools/list"}`,
		"cut":                    `{"jsonrpc":"2.0","id":1,"method":"tools/call"`,
		"deep":                   legacyCall("1", "ok", `,"arguments":{"a":`+deep+`}`),
		"id null":                legacyCall("null", "ok", ""),
		"id 1.5":                 legacyCall("1.5", "ok", ""),
		"id 1.0":                 legacyCall("1.0", "ok", ""),
		"id 1e0":                 legacyCall("1e0", "ok", ""),
		"id object":              legacyCall("{}", "ok", ""),
		"id true":                legacyCall("true", "ok", ""),
		"call without an id":     `{"jsonrpc":"2.0","method":"tools/call","params":{"name":"ok"}}`,
		"list without an id":     `{"jsonrpc":"2.0","method":"tools/list"}`,
		"string":                 `"tools/call"`,
		"arguments array":        legacyCall("1", "ok", `,"arguments":[1]`),
		"arguments null":         legacyCall("1", "ok", `,"arguments":null`),
		"no name":                `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}`,
		"params array":           `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":["ok"]}`,
	} {
		r := g.post(body, head)
		if code := errorCode(r.body); r.status != 400 || (code != codeParse && code != codeInvalidRequest && code != codeInvalidParams) {
			t.Errorf("%s: %d %s", name, r.status, r.body)
		}
		if r = g.post(body, modernHead("tools/call", "ok")); r.status != 400 {
			t.Errorf("%s, modern: %d %s", name, r.status, r.body)
		}
	}
	if n := g.gate.count(); n != 0 {
		t.Errorf("%d calls reached the gate", n)
	}
	if r := g.post("[]", head); !strings.Contains(r.body, `"id":null`) {
		t.Errorf("no id to answer: %s", r.body)
	}
}

// What can't be read is heard of, and nothing of it is passed on.
func TestMalformedIsReported(t *testing.T) {
	var got []Malformed
	g := newRig(t, func(c *Config, _ *http.Server) {
		c.Malformed = func(_ context.Context, m Malformed) { got = append(got, m) }
		c.Limits.Bytes = 300
	})
	g.url += "/notes"
	g.post(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"s3cret","name":"s3cret"}}`, nil)
	p := newPipe(t, g)
	p.ask("[1]", `{"jsonrpc":"2.0","id":null,`)
	p.ask(strings.Repeat("s3cret", 100), `{"jsonrpc":"2.0","id":null,`)
	if len(got) != 3 {
		t.Fatalf("heard of %d: %+v", len(got), got)
	}
	for i, want := range []struct {
		actor, front string
		code         int
	}{{"ana@acme.test", "notes", codeParse}, {"me", "", codeInvalidRequest}, {"me", "", codeInvalidRequest}} {
		m := got[i]
		if m.Actor.ID != want.actor || m.Front != want.front || m.Code != want.code || m.Reason == "" || strings.Contains(m.Reason, "s3cret") {
			t.Errorf("%d: %+v", i, m)
		}
	}
	g.url = g.http.URL + "/mcp"
	g.post(modernCall("1", "ok", "", ""), modernHead("tools/call", "ok"))
	if len(got) != 3 {
		t.Error("a good message was heard of")
	}
}

func TestIdsAreEchoedAsSent(t *testing.T) {
	g := newRig(t)
	head := g.initialize(anaToken)
	for _, id := range []string{"1", "0", "-7", "9007199254740993", `""`, `"a"`, `"\u0061\u2028"`, `"1"`} {
		r := g.post(legacyCall(id, "ok", ""), head)
		if !strings.HasPrefix(r.body, `{"jsonrpc":"2.0","id":`+id+`,"result":`) {
			t.Errorf("%s: %s", id, r.body)
		}
	}
}

// No method but those that the gate judges or the handshake needs.
func TestEveryOtherMethodIsUnknown(t *testing.T) {
	g := newRig(t)
	head := g.initialize(anaToken)
	methods := []string{
		"resources/list", "resources/read", "resources/templates/list", "resources/subscribe", "resources/unsubscribe",
		"prompts/list", "prompts/get", "completion/complete", "logging/setLevel", "subscriptions/listen",
		"tasks/get", "tasks/list", "tasks/result", "tasks/cancel", "tasks/update", "sampling/createMessage",
		"elicitation/create", "roots/list", "tools/exec", "tools/call/", "TOOLS/CALL", "tools/Call", "tools", "rpc.discover",
		"notifications/initialized", "notifications/tools/list_changed", "x", " tools/call", "tools/call\u0000",
	}
	for _, m := range methods {
		body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%s,"params":{"name":"ok","arguments":{}}}`, quote(m))
		g.post(body, head).is(t, 200, codeMethodNotFound)
		if strings.ContainsAny(m, "\u0000") || strings.TrimSpace(m) != m {
			continue // no header can carry it
		}
		body = fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%s,"params":{"name":"ok","_meta":{%s}}}`, quote(m), triple)
		g.post(body, modernHead(m, "ok")).is(t, 404, codeMethodNotFound)
	}
	// What the other era has.
	for _, m := range []string{"initialize", "ping"} {
		g.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{"_meta":{%s}}}`, m, triple), modernHead(m, "")).is(t, 404, codeMethodNotFound)
	}
	g.post(`{"jsonrpc":"2.0","id":1,"method":"server/discover"}`, head).is(t, 200, codeMethodNotFound)
	if n := g.gate.count(); n != 0 {
		t.Errorf("%d calls reached the gate", n)
	}
}

func TestMirroredHeadersMustAgree(t *testing.T) {
	g := newRig(t)
	old := g.initialize(anaToken)
	call := modernCall("1", "ok", "", "")
	set := func(kv ...string) http.Header {
		h := modernHead("tools/call", "ok")
		for i := 0; i < len(kv); i += 2 {
			h[kv[i]] = nil
			if kv[i+1] != "-" {
				h[kv[i]] = []string{kv[i+1]}
			}
		}
		return h
	}
	twice := func(k string) http.Header {
		h := modernHead("tools/call", "ok")
		h.Add(k, h.Get(k))
		return h
	}
	for name, head := range map[string]http.Header{
		"no version":         set(headVersion, "-"),
		"older version":      set(headVersion, "2025-11-25"),
		"other version":      set(headVersion, "2026-07-29"),
		"version twice":      twice(headVersion),
		"no method":          set(headMethod, "-"),
		"other method":       set(headMethod, "tools/list"),
		"other case":         set(headMethod, "Tools/Call"),
		"method twice":       twice(headMethod),
		"no name":            set(headName, "-"),
		"other name":         set(headName, "big"),
		"name in other case": set(headName, "OK"),
		"name twice":         twice(headName),
		"bad base64":         set(headName, "=?base64?b2s?="),
		"loose base64":       set(headName, "=?base64?b2t=?="),
		"base64 of another":  set(headName, "=?base64?Ymln?="),
		"raw bytes":          set(headName, "\u00f6k"),
		"an older session":   old,
	} {
		r := g.post(call, head)
		r.is(t, 400, codeHeaderMismatch)
		if t.Failed() {
			t.Fatalf("at %s", name)
		}
	}
	if n := g.gate.count(); n != 0 {
		t.Errorf("%d calls reached the gate", n)
	}
	for enc, name := range map[string]string{
		"=?base64?b2s=?=": "ok", "=?base64?w7ZrIA==?=": "\u00f6k ", "=?base64?PT9iYXNlNjQ/eD89?=": "=?base64?x?=", "=?BASE64?b2s=?=": "=?BASE64?b2s=?=",
	} {
		if r := g.post(modernCall("1", name, "", ""), modernHead("tools/call", enc)); r.status != 200 {
			t.Errorf("%s: %d %s", enc, r.status, r.body)
		}
		if got := g.gate.last(t).Name; got != name {
			t.Errorf("%s: the gate was asked for %q", enc, got)
		}
	}
}

func TestTheTriple(t *testing.T) {
	g := newRig(t)
	const v, i, c = `"io.modelcontextprotocol/protocolVersion":`, `"io.modelcontextprotocol/clientInfo":`, `"io.modelcontextprotocol/clientCapabilities":`
	for _, k := range []struct {
		name, header, meta string
		status, code       int
	}{
		{"whole", modernVersion, v + `"2026-07-28",` + i + `{"name":"c"},` + c + `{}`, 200, 0},
		{"client info is optional", modernVersion, v + `"2026-07-28",` + c + `{"x":1}`, 200, 0},
		{"nothing", modernVersion, ``, 400, codeInvalidParams},
		{"no version", modernVersion, c + `{}`, 400, codeInvalidParams},
		{"version number", modernVersion, v + `20260728,` + c + `{}`, 400, codeInvalidParams},
		{"version null", modernVersion, v + `null,` + c + `{}`, 400, codeInvalidParams},
		{"version null, older header", "2025-11-25", v + `null`, 400, codeInvalidParams},
		{"no capabilities", modernVersion, v + `"2026-07-28"`, 400, codeInvalidParams},
		{"capabilities null", modernVersion, v + `"2026-07-28",` + c + `null`, 400, codeInvalidParams},
		{"capabilities array", modernVersion, v + `"2026-07-28",` + c + `[]`, 400, codeInvalidParams},
		{"client info string", modernVersion, v + `"2026-07-28",` + c + `{},` + i + `"me"`, 400, codeInvalidParams},
		{"client name number", modernVersion, v + `"2026-07-28",` + c + `{},` + i + `{"name":7}`, 400, codeInvalidParams},
		{"unknown version", "2030-01-01", v + `"2030-01-01",` + c + `{}`, 400, codeUnsupportedVersion},
		{"nonsense version", "zzz", v + `"zzz",` + c + `{}`, 400, codeUnsupportedVersion},
		{"older than all", "1999-01-01", ``, 400, codeInvalidRequest},
	} {
		head := modernHead("tools/list", "", headVersion, k.header)
		head[headVersion] = []string{k.header}
		r := g.post(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{`+k.meta+`}}}`, head)
		if r.status != k.status || errorCode(r.body) != k.code {
			t.Errorf("%s: %d %s", k.name, r.status, r.body)
		}
		if k.code == codeUnsupportedVersion && !strings.Contains(r.body, `"requested":"`+k.header+`","supported":["2026-07-28",`) {
			t.Errorf("%s: %s", k.name, r.body)
		}
	}
}

// While nothing was streamed, the status says what the error is, to those who
// read it.
func TestStatusTable(t *testing.T) {
	for code, want := range map[int]int{
		codeMethodNotFound: 404, codeInvalidParams: 400, codeInvalidRequest: 400, codeHeaderMismatch: 400,
		codeMissingCapability: 400, codeUnsupportedVersion: 400, codeInternal: 200, codeParse: 200, -32050: 200, 7: 200,
	} {
		if got := httpStatus(true, failure(code, "")); got != want {
			t.Errorf("modern %d: %d, want %d", code, got, want)
		}
		if got := httpStatus(false, failure(code, "")); got != 200 {
			t.Errorf("legacy %d: %d", code, got)
		}
	}
	if httpStatus(true, nil) != 200 {
		t.Error("a result is 200")
	}
	g := newRig(t)
	g.post(modernCall("1", "deny", "", ""), modernHead("tools/call", "deny")).is(t, 400, codeInvalidParams)
	g.post(modernCall("1", "fault", "", ""), modernHead("tools/call", "fault")).is(t, 200, -32050)
	g.post(modernCall("1", "panic", "", ""), modernHead("tools/call", "panic")).is(t, 200, codeInternal)
	g.post(modernCall("1", "nothing", "", ""), modernHead("tools/call", "nothing")).is(t, 200, codeInternal)
	head := g.initialize(anaToken)
	g.post(legacyCall("1", "deny", ""), head).is(t, 200, codeInvalidParams)
	g.post(legacyCall("1", "fault", ""), head).is(t, 200, -32050)
}
