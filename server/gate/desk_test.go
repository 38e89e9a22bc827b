package gate

import (
	"fmt"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
)

// However many approvals are collected once and never again, what is remembered of
// them is bounded, and those where somebody waits are kept.
func TestDesksAreBounded(t *testing.T) {
	b := newBench(t)
	if !b.sit("waited for") {
		t.Fatal("no seat")
	}
	for i := range 3 * maxDesks {
		b.countCollect(fmt.Sprint(i))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := len(b.desks); n > maxDesks+1 {
		t.Errorf("%d desks", n)
	}
	if b.desks["waited for"] == nil || b.desks[fmt.Sprint(3*maxDesks-1)] == nil {
		t.Error("one that is used was taken away")
	}
}

// What was collected and is over is forgotten, also when it ran for its collector.
func TestADeskGoesWithItsApproval(t *testing.T) {
	b := newBench(t, settings(func(s *Settings) { s.Hold = 20 * time.Second }))
	ran := b.abandoned(req(ana, "cancel_order", `{"order":"1"}`))
	b.vote(ran, "ben", approvals.Approve, "")
	if s := read(t, b.do(ana, CollectTool, collect(ran.ID))); s.IsError {
		t.Fatalf("got %v", s)
	}
	denied := b.abandoned(req(ana, "cancel_order", `{"order":"2"}`))
	got := make(chan Answer)
	go func() { got <- b.do(ana, CollectTool, collect(denied.ID)) }()
	b.eventually("the collector waits", func() bool { return b.waiting(denied.ID) == 1 })
	b.vote(denied, "ben", approvals.Deny, "")
	wantEnd(t, <-got, "denied")
	again := b.do(ana, CollectTool, collect(ran.ID)) // it is over already
	if s := read(t, again); s.IsError {
		t.Fatalf("got %v", s)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.desks) != 0 {
		t.Errorf("%d desks are left", len(b.desks))
	}
}
