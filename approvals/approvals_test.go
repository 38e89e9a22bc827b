package approvals

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func TestEligible(t *testing.T) {
	fresh := func(groups ...string) Memberships { return Memberships{Groups: groups, AsOf: noon} }
	req := Requirement{Route: "r", Approvers: []string{"ana", "group:ops", "slack-group:S0"}, Excluded: []string{"bo", "cy"}}
	for _, tc := range []struct {
		name   string
		change func(*Requirement)
		person string
		m      Memberships
		want   Standing
	}{
		{"named", nil, "ana", Memberships{}, Standing{MayApprove: true, MayDeny: true}},
		{"in a group", nil, "di", fresh("group:ops"), Standing{MayApprove: true, MayDeny: true}},
		{"in a Slack group", nil, "di", fresh("slack-group:S0"), Standing{MayApprove: true, MayDeny: true}},
		{"stranger", nil, "di", fresh("group:dev"), Standing{Why: NotEligible}},
		{"no groups", nil, "di", Memberships{}, Standing{Why: NotEligible}},
		{"nobody", nil, "", fresh("group:ops"), Standing{Why: NotEligible}},
		{"another case", nil, "Ana", Memberships{}, Standing{Why: NotEligible}},
		{"membership of 60 s", nil, "di", Memberships{Groups: []string{"group:ops"}, AsOf: noon.Add(-60 * time.Second)}, Standing{MayApprove: true, MayDeny: true}},
		{"membership of 60 s and 1 ms", nil, "di", Memberships{Groups: []string{"group:ops"}, AsOf: noon.Add(-60*time.Second - time.Millisecond)}, Standing{Why: NotEligible}},
		{"membership from the future", nil, "di", Memberships{Groups: []string{"group:ops"}, AsOf: noon.Add(61 * time.Second)}, Standing{Why: NotEligible}},
		{"membership without a time", nil, "di", Memberships{Groups: []string{"group:ops"}}, Standing{Why: NotEligible}},
		{"requester in a group", nil, "bo", fresh("group:ops"), Standing{MayDeny: true, Why: SelfApproval}},
		{"requester off the route", nil, "bo", fresh("group:dev"), Standing{Why: NotEligible}},
		{"owner named", func(r *Requirement) { r.Approvers = []string{"cy"} }, "cy", Memberships{}, Standing{MayDeny: true, Why: SelfApproval}},
		{"requester where allowed", func(r *Requirement) { r.AllowRequester = true }, "bo", fresh("group:ops"), Standing{MayApprove: true, MayDeny: true}},
		{"requester where allowed, off the route", func(r *Requirement) { r.AllowRequester = true }, "bo", fresh(), Standing{Why: NotEligible}},
		{"no approvers", func(r *Requirement) { r.Approvers = nil }, "ana", fresh("group:ops"), Standing{Why: NotEligible}},
		{"an empty approver", func(r *Requirement) { r.Approvers = []string{""} }, "", Memberships{}, Standing{Why: NotEligible}},
		{"an empty group", func(r *Requirement) { r.Approvers = []string{"group:"} }, "di", fresh(""), Standing{Why: NotEligible}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := req
			if tc.change != nil {
				tc.change(&r)
			}
			if d := cmp.Diff(tc.want, Eligible(r, tc.person, tc.m, noon)); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
	if got := Eligible(Requirement{}, "ana", Memberships{AsOf: noon}, noon); got.MayApprove || got.MayDeny {
		t.Error("an empty requirement means nobody")
	}
}

func TestStates(t *testing.T) {
	want := map[State][]State{
		Pending:   {Approved, Denied, Expired, Withdrawn, Void},
		Approved:  {Executing, Lapsed, Void, Withdrawn, Revoked},
		Executing: {Succeeded, Failed, NotRun, Unknown},
		Unknown:   {Succeeded, Failed, NotRun},
	}
	if len(States()) != 13 || len(slices.Compact(slices.Sorted(slices.Values(States())))) != 13 {
		t.Errorf("states %v", States())
	}
	for _, from := range States() {
		for _, to := range States() {
			if got := from.May(to); got != slices.Contains(want[from], to) {
				t.Errorf("%s to %s: %v", from, to, got)
			}
		}
		if from.Over() != (want[from] == nil) {
			t.Errorf("%s is over: %v", from, from.Over())
		}
		if from.May(Pending) || from != Pending && from.May(Approved) {
			t.Errorf("a way leads back from %s", from)
		}
	}
	// Nothing runs that was not approved and claimed.
	for _, from := range States() {
		if from != Approved && from.May(Executing) || from != Executing && from != Unknown && from.May(Succeeded) {
			t.Errorf("a way around the claim from %s", from)
		}
	}
	if State("made up").May(Approved) || State("").May(Executing) {
		t.Error("an unknown state may move")
	}
}

func TestRouteSameAs(t *testing.T) {
	base := Route{Name: "r", Approvers: []string{"a", "b"}, Quorum: 1, Timeout: time.Minute, Channels: []string{"slack:C0"}}
	for name, tc := range map[string]struct {
		change func(*Route)
		same   bool
	}{
		"itself":     {func(*Route) {}, true},
		"order":      {func(r *Route) { r.Approvers = []string{"b", "a"} }, true},
		"channels":   {func(r *Route) { r.Channels = nil }, true},
		"timeout":    {func(r *Route) { r.Timeout = time.Hour }, true},
		"name":       {func(r *Route) { r.Name = "x" }, false},
		"one more":   {func(r *Route) { r.Approvers = []string{"a", "b", "c"} }, false},
		"one less":   {func(r *Route) { r.Approvers = []string{"a"} }, false},
		"another":    {func(r *Route) { r.Approvers = []string{"a", "c"} }, false},
		"a twice":    {func(r *Route) { r.Approvers = []string{"a", "a"} }, false},
		"quorum":     {func(r *Route) { r.Quorum = 2 }, false},
		"requesters": {func(r *Route) { r.AllowRequester = true }, false},
	} {
		other := base
		tc.change(&other)
		if base.SameAs(other) != tc.same || other.SameAs(base) != tc.same {
			t.Errorf("%s: want %v", name, tc.same)
		}
	}
	if base.Approvers[0] != "a" {
		t.Error("comparing sorted the route")
	}
}

func TestRequire(t *testing.T) {
	r := Route{Name: "r", Approvers: []string{"a"}, Timeout: time.Minute}
	excluded := []string{"bo"}
	req := r.Require(excluded)
	if req.Quorum != 1 {
		t.Errorf("a quorum of %d lets a call through without anyone", req.Quorum)
	}
	excluded[0], r.Approvers[0] = "x", "x"
	if d := cmp.Diff(Requirement{Route: "r", Approvers: []string{"a"}, Quorum: 1, Timeout: time.Minute, Excluded: []string{"bo"}}, req); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func roster(t *testing.T) *Roster {
	t.Helper()
	r, err := NewRoster([]Person{
		{ID: "ana", Actors: []string{"ana@acme.test", "bot-1"}, Slack: "U1", Tickets: map[string]string{"jira": "j1", "snow": "s"}},
		{ID: "bo", Slack: "U2", Tickets: map[string]string{"jira": "j2", "snow": "s"}},
		{ID: "cy"},
	}, map[string][]string{"ops": {"ana", "slack-group:S0"}, "sec": {"bo", "slack-group:S1"}, "all": {"ana", "bo"}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRoster(t *testing.T) {
	r := roster(t)
	for _, tc := range []struct{ name, got, want string }{
		{"actor", r.ByActor("bot-1"), "ana"},
		{"unknown actor", r.ByActor("ana"), ""},
		{"empty actor", r.ByActor(""), ""},
		{"Slack", r.BySlack("U2"), "bo"},
		{"empty Slack", r.BySlack(""), ""},
		{"Slack in another case", r.BySlack("u2"), ""},
		{"ticket", r.ByTicket("jira", "j1"), "ana"},
		{"ticket of two people", r.ByTicket("snow", "s"), ""},
		{"ticket of another system", r.ByTicket("github", "j1"), ""},
		{"empty ticket id", r.ByTicket("jira", ""), ""},
		{"empty system", r.ByTicket("", ""), ""},
		{"groups", fmt.Sprint(r.Groups("ana")), "[group:all group:ops]"},
		{"groups of nobody", fmt.Sprint(r.Groups("")), "[]"},
		{"through a Slack group", fmt.Sprint(r.Through([]string{"slack-group:S1"})), "[group:sec]"},
		{"through a person", fmt.Sprint(r.Through([]string{"S1"})), "[]"},
		{"Slack groups of a list", fmt.Sprint(r.SlackGroups([]string{"ana", "group:ops", "slack-group:S9", "group:none", "group:ops"})), "[slack-group:S0 slack-group:S9]"},
		{"people", r.People()[0].ID + " " + r.People()[len(r.People())-1].ID, "ana cy"},
	} {
		if tc.got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, tc.got, tc.want)
		}
	}
	if _, ok := r.Person("nobody"); ok {
		t.Error("nobody is a person")
	}
	if m, ok := r.Members("ops"); !ok || len(m) != 2 {
		t.Errorf("members %v %v", m, ok)
	}
	if _, ok := r.Members("group:ops"); ok {
		t.Error("a group is found by its prefixed name")
	}
	m, _ := r.Members("ops")
	m[0] = "evil"
	if again, _ := r.Members("ops"); again[0] != "ana" {
		t.Error("the roster can be changed from outside")
	}
}

func TestRosterRefuses(t *testing.T) {
	one := []Person{{ID: "ana", Actors: []string{"x"}, Slack: "U1"}}
	for name, tc := range map[string]struct {
		people []Person
		groups map[string][]string
	}{
		"no id":               {[]Person{{Slack: "U1"}}, nil},
		"twice":               {[]Person{{ID: "a"}, {ID: "a"}}, nil},
		"a shared actor":      {append(slices.Clone(one), Person{ID: "bo", Actors: []string{"x"}}), nil},
		"a shared Slack id":   {append(slices.Clone(one), Person{ID: "bo", Slack: "U1"}), nil},
		"an actor twice":      {[]Person{{ID: "a", Actors: []string{"x", "x"}}}, nil},
		"an empty actor":      {[]Person{{ID: "a", Actors: []string{""}}}, nil},
		"a person like group": {[]Person{{ID: "group:ops"}}, nil},
		"a person like Slack": {[]Person{{ID: "slack-group:S0"}}, nil},
		"an unknown member":   {one, map[string][]string{"g": {"bo"}}},
		"an empty member":     {one, map[string][]string{"g": {""}}},
		"a group in a group":  {one, map[string][]string{"g": {"group:h"}, "h": {"ana"}}},
		"a prefixed group":    {one, map[string][]string{"group:g": {"ana"}}},
		"a nameless group":    {one, map[string][]string{"": {"ana"}}},
	} {
		if _, err := NewRoster(tc.people, tc.groups); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

func TestConflict(t *testing.T) {
	err := fmt.Errorf("deciding: %w", AlreadyDecided)
	if c, ok := AsConflict(err); !ok || c != AlreadyDecided || !errors.Is(err, AlreadyDecided) || errors.Is(err, IsExpired) {
		t.Errorf("%v %v", c, ok)
	}
	if c, ok := AsConflict(errors.New("x")); ok || c != "" {
		t.Error("any error is a conflict")
	}
	if _, ok := AsConflict(nil); ok {
		t.Error("no error is a conflict")
	}
}

func TestVerdict(t *testing.T) {
	if v, ok := ParseVerdict("approve"); !ok || v != Approve || v.String() != "approve" {
		t.Error("approve")
	}
	if v, ok := ParseVerdict("deny"); !ok || v != Deny || v.String() != "deny" {
		t.Error("deny")
	}
	// Only an explicit yes approves.
	for _, s := range []string{"", "Approve", "APPROVE", "approved", "yes", "true", "1", " approve", "approve ", "approve\x00", "аpprove"} {
		if v, ok := ParseVerdict(s); ok || v == Approve {
			t.Errorf("%q is an answer", s)
		}
	}
	var zero Verdict
	if zero == Approve || zero.String() != "deny" || Verdict(2).String() != "deny" {
		t.Error("the zero value is a yes")
	}
}

func TestView(t *testing.T) {
	for name, tc := range map[string]struct {
		v    View
		want bool
	}{
		"zero":         {View{}, false},
		"text":         {View{Text: "{}"}, true},
		"missing":      {View{Text: "{}", Missing: []string{"too big"}}, false},
		"masked":       {View{Text: "{}", Masked: []Mask{{}}, Warnings: []string{"x"}}, true},
		"missing only": {View{Missing: []string{"x"}}, false},
	} {
		if tc.v.Complete() != tc.want {
			t.Errorf("%s: %v", name, !tc.want)
		}
	}
	for digest, want := range map[string]string{"": "", "k1.": "", "k1.abc": "abc", "k1.abcdefghijklmnop": "abcdefghijkl", "nokey": ""} {
		if got := (Mask{Digest: digest}).Short(); got != want {
			t.Errorf("%q is shown as %q", digest, got)
		}
	}
	if (Ticket{}).Delivered() || !(Ticket{Refs: []Ref{{}}}).Delivered() {
		t.Error("delivered")
	}
}
