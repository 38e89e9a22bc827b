package gate

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/ledger"
)

// hasty makes a caller that takes its pending result at once.
func hasty(s *Settings) { s.Holds = map[string]time.Duration{"hasty": time.Millisecond} }

func (b *bench) ask(args string) Answer {
	b.t.Helper()
	r := req(ana, "cancel_order", args)
	r.Client = "hasty"
	return b.Call(b.t.Context(), r)
}

// refusedFor checks a refusal's reason and returns its words and its
// retry_after_ms.
func refusedFor(t *testing.T, a Answer, reason string) (string, time.Duration) {
	t.Helper()
	wantRefusal(t, a, codeParams, reason)
	var data struct {
		Retry int64 `json:"retry_after_ms"`
	}
	if err := json.Unmarshal(a.Error.Data, &data); err != nil {
		t.Fatal(err)
	}
	return a.Error.Message, time.Duration(data.Retry) * time.Millisecond
}

// Five people's denials in a row end the asking for a while, and nothing else.
func TestDenialsCloseTheReviewTier(t *testing.T) {
	b := newBench(t, settings(hasty))
	read(t, b.ask(`{"n":"before"}`))
	before := b.pendingN(1)[0]
	for i := range 5 {
		args := fmt.Sprintf(`{"n":%d}`, i)
		if s := read(t, b.ask(args)); s.status() != "pending" {
			t.Fatalf("card %d: %+v", i, s)
		}
		for _, tk := range b.pendingN(2) {
			if tk.ID != before.ID {
				b.vote(tk, []string{"ben", "cleo"}[i%2], approvals.Deny, "no")
			}
		}
		b.pendingN(1)
	}
	words, after := refusedFor(t, b.ask(`{"n":6}`), "review_closed")
	if after <= 14*time.Minute || after > 15*time.Minute+time.Millisecond || !strings.Contains(words, "said no") {
		t.Errorf("%v, %q", after, words)
	}
	b.pendingN(1)

	// What is allowed runs; what waits is joined; what was denied is told again; what is
	// approved runs and is collected; another actor is asked for.
	if s := read(t, b.do(ana, "echo", `{}`)); s.IsError {
		t.Errorf("an allowed call: %+v", s)
	}
	if s := read(t, b.ask(`{"n":"before"}`)); s.status() != "pending" {
		t.Errorf("joining: %+v", s)
	}
	if s := read(t, b.ask(`{"n":1}`)); s.status() != "denied" {
		t.Errorf("a remembered denial: %+v", s)
	}
	b.vote(before, "cleo", approvals.Approve, "")
	b.eventually("the approved one is run", func() bool { return !read(t, b.ask(`{"n":"before"}`)).IsError })
	if s := read(t, b.do(ana, CollectTool, fmt.Sprintf(`{"approval_id":%q}`, before.ID))); s.IsError {
		t.Errorf("collecting: %+v", s)
	}
	refusedFor(t, b.ask(`{"n":6}`), "review_closed")
	r := req(dora, "cancel_order", `{"n":6}`)
	r.Client = "hasty"
	if s := read(t, b.Call(t.Context(), r)); s.status() != "pending" {
		t.Errorf("another actor: %+v", s)
	}

	// The refused call is on the ledger, as one that did not run.
	found := false
	for _, rec := range b.records() {
		found = found || rec.Event == ledger.Result && rec.Status == ledger.StatusNotRun && rec.ErrorType == "review_closed"
	}
	if !found {
		t.Error("the refusal is on no ledger")
	}

	// When the time is over it is asked for again.
	b.mini.SetTime(time.Now().Add(15*time.Minute + time.Second))
	b.eventually("a notifier is alive", func() bool {
		ok, err := b.store.NotifierAlive(t.Context())
		return ok && err == nil
	})
	if s := read(t, b.ask(`{"n":7}`)); s.status() != "pending" {
		t.Errorf("after the closing: %+v", s)
	}
}

// Each cap of the policy has a reason and words of its own; the numbers are the
// policy's of the moment of the call.
func TestEachCapHasItsReason(t *testing.T) {
	b := newBench(t, settings(hasty))
	read(t, b.ask(`{"n":1}`))
	seen := map[string]bool{}
	for limit, reason := range map[string]string{
		"{parked: {per_actor: 1}}":      "too_many_pending",
		"{parked: {global: 1}}":         "too_many_pending_in_all",
		"{new_cards: {per_actor: 1/h}}": "too_many_new",
		"{new_cards: {global: 1/h}}":    "too_many_new_in_all",
	} {
		b.Load(b.stateOf(testPolicy + "\nlimits: [" + limit + "]\n"))
		words, after := refusedFor(t, b.ask(`{"n":2}`), reason)
		if strings.Contains(reason, "new") != (after > 59*time.Minute && after <= time.Hour+time.Millisecond) {
			t.Errorf("%s: %v", reason, after)
		}
		if seen[words] || strings.Contains(words, "%") {
			t.Errorf("%s: %q", reason, words)
		}
		seen[words] = true
		if s := read(t, b.ask(`{"n":1}`)); s.status() != "pending" {
			t.Errorf("%s: joining: %+v", reason, s)
		}
	}
	b.pendingN(1)
}

// What was refused by a cap has not used up the limit, nor has a call that joined a
// twin which came between; a park without a clear reply has.
func TestARefusedCardCostsNoToken(t *testing.T) {
	b := newBench(t, settings(hasty))
	limited := func(more string) {
		b.Load(b.stateOf(testPolicy + "\nlimits:\n  - {match: tier.destructive, per: actor, rate: 1/d, burst: 2}\n" + more))
	}
	limited("  - {parked: {per_actor: 1}}\n")
	read(t, b.ask(`{"n":1}`))
	for range 5 {
		refusedFor(t, b.ask(`{"n":2}`), "too_many_pending")
	}
	limited("")
	if s := read(t, b.ask(`{"n":2}`)); s.status() != "pending" {
		t.Fatalf("the second of two: %+v", s)
	}
	refusedFor(t, b.ask(`{"n":3}`), "rate_limited")
	b.pendingN(2)
}

func TestAnUnclearParkStaysCounted(t *testing.T) {
	b := newBench(t, settings(hasty))
	b.Load(b.stateOf(testPolicy + "\nlimits:\n  - {match: tier.destructive, per: actor, rate: 1/d, burst: 1}\n"))
	looks := 0
	b.calls.on("Park", func(real func() error) error {
		if looks++; looks == 1 { // whether there is one to join
			return real()
		}
		return errors.New("no reply")
	})
	wantRefusal(t, b.ask(`{"n":1}`), codeInternal, "store_unavailable")
	b.calls.on("Park", nil)
	refusedFor(t, b.ask(`{"n":2}`), "rate_limited")
}

// A twin that came between the look and the park costs one token for both.
func TestJoiningATwinThatCameBetweenCostsNoToken(t *testing.T) {
	b := newBench(t, settings(hasty))
	b.Load(b.stateOf(testPolicy + "\nlimits:\n  - {match: tier.destructive, per: actor, rate: 1/d, burst: 3}\n"))
	looks := 0
	b.calls.on("Park", func(real func() error) error {
		if looks++; looks == 2 {
			read(t, b.ask(`{"n":1}`))
		}
		return real()
	})
	if s := read(t, b.ask(`{"n":1}`)); s.status() != "pending" {
		t.Fatalf("%+v", s)
	}
	b.calls.on("Park", nil)
	b.pendingN(1)
	for _, args := range []string{`{"n":2}`, `{"n":3}`} {
		if s := read(t, b.ask(args)); s.status() != "pending" {
			t.Fatalf("%s: %+v", args, s)
		}
	}
	refusedFor(t, b.ask(`{"n":4}`), "rate_limited")
}
