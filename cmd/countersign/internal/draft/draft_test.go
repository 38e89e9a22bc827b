package draft

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/server/policy"
)

// drafted is the draft for some definitions, and the policy that it is.
func drafted(t testing.TB, definitions ...string) (string, *policy.Set) {
	t.Helper()
	up := Upstream{Name: "desk", Says: "Desk 1.0"}
	for _, d := range definitions {
		name, _ := action.Member(json.RawMessage(d), "name")
		text, ok := action.Text(name)
		if !ok {
			t.Fatalf("%s has no name", d)
		}
		up.Tools = append(up.Tools, Tool{Name: text, Raw: json.RawMessage(d)})
	}
	var b strings.Builder
	if err := Write(&b, up); err != nil {
		t.Fatalf("%v\n%s", err, b.String())
	}
	set, err := policy.Parse("draft", []byte(b.String()))
	if err != nil {
		t.Fatalf("%v\n%s", err, b.String())
	}
	for _, r := range set.Test() {
		if len(r.Problems) > 0 {
			t.Errorf("%s: %s", r.Name, strings.Join(r.Problems, "; "))
		}
	}
	return b.String(), set
}

func TestDraft(t *testing.T) {
	b, err := os.ReadFile("testdata/desk.json")
	if err != nil {
		t.Fatal(err)
	}
	var definitions []string
	for d := range action.Items(b) {
		definitions = append(definitions, string(d))
	}
	text, set := drafted(t, definitions...)
	if os.Getenv("UPDATE") == "1" {
		if err := os.WriteFile("testdata/desk.yaml", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/desk.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), text); d != "" {
		t.Errorf("testdata/desk.yaml differs; UPDATE=1 writes it (-want +got):\n%s", d)
	}
	if w := set.Warnings(); len(w) > 0 {
		t.Errorf("it warns: %q", w)
	}
	if err := set.Bind([]string{"desk"}); err != nil || len(set.Warnings()) > 0 {
		t.Errorf("%v %q", err, set.Warnings())
	}
	// The order of the list, and what stands twice in it, is no difference.
	slices.Reverse(definitions)
	if again, _ := drafted(t, append(definitions, definitions[0])...); again != text {
		t.Error("another order is another draft")
	}
}

// tier is what a draft makes of one tool.
func tier(t *testing.T, definition string) string {
	t.Helper()
	_, set := drafted(t, definition)
	name, _ := action.Member(json.RawMessage(definition), "name")
	tool, _ := action.Text(name)
	v := set.Judge(policy.Facts{Call: action.Call{Server: "desk", Tool: tool, Args: json.RawMessage("{}")}})
	if v.Tier == "" {
		return "deny"
	}
	return v.Tier
}

func TestTiersComeFromNames(t *testing.T) {
	for name, want := range map[string]string{
		"get_issue": "read", "listOrders": "read", "search": "read", "ReadFile": "read", "HTTPStatus": "destructive", "describe-table": "read",
		"create_issue": "write", "addComment": "write", "send_mail": "write",
		"delete_repo": "destructive", "merge_pull_request": "destructive", "get_secret": "destructive", "list_access_tokens": "destructive", "cancelOrder": "destructive",
		"read_and_delete": "destructive", "get_or_create": "write-ish", "frobnicate": "destructive", "x": "destructive", "issue_read": "destructive",
		"query": "destructive", "fetch_url": "destructive", "run_workflow": "destructive",
		"exec": "deny", "run_command": "deny", "shell.execute": "deny", "rm_rf": "deny", "drop_table": "deny", "get_shell": "deny", "runShell": "deny",
	} {
		if want == "write-ish" { // it reads first and writes too: nobody knows
			want = "destructive"
		}
		if got := tier(t, `{"name":"`+name+`"}`); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// A server's own hints make a tool stricter and never freer.
func TestClaimsMakeNothingFreer(t *testing.T) {
	rank := map[string]int{"read": 0, "write": 1, "destructive": 2, "deny": 3}
	for _, name := range []string{"get_issue", "create_issue", "delete_repo", "exec", "frobnicate"} {
		plain := tier(t, `{"name":"`+name+`"}`)
		for _, claims := range []string{
			`{"readOnlyHint":true}`, `{"readOnlyHint":true,"destructiveHint":false,"idempotentHint":true,"openWorldHint":false}`, `{"destructiveHint":false}`,
			`{"readOnlyHint":false}`, `{"destructiveHint":true}`, `{"readOnlyHint":"true"}`, `[]`, `null`, `{"title":"Get"}`,
		} {
			if got := tier(t, `{"name":"`+name+`","annotations":`+claims+`}`); rank[got] < rank[plain] {
				t.Errorf("%s with %s: %s, without %s", name, claims, got, plain)
			}
		}
	}
	if got := tier(t, `{"name":"get_issue","annotations":{"destructiveHint":true}}`); got != "destructive" {
		t.Error(got)
	}
	if got := tier(t, `{"name":"get_issue","annotations":{"readOnlyHint":false}}`); got != "write" {
		t.Error(got)
	}
	text, _ := drafted(t, `{"name":"delete_all","annotations":{"readOnlyHint":true}}`)
	if !strings.Contains(text, "# it claims: readOnlyHint true\n") {
		t.Error(text)
	}
}

// Nothing that a server says ends a comment, becomes a key or can't be seen.
func TestHostileUpstreams(t *testing.T) {
	evil := []string{
		"x\n  desk/evil: read", "x\r  desk/evil: read", "x\u2028  desk/evil: read", "x\u0085  desk/evil: read", "\u202edaer :live/ksed", "x\u200b", "\x00", "\x1b[2K",
		"#", "# x", "'", `"`, `\`, `\"}, evil: {type: string`, "}", "]", "{{", "&a", "*a", "!!str x", "<<", "---", "...", "%YAML", "? x", "- x", ": x", "x: y", "|", ">", "~", "null", "true", "",
		"\ufeff", "\U000e0041", "é", "e\u0301", "日本", strings.Repeat("long ", 1000), "{name}", "{", "}{", "__proto__",
	}
	for _, s := range evil {
		quoted, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		q := string(quoted)
		text, set := drafted(t,
			`{"name":`+q+`,"description":`+q+`}`,
			`{"name":"get_it","title":`+q+`,"description":`+q+`,"annotations":{"title":`+q+`},"inputSchema":{"type":"object","description":`+q+
				`,"properties":{`+q+`:{"type":"string","description":`+q+`,"pattern":`+q+`,"default":`+q+`},"path":{"type":"string","enum":[`+q+`,"b"],"pattern":`+q+`},"n":{"type":`+q+`},"l":{"type":["string",`+q+`]}},"required":[`+q+`,"path"]}}`,
		)
		if set.Shows("desk", "evil") || !set.Shows("desk", "get_it") {
			t.Errorf("%q:\n%s", s, text)
		}
		for _, route := range set.Routes() {
			if route.Name != "default" {
				t.Errorf("%q made the route %s", s, route.Name)
			}
		}
		for line := range strings.Lines(text) {
			if strings.HasPrefix(strings.TrimSpace(line), "#") && len(line) > 1000 {
				t.Errorf("%q makes a long line", s)
			}
		}
		if strings.ContainsAny(text, "\u202e\u200b\x00\x1b\u2028\u0085\r") {
			t.Errorf("%q is not shown by its code", s)
		}
	}
	var b strings.Builder
	up := Upstream{Name: "desk", Says: "Desk\n  desk/evil: read", Notes: []string{"note\n  desk/evil: read"}, Tools: []Tool{{Name: "get_it", Raw: json.RawMessage(`{}`)}}}
	if err := Write(&b, up); err != nil || strings.Contains(b.String(), "\n  desk/evil") {
		t.Errorf("%v\n%s", err, b.String())
	}
}

// What a schema allows the rules allow, and what it plainly refuses they refuse.
func TestRulesFromSchemas(t *testing.T) {
	for _, tc := range []struct{ schema, want string }{
		{`{"type":"string"}`, "type: string"},
		{`{"type":"string","maxLength":5,"minLength":2}`, "type: string, min_len: 2, max_len: 5"},
		{`{"type":"string","maxLength":1e2}`, "type: string"},
		{`{"type":"string","maxLength":-1}`, "type: string"},
		{`{"type":"string","maxLength":2,"minLength":5}`, ""},
		{`{"type":"string","enum":["a","b"]}`, `one_of: ["a", "b"]`},
		{`{"enum":["a",1,true]}`, `one_of: ["a", 1, true]`},
		{`{"enum":["a","a"]}`, ""},
		{`{"enum":["a",null]}`, ""},
		{`{"enum":[]}`, ""},
		{`{"type":"integer","minimum":1,"maximum":10}`, "type: integer, min: 1, max: 10"},
		{`{"type":"integer","minimum":0.5}`, ""},
		{`{"type":"number","minimum":0.01}`, "type: number, min: 0.01"},
		{`{"type":"number","minimum":"1"}`, "type: number"},
		{`{"type":"number","exclusiveMinimum":0}`, "type: number"},
		{`{"type":"boolean"}`, "type: boolean"},
		{`{"type":"object"}`, "type: object"},
		{`{"type":"array"}`, "type: array"},
		{`{"type":"array","items":{"type":"string","maxLength":3},"maxItems":5}`, "type: array, max_items: 5, items: {type: string, max_len: 3}"},
		{`{"type":"array","items":{"type":"array","items":{"type":"integer"}}}`, "type: array, items: {type: array, items: {type: integer}}"},
		{`{"type":"array","minItems":1,"items":{"type":"string"}}`, "type: array, min_items: 1, items: {type: string}"},
		{`{"type":["string","null"]}`, ""},
		{`{"anyOf":[{"type":"string"}]}`, ""},
		{`{"type":"null"}`, ""},
		{`true`, ""},
		{`7`, ""},
	} {
		got := arguments(json.RawMessage(`{"inputSchema":{"properties":{"x":` + tc.schema + `}}}`))
		if len(got) != 1 || got[0].rule != tc.want {
			t.Errorf("%s: %+v, want %s", tc.schema, got, tc.want)
		}
	}
	// Two names that some decoders take for one get no rule.
	if got := arguments(json.RawMessage(`{"inputSchema":{"properties":{"path":{"type":"string"},"Path":{"type":"string"}}}}`)); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}

// Whatever a server says, the draft loads and does what it says.
func FuzzDraft(f *testing.F) {
	f.Add(`{"description":"x","inputSchema":{"properties":{"a":{"type":"string","enum":["b"]}},"required":["a"]}}`)
	f.Add(`{"inputSchema":{"properties":{"a":{"type":"array","items":{"type":"number","minimum":1e400}}},"required":["a","b"]},"annotations":{"readOnlyHint":true}}`)
	f.Add(`{"inputSchema":{"properties":{"a/b~":{"type":"integer","maximum":-0}},"required":["a/b~"]}}`)
	f.Fuzz(func(t *testing.T, definition string) {
		if action.Check([]byte(definition), action.Limits{}) != nil || action.TypeOf(json.RawMessage(definition)) != "object" {
			return
		}
		var b strings.Builder
		if err := Write(&b, Upstream{Name: "desk", Tools: []Tool{{Name: "get_it", Raw: json.RawMessage(definition)}}}); err != nil {
			t.Fatalf("%v\n%s", err, definition)
		}
	})
}
