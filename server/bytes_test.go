package server

import (
	"strings"
	"testing"
)

// What a client sends and an upstream answers goes through as bytes.
func TestBytesPassUnchanged(t *testing.T) {
	g := newRig(t)
	args := "{ \"n\" : 9007199254740993, \"f\":1.50, \"t\":\"<&>\\u0041\u2028\", \"b\":{\"z\":1,\"a\":[ ]}}"
	params := `,"arguments":` + args + `,"task":{"ttl":1.0},"future":[9007199254740993 ]`
	legacy := g.initialize(anaToken)
	meta := `"traceparent":"00-1","acme/x":{"n":9007199254740993}`
	own := `"countersign/provenance":{ "v":1, "labels":{"/n":["user"]} },"countersign/session":"mine","countersign/idempotency-key":"k1","countersign/workflow":"w1","countersign/approval":{"id":"forged"},"io.modelcontextprotocol/logLevel":"debug","progressToken":9007199254740993,`
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
		if claim := string(g.gate.last(t).Provenance); claim != `{ "v":1, "labels":{"/n":["user"]} }` {
			t.Errorf("%s: claim %s", name, claim)
		}
		// The protocol's own session rules; a client names one where there is none.
		if want := map[string]string{"legacy": legacy.Get(headSession), "modern": "mine"}[name]; c.Session != want {
			t.Errorf("%s: session %q, want %q", name, c.Session, want)
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
		`"countersign/session":7`, `"countersign/session":"a\u0007b"`, `"countersign/session":""`, `"countersign/session":"` + strings.Repeat("x", 257) + `"`,
		`"countersign/workflow":"` + strings.Repeat("x", 257) + `"`, `"progressToken":{}`, `"progressToken":null`, `"progressToken":[1]`,
	} {
		g.post(legacyCall("1", "ok", `,"_meta":{`+meta+`}`), head).is(t, 200, codeInvalidParams)
	}
	if n := g.gate.count(); n != 0 {
		t.Errorf("%d calls reached the gate", n)
	}
}
