package gate

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/ledger"
	"github.com/countersign-mcp/countersign/approvals/store"
)

// Two changes are agreed to; the later one was shown against what was pinned
// before the earlier one.
func TestAnAgreementOnWhatIsNoLongerPinnedIsVoid(t *testing.T) {
	b := onFirstUse(t)
	r := b.replica().pinned(Pins{FirstUse: true}) // of another version of the server
	r.shows()
	b.change(changedTools)
	one := b.asksOnce()
	b.dir.SetTools(strings.Replace(testTools, "Cancels.", "Cancels, politely.", 1))
	r.nextTurn()
	r.idle()
	var two approvals.Ticket
	for _, tk := range b.own(approvals.Pending) {
		if tk.ID != one.ID {
			two = tk
		}
	}
	if two.ID == "" {
		t.Fatal("the replica did not ask")
	}
	b.vote(one, "ben", approvals.Approve, "")
	b.vote(two, "ben", approvals.Approve, "")
	for _, tk := range []approvals.Ticket{two, one} {
		if err := b.RunApproved(t.Context(), tk.ID); err != nil {
			t.Fatal(err)
		}
	}
	if got := b.ticket(two.ID); got.State != approvals.Succeeded {
		t.Errorf("the first to be carried out is %s (%s)", got.State, got.Cause)
	}
	if got := b.ticket(one.ID); got.State != approvals.Void || got.Cause != approvals.CauseTool {
		t.Errorf("the other is %s (%s)", got.State, got.Cause)
	}
}

func TestTwoPeopleForAChange(t *testing.T) {
	b := newBench(t)
	b.with(strings.Replace(pinPolicy, "definitions: {channels: [link:ben], approvers: [ben, cleo],", "definitions: {channels: [link:ben], approvers: [ben, cleo], quorum: 2,", 1), Pins{FirstUse: true})
	b.shows()
	b.change(changedTools)
	tk := b.asksOnce()
	b.agree(tk, "ben")
	if got := b.ticket(tk.ID); got.State != approvals.Pending || slices.Contains(b.shows(), "cancel_order") {
		t.Fatalf("%s after one of two", got.State)
	}
	b.agree(tk, "cleo")
	if got := b.ticket(tk.ID); got.State != approvals.Succeeded || !slices.Contains(b.shows(), "cancel_order") {
		t.Errorf("%s after both", got.State)
	}
}

// What was agreed to on another route, or that the route's people changed, pins
// nothing.
func TestAnotherRouteVoidsAnAgreement(t *testing.T) {
	for name, policy := range map[string]string{
		"other people": strings.Replace(pinPolicy, "definitions: {channels: [link:ben], approvers: [ben, cleo]", "definitions: {channels: [link:ben], approvers: [cleo]", 1),
		"no route":     testPolicy,
	} {
		t.Run(name, func(t *testing.T) {
			b := onFirstUse(t)
			b.change(changedTools)
			tk := b.asksOnce()
			b.vote(tk, "ben", approvals.Approve, "")
			b.with(policy, Pins{FirstUse: true})
			if err := b.RunApproved(t.Context(), tk.ID); err != nil {
				t.Fatal(err)
			}
			if got := b.ticket(tk.ID); got.State != approvals.Void || got.Cause != approvals.CausePolicy {
				t.Errorf("%s (%s)", got.State, got.Cause)
			}
			if slices.Contains(b.shows(), "cancel_order") {
				t.Error("it is pinned")
			}
		})
	}
}

// A reply is lost, or the store fails for a while: what became of the pins is
// told as it is.
func TestAPinWhoseReplyIsLost(t *testing.T) {
	for name, bend := range map[string]func(b *bench){
		"the reply to the pin":      func(b *bench) { b.calls.on("Pin", loseReply(1)) },
		"five replies to the pin":   func(b *bench) { b.calls.on("Pin", loseReply(5)) },
		"the reply to the claim":    func(b *bench) { b.calls.on("Claim", loseReply(1)) },
		"the reply to the park":     func(b *bench) { b.calls.on("Park", loseReply(1)) },
		"the reply to the end":      func(b *bench) { b.calls.on("Finish", loseReply(1)) },
		"the pins can't be read":    func(b *bench) { n := 0; b.calls.on("Pins", failing(&n, 3)) },
		"the pin can't be written":  func(b *bench) { n := 0; b.calls.on("Pin", failing(&n, 5)) },
		"the change can't be asked": func(b *bench) { n := 0; b.calls.on("Park", failing(&n, 5)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := onFirstUse(t)
			bend(b)
			b.change(changedTools)
			tk := b.asksOnce()
			b.agree(tk, "ben")
			b.eventually("it is carried out", func() bool { return b.ticket(tk.ID).State == approvals.Succeeded })
			got, err := b.store.Pins(t.Context(), "desk")
			if err != nil || got.Tools["cancel_order"].Approval != tk.ID || got.Tools["cancel_order"].Rev != 2 {
				t.Errorf("%+v %v", got.Tools["cancel_order"], err)
			}
			if d := cmp.Diff([]string{"decision:review", "exec_start:", "result:ok"}, b.told(tk.ID)); d != "" {
				t.Error(d)
			}
		})
	}
}

func failing(n *int, times int) func(func() error) error {
	left := make(chan struct{}, times)
	for range times {
		left <- struct{}{}
	}
	return func(real func() error) error {
		select {
		case <-left:
			return errors.Join(approvals.StoreUnavailable, errors.New("down"))
		default:
			return real()
		}
	}
}

// A process died while it pinned: the pins say whether it had. What it may have
// sent and nobody saw changes nothing after that.
func TestRecoverSettlesAPinningThatDied(t *testing.T) {
	type moment struct {
		name   string
		start  bool // exec_start is on its ledger
		pinned bool
		lease  bool // its lease has ended meanwhile
		result string
		want   approvals.State
	}
	for _, m := range []moment{
		{name: "before exec_start", want: approvals.NotRun},
		{name: "before the pins", start: true, want: approvals.NotRun},
		{name: "before the pins, and found late", start: true, lease: true, want: approvals.NotRun},
		{name: "after the pins", start: true, pinned: true, want: approvals.Succeeded},
		{name: "after the pins, and found late", start: true, pinned: true, lease: true, want: approvals.Succeeded},
		{name: "after the result", start: true, pinned: true, result: ledger.StatusOK, want: approvals.Succeeded},
	} {
		t.Run(m.name, func(t *testing.T) {
			b := onFirstUse(t)
			led, err := ledger.Open(b.ledDir, ledger.Options{})
			if err != nil {
				t.Fatal(err)
			}
			dead, err := store.Open(t.Context(), store.Options{URL: b.url, Embedded: true, Ring: b.ring, Owner: led.ID(), Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			defer dead.Close()
			b.change(changedTools)
			tk := b.asksOnce()
			b.vote(tk, "ben", approvals.Approve, "")
			c, err := b.fitOwn(t.Context(), tk.ID)
			if err != nil {
				t.Fatal(err)
			}
			grant, err := dead.Claim(t.Context(), tk.ID, c.parked.Rev, c.parked.Envelope.Digest(), "n-1", c.policy.Digest())
			if err != nil {
				t.Fatal(err)
			}
			write := func(r ledger.Record) {
				r.OperationID = tk.ID
				if _, err := led.Append(t.Context(), r); err != nil {
					t.Fatal(err)
				}
			}
			if m.start {
				write(ledger.Record{Event: ledger.ExecStart})
			}
			if m.pinned {
				if err := dead.Pin(t.Context(), "desk", &grant, c.pins...); err != nil {
					t.Fatal(err)
				}
			}
			if m.result != "" {
				write(ledger.Record{Event: ledger.Result, Status: m.result})
			}
			if m.lease {
				b.mini.FastForward(60e9)
				b.eventually("the lease has ended", func() bool {
					_, err := b.store.Finish(t.Context(), grant, approvals.Outcome{State: approvals.Unknown, Cause: approvals.CauseOwnerLost})
					return err == nil && b.ticket(tk.ID).State == approvals.Unknown
				})
			}
			if err := led.Close(); err != nil {
				t.Fatal(err)
			}
			next := b.replica().pinned(Pins{FirstUse: true})
			for range 2 {
				if err := next.Recover(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if got := next.ticket(tk.ID); got.State != m.want {
				t.Errorf("%s (%s), want %s", got.State, got.Cause, m.want)
			}
			// The dead process's last words come late.
			late := c.pins[0]
			late.Rev += 5
			if err := dead.Pin(t.Context(), "desk", &grant, late); !errors.Is(err, approvals.AlreadyUsed) {
				t.Errorf("it pins after its end: %v", err)
			}
			if listed := slices.Contains(next.shows(), "cancel_order"); listed != (m.want == approvals.Succeeded) {
				t.Errorf("listed: %v", listed)
			}
			if m.want == approvals.NotRun { // and people are asked again
				next.idle()
				next.mini.FastForward(time.Minute)
				next.reread()
				next.shows()
				if again := next.asksOnce(); again.ID == tk.ID {
					t.Error("the same request")
				}
			}
		})
	}
}
