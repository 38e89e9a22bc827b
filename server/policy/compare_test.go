package policy

import (
	"encoding/json"
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
		Routes: []RouteChange{{"default", "quorum", "1", "2"}},
	}
	got := Compare(before, after, []Named{call})
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if len(call.Facts.Call.Actor.Roles) > 0 {
		t.Error("the roles stay with the caller's facts")
	}
}
