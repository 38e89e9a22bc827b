package gate

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-mcp/countersign/approvals/ledger"
	"github.com/countersign-mcp/countersign/server/policy"
	"github.com/countersign-mcp/countersign/server/upstream"
	"github.com/countersign-mcp/countersign/server/upstream/upstreamtest"
)

func names(t *testing.T, a Answer) []string {
	t.Helper()
	if a.Error != nil {
		t.Fatalf("%+v", a.Error)
	}
	var l struct{ Tools []struct{ Name string } }
	if err := json.Unmarshal(a.Result, &l); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, tool := range l.Tools {
		out = append(out, tool.Name)
	}
	return out
}

// What can't be called is refused in the same words, whatever the cause, before
// the upstream hears of it.
func TestHiddenDeniedAndUnknownToolsAreRefusedAlike(t *testing.T) {
	b := newBench(t)
	b.do(ana, "echo", `{}`)
	first := b.do(ana, "no_such_tool", `{}`)
	wantRefusal(t, first, codeParams, "unknown_tool")
	for _, name := range []string{
		"hidden_tool", "unlisted_tool", "missing_tool", "desk__echo", "Echo", "echo ", "", "../echo", "echo\u202e",
		"ech\u043e", strings.Repeat("x", 300), "echo\x00",
	} {
		a := b.do(ana, name, `{}`)
		if diff := cmp.Diff(first, a); diff != "" {
			t.Errorf("%q is told apart from an unknown tool: %s", name, diff)
		}
	}
	r := req(ana, "echo", `{}`)
	r.Front = "other"
	if diff := cmp.Diff(first, b.Call(t.Context(), r)); diff != "" {
		t.Errorf("another front: %s", diff)
	}
	if diff := cmp.Diff([]string{"echo {}"}, b.dir.Calls()); diff != "" {
		t.Error("the upstream was called: ", diff)
	}
	var outcomes []string
	for _, rec := range b.records() {
		if rec.Event == ledger.Decision {
			outcomes = append(outcomes, rec.Outcome)
		}
	}
	if len(outcomes) != 15 || strings.Count(strings.Join(outcomes, " "), "deny") != 14 {
		t.Errorf("decisions %v, want an allow and a deny for each refusal", outcomes)
	}
}

func TestDenialNamesItsRuleAndNoValue(t *testing.T) {
	b := newBench(t)
	a := b.do(ana, "echo_note", `{"title":"canary-991"}`)
	wantRefusal(t, a, codeParams, "policy_denied")
	var d struct{ Rule string }
	_ = json.Unmarshal(a.Error.Data, &d)
	if d.Rule != "args:/title" || strings.Contains(a.Error.Message, "canary") || strings.Contains(string(a.Error.Data), "canary") {
		t.Errorf("%s %s", a.Error.Message, a.Error.Data)
	}
	if b.dir.Calls() != nil {
		t.Error("it ran")
	}
}

// Each of the three gates is broken in turn; the other two must still stop what
// is denied and what nobody approved.
func TestOneBrokenGateLetsNothingThrough(t *testing.T) {
	allow := func(*State, policy.Facts) policy.Verdict { return policy.Verdict{Effect: policy.Allow} }
	tests := []struct {
		name   string
		broken func(*gates)
	}{
		{"list", func(g *gates) { g.list = func(*State, string, string) bool { return true } }},
		{"call", func(g *gates) { g.call = allow }},
		{"last", func(g *gates) { g.last = func(*State, policy.Facts, grounds, time.Time) error { return nil } }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, settings(func(s *Settings) { s.Hold = 1 }))
			tt.broken(&b.gates)
			for _, c := range [][2]string{
				{"hidden_tool", `{}`}, {"unlisted_tool", `{}`}, {"echo_note", `{"title":"much too long"}`}, {"cancel_order", `{"order":"1"}`},
			} {
				b.do(ana, c[0], c[1])
			}
			if calls := b.dir.Calls(); calls != nil {
				t.Errorf("ran %v", calls)
			}
		})
	}
}

// The third check asks the policy of that moment, not the one that the call
// came in under.
func TestPolicyThatChangesOnTheWayStopsAnAllowedCall(t *testing.T) {
	b := newBench(t)
	b.do(ana, "echo", `{}`)
	b.book.at(ledger.Decision, func(ledger.Record) {
		b.Load(b.stateOf(strings.Replace(testPolicy, "desk/echo: read", "desk/echo: deny", 1)))
	})
	wantRefusal(t, b.do(ana, "echo", `{"second":true}`), codeParams, "policy_denied")
	if n := len(b.dir.Calls()); n != 1 {
		t.Errorf("%d calls ran, want 1", n)
	}
	ops := b.ops()
	if diff := cmp.Diff([]string{"decision:allow", "exec_start:", "result:not_run"}, b.told(ops[len(ops)-1])); diff != "" {
		t.Error(diff)
	}
}

func TestListShowsWhatCanRunOrBeAskedFor(t *testing.T) {
	b := newBench(t)
	a := b.Tools(t.Context(), "desk", ana, nil)
	got := names(t, a)
	want := []string{
		"echo", "echo_note", "cancel_order", "crash_it", "crash_read", "hang_it", "hang_read", "wait_read", "wait_it", "fail_it",
		"leak_read", "spill_read", "leak_it", "fail_read",
		"rpcerror_it", "rpcerror_read", "big_it", "progress_read", "gone_order", "auto_order", CollectTool,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	// The tool's bytes stay; what it says of its own danger is replaced by ours.
	if want := `{"name":"echo","description":"Reads.", "x-future":{"n":9007199254740993},"annotations":{"readOnlyHint":true,"title":"E","destructiveHint":false},"inputSchema":{"type":"object"}}`; !strings.Contains(string(a.Result), want) {
		t.Errorf("lacks %s:\n%s", want, a.Result)
	}
	if want := `"annotations":{"readOnlyHint":false,"destructiveHint":true}`; !strings.Contains(string(a.Result), want) {
		t.Errorf("cancel_order may call itself harmless:\n%s", a.Result)
	}
	if a := b.Tools(t.Context(), "nope", ana, nil); a.Error == nil || a.Error.Code != codeParams {
		t.Errorf("a front that does not exist: %+v", a)
	}
	if a := b.Tools(t.Context(), "desk", ana, json.RawMessage(`{"cursor":"x"}`)); a.Error == nil {
		t.Error("a cursor of somebody else was taken")
	}
}

func TestListIsTheUpstreamsLiveOne(t *testing.T) {
	b := newBench(t)
	names(t, b.Tools(t.Context(), "desk", ana, nil))
	b.dir.SetTools(`[{"name":"echo_note","inputSchema":{"type":"object"}},{"name":"cancel_order"},{"name":"cancel_order","description":"twin"},{"noname":1}]`)
	b.eventually("the new list", func() bool {
		return cmp.Equal(names(t, b.Tools(t.Context(), "desk", ana, nil)), []string{"echo_note", CollectTool})
	})
}

func TestCollectIsOfferedOnlyWhereAPolicyCanReview(t *testing.T) {
	off := newBench(t, settings(func(s *Settings) { s.NoCollect = true }))
	for _, n := range names(t, off.Tools(t.Context(), "desk", ana, nil)) {
		if n == CollectTool {
			t.Error("listed although it is switched off")
		}
	}
	wantRefusal(t, off.do(ana, CollectTool, `{"approval_id":"x"}`), codeParams, "unknown_tool")

	b := newBench(t)
	b.Load(b.stateOf("version: 2\ntools: {desk/echo: read}\n"))
	if diff := cmp.Diff([]string{"echo"}, names(t, b.Tools(t.Context(), "desk", ana, nil))); diff != "" {
		t.Error(diff)
	}
}

func TestSeveralUpstreamsBehindOneFront(t *testing.T) {
	b := newBench(t)
	otherDir := upstreamtest.NewDir(t, `[{"name":"echo"},{"name":"a__b"},{"name":"countersign_collect"}]`)
	other, err := upstream.New(upstream.Config{Name: "notes", Command: otherDir.Command(), Env: otherDir.Env()}, b.log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { other.Close() })
	set, err := policy.Parse("p", []byte("version: 2\ntools: {desk/echo: read, notes/*: read}\n"))
	if err != nil {
		t.Fatal(err)
	}
	b.Load(State{Policy: set, Upstreams: map[string]Upstream{"desk": b.up, "notes": other}, Pins: Pins{FirstUse: true}})
	if diff := cmp.Diff([]string{"desk__echo", "notes__echo", "notes__a__b"}, names(t, b.Tools(t.Context(), "", ana, nil))); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"echo", "a__b"}, names(t, b.Tools(t.Context(), "notes", ana, nil))); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"desk", "notes"}, b.Fronts()); diff != "" {
		t.Error(diff)
	}
	r := req(ana, "notes__a__b", `{}`)
	r.Front = ""
	read(t, b.Call(t.Context(), r))
	for _, name := range []string{"echo" /* whose? */, "notes__countersign_collect" /* is hidden */} {
		r.Name = name
		wantRefusal(t, b.Call(t.Context(), r), codeParams, "unknown_tool")
	}
	if diff := cmp.Diff([]string{"a__b {}"}, otherDir.Calls()); diff != "" {
		t.Error(diff)
	}
	// Also what is refused before anybody looks for the tool is on the ledger as the
	// policy knows it.
	r.Name = "notes__a__b"
	wantRefusal(t, b.Call(t.Context(), claiming(r, `{}`)), codeParams, "malformed")
	if last := b.records()[len(b.records())-1]; last.Server != "notes" || last.Tool != "a__b" {
		t.Errorf("the ledger says %s/%s", last.Server, last.Tool)
	}
	if i := b.Info("notes"); i.Name != "desk" || i.Version != "1.2" || i.Instructions != "Be kind." {
		t.Errorf("Info %+v", i)
	}
	if i := b.Info(""); i != (Info{}) {
		t.Errorf("Info of several %+v", i)
	}
}

func TestNoPolicyDeniesEverything(t *testing.T) {
	b := newBench(t)
	b.Load(State{Upstreams: map[string]Upstream{"desk": b.up}})
	for _, name := range []string{"echo", "cancel_order", "hidden_tool"} {
		wantRefusal(t, b.do(ana, name, `{}`), codeParams, "unknown_tool")
	}
	if got := names(t, b.Tools(t.Context(), "desk", ana, nil)); got != nil || b.dir.Calls() != nil {
		t.Errorf("shows %v, ran %v", got, b.dir.Calls())
	}
}
