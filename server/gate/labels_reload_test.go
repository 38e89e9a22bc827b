package gate

import (
	"slices"
	"strings"
	"testing"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/ledger"
)

// A word that was taken while its actor was trusted counts as anybody's once a
// policy no longer trusts it.
func TestTrustThatWasWithdrawn(t *testing.T) {
	trusting := strings.Replace(labelPolicy, "tools: [desk/echo_note]\n    effect: deny\n    when: has(args.of)",
		"tools: [desk/echo_note, desk/cancel_order]\n    effect: deny\n    when: has(args.of)", 1)
	trusting = strings.Replace(trusting, "tools: [desk/echo_note]\n    effect: deny\n    when: has(args.seen)",
		"tools: [desk/echo_note, desk/cancel_order]\n    effect: deny\n    when: has(args.seen)", 1)
	doubting := strings.Replace(trusting, "planner@acme.test", "other@acme.test", 1)
	of := func(tool string) Request {
		return claiming(req(planner, tool, `{"of":1}`), `{"v":1,"labels":{"/of":["user"]}}`)
	}
	seen := func(tool string) Request {
		return claiming(req(planner, tool, `{"seen":"ticket 1"}`), `{"v":1,"evidence":["ticket 1"]}`)
	}
	for name, r := range map[string]func(string) Request{"labels": of, "evidence": seen} {
		t.Run("parked before, "+name, func(t *testing.T) {
			b := newBench(t)
			b.Load(b.stateOf(trusting))
			ch, tk := b.parked(r("cancel_order"))
			b.Load(b.stateOf(doubting))
			b.vote(tk, "ben", approvals.Approve, "")
			b.wantVoid(ch, tk, approvals.CauseLabels)
		})
		t.Run("claimed before, "+name, func(t *testing.T) {
			b := newBench(t)
			b.Load(b.stateOf(trusting))
			b.book.at(ledger.ExecStart, func(ledger.Record) { b.Load(b.stateOf(doubting)) })
			ch, tk := b.parked(r("cancel_order"))
			b.vote(tk, "ben", approvals.Approve, "")
			wantEnd(t, <-ch, "not_run")
			if calls := b.dir.Calls(); calls != nil {
				t.Errorf("ran %v", calls)
			}
		})
		t.Run("allowed before, "+name, func(t *testing.T) {
			b := newBench(t)
			b.Load(b.stateOf(trusting))
			b.book.at(ledger.ExecStart, func(ledger.Record) { b.Load(b.stateOf(doubting)) })
			wantRefusal(t, b.Call(t.Context(), r("echo_note")), codeParams, "policy_denied")
			if calls := b.dir.Calls(); calls != nil {
				t.Errorf("ran %v", calls)
			}
		})
		t.Run("still trusted, "+name, func(t *testing.T) {
			b := newBench(t)
			b.Load(b.stateOf(trusting))
			ch, tk := b.parked(r("cancel_order"))
			b.Load(b.stateOf(trusting + "# the same\n"))
			b.vote(tk, "ben", approvals.Approve, "")
			if s := read(t, <-ch); s.IsError {
				t.Errorf("it did not run: %v", s)
			}
		})
	}
}

// A call that runs while a policy begins to label what its tool returns hands out
// nothing without the label.
func TestLabelsThatBeginWhileACallRuns(t *testing.T) {
	silent := strings.ReplaceAll(labelPolicy, ", produces: retrieved", "")
	for name, before := range map[string]string{"the tool was silent": silent, "nobody used labels": testPolicy} {
		t.Run("allowed, "+name, func(t *testing.T) {
			b := newBench(t)
			b.Load(b.stateOf(before))
			ch := b.later(in("s", req(ana, "wait_read", `{}`)))
			b.dir.Await("calls.log", 1)
			b.Load(b.stateOf(labelPolicy))
			b.dir.Release()
			if s := read(t, <-ch); s.IsError {
				t.Fatalf("it did not run: %v", s)
			}
			b.wantStored("s", "session:retrieved")
		})
		t.Run("approved, "+name, func(t *testing.T) {
			b := newBench(t)
			b.Load(b.stateOf(before))
			ch, tk := b.parked(in("s", req(ana, "wait_it", `{}`)))
			b.vote(tk, "ben", approvals.Approve, "")
			b.dir.Await("calls.log", 1)
			b.Load(b.stateOf(labelPolicy))
			b.dir.Release()
			if s := read(t, <-ch); s.IsError {
				t.Fatalf("it did not run: %v", s)
			}
			b.wantStored("s", "session:retrieved")
		})
	}
}

// What a twin of a parked call says of its values goes on to the sessions that get
// the result, as it does with a call that nobody is asked about.
func TestResultsCarryTheLabelsOfTwins(t *testing.T) {
	twin := func() Request {
		return claiming(in("twin", req(ana, "wait_it", `{"a":1}`)), `{"v":1,"labels":{"/a":["model"]}}`)
	}
	t.Run("it runs it", func(t *testing.T) {
		b := labelBench(t)
		b.dir.Release()
		tk := b.abandoned(in("s", req(ana, "wait_it", `{"a":1}`)))
		b.vote(tk, "ben", approvals.Approve, "")
		b.runs(twin())
		b.wantStored("twin", "session:model session:retrieved session:unknown")
		if start := b.starts(tk.ID); !slices.Contains(start.Labels, "session:model") {
			t.Errorf("the ledger says %v", start.Labels)
		}
	})
	t.Run("it gets what was kept", func(t *testing.T) {
		b := labelBench(t)
		b.dir.Release()
		tk := b.abandoned(in("s", req(ana, "wait_it", `{"a":1}`)))
		b.vote(tk, "ben", approvals.Approve, "")
		b.runs(in("s", req(ana, CollectTool, collect(tk.ID))))
		b.runs(twin())
		b.wantStored("twin", "session:model session:retrieved session:unknown")
	})
}

// starts is the record of an operation's start.
func (b *bench) starts(op string) (start ledger.Record) {
	for _, r := range b.records() {
		if r.OperationID == op && r.Event == ledger.ExecStart {
			start = r
		}
	}
	return start
}
