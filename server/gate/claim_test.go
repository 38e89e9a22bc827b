package gate

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/ledger"
	"github.com/countersign-mcp/countersign/server/policy"
)

func TestWhatNoLongerFitsIsVoid(t *testing.T) {
	tests := []struct {
		name, cause string
		change      func(b *bench, tk approvals.Ticket)
	}{
		{"the policy now denies it", approvals.CausePolicy, func(b *bench, _ approvals.Ticket) {
			b.Load(b.stateOf(strings.Replace(testPolicy, `desk/cancel_order: {tier: destructive, title: "Cancel {order}"}`, "desk/cancel_order: deny", 1)))
		}},
		{"the policy now allows it outright", approvals.CausePolicy, func(b *bench, _ approvals.Ticket) {
			b.Load(b.stateOf(strings.Replace(testPolicy, `desk/cancel_order: {tier: destructive, title: "Cancel {order}"}`, "desk/cancel_order: read", 1)))
		}},
		{"other approvers", approvals.CausePolicy, func(b *bench, _ approvals.Ticket) {
			b.Load(b.stateOf(strings.Replace(testPolicy, "approvers: [ben, cleo]", "approvers: [cleo]", 1)))
		}},
		{"a higher quorum", approvals.CausePolicy, func(b *bench, _ approvals.Ticket) {
			b.Load(b.stateOf(strings.Replace(testPolicy, "approvers: [ben, cleo],", "approvers: [ben, cleo], quorum: 2,", 1)))
		}},
		{"another route", approvals.CausePolicy, func(b *bench, _ approvals.Ticket) {
			b.Load(b.stateOf(strings.Replace(testPolicy, "desk/cancel_order: {tier: destructive,", "desk/cancel_order: {tier: destructive, route: leaves,", 1)))
		}},
		{"the tool's description", approvals.CauseTool, func(b *bench, _ approvals.Ticket) {
			b.dir.SetTools(strings.Replace(testTools, "Cancels.", "Cancels, and tells nobody.", 1))
		}},
		{"the tool's schema", approvals.CauseTool, func(b *bench, _ approvals.Ticket) {
			b.dir.SetTools(strings.Replace(testTools, `"destructiveHint":false},"inputSchema":{"type":"object"}`, `"destructiveHint":false},"inputSchema":{"type":"object","properties":{}}`, 1))
		}},
		{"the tool is gone", approvals.CauseTool, func(b *bench, _ approvals.Ticket) { b.dir.SetTools(`[{"name":"echo"}]`) }},
		{"who agreed is the requester now", approvals.CauseActor, func(b *bench, _ approvals.Ticket) {
			st := b.stateOf(testPolicy)
			st.Roster, _ = approvals.NewRoster([]approvals.Person{{ID: "ana"}, {ID: "ben", Actors: []string{ana.ID}}}, nil)
			b.Load(st)
		}},
		{"nobody knows the requester now", approvals.CauseActor, func(b *bench, _ approvals.Ticket) {
			st := b.stateOf(testPolicy)
			st.Roster, _ = approvals.NewRoster([]approvals.Person{{ID: "ben"}}, nil)
			b.Load(st)
		}},
		{"votes that don't verify", approvals.CauseForged, func(b *bench, _ approvals.Ticket) {
			b.calls.on("Recount", func(func() error) error { return approvals.Forged })
		}},
		{"a record that does not open", approvals.CauseForged, func(b *bench, _ approvals.Ticket) {
			b.calls.on("Load", func(func() error) error { return approvals.Forged })
		}},
		{"our ledger knows its start", string(approvals.AlreadyUsed), func(b *bench, tk approvals.Ticket) {
			b.book.mu.Lock()
			defer b.book.mu.Unlock()
			b.book.started = func(id string) (bool, error) { return id == tk.ID, nil }
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t)
			ch, tk := b.parked(req(ana, "cancel_order", `{"order":"1"}`))
			tt.change(b, tk)
			b.vote(tk, "ben", approvals.Approve, "")
			b.wantVoid(ch, tk, tt.cause)
		})
	}
}

// A ledger that can't be read is no proof that nothing was started, nor that
// something was.
func TestUnreadableLedgerRunsNothingAndEndsNothing(t *testing.T) {
	b := newBench(t)
	b.book.started = func(string) (bool, error) { return false, errors.New("bad disk") }
	ch, tk := b.parked(req(ana, "cancel_order", `{"order":"1"}`))
	b.vote(tk, "ben", approvals.Approve, "")
	if s := read(t, <-ch); s.status() != string(approvals.Approved) || !strings.Contains(s.text(), sayStuckLedger) {
		t.Errorf("the caller got %v", s)
	}
	if calls := b.dir.Calls(); calls != nil {
		t.Errorf("ran %v", calls)
	}
}

func (b *bench) wantVoid(ch <-chan Answer, tk approvals.Ticket, cause string) {
	b.t.Helper()
	s := wantEnd(b.t, <-ch, "void")
	if got := b.ticket(tk.ID); got.Cause != cause {
		b.t.Errorf("void because of %q, want %q", got.Cause, cause)
	}
	if want := sayVoid(cause); !strings.Contains(s.text(), want) {
		b.t.Errorf("the caller was told %q", s.text())
	}
	if calls := b.dir.Calls(); calls != nil {
		b.t.Errorf("ran %v", calls)
	}
	refused := false
	for _, r := range b.records() {
		refused = refused || r.Event == ledger.VoteRefused && r.OperationID == tk.ID
	}
	if want := cause == approvals.CauseForged; refused != want {
		b.t.Errorf("forged votes on the ledger: %v, want %v", refused, want)
	}
}

func TestWhatIsNoChangeStaysValid(t *testing.T) {
	tests := []struct {
		name   string
		change func(b *bench)
	}{
		{"other tools in another order, keys in another order", func(b *bench) {
			b.dir.SetTools(`[{"name":"zebra"},{"inputSchema":{"type":"object"},"annotations":{"destructiveHint":false,"readOnlyHint":true},"name":"cancel_order","description":"Cancels."}]`)
		}},
		{"a policy with the same routes", func(b *bench) {
			b.Load(b.stateOf("# reworded\n" + strings.Replace(testPolicy, "timeout: 15m, allow", "timeout: 20m, allow", 1)))
		}},
		{"the upstream was restarted", func(b *bench) { b.do(ana, "crash_read", `{}`) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t)
			ch, tk := b.parked(req(ana, "cancel_order", `{"order":"1"}`))
			tt.change(b)
			b.vote(tk, "ben", approvals.Approve, "")
			if s := read(t, <-ch); s.IsError {
				t.Errorf("got %v", s)
			}
		})
	}
}

// Somebody writes into Redis: the record says approved, and no vote says so.
func TestApprovalWrittenIntoRedisByHandIsForged(t *testing.T) {
	b := newBench(t)
	ch, tk := b.parked(req(ana, "cancel_order", `{"order":"1"}`))
	key := "{countersign}:a:" + tk.ID
	if b.mini.HGet(key, "st") != "pending" {
		t.Fatal("the record is kept in another way; this test has to follow")
	}
	b.mini.HSet(key, "st", "approved", "cb", strconv.FormatInt(time.Now().Add(time.Hour).UnixMilli(), 10))
	b.mini.HIncrBy(key, "rev", 1)
	b.mini.Publish("{countersign}:wake", tk.ID+" "+b.mini.HGet(key, "rev"))
	b.wantVoid(ch, tk, approvals.CauseForged)
}

func TestRecordThatDoesNotVerifyRunsNothing(t *testing.T) {
	b := newBench(t)
	ch, tk := b.parked(req(ana, "cancel_order", `{"order":"1"}`))
	b.eventually("its caller waits", func() bool { return b.waiting(tk.ID) == 1 })
	key := "{countersign}:a:" + tk.ID
	b.mini.HSet(key, "f", "junk")
	b.mini.HIncrBy(key, "rev", 1)
	b.mini.Publish("{countersign}:wake", tk.ID+" "+b.mini.HGet(key, "rev"))
	wantEnd(t, <-ch, "forged")
	named := func() (n int) {
		for _, r := range b.records() {
			if r.Event == ledger.VoteRefused && r.OperationID == tk.ID && r.Reason == approvals.CauseForged {
				n++
			}
		}
		return n
	}
	before := named()
	wantRefusal(t, b.do(ana, CollectTool, collect(tk.ID)), codeInternal, "forged")
	if named() != before+1 {
		t.Error("the ledger does not name the approval whose record was forged")
	}
	if b.dir.Calls() != nil {
		t.Error("it ran")
	}
}

func TestUnwritableLedgerAroundAClaim(t *testing.T) {
	t.Run("exec_start", func(t *testing.T) {
		b := newBench(t)
		b.book.refuseEvent(ledger.ExecStart)
		ch, tk := b.parked(req(ana, "cancel_order", `{"order":"1"}`))
		b.vote(tk, "ben", approvals.Approve, "")
		wantEnd(t, <-ch, "not_run")
		if got := b.ticket(tk.ID); got.Cause != approvals.CauseLedger || b.dir.Calls() != nil {
			t.Errorf("%s %s, ran %v", got.State, got.Cause, b.dir.Calls())
		}
	})
	t.Run("result", func(t *testing.T) {
		b := newBench(t)
		b.book.refuseEvent(ledger.Result)
		ch, tk := b.parked(req(ana, "cancel_order", `{"order":"1"}`))
		b.vote(tk, "ben", approvals.Approve, "")
		s := wantEnd(t, <-ch, "unknown")
		if got := b.ticket(tk.ID); got.State != approvals.Unknown || got.Cause != approvals.CauseLedger || !strings.Contains(s.text(), "could not be recorded") {
			t.Errorf("%s %s: %s", got.State, got.Cause, s.text())
		}
		wantEnd(t, b.do(ana, "cancel_order", `{"order":"1"}`), "unknown")
		if n := len(b.dir.Calls()); n != 1 {
			t.Errorf("ran %d times", n)
		}
	})
	t.Run("forged votes", func(t *testing.T) {
		b := newBench(t)
		b.book.refuseEvent(ledger.VoteRefused)
		b.calls.on("Recount", func(func() error) error { return approvals.Forged })
		ch, tk := b.parked(req(ana, "cancel_order", `{"order":"1"}`))
		b.vote(tk, "ben", approvals.Approve, "")
		if s := read(t, <-ch); !s.IsError || b.dir.Calls() != nil {
			t.Errorf("got %v", s)
		}
	})
}

func TestFinishThatCanNotBeStoredYet(t *testing.T) {
	b := newBench(t)
	var mu sync.Mutex
	down := true
	b.calls.on("Finish", func(real func() error) error {
		mu.Lock()
		defer mu.Unlock()
		if down {
			return errors.Join(approvals.StoreUnavailable, errors.New("down"))
		}
		return real()
	})
	ch, tk := b.parked(req(ana, "cancel_order", `{"order":"1"}`))
	b.vote(tk, "ben", approvals.Approve, "")
	if s := read(t, <-ch); s.IsError || s.text() != "ran" {
		t.Errorf("the caller got %v, want the result", s)
	}
	if got := b.ticket(tk.ID).State; got != approvals.Executing {
		t.Fatalf("the record is %s", got)
	}
	mu.Lock()
	down = false
	mu.Unlock()
	b.eventually("it is stored", func() bool { return b.ticket(tk.ID).State == approvals.Succeeded })
	if s := read(t, b.do(ana, "cancel_order", `{"order":"1"}`)); s.IsError || len(b.dir.Calls()) != 1 {
		t.Errorf("the retry got %v", s)
	}
}

func TestActorIsJudgedAgainAsTheOneWhoComes(t *testing.T) {
	b := newBench(t)
	tk := b.abandoned(req(ana, "cancel_order", `{"order":"1"}`))
	b.vote(tk, "ben", approvals.Approve, "")
	now := ana
	now.Owners = []string{"ben"} // since then, ben answers for this actor
	wantEnd(t, b.do(now, CollectTool, `{"approval_id":"`+tk.ID+`"}`), "void")
	if got := b.ticket(tk.ID); got.Cause != approvals.CauseActor || b.dir.Calls() != nil {
		t.Errorf("%s %s, ran %v", got.State, got.Cause, b.dir.Calls())
	}
}

// abandoned parks a call whose caller then leaves.
func (b *bench) abandoned(r Request) approvals.Ticket {
	b.t.Helper()
	before, err := b.store.List(b.t.Context(), []approvals.State{approvals.Pending}, 1000)
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.t.Context())
	done := make(chan Answer, 1)
	go func() { done <- b.Call(ctx, r) }()
	tickets := b.pendingN(len(before) + 1)
	cancel()
	<-done
	for _, t := range tickets {
		if !slices.ContainsFunc(before, func(o approvals.Ticket) bool { return o.ID == t.ID }) {
			return t
		}
	}
	b.t.Fatal("nothing was parked")
	return approvals.Ticket{}
}

// A judgement that ran out of time says nothing of the call: the approval stays,
// and the call runs when the gate can judge again.
func TestBusyJudgementVoidsNothing(t *testing.T) {
	b := newBench(t)
	ch, tk := b.parked(req(ana, "cancel_order", `{"order":"1"}`))
	var busy atomic.Bool
	busy.Store(true)
	judge := b.gates.call
	b.gates.call = func(st *State, f policy.Facts) policy.Verdict {
		if busy.Load() {
			return policy.Verdict{Hurried: true}
		}
		return judge(st, f)
	}
	b.vote(tk, "ben", approvals.Approve, "")
	if s := read(t, <-ch); s.status() != "approved" || !strings.Contains(s.text(), "too busy") {
		t.Errorf("got %+v", s)
	}
	busy.Store(false)
	if s := read(t, b.do(ana, CollectTool, collect(tk.ID))); s.IsError {
		t.Errorf("got %+v", s)
	}
	if n := len(b.dir.Calls()); n != 1 {
		t.Errorf("it ran %d times", n)
	}
}
