package policy

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/action"
)

func load(t *testing.T, text string, upstreams ...string) *Set {
	t.Helper()
	s, err := Parse("policy.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if len(upstreams) == 0 {
		upstreams = []string{"desk"}
	}
	if err := s.Bind(upstreams); err != nil {
		t.Fatal(err)
	}
	return s
}

func judge(s *Set, name, args string) Verdict {
	server, tool, _ := strings.Cut(name, "/")
	return s.Judge(Facts{Call: action.Call{Server: server, Tool: tool, Args: json.RawMessage(args)}})
}

// says is a verdict in one line: the effect and the ids that carry it.
func says(v Verdict) string {
	var ids []string
	for _, r := range v.Reasons {
		if r.Effect == v.Effect {
			ids = append(ids, r.ID)
		}
	}
	return v.Effect.String() + " by " + strings.Join(ids, " ")
}

const defaultRoute = "\nroutes: {default: {channels: [slack:C0APPROVALS], approvers: [group:ops]}}\n"

func TestSeedPolicy(t *testing.T) {
	b, err := os.ReadFile("testdata/seed.v1.json")
	if err != nil {
		t.Fatal(err)
	}
	s := load(t, string(b), "notes")
	e := func(n int) string { return strings.Repeat("é", n) }
	for _, tc := range []struct{ tool, args, want string }{
		{"notes/write_note", `{"request_id":"req-0001","text":"hi"}`, "allow by tool:write_note"},
		{"notes/read_ledger", `{}`, "allow by tool:read_ledger"},
		{"notes/read_ledger", ``, "allow by tool:read_ledger"},
		{"notes/rm_rf", `{"path":"/x"}`, "deny by tool:rm_rf"},
		{"notes/other", `{}`, "deny by unlisted"},
		{"other/read_ledger", `{}`, "deny by unlisted"},
		{"notes/Read_Ledger", `{}`, "deny by unlisted"},
		{"notes/read_ledger\x00", `{}`, "deny by unlisted"},
		{"notes/re\u200bad_ledger", `{}`, "deny by unlisted"},
		{"notes/reаd_ledger", `{}`, "deny by unlisted"}, // Cyrillic а
		{"notes/", `{}`, "deny by unlisted"},
		// Both ends are in, and code points are counted.
		{"notes/write_note", `{"request_id":"12345678","text":""}`, "allow by tool:write_note"},
		{"notes/write_note", `{"request_id":"1234567","text":""}`, "deny by args:/request_id"},
		{"notes/write_note", `{"request_id":"éééééééé","text":"` + e(2000) + `"}`, "allow by tool:write_note"},
		{"notes/write_note", `{"request_id":"éééééééé","text":"` + e(2001) + `"}`, "deny by args:/text"},
		{"notes/write_note", `{"request_id":"12345678","text":"` + strings.Repeat(`\ud83d\ude00`, 2000) + `"}`, "allow by tool:write_note"},
		// A rule needs a string that is there.
		{"notes/write_note", `{"request_id":"12345678"}`, "deny by args:/text"},
		{"notes/write_note", `{"text":""}`, "deny by args:/request_id"},
		{"notes/write_note", `{}`, "deny by args:/request_id args:/text"},
		{"notes/write_note", `{"request_id":12345678,"text":""}`, "deny by args:/request_id"},
		{"notes/write_note", `{"request_id":null,"text":""}`, "deny by args:/request_id"},
		{"notes/write_note", `{"request_id":["12345678"],"text":""}`, "deny by args:/request_id"},
		{"notes/write_note", `{"request_id":true,"text":{}}`, "deny by args:/request_id args:/text"},
		{"notes/write_note", `["12345678"]`, "deny by args:"},
	} {
		if got := says(judge(s, tc.tool, tc.args)); got != tc.want {
			t.Errorf("%s %.60s: %s, want %s", tc.tool, tc.args, got, tc.want)
		}
	}
	for tool, want := range map[string]bool{"write_note": true, "read_ledger": true, "rm_rf": false, "other": false} {
		if got := s.Shows("notes", tool); got != want {
			t.Errorf("shows %s: %v", tool, got)
		}
	}
	if s.Reviews() || s.Version() != 1 {
		t.Error("version 1 never asks")
	}
}

func TestVersion1(t *testing.T) {
	both := load(t, `{"version":1,"allow":["a","b"],"deny":["b"]}`, "notes")
	if got := says(judge(both, "notes/b", "{}")); got != "deny by tool:b" {
		t.Error("deny beats allow:", got)
	}
	if both.Shows("notes", "b") || !both.Shows("notes", "a") {
		t.Error("a denied tool is shown")
	}
	unbound, err := Parse("p", []byte(`{"version":1,"allow":["a"]}`))
	if err != nil {
		t.Fatal(err)
	}
	if v := judge(unbound, "notes/a", "{}"); v.Effect != Deny {
		t.Error("allowed before it was bound")
	}
	for _, ups := range [][]string{nil, {"a", "b"}} {
		if err := unbound.Bind(ups); err == nil {
			t.Errorf("bound to %v", ups)
		}
	}
	if err := unbound.Bind([]string{"notes"}); err != nil || judge(unbound, "notes/a", "{}").Effect != Allow {
		t.Error("not allowed once bound", err)
	}
	for _, v := range []string{"true", "1.0", `"1"`, "01", "0x1", "3", "null", "[1]", "1e0"} {
		if _, err := Parse("p", []byte("version: "+v+"\nallow: [a]\n")); err == nil {
			t.Errorf("version: %s loads", v)
		}
	}
}

func TestTierEffects(t *testing.T) {
	s := load(t, `
version: 2
tools:
  desk/look: read
  desk/note: write
  desk/cancel: destructive
  desk/wipe: deny
`+defaultRoute)
	for tool, want := range map[string]string{
		"desk/look":   "allow by tier:read",
		"desk/note":   "allow by tier:write",
		"desk/cancel": "review by tier:destructive",
		"desk/wipe":   "deny by tool:desk/wipe",
		"desk/none":   "deny by unlisted",
		"other/look":  "deny by unlisted",
	} {
		v := judge(s, tool, "{}")
		if says(v) != want {
			t.Errorf("%s: %s, want %s", tool, says(v), want)
		}
		name := tool[strings.IndexByte(tool, '/')+1:]
		if shown := s.Shows(tool[:strings.IndexByte(tool, '/')], name); shown != (v.Effect != Deny) {
			t.Errorf("%s is shown: %v", tool, shown)
		}
		if len(v.Reasons) == 0 || v.Policy != s.Digest() || (v.Effect == Review) != (len(v.Routes) > 0) {
			t.Errorf("%s: %+v", tool, v)
		}
		for _, r := range v.Reasons {
			if r.Text == "" || r.ID == "" {
				t.Errorf("%s: a reason without words: %+v", tool, r)
			}
		}
	}
	if !s.Reviews() {
		t.Error("it can ask")
	}
	v := judge(s, "desk/cancel", "{}")
	want := []approvals.Route{{Name: "default", Channels: []string{"slack:C0APPROVALS"}, Approvers: []string{"group:ops"}, Quorum: 1, Timeout: 15 * time.Minute}}
	if d := cmp.Diff(want, v.Routes); d != "" {
		t.Errorf("default route (-want +got):\n%s", d)
	}
	if v.Tier != "destructive" {
		t.Errorf("tier %q", v.Tier)
	}
	for _, set := range []*Set{nil, {}} {
		if v := judge(set, "desk/look", "{}"); v.Effect != Deny || len(v.Reasons) == 0 || set.Shows("desk", "look") {
			t.Errorf("an empty policy says %+v", v)
		}
	}
	if (Verdict{}).Effect != Deny || Effect(7).String() != "deny" {
		t.Error("the zero value does not deny")
	}
}

func TestTiersCanBeSet(t *testing.T) {
	s := load(t, "version: 2\ntiers: {write: review, read: deny}\ntools: {desk/note: write, desk/look: read, desk/cancel: destructive}"+defaultRoute)
	for tool, want := range map[string]string{
		"desk/note": "review by tier:write", "desk/look": "deny by tier:read", "desk/cancel": "review by tier:destructive",
	} {
		if got := says(judge(s, tool, "{}")); got != want {
			t.Errorf("%s: %s, want %s", tool, got, want)
		}
	}
	if s.Shows("desk", "look") {
		t.Error("a tool of a denied tier is shown")
	}
	quiet := load(t, "version: 2\ntiers: {destructive: allow}\ntools: {desk/cancel: destructive}")
	if quiet.Reviews() || judge(quiet, "desk/cancel", "{}").Effect != Allow {
		t.Error("a tier set to allow asks")
	}
}

// What is denied by its arguments is denied, not asked for; the tier's reason
// stays, behind.
func TestDenyBeatsReview(t *testing.T) {
	s := load(t, "version: 2\ntools: {desk/cancel: {tier: destructive, args: {id: {type: string, required: true}}}}"+defaultRoute)
	v := judge(s, "desk/cancel", `{"id":4417}`)
	if says(v) != "deny by args:/id" || len(v.Routes) != 0 || len(v.Reasons) != 2 || v.Reasons[0].ID != "args:/id" {
		t.Errorf("%+v", v)
	}
	if v := judge(s, "desk/cancel", `{"id":"4417"}`); says(v) != "review by tier:destructive" {
		t.Errorf("%+v", v)
	}
	for range 20 {
		if again := judge(s, "desk/cancel", `{"id":4417}`); !cmp.Equal(v, again, cmp.AllowUnexported(action.Digest{})) && again.Effect != Deny {
			t.Error("two judgements differ")
		}
	}
}

// What the upstream or the caller says of a call changes nothing.
func TestHintsAreNotConsulted(t *testing.T) {
	s := load(t, "version: 2\ntools: {desk/cancel: destructive}"+defaultRoute)
	c := action.Call{
		Server: "desk", Tool: "cancel", Args: json.RawMessage(`{"readOnlyHint":true,"tier":"read"}`),
		Meta:  json.RawMessage(`{"annotations":{"readOnlyHint":true,"destructiveHint":false}}`),
		Extra: json.RawMessage(`{"annotations":{"readOnlyHint":true}}`),
		Actor: action.Actor{ID: "root", Roles: []string{"admin", "operator"}},
	}
	if v := s.Judge(Facts{Call: c}); v.Effect != Review || v.Tier != "destructive" {
		t.Errorf("%+v", v)
	}
}

func TestRoutesAndDisplay(t *testing.T) {
	s := load(t, `
version: 2
policy_id: acme-prod
tools:
  pay/transfer: {tier: destructive, route: finance, title: "Pay {amount} to {account}", mask: [/card/number, /a~1b]}
  iam/*: {tier: destructive, route: security}
roles: {operator: [ana@acme.test, group:ops], auditor: [group:ops]}
redact: {keys: [iban, card_pin]}
routes:
  finance: {channels: [slack:C0FINANCE], approvers: [group:finance, ana], quorum: 2, timeout: 30m, allow_requester: true}
  security: {channels: [ticket:servicenow, link:ana], approvers: [slack-group:S0SEC], timeout: 4h, run: on_approve, on_cancel: withdraw, links: approve}
`, "pay", "iam")
	finance := approvals.Route{Name: "finance", Channels: []string{"slack:C0FINANCE"}, Approvers: []string{"group:finance", "ana"}, Quorum: 2, Timeout: 30 * time.Minute, AllowRequester: true}
	security := approvals.Route{
		Name: "security", Channels: []string{"ticket:servicenow", "link:ana"}, Approvers: []string{"slack-group:S0SEC"},
		Quorum: 1, Timeout: 4 * time.Hour, Run: "on_approve", OnCancel: "withdraw", Links: "approve",
	}
	if d := cmp.Diff([]approvals.Route{finance, security}, s.Routes()); d != "" {
		t.Errorf("routes (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]approvals.Route{finance}, judge(s, "pay/transfer", "{}").Routes); d != "" {
		t.Errorf("route of pay/transfer (-want +got):\n%s", d)
	}
	want := Display{Keys: []string{"iban", "card_pin"}, Pointers: []string{"/card/number", "/a~1b"}, Title: "Pay {amount} to {account}"}
	if d := cmp.Diff(want, s.Rules("pay", "transfer")); d != "" {
		t.Errorf("display (-want +got):\n%s", d)
	}
	if d := s.Rules("iam", "grant"); d.Title != "" || len(d.Keys) != 2 {
		t.Errorf("display of a tool without one: %+v", d)
	}
	for _, tc := range []struct {
		own    []string
		actor  string
		groups []string
		want   []string
	}{
		{nil, "ana@acme.test", nil, []string{"operator"}},
		{[]string{"x", "operator"}, "ana@acme.test", []string{"group:ops"}, []string{"auditor", "operator", "x"}},
		{nil, "bo", []string{"group:ops"}, []string{"auditor", "operator"}},
		{nil, "group", nil, nil},
		{[]string{"x"}, "", nil, []string{"x"}},
	} {
		if got := s.Roles(tc.own, tc.actor, tc.groups); !slices.Equal(got, tc.want) {
			t.Errorf("roles of %+v: %v", tc, got)
		}
	}
	if s.ID() != "acme-prod" || s.Version() != 2 || len(s.Warnings()) != 0 {
		t.Errorf("%q %d %q", s.ID(), s.Version(), s.Warnings())
	}
}

func TestDigestIsOfTheBytes(t *testing.T) {
	a := load(t, "version: 2\ntools: {desk/a: read}")
	b := load(t, "version: 2\ntools: {desk/a: read} ")
	if a.Digest() == b.Digest() || a.Digest().IsZero() || a.Digest() != load(t, "version: 2\ntools: {desk/a: read}").Digest() {
		t.Error("the digest does not follow the bytes")
	}
}

func TestWarnings(t *testing.T) {
	s := load(t, "version: 2\ntools:\n  desk/a: read\n  dsk/b: deny\n  d*/c: read\nroutes: {default: {approvers: [ana]}}")
	w := strings.Join(s.Warnings(), "\n")
	if len(s.Warnings()) != 2 || !strings.Contains(w, "line 4") || !strings.Contains(w, "no channels") {
		t.Errorf("warnings: %s", w)
	}
}
