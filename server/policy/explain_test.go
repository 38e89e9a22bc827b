package policy

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/countersign-mcp/countersign/approvals/action"
)

func TestExplain(t *testing.T) {
	s := load(t, `
version: 2
tools:
  desk/pay: {tier: destructive, args: {n: {type: number, max: 5}, to: {max_len: 3}}}
  desk/wipe: deny
  "*/wipe": deny
rules:
  - {id: large, effect: review, when: args.n > 1, reason: large}
  - {id: small, effect: deny, when: args.n < 0, reason: small}
  - {id: broken, effect: review, when: args.x > 0, reason: x}
  - {id: elsewhere, tools: [notes/*], effect: deny, reason: x}
`+defaultRoute)
	e := s.Explain(Facts{Call: action.Call{Server: "desk", Tool: "pay", Args: json.RawMessage(`{"n":9,"to":"bo"}`)}})
	const missing = "the rule broken can't be judged: a value that it asks for is missing or has another type"
	want := Explanation{
		Entries: []Step{{ID: "desk/pay", Line: 4, Effect: "review", Outcome: Fired, Text: "destructive tools need a person's yes"}},
		Args:    []Step{{ID: "args:/n", Line: 4, Outcome: Denied, Text: "is more than 5"}, {ID: "args:/to", Line: 4, Outcome: Passed}},
		Rules: []Step{
			{ID: "large", Line: 8, Effect: "review", Outcome: Fired, Text: "large"},
			{ID: "small", Line: 9, Effect: "deny", Outcome: NotFired},
			{ID: "broken", Line: 10, Effect: "review", Outcome: Failed, Text: missing},
			{ID: "elsewhere", Line: 11, Effect: "deny", Outcome: OtherTool},
		},
	}
	if d := cmp.Diff(want, e, cmpopts.IgnoreFields(Explanation{}, "Verdict")); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if says(e.Verdict) != "deny by args:/n broken" || len(e.Verdict.Reasons) != 4 {
		t.Errorf("%+v", e.Verdict)
	}
	e = s.Explain(Facts{Call: action.Call{Server: "desk", Tool: "wipe"}})
	if len(e.Entries) != 2 || len(e.Rules) != 0 || len(e.Args) != 0 || e.Verdict.Effect != Deny {
		t.Errorf("a denied tool: %+v", e)
	}
	e = s.Explain(Facts{Call: action.Call{Server: "desk", Tool: "other"}})
	if len(e.Entries) != 0 || len(e.Rules) != 0 || says(e.Verdict) != "deny by unlisted" {
		t.Errorf("a tool that is not listed: %+v", e)
	}
	var none *Set
	if e := none.Explain(Facts{}); e.Verdict.Effect != Deny || len(e.Verdict.Reasons) != 1 {
		t.Errorf("no policy: %+v", e)
	}
}

func TestRuleWarnings(t *testing.T) {
	const rule = "version: 2\ntools: {desk/a: read, desk/b: deny}\nroutes: {default: {channels: [slack:C0A], approvers: [ana]}}\nrules:\n  - {id: r, reason: x, "
	for tail, want := range map[string]string{
		"effect: deny}":                                                                "",
		"effect: deny, tools: [desk/*]}":                                               "",
		"effect: deny, tools: [desk/x]}":                                               "line 5: the rule r can't fire, since no tool that it covers is listed",
		"effect: deny, tools: [desk/b]}":                                               "line 5: the rule r can't fire, since no tool that it covers is listed",
		"effect: deny, tools: [desk/a, dsk/a]}":                                        "line 5: the rule r names dsk/a, and no such tool is listed",
		"effect: deny, when: '!has(args.x) || args.x > 5'}":                            "",
		"effect: deny, when: 'has(args.x) && args.x > 5'}":                             "line 5: the rule r lets a call without x pass, because of has(…) && …; without has(…) such a call is denied. If that is meant, write has(…) ? … : false or give it a rule under args",
		"effect: review, when: 'tier == \"read\" && (has(args.m.x) && args.m.x > 5)'}": "line 5: the rule r lets a call without m.x pass, because of has(…) && …; without has(…) such a call is denied. If that is meant, write has(…) ? … : false or give it a rule under args",
	} {
		s, err := Parse("p", []byte(rule+tail+"\n"))
		if err != nil {
			t.Errorf("%s: %v", tail, err)
			continue
		}
		if got := strings.Join(s.Warnings(), "\n"); got != want {
			t.Errorf("%s\n got %s\nwant %s", tail, got, want)
		}
	}
	s := load(t, "version: 2\ntools: {desk/a: read}\nlimits:\n  - {match: pay/*, per: actor, rate: 1/m, burst: 1}\n  - {match: tier.write, per: actor, rate: 1/m, burst: 1}\n  - {match: desk/*, per: actor, rate: 1/m, burst: 1}\n")
	if got := strings.Join(s.Warnings(), "\n"); got != "line 4: the limit on pay/* has no effect, since no such tool is listed\nline 5: the limit on tier.write has no effect, since no such tool is listed" {
		t.Error(got)
	}
}

// Nothing of an argument that no rule asks for is converted or kept.
func TestUnaskedArgumentsCostNothing(t *testing.T) {
	s, err := Parse("p", []byte(tenRules))
	if err != nil {
		t.Fatal(err)
	}
	allocs := func(more string) float64 {
		f := tenRulesCall(tenRulesArgs + more + "}")
		return testing.AllocsPerRun(100, func() {
			if v := s.Judge(f); v.Effect != Review {
				t.Fatalf("%+v", v)
			}
		})
	}
	// With the race detector a pool forgets at random what was put back. What
	// looks at the thousand values below costs far more than this.
	const pools = 3
	bare := allocs("")
	if bare > 60 {
		t.Errorf("%v allocations for ten rules", bare)
	}
	for name, more := range map[string]string{
		"of many kinds": `, "blob": "` + strings.Repeat(`\u0041`, 1000) + `", "deep": {"a": [1, 2, {"b": "c"}]}, "n": 1e400, "m": [` + strings.Repeat("1, ", 500) + `1]`,
		"a long text":   `, "blob": "` + strings.Repeat("x", 1<<20) + `"`,
		"a long list":   `, "m": [` + strings.Repeat(`{"a": "b\\"}, `, 10_000) + `1]`,
	} {
		if got := allocs(more); got > bare+pools {
			t.Errorf("%v allocations, %v with arguments that no rule asks for: %s", bare, got, name)
		}
	}
}
