package gate

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/approvals/keys"
)

func TestApprovedCallRunsOnceAndAnswersItsCaller(t *testing.T) {
	b := newBench(t)
	args := `{ "order":"4417", "big":9007199254740993 }`
	r := req(ana, "cancel_order", args)
	var told []string
	r.Tell = func(u Update) { told = append(told, u.Waiting) }
	ch, tk := b.parked(r)
	if tk.Title != "Cancel 4417" || tk.Requester != "ana" || tk.Tier != "destructive" || tk.Actor != ana.ID {
		t.Errorf("parked as %+v", tk)
	}
	if b.dir.Calls() != nil {
		t.Fatal("it ran before anyone agreed")
	}
	b.vote(tk, "ben", approvals.Approve, "")
	a := <-ch
	want := `{"content":[{"type":"text","text":"ran"}],  "echo": ` + args + `,"unknownField":{"n":9007199254740993}}`
	if string(a.Result) != want {
		t.Errorf("got %s\nwant %s", a.Result, want)
	}
	if got := b.ticket(tk.ID); got.State != approvals.Succeeded {
		t.Errorf("the record is %s", got.State)
	}
	if diff := cmp.Diff([]string{"decision:review", "exec_start:", "result:ok"}, b.told(tk.ID)); diff != "" {
		t.Error(diff)
	}
	if len(told) < 2 || told[0] != "Waiting for a person's approval." {
		t.Errorf("the caller was told %q", told)
	}
	for _, rec := range b.records() {
		if rec.Event == "exec_start" {
			if len(rec.Approval.Votes) != 1 || rec.Approval.Votes[0].Person != "ben" || rec.DisplayDigest != tk.ShownDigest || rec.EnvelopeDigest != tk.Bound {
				t.Errorf("exec_start says %+v", rec)
			}
		}
		line, _ := json.Marshal(rec)
		if strings.Contains(string(line), "4417") {
			t.Errorf("an argument is on the ledger: %s", line)
		}
	}

	// The same call again gets the same result, marked, and runs nothing.
	again := b.do(ana, "cancel_order", `{"big":9007199254740993,"order":"4417"}`)
	s := read(t, again)
	if s.status() != "succeeded" || !strings.Contains(s.text(), "; not run again.") || !strings.Contains(string(again.Result), `"big":9007199254740993`) {
		t.Errorf("handed out again: %s", again.Result)
	}
	if n := len(b.dir.Calls()); n != 1 {
		t.Errorf("ran %d times", n)
	}
}

func TestPendingResultSaysHowToGoOn(t *testing.T) {
	b := newBench(t, settings(func(s *Settings) {
		s.Hold = time.Hour
		s.Holds = map[string]time.Duration{"hasty": 50 * time.Millisecond}
	}))
	r := req(ana, "cancel_order", `{"order":"1"}`)
	r.Client = "hasty"
	a := b.Call(t.Context(), r)
	s := read(t, a)
	id := s.Meta[metaApproval].ID
	if !s.IsError || s.status() != "pending" || id == "" || s.Meta[metaApproval].Expires == "" || s.Meta[metaApproval].Retry <= 0 {
		t.Fatalf("got %s", a.Result)
	}
	for _, want := range []string{"not been delivered to anyone yet", `countersign_collect with {"approval_id":"` + id + `"}`, "identical arguments", "waits for a person's approval"} {
		if !strings.Contains(s.text(), want) {
			t.Errorf("lacks %q: %s", want, s.text())
		}
	}
	if err := b.store.Mark(t.Context(), id, approvals.Mark{Channel: "link:ben", Ref: &approvals.Ref{Channel: "link:ben", ID: "m1"}}); err != nil {
		t.Fatal(err)
	}
	if s := read(t, b.Call(t.Context(), r)); !strings.Contains(s.text(), "was delivered to link:ben") || s.Meta[metaApproval].ID != id {
		t.Errorf("got %s", s.text())
	}
	ops := b.ops()
	if diff := cmp.Diff([]string{"decision:review", "attached:" + id}, b.told(ops[1])); diff != "" {
		t.Error(diff)
	}
}

func TestEndsOfAnApproval(t *testing.T) {
	b := newBench(t)
	type ending struct {
		name, status string
		end          func(tk approvals.Ticket)
		words        string
	}
	end := func(to approvals.State, by, why string) func(approvals.Ticket) {
		return func(tk approvals.Ticket) {
			if _, err := b.store.End(t.Context(), tk.ID, to, "", by, why); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, e := range []ending{
		{"denied", "denied", func(tk approvals.Ticket) { b.vote(tk, "ben", approvals.Deny, "not on a Friday") }, `(ben), so it was not run. The reason given: "not on a Friday"`},
		{"withdrawn", "withdrawn", end(approvals.Withdrawn, "ana@acme.test", ""), "withdrawn (ana@acme.test)"},
		{"revoked", "revoked", func(tk approvals.Ticket) {
			b.calls.on("Load", func(real func() error) error { // taken back before anyone claims
				b.calls.on("Load", nil)
				end(approvals.Revoked, "ben", "changed my mind")(tk)
				return real()
			})
			b.vote(tk, "ben", approvals.Approve, "")
		}, `taken back (ben) before the call ran, so it was not run. The reason given: "changed my mind"`},
		{"void", "void", func(tk approvals.Ticket) {
			if _, err := b.store.Void(t.Context(), tk.ID, "", b.state.Load().Policy.Digest()); err != nil {
				t.Fatal(err)
			}
		}, "was not run"},
	} {
		t.Run(e.name, func(t *testing.T) {
			ch, tk := b.parked(req(ana, "cancel_order", `{"order":"`+e.name+`"}`))
			e.end(tk)
			if s := wantEnd(t, <-ch, e.status); !strings.Contains(s.text(), e.words) {
				t.Errorf("got %q, want %q in it", s.text(), e.words)
			}
		})
	}
	t.Run("lapsed", func(t *testing.T) {
		tk := b.abandoned(req(ana, "cancel_order", `{"order":"lapsed"}`))
		b.vote(tk, "ben", approvals.Approve, "")
		b.mini.SetTime(time.Now().Add(61 * time.Minute))
		defer b.mini.SetTime(time.Time{})
		if _, err := b.store.Sweep(t.Context(), 100); err != nil {
			t.Fatal(err)
		}
		if s := wantEnd(t, b.do(ana, CollectTool, collect(tk.ID)), "lapsed"); !strings.Contains(s.text(), "nobody collected it") {
			t.Error(s.text())
		}
	})
	t.Run("a denial is remembered", func(t *testing.T) {
		for range 1000 {
			wantEnd(t, b.do(ana, "cancel_order", `{"order":"denied"}`), "denied")
		}
		all, err := b.store.List(t.Context(), []approvals.State{approvals.Pending, approvals.Denied}, 100)
		if err != nil || len(all) != 1 {
			t.Errorf("%d cards (%v), want the one", len(all), err)
		}
	})
	t.Run("expired and undelivered are told apart", func(t *testing.T) {
		ch1, t1 := b.parked(req(ana, "cancel_order", `{"order":"expired"}`))
		if err := b.store.Mark(t.Context(), t1.ID, approvals.Mark{Channel: "link:ben", Ref: &approvals.Ref{Channel: "link:ben", ID: "m"}}); err != nil {
			t.Fatal(err)
		}
		ch2, _ := b.parked(req(ana, "cancel_order", `{"order":"undelivered"}`))
		b.mini.SetTime(time.Now().Add(16 * time.Minute))
		if _, err := b.store.Sweep(t.Context(), 100); err != nil {
			t.Fatal(err)
		}
		if s := wantEnd(t, <-ch1, "expired"); !strings.Contains(s.text(), "Nobody said no") {
			t.Error(s.text())
		}
		if s := wantEnd(t, <-ch2, "undelivered"); !strings.Contains(s.text(), "could not be delivered") {
			t.Error(s.text())
		}
	})
	if b.dir.Calls() != nil {
		t.Errorf("ran %v", b.dir.Calls())
	}
}

func TestEndsAsErrorsWhereConfigured(t *testing.T) {
	b := newBench(t, settings(func(s *Settings) { s.RefuseAsError = true }))
	ch, tk := b.parked(req(ana, "cancel_order", `{}`))
	b.vote(tk, "ben", approvals.Deny, "no")
	a := <-ch
	wantRefusal(t, a, codeParams, "denied")
	if !strings.HasPrefix(a.Error.Message, sayNotArguments) || !strings.Contains(string(a.Error.Data), tk.ID) {
		t.Errorf("%+v", a.Error)
	}
}

func TestNinthWaiterIsAnsweredAtOnce(t *testing.T) {
	b := newBench(t)
	first, tk := b.parked(req(ana, "cancel_order", `{}`))
	var rest []<-chan Answer
	for range 7 {
		rest = append(rest, b.later(req(ana, "cancel_order", `{}`)))
	}
	b.eventually("eight wait", func() bool {
		return b.waiting(tk.ID) == 8
	})
	if s := read(t, b.do(ana, "cancel_order", `{}`)); s.status() != "pending" || s.Meta[metaApproval].ID != tk.ID {
		t.Errorf("the ninth got %v", s)
	}
	b.vote(tk, "ben", approvals.Approve, "")
	unmarked := 0
	for _, ch := range append(rest, first) {
		a := <-ch
		s := read(t, a)
		if strings.Contains(s.text(), "not run again") {
			if s.status() != "succeeded" {
				t.Errorf("%s", a.Result)
			}
			continue
		}
		unmarked++
	}
	if unmarked != 1 || len(b.dir.Calls()) != 1 {
		t.Errorf("%d unmarked answers and %d runs, want one of each", unmarked, len(b.dir.Calls()))
	}
}

func TestLeavingCallerDecidesNothing(t *testing.T) {
	b := newBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan Answer, 2)
	go func() { done <- b.Call(ctx, req(ana, "cancel_order", `{}`)) }()
	tk := b.pendingN(1)[0]
	cancel()
	<-done
	if got := b.ticket(tk.ID); got.State != approvals.Pending {
		t.Fatalf("a disconnect made it %s", got.State)
	}
	// Approved while nobody is there: nothing runs until the same actor comes.
	b.vote(tk, "ben", approvals.Approve, "")
	if b.dir.Calls() != nil {
		t.Fatal("ran for nobody")
	}
	if s := read(t, b.do(ana, CollectTool, `{"approval_id":"`+tk.ID+`"}`)); s.IsError {
		t.Errorf("got %v", s)
	}
	if n := len(b.dir.Calls()); n != 1 {
		t.Errorf("ran %d times", n)
	}
}

func TestLeavingCallerWithdrawsWhereTheRouteSaysSo(t *testing.T) {
	b := newBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan Answer, 1)
	go func() { done <- b.Call(ctx, req(ana, "gone_order", `{}`)) }()
	tk := b.pendingN(1)[0]
	cancel()
	<-done
	if got := b.ticket(tk.ID); got.State != approvals.Withdrawn || got.Cause != "cancelled" || got.By != ana.ID {
		t.Errorf("%s %s by %s", got.State, got.Cause, got.By)
	}
}

func TestRunningCallOutlivesItsCaller(t *testing.T) {
	b := newBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan Answer, 1)
	go func() { done <- b.Call(ctx, req(ana, "wait_it", `{}`)) }()
	tk := b.pendingN(1)[0]
	b.vote(tk, "ben", approvals.Approve, "")
	b.dir.Await("calls.log", 1)
	cancel()
	if s := read(t, <-done); s.status() != "executing" {
		t.Errorf("the leaving caller got %v", s)
	}
	b.dir.Release()
	b.eventually("it ends", func() bool { return b.ticket(tk.ID).State == approvals.Succeeded })
	if s := read(t, b.do(ana, "wait_it", `{}`)); s.IsError || !strings.Contains(s.text(), "waited\nResult of the run at") {
		t.Errorf("the retry got %q", s.text())
	}
	if b.dir.Lines("cancelled.log") != nil {
		t.Error("the upstream was cancelled")
	}
}

// Whatever a retry changes, the call that people saw is the one that runs.
func TestChangedArgumentsAreAnotherCall(t *testing.T) {
	b := newBench(t)
	original := `{"order":"4417","n":1,"z":true}`
	first, tk := b.parked(req(ana, "cancel_order", original))
	same := []string{`{ "order" : "4417", "n":1,"z":true }`, `{"z":true,"n":1,"order":"4417"}`, "{\"order\":\"\\u0034417\",\"n\":1,\"z\":true}"}
	other := []string{`{"order":"4418","n":1,"z":true}`, `{"order":"4417","n":1.0,"z":true}`, `{"order":"4417","n":1e0,"z":true}`, `{"order":"4417","n":1}`, `{"order":"4417 ","n":1,"z":true}`}
	var answers []<-chan Answer
	for _, args := range same {
		answers = append(answers, b.later(req(ana, "cancel_order", args)))
	}
	for i, args := range other {
		_, t2 := b.parked(req(ana, "cancel_order", args))
		if t2.ID == tk.ID {
			t.Errorf("%d: %s attached to another call's approval", i, args)
		}
	}
	b.vote(tk, "ben", approvals.Approve, "")
	for _, ch := range append(answers, first) {
		read(t, <-ch)
	}
	if diff := cmp.Diff([]string{"cancel_order " + original}, b.dir.Calls()); diff != "" {
		t.Error("not the stored bytes: ", diff)
	}
	key := req(ana, "cancel_order", original)
	key.Call.IdemKey = "second"
	if _, t2 := b.parked(key); t2.ID == tk.ID {
		t.Error("an idempotency key did not keep two calls apart")
	}
}

func TestManyParkedCallsDoNotHoldUpARead(t *testing.T) {
	b := newBench(t, onRedis, settings(func(s *Settings) {
		s.Hold, s.Caps.Parked, s.Caps.NewPerHour = time.Hour, 1000, 1000
	}))
	quick := func() time.Duration {
		begun := time.Now()
		if s := read(t, b.do(ana, "echo", `{}`)); s.IsError {
			t.Fatal(s)
		}
		return time.Since(begun)
	}
	quick()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for i := range 500 {
		wg.Go(func() {
			args, _ := json.Marshal(map[string]int{"i": i})
			b.Call(ctx, req(action.Actor{ID: ana.ID, Auth: "token"}, "cancel_order", string(args)))
		})
	}
	b.pendingN(500)
	took := time.Duration(0)
	for range 20 {
		took += quick()
	}
	if took > 20*250*time.Millisecond {
		t.Errorf("a read takes %s with 500 parked", took/20)
	}
	cancel()
	wg.Wait()
}

func TestBoundDigestOfATicketIsTheEnvelopes(t *testing.T) {
	b := newBench(t)
	_, tk := b.parked(req(ana, "cancel_order", `{}`))
	p, err := b.store.Load(t.Context(), tk.ID, ana)
	if err != nil {
		t.Fatal(err)
	}
	d := p.Envelope.Digest()
	if !b.ring.Verify(keys.Bound, tk.Bound, d.Bytes()) {
		t.Error("the gate and the store bind approvals differently")
	}
	for _, rec := range b.records() {
		if rec.OperationID == tk.ID && rec.Event == "decision" && rec.EnvelopeDigest != tk.Bound {
			t.Error("the ledger names another digest than the card")
		}
	}
}
