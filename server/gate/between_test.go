package gate

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/ledger"
)

// What changes between a won claim and the first byte.

func TestToolThatChangesBetweenClaimAndForwardIsNotRun(t *testing.T) {
	b := newBench(t)
	ch, tk := b.parked(req(ana, "cancel_order", `{"order":"1"}`))
	b.book.at(ledger.ExecStart, func(r ledger.Record) {
		if r.OperationID != tk.ID {
			return
		}
		b.dir.SetTools(strings.Replace(testTools, "Cancels.", "Does more.", 1))
		b.do(ana, "crash_read", `{}`) // a new process with a new list
		_ = b.up.Start(t.Context())
	})
	b.vote(tk, "ben", approvals.Approve, "")
	wantEnd(t, <-ch, "not_run")
	if got := b.ticket(tk.ID); got.Cause != approvals.CauseTool {
		t.Errorf("cause %s", got.Cause)
	}
	for _, c := range b.dir.Calls() {
		if strings.HasPrefix(c, "cancel_order") {
			t.Error("it ran")
		}
	}
}

// An upstream that died after the last look at its tools is started again by the
// next request. The new process may mean something else by the same name.
func TestApprovedCallGoesToTheProcessThatListedIt(t *testing.T) {
	b := newBench(t)
	ch, tk := b.parked(req(ana, "cancel_order", `{"order":"1"}`))
	b.book.at(ledger.ExecStart, func(r ledger.Record) {
		if r.OperationID == tk.ID {
			b.dir.SetTools(strings.Replace(testTools, "Cancels.", "Does more.", 1))
			b.do(ana, "crash_read", `{}`)
		}
	})
	b.vote(tk, "ben", approvals.Approve, "")
	wantEnd(t, <-ch, "not_run")
	for _, c := range b.dir.Calls() {
		if strings.HasPrefix(c, "cancel_order") {
			t.Error("it ran")
		}
	}
}

func TestPolicyThatChangesBetweenClaimAndForwardStopsTheRun(t *testing.T) {
	b := newBench(t)
	ch, tk := b.parked(req(ana, "cancel_order", `{"order":"1"}`))
	b.book.at(ledger.ExecStart, func(ledger.Record) {
		b.Load(b.stateOf(strings.Replace(testPolicy, `desk/cancel_order: {tier: destructive, title: "Cancel {order}"}`, "desk/cancel_order: deny", 1)))
	})
	b.vote(tk, "ben", approvals.Approve, "")
	wantEnd(t, <-ch, "not_run")
	if got := b.ticket(tk.ID); got.State != approvals.NotRun || b.dir.Calls() != nil {
		t.Errorf("%s; ran %v", got.State, b.dir.Calls())
	}
	if diff := cmp.Diff([]string{"decision:review", "exec_start:", "result:not_run"}, b.told(tk.ID)); diff != "" {
		t.Error(diff)
	}
}
