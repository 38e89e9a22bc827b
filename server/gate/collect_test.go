package gate

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/ledger"
)

func collect(id string) string { return `{"approval_id":"` + id + `"}` }

// Another actor's approval is answered like one that does not exist.
func TestOnlyTheSameActorCollects(t *testing.T) {
	b := newBench(t)
	tk := b.abandoned(req(ana, "cancel_order", `{"order":"1"}`))
	b.vote(tk, "ben", approvals.Approve, "")
	unknown := b.do(dora, CollectTool, collect("cs_00000000000000000000000000000000"))
	wantRefusal(t, unknown, codeParams, "unknown_approval")
	if diff := cmp.Diff(unknown, b.do(dora, CollectTool, collect(tk.ID))); diff != "" {
		t.Errorf("another's id is told apart: %s", diff)
	}
	if b.dir.Calls() != nil || b.ticket(tk.ID).State != approvals.Approved {
		t.Fatal("another actor moved it")
	}
	// Nor does the other actor's identical call attach to it.
	ch, other := b.parked(req(dora, "cancel_order", `{"order":"1"}`))
	if other.ID == tk.ID {
		t.Error("two actors share an approval")
	}
	b.vote(other, "ben", approvals.Deny, "")
	wantEnd(t, <-ch, "denied")

	if s := read(t, b.do(ana, CollectTool, `{ "approval_id" : "`+tk.ID+`" }`)); s.IsError || s.text() != "ran" {
		t.Errorf("its own actor got %v", s)
	}
	if s := read(t, b.do(ana, CollectTool, collect(tk.ID))); !strings.Contains(s.text(), "not run again") {
		t.Errorf("the second collect got %v", s)
	}
	if diff := cmp.Diff([]string{`cancel_order {"order":"1"}`}, b.dir.Calls()); diff != "" {
		t.Error(diff)
	}
}

func TestCollectTakesOneArgument(t *testing.T) {
	b := newBench(t)
	for _, args := range []string{`{}`, `{"approval_id":1}`, `{"approval_id":"a","x":1}`, `{"approval_id":""}`, `{"approval_id":"a b"}`, `{"id":"a"}`} {
		wantRefusal(t, b.do(ana, CollectTool, args), codeParams, "bad_arguments")
	}
}

func TestCollectorsAreToldToStopAskingAfterTwo(t *testing.T) {
	b := newBench(t, settings(func(s *Settings) { s.Hold = time.Millisecond }))
	id := read(t, b.do(ana, "cancel_order", `{}`)).Meta[metaApproval].ID
	for i := range 4 {
		s := read(t, b.do(ana, CollectTool, collect(id)))
		if s.status() != "pending" {
			t.Fatalf("%v", s)
		}
		if got := strings.Contains(s.text(), "do other work now, or end your turn"); got != (i >= 1) {
			t.Errorf("collect %d: %q", i+1, s.text())
		}
	}
	ops := b.ops()
	if diff := cmp.Diff([]string{"decision:allow", "attached:" + id}, b.told(ops[len(ops)-1])); diff != "" {
		t.Error(diff)
	}
}

func TestCollectorWaitsAndRuns(t *testing.T) {
	b := newBench(t)
	tk := b.abandoned(req(ana, "cancel_order", `{}`))
	ch := b.later(req(ana, CollectTool, collect(tk.ID)))
	b.eventually("it waits", func() bool {
		return b.waiting(tk.ID) == 1
	})
	b.vote(tk, "ben", approvals.Approve, "")
	if s := read(t, <-ch); s.IsError || s.text() != "ran" {
		t.Errorf("got %v", s)
	}
}

func TestResultsOfApprovedCalls(t *testing.T) {
	b := newBench(t)
	run := func(tool string) (Answer, approvals.Ticket, func() Answer) {
		ch, tk := b.parked(req(ana, tool, `{}`))
		b.vote(tk, "ben", approvals.Approve, "")
		return <-ch, tk, func() Answer { return b.do(ana, CollectTool, collect(tk.ID)) }
	}
	t.Run("a tool's error", func(t *testing.T) {
		a, tk, again := run("fail_it")
		if string(a.Result) != `{"content":[{"type":"text","text":"no such order"}],"isError":true,"x":9007199254740993}` || b.ticket(tk.ID).State != approvals.Failed {
			t.Errorf("got %s", a.Result)
		}
		if s := read(t, again()); !s.IsError || s.status() != "failed" || !strings.Contains(s.text(), "no such order\nResult of the run at") {
			t.Errorf("again: %v", s)
		}
	})
	t.Run("a protocol error", func(t *testing.T) {
		a, tk, again := run("rpcerror_it")
		want := `{"code":-32050,"message":"own code","data":{"n":9007199254740993},"extra":true}`
		if a.Error == nil || string(a.Error.Raw) != want || b.ticket(tk.ID).State != approvals.Failed {
			t.Errorf("got %+v", a)
		}
		if a := again(); a.Error == nil || string(a.Error.Raw) != want || a.Error.Code != -32050 {
			t.Errorf("again: %+v", a)
		}
	})
	t.Run("too long to keep", func(t *testing.T) {
		a, tk, again := run("big_it")
		if len(a.Result) < 2<<20 || b.ticket(tk.ID).Cause != approvals.CauseResultTooBig {
			t.Errorf("%d bytes, cause %s", len(a.Result), b.ticket(tk.ID).Cause)
		}
		if s := wantEnd(t, again(), "succeeded"); !strings.Contains(s.text(), "too long to be kept") {
			t.Errorf("again: %q", s.text())
		}
	})
	t.Run("no answer", func(t *testing.T) {
		a, tk, again := run("crash_it")
		wantEnd(t, a, "unknown")
		if got := b.ticket(tk.ID); got.State != approvals.Unknown || got.Cause != approvals.CauseNoAnswer {
			t.Errorf("%s %s", got.State, got.Cause)
		}
		wantEnd(t, again(), "unknown")
		wantEnd(t, b.do(ana, "crash_it", `{}`), "unknown") // the same call is not run either
		if _, err := b.store.Resolve(t.Context(), tk.ID, true, "ben", "saw it"); err != nil {
			t.Fatal(err)
		}
		if s := wantEnd(t, again(), "succeeded"); !strings.Contains(s.text(), "as a person found out; its result is not known") {
			t.Errorf("resolved: %q", s.text())
		}
	})
	runs := map[string]int{}
	for _, c := range b.dir.Calls() {
		runs[c]++
	}
	for c, n := range runs {
		if n != 1 {
			t.Errorf("%s ran %d times", c, n)
		}
	}
}

func TestTimeLimitOfARunIsAnUnknownOutcome(t *testing.T) {
	b := newBench(t, settings(func(s *Settings) { s.ExecTimeout = 200 * time.Millisecond }))
	ch, tk := b.parked(req(ana, "hang_it", `{}`))
	b.vote(tk, "ben", approvals.Approve, "")
	wantEnd(t, <-ch, "unknown")
	b.dir.Await("cancelled.log", 1)
	if diff := cmp.Diff([]string{"decision:review", "exec_start:", "result:timeout"}, b.told(tk.ID)); diff != "" {
		t.Error(diff)
	}
}

func TestHoldBoundsTheRunToo(t *testing.T) {
	b := newBench(t, settings(func(s *Settings) { s.Hold = 2 * time.Second }))
	ch, tk := b.parked(req(ana, "wait_it", `{}`))
	b.vote(tk, "ben", approvals.Approve, "")
	if s := read(t, <-ch); s.status() != "executing" || !strings.Contains(s.text(), "running now") {
		t.Errorf("got %v", s)
	}
	b.dir.Release()
	b.eventually("it ends", func() bool { return b.ticket(tk.ID).State == approvals.Succeeded })
}

func TestLeaseIsKeptWhileItRuns(t *testing.T) {
	b := newBench(t, lease(300*time.Millisecond))
	ch, tk := b.parked(req(ana, "wait_it", `{}`))
	b.vote(tk, "ben", approvals.Approve, "")
	b.dir.Await("calls.log", 1)
	for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if _, err := b.store.Sweep(t.Context(), 10); err != nil {
			t.Fatal(err)
		}
	}
	if got := b.ticket(tk.ID).State; got != approvals.Executing {
		t.Errorf("after three leases it is %s", got)
	}
	b.dir.Release()
	read(t, <-ch)
}

func TestRunOnApprove(t *testing.T) {
	b := newBench(t)
	tk := b.abandoned(req(ana, "auto_order", `{}`))
	if err := b.RunApproved(t.Context(), tk.ID); err != nil || b.dir.Calls() != nil {
		t.Fatalf("a pending one ran: %v", err)
	}
	b.vote(tk, "ben", approvals.Approve, "")
	for range 3 {
		if err := b.RunApproved(t.Context(), tk.ID); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(b.dir.Calls()); n != 1 || b.ticket(tk.ID).State != approvals.Succeeded {
		t.Errorf("ran %d times", n)
	}
	if s := read(t, b.do(ana, CollectTool, collect(tk.ID))); !strings.Contains(s.text(), "not run again") {
		t.Errorf("got %v", s)
	}

	lazy := b.abandoned(req(ana, "cancel_order", `{}`))
	b.vote(lazy, "ben", approvals.Approve, "")
	if err := b.RunApproved(t.Context(), lazy.ID); err != nil || len(b.dir.Calls()) != 1 {
		t.Errorf("an ordinary one ran without its caller: %v", err)
	}
}

func TestApprovedCallWhoseUpstreamIsDownStaysApproved(t *testing.T) {
	b := newBench(t)
	tk := b.abandoned(req(ana, "cancel_order", `{}`))
	b.vote(tk, "ben", approvals.Approve, "")
	b.dir.SetTools(`not json`)
	s := read(t, b.do(ana, CollectTool, collect(tk.ID)))
	if s.status() != "approved" || !strings.Contains(s.text(), "can't be reached") {
		t.Errorf("got %v", s)
	}
	if b.ticket(tk.ID).State != approvals.Approved {
		t.Error("it is used up")
	}
	for _, r := range b.records() {
		if r.Event == ledger.ExecStart {
			t.Error("it started")
		}
	}
}

func TestProgressOfARunReachesItsWaiters(t *testing.T) {
	b := newBench(t)
	b.dir.SetTools(`[{"name":"progress_run"}]`)
	b.Load(b.stateOf(`version: 2
tools: {desk/progress_run: destructive}
routes: {default: {channels: [link:ben], approvers: [ben], allow_requester: false}}
`))
	r := req(ana, "progress_run", `{}`)
	var got []string
	r.Tell = func(u Update) {
		if u.Progress != nil {
			got = append(got, string(u.Progress))
		}
	}
	ch, tk := b.parked(r)
	b.vote(tk, "ben", approvals.Approve, "")
	if s := read(t, <-ch); s.IsError {
		t.Fatal(s)
	}
	if len(got) != 3 || !strings.Contains(got[0], `"progress":1,"big":9007199254740993`) || !strings.Contains(got[2], `"progress":3`) {
		t.Errorf("told %q", got)
	}
}
