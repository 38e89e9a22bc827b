package gate

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/approvals/ledger"
	"github.com/countersign-mcp/countersign/server/policy"
)

const observing = testPolicy + `
rules:
  - {id: big, reason: it is big, tools: [desk/echo_note], effect: review, route: leaves, when: "has(args.title) && args.title == \"big\""}
  - {id: never, reason: never, tools: [desk/cancel_order], effect: deny, when: "has(args.never) && args.never"}
observe: {upstreams: [desk], until: "2027-01-01"}
`

var observedUntil = time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)

// clock is a wall clock that a test sets.
type clock struct{ at atomic.Pointer[time.Time] }

func (c *clock) set(t time.Time) { c.at.Store(&t) }
func (c *clock) now() time.Time  { return *c.at.Load() }

// observe loads the policy above, with more, at a moment.
func (b *bench) observe(at time.Time, more string) *clock {
	b.t.Helper()
	c := new(clock)
	c.set(at)
	b.Gate.now = c.now
	b.Load(b.stateOf(observing + more))
	return c
}

// latest is the decision of the last call.
func (b *bench) latest() ledger.Record {
	b.t.Helper()
	var d ledger.Record
	for _, r := range b.records() {
		if r.Event == ledger.Decision {
			d = r
		}
	}
	return d
}

// What would be asked for runs, nothing is parked, and the ledger says what
// would have been asked, by which rules and on which routes.
func TestObservedCallRunsAndIsRecordedAsSuch(t *testing.T) {
	b := newBench(t)
	b.observe(observedUntil.Add(-time.Hour), "")
	if s := read(t, b.do(ana, "cancel_order", `{"order":"A-1"}`)); s.IsError {
		t.Fatalf("%+v", s)
	}
	if diff := cmp.Diff([]string{`cancel_order {"order":"A-1"}`}, b.dir.Calls()); diff != "" {
		t.Error(diff)
	}
	d := b.latest()
	if d.Outcome != ledger.Allow || !d.Observed || d.Reason != "" || d.Tier != "destructive" {
		t.Errorf("the decision: %+v", d)
	}
	if diff := cmp.Diff([]ledger.Rule{{ID: "tier:destructive", Effect: ledger.Review}}, d.Rules); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]ledger.Route{{Name: "default", Quorum: 1}}, d.Routes); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"decision:allow", "exec_start:", "result:ok"}, b.told(d.OperationID)); diff != "" {
		t.Error(diff)
	}

	b.do(ana, "echo_note", `{"title":"big"}`)
	d = b.latest()
	if !d.Observed || d.Rules[0].ID != "big" || d.Routes[0].Name != "leaves" {
		t.Errorf("by a rule: %+v", d)
	}
	b.do(ana, "echo_note", `{"title":"s"}`)
	if d = b.latest(); d.Observed || d.Outcome != ledger.Allow || d.Routes != nil {
		t.Errorf("an allowed call is said to be observed: %+v", d)
	}
	b.pendingN(0)
}

// Observing allows nothing that is denied, and what could not have been asked
// for is recorded with the refusal that it would have got.
func TestObservingLeavesDenials(t *testing.T) {
	b := newBench(t, settings(func(s *Settings) { s.ReviewArgs = 100 }))
	b.observe(observedUntil.Add(-time.Hour), "")
	wantRefusal(t, b.do(ana, "cancel_order", `{"never":true}`), codeParams, "policy_denied")
	wantRefusal(t, b.do(ana, "hidden_tool", `{}`), codeParams, "unknown_tool")
	wantRefusal(t, b.do(ana, "echo_note", `{"title":"far too long"}`), codeParams, "policy_denied")
	for _, r := range b.records() {
		if r.Event == ledger.Decision && (r.Observed || r.Outcome != ledger.Deny) {
			t.Errorf("%+v", r)
		}
	}
	if calls := b.dir.Calls(); calls != nil {
		t.Fatalf("ran %v", calls)
	}
	b.withSchema(orderSchema)
	nobody := action.Actor{ID: "nobody@acme.test", Auth: "token"}
	for reason, r := range map[string]Request{
		"requester_unknown": req(nobody, "cancel_order", `{"order":"1"}`),
		"arguments_too_big": req(ana, "cancel_order", `{"order":"`+strings.Repeat("y", 100)+`"}`),
		"invalid_arguments": req(ana, "cancel_order", `{"order":7}`),
	} {
		if s := read(t, b.Call(t.Context(), r)); s.IsError {
			t.Errorf("%s: %+v", reason, s)
		}
		if d := b.latest(); !d.Observed || d.Reason != reason {
			t.Errorf("%s: %+v", reason, d)
		}
	}
}

// At the very moment everything is asked for, without a restart; a clock that is
// set back observes again.
func TestObservingEndsByItself(t *testing.T) {
	b := newBench(t, settings(func(s *Settings) { s.Hold = time.Millisecond }))
	c := b.observe(observedUntil, "")
	for i, row := range []struct {
		off  time.Duration
		runs bool
	}{{-time.Nanosecond, true}, {0, false}, {time.Nanosecond, false}, {-time.Second, true}, {time.Hour, false}} {
		c.set(observedUntil.Add(row.off))
		before := len(b.dir.Calls())
		s := read(t, b.do(ana, "cancel_order", fmt.Sprintf(`{"i":%d}`, i)))
		if ran := len(b.dir.Calls()) > before; ran != row.runs || row.runs == (s.status() == "pending") {
			t.Errorf("%s after the end: ran %v, answered %+v", row.off, ran, s)
		}
		if d := b.latest(); d.Observed != row.runs || (d.Outcome == ledger.Review) == row.runs {
			t.Errorf("%s after the end: %+v", row.off, d)
		}
	}
	b.pendingN(3)
}

// The time that runs out between the decision and the bytes leaving counts: the
// clock is asked again, and so is the policy of that moment.
func TestObservedCallIsCheckedRightBeforeItLeaves(t *testing.T) {
	denying := strings.Replace(observing, `{tier: destructive, title: "Cancel {order}"}`, "deny", 1)
	denying = strings.Replace(denying, "tools: [desk/cancel_order]", "tools: [desk/echo]", 1)
	for name, change := range map[string]func(b *bench, c *clock){
		"the time is over":         func(_ *bench, c *clock) { c.set(observedUntil) },
		"nothing is observed now":  func(b *bench, _ *clock) { b.Load(b.stateOf(testPolicy)) },
		"the policy denies it now": func(b *bench, _ *clock) { b.Load(b.stateOf(denying)) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			c := b.observe(observedUntil.Add(-time.Second), "")
			last := b.gates.last
			b.gates.last = func(_ *State, f policy.Facts, by grounds, _ time.Time) error {
				change(b, c)
				return last(b.state.Load(), f, by, b.Gate.now())
			}
			wantRefusal(t, b.do(ana, "cancel_order", `{}`), codeParams, "policy_denied")
			if calls := b.dir.Calls(); calls != nil {
				t.Errorf("ran %v", calls)
			}
			d := b.latest()
			if diff := cmp.Diff([]string{"decision:allow", "exec_start:", "result:not_run"}, b.told(d.OperationID)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A call that was simply allowed does not run as an observed one: what its
// decision says would not be true.
func TestAllowedIsNotObserved(t *testing.T) {
	b := newBench(t)
	c := b.observe(observedUntil.Add(-time.Second), "")
	f := policy.Facts{Call: action.Call{Server: "desk", Tool: "cancel_order", Args: []byte(`{}`), Actor: ana}}
	if err := lastWord(b.state.Load(), f, grounds{}, c.now()); err == nil {
		t.Error("a call whose decision allowed it runs although it would be asked for")
	}
	if err := lastWord(b.state.Load(), f, grounds{observed: true}, c.now()); err != nil {
		t.Error(err)
	}
	f.Call.Tool = "echo"
	if err := lastWord(b.state.Load(), f, grounds{observed: true}, observedUntil.Add(time.Hour)); err != nil {
		t.Errorf("what needs no yes any more: %v", err)
	}
}

// Limits of how often count observed calls like others, and the number that may
// be parked does not: nothing is parked. The store is not needed, as for allowed
// calls.
func TestObservedCallsAndLimits(t *testing.T) {
	b := newBench(t, settings(func(s *Settings) { s.Caps = approvals.Caps{Parked: 1, NewPerHour: 1, Total: 1} }))
	b.observe(observedUntil.Add(-time.Hour), "limits: [{match: tier.destructive, per: actor, rate: 1/h, burst: 3}]\n")
	b.mini.SetError("LOADING the store is away")
	for range 3 {
		if s := read(t, b.do(ana, "cancel_order", `{}`)); s.IsError {
			t.Fatalf("%+v", s)
		}
	}
	wantRefusal(t, b.do(ana, "cancel_order", `{}`), codeParams, "rate_limited")
	b.mini.SetError("")
	if n := len(b.dir.Calls()); n != 3 {
		t.Errorf("%d calls ran", n)
	}
}

// What agents see of the tools is the same: the tier's hints stay.
func TestObservingShowsToolsAsBefore(t *testing.T) {
	b := newBench(t)
	before := b.Tools(t.Context(), "desk", ana, nil)
	b.observe(observedUntil.Add(-time.Hour), "")
	if diff := cmp.Diff(string(before.Result), string(b.Tools(t.Context(), "desk", ana, nil).Result)); diff != "" {
		t.Error(diff)
	}
}
