package gate

import (
	"context"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
)

// A stop of the process ends the waits. It is nobody's leaving: an approval that
// its route would withdraw then is still there for the next process.
func TestStopWithdrawsNothing(t *testing.T) {
	b := newBench(t)
	ctx, stop := context.WithCancelCause(t.Context())
	done := make(chan Answer, 1)
	go func() { done <- b.Call(ctx, req(ana, "gone_order", `{}`)) }()
	tk := b.pendingN(1)[0]
	b.eventually("the caller waits", func() bool { return b.waiting(tk.ID) == 1 })
	stop(ErrStopping)
	if s := read(t, <-done); s.status() != string(approvals.Pending) {
		t.Errorf("the waiting caller got %v", s)
	}
	if got := b.ticket(tk.ID); got.State != approvals.Pending {
		t.Errorf("a stop made it %s", got.State)
	}
}

// An allowed call that runs when the process stops is given time to end.
func TestStopLetsAnAllowedCallEnd(t *testing.T) {
	b := newBench(t)
	ctx, stop := context.WithCancelCause(t.Context())
	done, closed := make(chan Answer, 1), make(chan error, 1)
	go func() { done <- b.Call(ctx, req(ana, "wait_read", `{}`)) }()
	b.dir.Await("calls.log", 1)
	stop(ErrStopping)
	go func() { closed <- b.Close(t.Context()) }()
	b.eventually("the gate is closing", b.isClosing)
	b.dir.Release()
	if s := read(t, <-done); s.IsError || s.text() != "waited" {
		t.Errorf("the caller got %v", s)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if told := b.told(b.ops()[0]); told[len(told)-1] != "result:ok" {
		t.Errorf("the ledger says %v", told)
	}
}

// One that does not end in time is given up, and that is on the ledger before
// Close returns.
func TestStopGivesUpWhatDoesNotEnd(t *testing.T) {
	b := newBench(t)
	ctx, stop := context.WithCancelCause(t.Context())
	done := make(chan Answer, 1)
	go func() { done <- b.Call(ctx, req(ana, "hang_read", `{}`)) }()
	b.dir.Await("calls.log", 1)
	stop(ErrStopping)
	short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := b.Close(short); err == nil {
		t.Error("Close says that everything ended")
	}
	if told := b.told(b.ops()[0]); told[len(told)-1] != "result:unknown" {
		t.Errorf("the ledger says %v", told)
	}
	<-done
	b.dir.Await("cancelled.log", 1)
}
