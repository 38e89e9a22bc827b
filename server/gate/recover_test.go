package gate

import (
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/ledger"
	"github.com/countersign-mcp/countersign/approvals/store"
)

// A process claimed and died: what its ledger holds says how each claim ended.
func TestRecoverSettlesTheClaimsOfTheDead(t *testing.T) {
	b := newBench(t)
	led, err := ledger.Open(b.ledDir, ledger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	dead, err := store.Open(t.Context(), store.Options{
		URL: b.url, Embedded: true, Ring: b.ring, Owner: led.ID(), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer dead.Close()
	claim := func(order string, recs ...ledger.Record) approvals.Ticket {
		tk := b.abandoned(req(ana, "cancel_order", `{"order":"`+order+`"}`))
		b.vote(tk, "ben", approvals.Approve, "")
		p, err := dead.Load(t.Context(), tk.ID, ana)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := dead.Claim(t.Context(), tk.ID, p.Rev, p.Envelope.Digest(), "n-"+order, p.Envelope.Policy); err != nil {
			t.Fatal(err)
		}
		for _, r := range recs {
			r.OperationID = tk.ID
			if _, err := led.Append(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
		return tk
	}
	start := ledger.Record{Event: ledger.ExecStart}
	end := func(s string) ledger.Record { return ledger.Record{Event: ledger.Result, Status: s} }
	type want struct {
		state approvals.State
		cause string
	}
	tickets := map[string]want{
		claim("1").ID:                           {approvals.NotRun, approvals.CauseNeverStarted},
		claim("2", start).ID:                    {approvals.Unknown, approvals.CauseOwnerLost},
		claim("3", start, end("ok")).ID:         {approvals.Succeeded, approvals.CauseBodyLost},
		claim("4", start, end("tool_error")).ID: {approvals.Failed, approvals.CauseBodyLost},
		claim("5", start, end("not_run")).ID:    {approvals.NotRun, approvals.CauseNotSent},
		claim("6", start, end("timeout")).ID:    {approvals.Unknown, approvals.CauseNoAnswer},
		claim("7", start, ledger.Record{Event: ledger.Result, Status: "not_run", ErrorType: "overslept"}).ID: {
			approvals.NotRun, approvals.CauseOverslept},
	}
	if err := b.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	for id := range tickets {
		if got := b.ticket(id).State; got != approvals.Executing {
			t.Fatalf("a living process's claim became %s", got)
		}
	}
	if err := led.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // twice is as good as once
		if err := b.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for id, w := range tickets {
		if got := b.ticket(id); got.State != w.state || got.Cause != w.cause {
			t.Errorf("%s %s, want %s %s", got.State, got.Cause, w.state, w.cause)
		}
	}
	// What nobody can know is not looked for again: not even in a file that tells
	// nothing any more.
	adopt := b.adopt
	b.adopt = func() ([]*ledger.Dead, error) {
		list, err := adopt()
		for _, d := range list {
			d.Release()
		}
		return list, err
	}
	if err := b.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	for id, w := range tickets {
		if got := b.ticket(id); got.State != w.state {
			t.Errorf("read again: %s, want %s", got.State, w.state)
		}
	}
	n := map[string]int{}
	for _, r := range b.records() {
		if r.Event == ledger.Recovered && r.OperationID != "" {
			n[r.Status]++
		}
	}
	if diff := cmp.Diff(map[string]int{"not_run": 3, "unknown": 1, "timeout": 1, "ok": 1, "tool_error": 1}, n); diff != "" {
		t.Errorf("recovered records: %s", diff)
	}
	if b.dir.Calls() != nil {
		t.Errorf("ran %v", b.dir.Calls())
	}
	wantEnd(t, b.do(ana, "cancel_order", `{"order":"2"}`), "unknown")
	wantEnd(t, b.do(ana, "cancel_order", `{"order":"3"}`), "succeeded")
}
