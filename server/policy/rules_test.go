package policy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-mcp/countersign/approvals/action"
)

func TestRulesCombine(t *testing.T) {
	s := load(t, `
version: 2
tools: {desk/a: write, desk/b: destructive, desk/c: {tier: destructive, route: finance}, desk/d: deny, desk/e: {tier: write, args: {n: {type: number}}}}
routes:
  default: {channels: [slack:C0A], approvers: [ana]}
  finance: {channels: [slack:C0F], approvers: [bo]}
rules:
  - {id: big, effect: review, route: finance, when: "args.n > 10", reason: large}
  - {id: bigger, effect: review, when: "args.n > 100", reason: larger}
  - {id: biggest, effect: deny, when: "args.n > 1000", reason: too large}
  - {id: of-b, tools: [desk/b], effect: deny, when: "args.n == 7", reason: not seven}
`)
	for _, tc := range []struct{ tool, args, want, routes string }{
		{"desk/a", `{"n":1}`, "allow by tier:write", ""},
		{"desk/a", `{"n":11}`, "review by big", "finance"},
		{"desk/a", `{"n":101}`, "review by big bigger", "finance default"},
		{"desk/a", `{"n":1001}`, "deny by biggest", ""},
		{"desk/a", `{}`, "deny by big bigger biggest", ""},
		{"desk/a", `{"n":7}`, "allow by tier:write", ""},
		{"desk/b", `{"n":7}`, "deny by of-b", ""},
		{"desk/b", `{"n":1}`, "review by tier:destructive", "default"},
		{"desk/b", `{"n":11}`, "review by tier:destructive big", "default finance"},
		{"desk/c", `{"n":11}`, "review by tier:destructive big", "finance"},
		{"desk/c", `{"n":101}`, "review by tier:destructive big bigger", "finance default"},
		{"desk/d", `{"n":11}`, "deny by tool:desk/d", ""},
		{"desk/x", `{"n":11}`, "deny by unlisted", ""},
		{"desk/e", `{"n":"x"}`, "deny by args:/n big bigger biggest", ""},
		{"desk/a", `[1]`, "deny by args: big bigger biggest", ""},
		{"desk/a", `{"n":1`, "deny by args:", ""},
	} {
		v := judge(s, tc.tool, tc.args)
		var routes []string
		for _, r := range v.Routes {
			routes = append(routes, r.Name)
		}
		if got := says(v); got != tc.want || strings.Join(routes, " ") != tc.routes {
			t.Errorf("%s %s: %s on %q, want %s on %q", tc.tool, tc.args, got, routes, tc.want, tc.routes)
		}
		if !slices.IsSortedFunc(v.Reasons, func(a, b Reason) int { return int(a.Effect) - int(b.Effect) }) {
			t.Errorf("%s: the reasons that carry the effect don't come first: %+v", tc.tool, v.Reasons)
		}
		// The same input gives the same bytes.
		if d := cmp.Diff(v, judge(s, tc.tool, tc.args), cmp.Comparer(func(a, b action.Digest) bool { return a == b })); d != "" {
			t.Errorf("judged twice: %s", d)
		}
	}
	if !s.Reviews() || load(t, "version: 2\ntools: {desk/a: read}").Reviews() {
		t.Error("whether it can ask")
	}
	if !load(t, "version: 2\ntools: {desk/a: read}\nrules: [{id: r, effect: review, reason: x}]"+defaultRoute).Reviews() {
		t.Error("a rule can ask")
	}
}

// A rule that always denies hides the tool; one with a condition does not.
func TestRulesAndTheList(t *testing.T) {
	s := load(t, `
version: 2
tools: {desk/a: read, desk/b: read, desk/c: read}
rules:
  - {id: r1, tools: [desk/a], effect: deny, reason: closed}
  - {id: r2, tools: [desk/b], effect: deny, when: "true", reason: closed}
  - {id: r3, tools: [desk/c], effect: review, reason: ask}
`+defaultRoute)
	for tool, want := range map[string]bool{"a": false, "b": true, "c": true} {
		if s.Shows("desk", tool) != want {
			t.Errorf("desk/%s is shown: %v", tool, !want)
		}
	}
	all := load(t, "version: 2\ntools: {desk/a: read}\nrules: [{id: r, effect: deny, reason: closed}]")
	if all.Shows("desk", "a") || says(judge(all, "desk/a", "{}")) != "deny by r" {
		t.Error("a rule on all tools")
	}
}

// No value of a call is told, whatever a rule stumbled over.
func TestReasonsHoldNoValue(t *testing.T) {
	const canary = "CANARY-7f3a"
	for _, when := range []string{
		`int(args.s) > 5`, `args.s > 5`, `args[args.s] == 1`, `timestamp(args.s) < timestamp("2026-01-01T00:00:00Z")`,
		`duration(args.s) > duration("1s")`, `args.s.matches("^(a|b)*c") && args.s == 5`, `args.m[args.s].x == 1`, `labels(args.s) == []`, `bool(args.s)`, `bytes(args.s) == args.s`,
	} {
		for _, f := range []Facts{args(`{"s":"` + canary + `","m":{}}`), args(`{"s":"` + canary + `"}`), args(`{"` + canary + `":1}`)} {
			quoted, _ := json.Marshal(when)
			s := load(t, "version: 2\ntools: {desk/a: {tier: read, args: {s: {max_len: 2, pattern: a, one_of: [b], within: /a, hosts: a}}}}\nrules: [{id: r, effect: deny, reason: no, when: "+string(quoted)+"}]")
			f.Call.Server, f.Call.Tool = "desk", "a"
			e := s.Explain(f)
			if text := fmt.Sprintf("%+v", e); strings.Contains(text, canary) || e.Verdict.Effect != Deny {
				t.Errorf("%s: %s", when, text)
			}
		}
	}
}
