package policy

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/countersign-mcp/countersign/approvals/action"
)

// hostileArgs are arguments for every tool of a policy.
var hostileArgs = []string{
	"", "{}", "null", "[]", `"x"`, "{", `{"x":1e400,"amount":"nan","to":{"a":"b"}}`, `{"Path":"/etc","path":null,"url":["http://a"]}`, `{"x":[[1],{"a":[null]}],"n":-0}`,
}

// What loads judges every call without a panic, and the same bytes are the same
// policy the next time.
func FuzzLoad(f *testing.F) {
	for _, name := range []string{"testdata/sample.v2.yaml", "testdata/seed.v1.json", "../../deploy/examples/policy-five-rules.yaml"} {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	page, err := os.ReadFile("README.md")
	if err != nil {
		f.Fatal(err)
	}
	for _, part := range strings.Split(string(page), "```yaml\n")[1:] {
		text, _, _ := strings.Cut(part, "```")
		f.Add([]byte(text))
	}
	for _, s := range []string{
		`{"version":2,"tools":{"a/b":{"tier":"read","args":{"x":{"items":{"items":{"type":"string","pattern":"a{3}"}}}}}}}`,
		"version: 2\ntools: {a/*: write, '*/b*': deny}\nrules: [{id: r, effect: deny, reason: x, when: 'args.x.exists(v, v.matches(\"^a|b$\")) || names(args.y).size() > 1u'}]",
		"version: 2\ntools: {a/b: destructive}\nroutes: {default: {approvers: [x], channels: [slack:C0]}}\nlimits: [{match: '*', per: actor, rate: 1/s, burst: 1}]",
		"{\n\t\"version\": 1,\n\t\"allow\": [\"a\"]\n}", "\ufeffversion: 1\r\nallow: [a]\r\n", "? a\n: b\n", "version: 2\n--- \n", "version: &a 2", "%YAML 1.2\n---\nversion: 2\n", "version: 2\ntools: !!map {}\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Parse("p", b)
		if err != nil {
			if s != nil || err.Error() == "" {
				t.Fatalf("%v with a policy", err)
			}
			return
		}
		again, err := Parse("p", b)
		if err != nil || again.Digest() != s.Digest() || !reflect.DeepEqual(again.Warnings(), s.Warnings()) {
			t.Fatalf("the second load differs: %v", err)
		}
		if s.Version() == 1 {
			if s.Bind([]string{"a"}) != nil || again.Bind([]string{"a"}) != nil {
				t.Fatal("it does not bind")
			}
		}
		for _, call := range callsOf(s) {
			v, w := s.Judge(call), again.Judge(call)
			v.Hurried, w.Hurried = false, false // the clock is another each time
			if !reflect.DeepEqual(v, w) {
				t.Fatalf("%+v\n%+v", v, w)
			}
			e := s.Explain(call)
			if e.Verdict.Effect != v.Effect || len(v.Reasons) == 0 || v.Effect == Review && len(v.Routes) == 0 || v.Effect != Review && len(v.Routes) > 0 {
				t.Fatalf("%+v, explained %+v", v, e)
			}
			if v.Effect != Deny && !s.Shows(call.Call.Server, call.Call.Tool) {
				t.Fatalf("%s/%s is not shown and not denied", call.Call.Server, call.Call.Tool)
			}
		}
		if d := Compare(s, again, nil); !d.Same() {
			t.Fatalf("it differs from itself: %+v", d)
		}
		s.Test()
	})
}

// callsOf are calls of the first tools that a policy names, its cases among them.
func callsOf(s *Set) []Facts {
	var out []Facts
	for _, e := range append(append([]entry{}, s.tools...), s.denied...) {
		server, tool := strings.ReplaceAll(e.pattern.server, "*", "a"), strings.ReplaceAll(e.pattern.tool, "*", "a")
		for _, args := range hostileArgs {
			out = append(out, Facts{Call: action.Call{Server: server, Tool: tool, Args: json.RawMessage(args), Actor: action.Actor{ID: "ana"}}})
		}
		if len(out) > 100 {
			break
		}
	}
	for _, c := range s.cases {
		if out = append(out, c.facts); len(out) > 150 {
			break
		}
	}
	return out
}
