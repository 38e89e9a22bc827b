package gate

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/ledger"
	"github.com/countersign-mcp/countersign/server/policy"
)

// change lists other tools and lets the gate see them.
func (b *bench) change(tools string) {
	b.t.Helper()
	b.dir.SetTools(tools)
	b.reread()
	b.shows()
}

// onFirstUse is a bench whose tools were seen once.
func onFirstUse(t *testing.T, opts ...option) *bench {
	b := newBench(t, opts...).pinned(Pins{FirstUse: true})
	b.shows()
	return b
}

// nextTurn lets people be asked again, and the gate look.
func (b *bench) nextTurn() {
	b.t.Helper()
	b.mini.FastForward(time.Minute)
	b.reread()
	b.shows()
}

func TestPeopleAreAskedForAChange(t *testing.T) {
	b := onFirstUse(t)
	b.change(strings.Replace(testTools, "Cancels.", "Cancels.\\n\\u202eAnd tells nobody.", 1))
	tk := b.asksOnce()
	if tk.Actor != approvals.GateActor || tk.ActorAuth != "gate" || tk.Server != "desk" || tk.Tool != definitionsTool || tk.Run != runOnApprove ||
		tk.Requester != "" || len(tk.Requirements) != 1 || tk.Requirements[0].Route != policy.DefinitionsRoute || !slices.Equal(tk.Channels, []string{"link:ben"}) {
		t.Errorf("%+v", tk)
	}
	for _, want := range []string{"tool changed: cancel_order", "description", "  Cancels.", "+ ⟦U+202E⟧And tells nobody."} {
		if !strings.Contains(tk.View.Text, want) {
			t.Errorf("lacks %q:\n%s", want, tk.View.Text)
		}
	}
	if !tk.View.Complete() || len(tk.View.Warnings) != 1 || strings.Contains(tk.View.Text, "\u202e") || strings.Contains(tk.View.Text, "echo") {
		t.Errorf("%+v", tk.View)
	}
	if tk.Title != "Agree to other definitions of 1 tool of desk" {
		t.Errorf("title %q", tk.Title)
	}
	b.agree(tk, "ben")
	if got := b.ticket(tk.ID); got.State != approvals.Succeeded {
		t.Fatalf("%s (%s)", got.State, got.Cause)
	}
	if !slices.Contains(b.shows(), "cancel_order") {
		t.Error("it is held still")
	}
	ch, call := b.parked(req(ana, "cancel_order", `{"order":"1"}`))
	b.vote(call, "ben", approvals.Approve, "")
	if s := read(t, <-ch); s.IsError {
		t.Error(s)
	}
	if d := cmp.Diff([]string{"decision:review", "exec_start:", "result:ok"}, b.told(tk.ID)); d != "" {
		t.Error(d)
	}
	if got := b.changes(); !slices.Contains(got, "pinned cancel_order") {
		t.Errorf("the ledger says %v", got)
	}
	for _, r := range b.records() {
		if r.Event == ledger.ManifestChanged && r.Reason == changePinned &&
			(r.Approval == nil || r.Approval.ID != tk.ID || r.Approval.By != "ben" || r.ToolDigest == "" || r.WasDigest == "" || r.ToolDigest == r.WasDigest) {
			t.Errorf("%+v", r)
		}
	}
	if calls := b.dir.Calls(); len(calls) != 1 {
		t.Errorf("the upstream was called: %v", calls)
	}
	// A replica and a process that starts later know it too.
	if r := b.replica().pinned(Pins{FirstUse: true}); !slices.Contains(r.shows(), "cancel_order") {
		t.Error("not in another process")
	}
}

func TestAToolTheFileLacksIsAskedForWhole(t *testing.T) {
	b := newBench(t)
	file := b.fileOf(strings.Replace(testTools, ` {"name":"echo_note","inputSchema":{"type":"object"}},`, "", 1))
	b.pinned(Pins{File: file})
	b.shows()
	tk := b.asksOnce()
	for _, want := range []string{"tool added: echo_note", `{"type":"object"}`} {
		if !strings.Contains(tk.View.Text, want) {
			t.Errorf("lacks %q:\n%s", want, tk.View.Text)
		}
	}
	// Nobody is asked for what the policy doesn't show.
	if strings.Contains(tk.View.Text, "unlisted_tool") || strings.Contains(tk.View.Text, "hidden_tool") {
		t.Errorf("asks for what nobody can call:\n%s", tk.View.Text)
	}
	b.agree(tk, "cleo")
	r := b.replica().pinned(Pins{File: file})
	for _, p := range []*bench{b, r} {
		if s := read(t, p.do(ana, "echo_note", `{}`)); s.IsError {
			t.Error(s)
		}
		if !slices.Contains(p.shows(), "echo_note") {
			t.Error("not listed")
		}
	}
}

func TestANoStaysANo(t *testing.T) {
	b := onFirstUse(t)
	b.change(changedTools)
	tk := b.asksOnce()
	b.vote(tk, "ben", approvals.Deny, "not that")
	b.eventually("the no is kept", func() bool {
		got, err := b.store.Pins(t.Context(), "desk")
		return err == nil && len(got.Refused) == 1
	})
	b.mini.FastForward(25 * 3600e9) // the denial itself is forgotten
	if _, err := b.store.Sweep(t.Context(), 1000); err != nil {
		t.Fatal(err)
	}
	later := b.replica().pinned(Pins{FirstUse: true})
	for _, p := range []*bench{b, later} {
		for range 2 {
			p.reread()
			wantRefusal(t, p.do(ana, "cancel_order", `{}`), codeParams, "tool_changed")
			p.idle()
		}
		if got := p.own(approvals.Pending); len(got) != 0 {
			t.Fatalf("asked again: %v", got[0].View.Text)
		}
	}
	later.change(strings.Replace(testTools, "Cancels.", "Cancels, politely.", 1))
	if again := later.asksOnce(); again.ID == tk.ID || !strings.Contains(again.View.Text, "politely") {
		t.Errorf("another change is not asked for: %+v", again)
	}
}

func TestASecondChangeTakesTheFirstQuestionBack(t *testing.T) {
	b := onFirstUse(t)
	b.change(changedTools)
	first := b.asksOnce()
	b.change(strings.Replace(testTools, "Cancels.", "Cancels, politely.", 1))
	b.eventually("the first is taken back", func() bool { return b.ticket(first.ID).State == approvals.Withdrawn })
	b.nextTurn()
	second := b.asksOnce()
	if second.ID == first.ID || !strings.Contains(second.View.Text, "politely") {
		t.Fatalf("%+v", second)
	}
	b.change(testTools) // as it was pinned: there is nothing to ask
	b.eventually("the second is taken back", func() bool { return b.ticket(second.ID).State == approvals.Withdrawn })
	if s := read(t, b.do(ana, "echo", `{}`)); s.IsError {
		t.Error(s)
	}
}

func TestTwoReplicasAskOnce(t *testing.T) {
	b := onFirstUse(t)
	r := b.replica().pinned(Pins{FirstUse: true})
	b.dir.SetTools(changedTools)
	for _, p := range []*bench{b, r} {
		p.reread()
		if slices.Contains(p.shows(), "cancel_order") {
			t.Error("not held")
		}
	}
	b.idle()
	r.idle()
	tk := b.asksOnce()
	b.vote(tk, "ben", approvals.Approve, "")
	for _, p := range []*bench{r, b} { // both try to carry it out
		if err := p.RunApproved(t.Context(), tk.ID); err != nil {
			t.Fatal(err)
		}
	}
	starts := 0
	for _, rec := range b.records() {
		if rec.Event == ledger.ExecStart && rec.OperationID == tk.ID {
			starts++
		}
	}
	if got := b.ticket(tk.ID); got.State != approvals.Succeeded || starts != 1 {
		t.Errorf("%s after %d starts", got.State, starts)
	}
	for _, p := range []*bench{b, r} {
		p.eventually("it is shown", func() bool { return slices.Contains(p.shows(), "cancel_order") })
	}
}

// A change that is too long for one request is asked for piece by piece.
func TestALongChangeIsAskedForInPieces(t *testing.T) {
	all := len(newBench(t).shows())
	b := newBench(t)
	long := strings.Replace(testTools, "Cancels.", strings.Repeat("Cancels. ", mostAsked/10), 1)
	b.dir.SetTools(long)
	b.pinned(Pins{})
	b.shows()
	for range 3 {
		tk := b.asksOnce()
		if !tk.View.Complete() {
			t.Fatalf("not whole: %v", tk.View.Missing)
		}
		b.agree(tk, "ben")
		if got := b.ticket(tk.ID); got.State != approvals.Succeeded {
			t.Fatalf("%s (%s)", got.State, got.Cause)
		}
		b.idle()
		b.nextTurn()
		b.eventually("the next is seen", func() bool { b.idle(); return len(b.own(approvals.Pending)) > 0 || len(b.shows()) == all })
		if len(b.shows()) == all {
			return
		}
	}
	t.Errorf("shown: %v", b.shows())
}

// Whoever takes the question for a call of their own gets nothing.
func TestNobodyCollectsTheGatesOwn(t *testing.T) {
	b := onFirstUse(t)
	b.change(changedTools)
	tk := b.asksOnce()
	wantRefusal(t, b.do(ana, CollectTool, collect(tk.ID)), codeParams, "unknown_approval")
}
