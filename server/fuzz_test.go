package server

import (
	"bytes"
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/server/gate"
)

// Whatever is in params, split loses nothing, adds nothing and keeps the era's
// and the gate's own members away from the upstream.
func FuzzSplit(f *testing.F) {
	for _, s := range []string{
		`{"name":"x"}`,
		`{"name":"x","arguments":{"a":9007199254740993},"_meta":{` + triple + `,"progressToken":1,"countersign/workflow":"w","a":[1.0 ]},"b":{}}`,
		`{ "_meta" : { } , "name":"x" }`,
		`{"_meta":{"countersign/idempotency-key":"k" , "x" : 1},"name":"x","_meta2":1}`,
		`{"name":"x","_meta":{"io.modelcontextprotocol\/protocolVersion":"2026-07-28"}}`,
		`{"name":"x","_meta":{"countersign/":0,"progressToken":"\u0000"}}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, params string) {
		frame, err := action.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":`+params+`}`), action.Limits{})
		if err != nil {
			return
		}
		p, bad := split(frame)
		if bad != nil {
			if bad.Code != codeInvalidParams {
				t.Fatalf("code %d", bad.Code)
			}
			return
		}
		all, meta, extra := members(t, frame.Params), members(t, p.meta), members(t, p.extra)
		for name, raw := range members(t, frame.Meta) {
			got, kept := meta[name]
			drop := name == metaVersion || name == metaClientInfo || name == metaCapabilities || name == metaLogLevel || name == metaProgress || strings.HasPrefix(name, ownPrefix)
			if kept == drop || (kept && !bytes.Equal(got, raw)) {
				t.Fatalf("meta %q: %s became %s", name, raw, got)
			}
			delete(meta, name)
		}
		for name, raw := range all {
			got, kept := extra[name]
			drop := name == "name" || name == "arguments" || name == "_meta"
			if kept == drop || (kept && !bytes.Equal(got, raw)) {
				t.Fatalf("extra %q: %s became %s", name, raw, got)
			}
			delete(extra, name)
		}
		if len(meta)+len(extra) != 0 {
			t.Fatalf("made up: %v %v", meta, extra)
		}
		for _, raw := range []json.RawMessage{p.meta, p.extra} {
			if raw != nil && action.Check(raw, action.Limits{}) != nil {
				t.Fatalf("not JSON: %s", raw)
			}
		}
	})
}

func members(t *testing.T, obj json.RawMessage) map[string]json.RawMessage {
	t.Helper()
	out := map[string]json.RawMessage{}
	for name, raw := range action.Fields(obj) {
		out[name] = raw
	}
	return out
}

// A header that agrees says exactly what the body says.
func FuzzMirror(f *testing.F) {
	f.Add("ok", "ok", "tools/call")
	f.Add("\u00f6k", "=?base64?w7Zr?=", "tools/call")
	f.Add("=?base64?x?=", "=?base64?PT9iYXNlNjQ/eD89?=", "tools/call")
	f.Add("x", "=?base64?eA?=", "tools/list")
	f.Fuzz(func(t *testing.T, name, header, method string) {
		h := http.Header{}
		h[headMethod], h[headName] = []string{method}, []string{header}
		bad := checkMirror(h, action.Frame{Method: methodCall, Name: name})
		if bad != nil {
			if bad.Code != codeHeaderMismatch {
				t.Fatalf("code %d", bad.Code)
			}
			return
		}
		dec, ok := decodeHeader(header)
		if method != methodCall || !ok || dec != name {
			t.Fatalf("%q %q was taken for %q", method, header, name)
		}
	})
}

// The frames the edge writes are one line and mean what they were made of.
func FuzzResponseFrame(f *testing.F) {
	f.Add("{\n\"a\":\r\n1}", "m\u2028<&>\x00")
	f.Fuzz(func(t *testing.T, result, message string) {
		if action.Check([]byte(result), action.Limits{}) != nil || !strings.HasPrefix(result, "{") {
			return // a result is an object
		}
		a := finishResult(methodCall, gate.Answer{Result: []byte(result)})
		for _, b := range [][]byte{responseFrame([]byte(`"x"`), gate.Answer{Result: []byte(result)}), responseFrame([]byte("1"), a)} {
			if bytes.ContainsAny(b, "\n\r") {
				t.Fatalf("more than a line: %q", b)
			}
			var got struct{ Result map[string]any }
			if err := json.Unmarshal(b, &got); err != nil {
				t.Fatalf("%s: %v", b, err)
			}
			var want map[string]any
			if err := json.Unmarshal([]byte(result), &want); err != nil {
				t.Fatal(err)
			}
			if _, had := want["resultType"]; !had {
				delete(got.Result, "resultType")
			}
			if !reflect.DeepEqual(got.Result, want) {
				t.Fatalf("%s became %v", result, got.Result)
			}
		}
		e := responseFrame(nil, gate.Answer{Error: failure(codeInternal, message)})
		var got struct{ Error struct{ Message string } }
		if err := json.Unmarshal(e, &got); err != nil || bytes.ContainsAny(e, "\n\r") {
			t.Fatalf("%q: %v", e, err)
		}
		if utf8.ValidString(message) && got.Error.Message != message {
			t.Fatalf("%q became %q", message, got.Error.Message)
		}
	})
}
