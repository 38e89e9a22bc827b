package gate

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/ledger"
	"github.com/countersign-mcp/countersign/approvals/store"
)

// A store that can't be told how a claim ended has it tried again and again. The
// ledger is told once.
func TestARecoveryIsRecordedOnce(t *testing.T) {
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
	tk := b.abandoned(req(ana, "cancel_order", `{"order":"1"}`))
	b.vote(tk, "ben", approvals.Approve, "")
	p, err := dead.Load(t.Context(), tk.ID, ana)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dead.Claim(t.Context(), tk.ID, p.Rev, p.Envelope.Digest(), "n", p.Envelope.Policy); err != nil {
		t.Fatal(err)
	}
	if err := led.Close(); err != nil {
		t.Fatal(err)
	}
	b.calls.on("Finish", func(func() error) error { return errors.New("the store is away") })
	for range 3 {
		if err := b.Recover(t.Context()); err == nil {
			t.Fatal("settled without the store")
		}
	}
	b.calls.on("Finish", func(real func() error) error { return real() })
	if err := b.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := b.ticket(tk.ID); got.State != approvals.NotRun {
		t.Errorf("it is %s", got.State)
	}
	n := 0
	for _, r := range b.records() {
		if r.Event == ledger.Recovered && r.OperationID == tk.ID {
			n++
		}
	}
	if n != 1 {
		t.Errorf("recorded %d times", n)
	}
}
