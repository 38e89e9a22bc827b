package gate

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
)

// Many callers on two replicas: one run.
func TestOneWinnerAmongReplicas(t *testing.T) {
	a := newBench(t, settings(func(s *Settings) { s.Waiters = 100 }))
	b := a.replica()
	first, tk := a.parked(req(ana, "cancel_order", `{"order":"1"}`))
	answers := []<-chan Answer{first}
	for range 12 {
		answers = append(answers, a.later(req(ana, "cancel_order", `{"order":"1"}`)), b.later(req(ana, "cancel_order", `{"order":"1"}`)),
			b.later(req(ana, CollectTool, `{"approval_id":"`+tk.ID+`"}`)))
	}
	a.eventually("all wait", func() bool {
		n := a.waiting(tk.ID) + b.waiting(tk.ID)
		return n == 37
	})
	a.vote(tk, "ben", approvals.Approve, "")
	for _, ch := range answers {
		if s := read(t, <-ch); s.IsError || !strings.Contains(s.text(), "ran") {
			t.Errorf("got %v", s)
		}
	}
	if n := len(a.dir.Calls()); n != 1 {
		t.Errorf("ran %d times", n)
	}
}

func TestLostRepliesOfTheStoreCostNothing(t *testing.T) {
	for _, step := range []string{"Park", "Load", "Claim", "Renew", "Finish", "Wait"} {
		t.Run(step, func(t *testing.T) {
			b := newBench(t)
			b.calls.on(step, loseReply(1))
			ch, tk := b.parked(req(ana, "cancel_order", `{"order":"1"}`))
			b.vote(tk, "ben", approvals.Approve, "")
			if s := read(t, <-ch); s.IsError {
				t.Errorf("got %v", s)
			}
			if got := b.ticket(tk.ID); got.State != approvals.Succeeded || len(b.dir.Calls()) != 1 {
				t.Errorf("%s after %d runs", got.State, len(b.dir.Calls()))
			}
		})
	}
}

func TestClaimWithoutAClearReplyIsGivenBack(t *testing.T) {
	b := newBench(t)
	b.calls.on("Claim", loseReply(1000))
	ch, tk := b.parked(req(ana, "cancel_order", `{"order":"1"}`))
	b.vote(tk, "ben", approvals.Approve, "")
	if s := read(t, <-ch); !s.IsError {
		t.Errorf("got %v", s)
	}
	b.eventually("it is given back", func() bool { return b.ticket(tk.ID).State == approvals.NotRun })
	if got := b.ticket(tk.ID).Cause; got != approvals.CauseUnclearClaim {
		t.Errorf("the cause is %q", got)
	}
	if b.dir.Calls() != nil {
		t.Error("it ran on a claim that nobody confirmed")
	}
}

// A claim whose reply was lost, and whose lease ended before it was asked for again,
// is told as used. It is this gate's own, and it never ran: that is no unknown
// outcome.
func TestClaimThatWasLostForALeaseIsGivenBack(t *testing.T) {
	b := newBench(t, lease(50*time.Millisecond))
	ch, tk := b.parked(req(ana, "cancel_order", `{"order":"1"}`))
	var first sync.Once
	b.calls.on("Claim", func(real func() error) error {
		err := real()
		first.Do(func() {
			b.eventually("its lease ends", func() bool {
				_, _ = b.store.Sweep(t.Context(), 10)
				return b.ticket(tk.ID).State == approvals.Unknown
			})
			err = errLostReply
		})
		return err
	})
	b.vote(tk, "ben", approvals.Approve, "")
	<-ch
	b.eventually("it is given back", func() bool { return b.ticket(tk.ID).State == approvals.NotRun })
	if b.dir.Calls() != nil {
		t.Error("it ran")
	}
}

func TestOversleptClaimIsNotRun(t *testing.T) {
	b := newBench(t, lease(400*time.Millisecond))
	b.calls.on("Renew", func(real func() error) error {
		err := real()
		time.Sleep(250 * time.Millisecond) // the process slept past half its lease
		return err
	})
	ch, tk := b.parked(req(ana, "cancel_order", `{"order":"1"}`))
	b.vote(tk, "ben", approvals.Approve, "")
	s := wantEnd(t, <-ch, "not_run")
	if got := b.ticket(tk.ID); got.Cause != approvals.CauseOverslept || b.dir.Calls() != nil || !strings.Contains(s.text(), "held up") {
		t.Errorf("%s %s, ran %v: %s", got.State, got.Cause, b.dir.Calls(), s.text())
	}
}

func TestClaimWhoseLeaseWasLostIsNotRun(t *testing.T) {
	b := newBench(t)
	b.calls.on("Renew", func(func() error) error { return approvals.AlreadyUsed })
	ch, tk := b.parked(req(ana, "cancel_order", `{"order":"1"}`))
	b.vote(tk, "ben", approvals.Approve, "")
	wantEnd(t, <-ch, "not_run")
	if b.ticket(tk.ID).State != approvals.NotRun || b.dir.Calls() != nil {
		t.Error("ran without a lease")
	}
}
