package gate

import (
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/approvals/ledger"
	"github.com/countersign-mcp/countersign/server/policy"
)

// A call that was let through and then did not run counts for no limit.
func TestWhatDidNotRunIsNotCounted(t *testing.T) {
	limited := testPolicy + "\nlimits:\n  - {match: \"*\", per: actor, rate: 1/d, burst: 1}\n"
	for name, hinder := range map[string]func(b *bench) (undo func()){
		"no ledger": func(b *bench) func() {
			b.book.refuseEvent(ledger.ExecStart)
			return func() { b.book.refuseEvent("") }
		},
		"the last check": func(b *bench) func() {
			b.gates.last = func(*State, policy.Facts, grounds, time.Time) error { return errNotNow }
			return func() { b.gates.last = lastWord }
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.Load(b.stateOf(limited))
			undo := hinder(b)
			for range 3 {
				if a := b.do(ana, "echo", `{}`); a.Error == nil || reason(a) == "rate_limited" {
					t.Fatalf("it ran, or counted: %s %s", a.Result, reason(a))
				}
			}
			undo()
			if s := read(t, b.do(ana, "echo", `{}`)); s.IsError {
				t.Fatalf("it did not run: %v", s)
			}
			wantRefusal(t, b.do(ana, "echo", `{}`), codeParams, "rate_limited")
		})
	}
}
