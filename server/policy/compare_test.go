package policy

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-mcp/countersign/approvals/action"
)

func TestCompare(t *testing.T) {
	const routes = "routes: {default: {channels: [slack:C0A], approvers: [ana, bo], quorum: 1}}\n"
	before := load(t, "version: 2\ntools: {desk/*: read, desk/pay: destructive, desk/w*: deny}\nroles: {clerk: [ana]}\n"+routes+
		"rules: [{id: clerks, tools: [desk/look], effect: deny, when: '\"clerk\" in actor.roles', reason: x}]\n"+
		"cases: [{name: one, call: {tool: desk/look}, want: allow}, {name: two, call: {tool: desk/pay, roles: [clerk]}, want: review}]")
	call := Named{Name: "ana looks", Facts: Facts{Call: action.Call{Server: "desk", Tool: "look", Args: json.RawMessage("{}"), Actor: action.Actor{ID: "ana"}}}}
	if d := Compare(before, before, []Named{call}); !d.Same() || d.Judged != 3 {
		t.Errorf("%+v", d)
	}
	after := load(t, "version: 2\ntools: {desk/*: write, desk/pay: destructive, desk/wipe: deny}\n"+
		"routes: {default: {channels: [slack:C0A], approvers: [bo, ana], quorum: 2}}\n"+
		"rules: [{id: clerks, tools: [desk/look], effect: deny, when: '\"clerk\" in actor.roles', reason: x}]\n"+
		"cases: [{name: another name of one, call: {tool: desk/look}, want: allow}]")
	want := Difference{
		Judged: 3,
		Calls: []CallChange{
			{Name: "one", Tool: "desk/look", Old: Ruling{"allow", "read", []string{}, []string{"tier:read"}}, New: Ruling{"allow", "write", []string{}, []string{"tier:write"}}},
			// The policy gives ana no role any more.
			{Name: "ana looks", Tool: "desk/look", Old: Ruling{"deny", "read", []string{}, []string{"clerks"}}, New: Ruling{"allow", "write", []string{}, []string{"tier:write"}}},
		},
		Tools: []ToolChange{
			{"desk/*", Listing{Shown: true, Tier: "read", Effect: "allow"}, Listing{Shown: true, Tier: "write", Effect: "allow"}},
			{"desk/w*", Listing{Effect: "deny"}, Listing{Shown: true, Tier: "write", Effect: "allow"}},
		},
		Routes:   []RouteChange{{"default", "quorum", "1", "2"}},
		Settings: []SettingChange{{"roles.clerk", "ana", ""}},
	}
	got := Compare(before, after, []Named{call})
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if len(call.Facts.Call.Actor.Roles) > 0 {
		t.Error("the roles stay with the caller's facts")
	}
}

// What changes nothing about a tier, a rule or a route can change whether anybody is
// asked, and what they see.
func TestCompareSettings(t *testing.T) {
	const base = "version: 2\ntools: {desk/pay: {tier: destructive%s}}\nroutes: {default: {channels: [slack:C0A], approvers: [ana]}}\n%s"
	of := func(tool, more string) *Set { return load(t, fmt.Sprintf(base, tool, more)) }
	plain := of("", "")
	for more, want := range map[[2]string]SettingChange{
		{"", "observe: {upstreams: [desk], until: 2030-01-02}"}:            {"observe", "", "desk until 2030-01-02T00:00:00Z"},
		{"", "limits: [{match: desk/*, per: actor, rate: 1/m, burst: 2}]"}: {"limits", "", "desk/* 1/m burst 2"},
		{"", "limits: [{parked: {per_actor: 3}}]"}:                         {"limits", "", "parked per actor 3"},
		{"", "limits: [{denials: 2, close: 1m}]"}:                          {"limits", "", "closed for 1m0s after 2 denials"},
		{"", "provenance: {trusted_labelers: [host@acme.test]}"}:           {"provenance.trusted_labelers", "", "host@acme.test"},
		{"", "redact: {keys: [iban]}"}:                                     {"redact.keys", "", "iban"},
		{"", "roles: {clerk: [bo, ana]}"}:                                  {"roles.clerk", "", "ana, bo"},
		{", title: 'Pay {to}'", ""}:                                        {"desk/pay title", "", "Pay {to}"},
		{", mask: [/card]", ""}:                                            {"desk/pay mask", "", "/card"},
		{", produces: retrieved", ""}:                                      {"desk/pay produces", "", "retrieved"},
	} {
		d := Compare(plain, of(more[0], more[1]), nil)
		if diff := cmp.Diff([]SettingChange{want}, d.Settings); diff != "" || d.Same() {
			t.Errorf("%s: %s", more, diff)
		}
	}
	if d := Compare(of("", "redact: {keys: [a, b]}"), of("", "redact: {keys: [b, a]}"), nil); !d.Same() {
		t.Errorf("another order: %+v", d.Settings)
	}
}
