package gate

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/ledger"
)

// What was asked for before nobody was asked is still one call: the same call again
// joins it. Run beside it, it would run a second time with the yes.
func TestObservedCallJoinsWhatWasAskedFor(t *testing.T) {
	for _, tool := range []string{"auto_order", "cancel_order"} {
		t.Run(tool, func(t *testing.T) {
			b := newBench(t)
			first, ticket := b.parked(req(ana, tool, `{"order":"A-1"}`))
			b.observe(observedUntil.Add(-time.Hour), "")
			again := b.later(req(ana, tool, `{"order":"A-1"}`))
			b.eventually("the second one waits", func() bool { return b.waiting(ticket.ID) == 2 })
			if s := read(t, b.do(ana, tool, `{"order":"A-2"}`)); s.IsError {
				t.Fatalf("another call does not run: %+v", s)
			}
			b.vote(ticket, "ben", approvals.Approve, "")
			if tool == "auto_order" {
				if err := b.RunApproved(t.Context(), ticket.ID); err != nil {
					t.Error(err)
				}
			}
			for _, got := range []<-chan Answer{first, again} {
				if s := read(t, <-got); s.IsError {
					t.Errorf("%+v", s)
				}
			}
			want := []string{tool + ` {"order":"A-2"}`, tool + ` {"order":"A-1"}`}
			if diff := cmp.Diff(want, b.dir.Calls()); diff != "" {
				t.Error(diff)
			}
			joined := 0
			for _, r := range b.records() {
				if r.Event == ledger.Attached && r.To == ticket.ID {
					joined++
					if diff := cmp.Diff([]string{"decision:review", "attached:" + ticket.ID}, b.told(r.OperationID)); diff != "" {
						t.Error(diff)
					}
				}
			}
			if joined != 1 {
				t.Errorf("%d joined", joined)
			}
			// It is the answer for as long as it is kept.
			if s := read(t, b.do(ana, tool, `{"order":"A-1"}`)); s.IsError || len(b.dir.Calls()) != 2 {
				t.Errorf("again: %+v, ran %v", s, b.dir.Calls())
			}
		})
	}
}

// A person's no is not forgotten because nobody is asked any more.
func TestObservedCallHearsTheNoThatWasGiven(t *testing.T) {
	b := newBench(t)
	first, ticket := b.parked(req(ana, "cancel_order", `{"order":"A-1"}`))
	b.vote(ticket, "ben", approvals.Deny, "not this one")
	<-first
	b.observe(observedUntil.Add(-time.Hour), "")
	if s := read(t, b.do(ana, "cancel_order", `{"order":"A-1"}`)); s.status() != "denied" {
		t.Errorf("%+v", s)
	}
	if calls := b.dir.Calls(); calls != nil {
		t.Errorf("ran %v", calls)
	}
}

// A process that was not reloaded goes on observing what the newest policy asks
// for. It is told by the store, and refuses as it refuses all that needs a yes.
func TestAProcessBehindDoesNotObserve(t *testing.T) {
	b := newBench(t)
	b.observe(observedUntil.Add(-time.Hour), "")
	b.published(b.state.Load().Policy)
	if s := read(t, b.do(ana, "cancel_order", `{"order":"A-1"}`)); s.IsError {
		t.Fatalf("%+v", s)
	}
	b.replica().reload(testPolicy)
	wantRefusal(t, b.do(ana, "cancel_order", `{"order":"A-2"}`), codeInternal, "policy_behind")
	if s := read(t, b.do(ana, "echo", `{}`)); s.IsError {
		t.Errorf("a call that needs nobody: %+v", s)
	}
	b.reload(observing)
	if s := read(t, b.do(ana, "cancel_order", `{"order":"A-3"}`)); s.IsError {
		t.Errorf("the newest observes: %+v", s)
	}
	if d := b.latest(); !d.Observed {
		t.Errorf("%+v", d)
	}
}
