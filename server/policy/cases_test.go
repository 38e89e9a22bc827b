package policy

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func file(t testing.TB, name string) *Set {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Parse(filepath.Base(name), b)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The cases of a whole policy come out as they say.
func TestSampleCases(t *testing.T) {
	for name, least := range map[string]int{"testdata/sample.v2.yaml": 18, "../../deploy/examples/policy-five-rules.yaml": 20} {
		s := file(t, name)
		for _, r := range s.Test() {
			if len(r.Problems) > 0 {
				t.Errorf("%s:%d: %s: %s", name, r.Line, r.Name, strings.Join(r.Problems, "; "))
			}
		}
		if s.Cases() < least {
			t.Errorf("%s has only %d cases", name, s.Cases())
		}
		if w := s.Warnings(); len(w) > 0 {
			t.Errorf("%s: %q", name, w)
		}
	}
}

func TestCasesSayWhatIsWrong(t *testing.T) {
	const head = "version: 2\ntools: {desk/look: read, desk/cancel: destructive, desk/wipe: deny}" + defaultRoute + "cases:\n  - {name: x, "
	for tail, want := range map[string]string{
		"call: {tool: desk/look}, want: allow}":                          "",
		"call: {tool: desk/look}, want: allow, by: tier:read}":           "",
		"call: {tool: desk/look}, want: deny}":                           "want deny, got allow by tier:read",
		"call: {tool: desk/look}, want: review}":                         "want review, got allow by tier:read",
		"call: {tool: desk/look}, want: allow, by: tier:write}":          "want allow by tier:write, got it by tier:read",
		"call: {tool: desk/look}, want: allow, routes: []}":              "",
		"call: {tool: desk/cancel}, want: review, routes: [default]}":    "",
		"call: {tool: desk/cancel}, want: review}":                       "",
		"call: {tool: desk/cancel}, want: review, routes: [default, x]}": "want the routes default, x, got default",
		"call: {tool: desk/cancel}, want: review, routes: []}":           "want the routes (none), got default",
		"call: {tool: desk/cancel}, want: allow}":                        "want allow, got review by tier:destructive",
		"call: {tool: desk/wipe}, want: deny, by: \"tool:desk/wipe\"}":   "",
		"call: {tool: desk/wipe}, want: review, routes: [default]}":      "want review, got deny by tool:desk/wipe; want the routes default, got (none)",
		"call: {tool: other/x}, want: deny, by: unlisted}":               "",
		"call: {tool: desk/look}, want: deny, by: unlisted}":             "want deny, got allow by tier:read",
	} {
		s, err := Parse("p", []byte(head+tail))
		if err != nil {
			t.Errorf("%s: %v", tail, err)
			continue
		}
		r := s.Test()[0]
		if got := strings.Join(r.Problems, "; "); got != want {
			t.Errorf("%s:\n got %s\nwant %s", tail, got, want)
		}
		if r.Name != "x" || r.Line != 5 {
			t.Errorf("%+v", r)
		}
	}
}

// What a case gives is what the policy judges, down to the number's digits.
func TestCaseCall(t *testing.T) {
	s := load(t, `
version: 2
tools: {desk/a: read}
cases:
  - name: all of it
    want: allow
    call:
      tool: desk/a/b
      actor: ana@acme.test
      roles: [x, y]
      session: s1
      workflow: w1
      evidence: [sha256:12]
      labels: {"": [session], /n: [user], /a~1b/0: [model, retrieved]}
      args: {n: 1.50, big: 123456789012345678901234567890, e: 1e400, z: -0, "a/b": [true, null, "1", {}, []], s: "é\"\\", t: '2026-01-01', empty: }
`)
	f := s.cases[0].facts
	if got, want := string(f.Call.Args), `{"n":1.50,"big":123456789012345678901234567890,"e":1e400,"z":-0,"a/b":[true,null,"1",{},[]],"s":"é\"\\","t":"2026-01-01","empty":null}`; got != want {
		t.Errorf("args\n got %s\nwant %s", got, want)
	}
	if f.Call.Server != "desk" || f.Call.Tool != "a/b" || f.Call.Actor.ID != "ana@acme.test" || f.Call.Session != "s1" || f.Call.Workflow != "w1" {
		t.Errorf("%+v", f.Call)
	}
	if !slices.Equal(f.Call.Actor.Roles, []string{"x", "y"}) || !slices.Equal(f.Evidence, []string{"sha256:12"}) || !slices.Equal(f.Labels["/a~1b/0"], []string{"model", "retrieved"}) || len(f.Labels) != 3 {
		t.Errorf("%+v", f)
	}
}

func TestParseCall(t *testing.T) {
	f, err := ParseCall("call.json", []byte(`{"tool": "desk/a", "args": {"n": 1.50, "t": "a\u202e", "s": "\ud83d\ude00\/"}, "actor": "ana"}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(f.Call.Args); got != `{"n": 1.50, "t": "a\u202e", "s": "\ud83d\ude00\/"}` || f.Call.Actor.ID != "ana" {
		t.Errorf("%s %+v", got, f.Call)
	}
	if f, err := ParseCall("call.json", []byte(`{"tool": "desk/a", "args": [1]}`)); err != nil || string(f.Call.Args) != "[1]" {
		t.Errorf("%v %s", err, f.Call.Args)
	}
	for text, says := range map[string]string{
		``:                                     "call.json: ",
		`{"tool": "desk/a"} {}`:                "call.json: ",
		`{"tool": "desk/a", "tool": "desk/b"}`: "call.json: ",
		`{"tool": "desk/a", "args": {"a":1,"a":2}}`: "call.json: ",
		"tool: desk/a":                           "call.json: ",
		`["desk/a"]`:                             "mapping",
		`{"args": {}}`:                           "no tool",
		`{"tool": "a"}`:                          "UPSTREAM/TOOL",
		`{"tool": "desk/a", "arguments": {}}`:    "arguments is not a key",
		`{"tool": "desk/a", "labels": {"x":[]}}`: "JSON pointer",
	} {
		if _, err := ParseCall("call.json", []byte(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
