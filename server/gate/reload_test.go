package gate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/server/policy"
	"github.com/countersign-mcp/countersign/server/upstream"
)

// The policies of these tests: the second says the same in other bytes, the third
// asks other people, the fourth refuses.
var (
	sameRoutesPolicy  = testPolicy + "# the same\n"
	otherPeoplePolicy = strings.Replace(testPolicy, "approvers: [ben, cleo]", "approvers: [cleo]", 1)
	denyingPolicy     = strings.Replace(testPolicy, "desk/hidden_*: deny", "desk/hidden_*: deny\n  desk/cancel_order: deny", 1)
)

func init() {
	denyingPolicy = strings.Replace(denyingPolicy, `  desk/cancel_order: {tier: destructive, title: "Cancel {order}"}`+"\n", "", 1)
}

// reload exchanges the policy as a process does: published first.
func (b *bench) reload(text string) {
	b.t.Helper()
	s := b.stateOf(text)
	b.Exchange(s, func() { b.published(s.Policy) })
}

func (b *bench) published(set *policy.Set) {
	if _, _, err := b.store.Publish(b.t.Context(), set.Digest(), fmt.Sprint("gen-", nonces.Add(1))); err != nil {
		b.t.Error(err)
	}
}

func reason(a Answer) string {
	if a.Error == nil {
		return ""
	}
	var d struct{ Reason string }
	_ = json.Unmarshal(a.Error.Data, &d)
	return d.Reason
}

func TestAProcessBehindRefusesReviews(t *testing.T) {
	b := newBench(t)
	b.published(b.state.Load().Policy)
	var told atomic.Int64
	b.onBehind = func() { told.Add(1) }
	other := b.replica()
	other.reload(sameRoutesPolicy)

	a := b.do(ana, "cancel_order", `{"order":"1"}`)
	if reason(a) != "policy_behind" || !strings.Contains(a.Error.Message, "SIGHUP") || told.Load() != 1 {
		t.Fatalf("a review call: %v, told %d times", a.Error, told.Load())
	}
	if got := b.told(b.ops()[len(b.ops())-1]); fmt.Sprint(got) != "[decision:review result:not_run]" {
		t.Errorf("on the ledger: %v", got)
	}
	if a := b.do(ana, "echo", `{}`); a.Error != nil {
		t.Errorf("an allowed call: %v", a.Error)
	}
	b.Load(b.stateOf(sameRoutesPolicy)) // the same file, at last
	if _, tk := b.parked(req(ana, "cancel_order", `{"order":"1"}`)); tk.State != approvals.Pending {
		t.Errorf("after its reload: %s", tk.State)
	}
}

// What is parked is waited for and collected in a process behind; to run it takes
// the newest policy.
func TestAProcessBehindWaitsAndDoesNotClaim(t *testing.T) {
	b := newBench(t)
	b.published(b.state.Load().Policy)
	other := b.replica()
	ch, tk := b.parked(req(ana, "cancel_order", `{"order":"1"}`))
	other.reload(sameRoutesPolicy)
	joined := b.later(req(ana, "cancel_order", `{"order":"1"}`)) // attaches
	b.eventually("both wait", func() bool { return b.waiting(tk.ID) == 2 })
	b.vote(tk, "ben", approvals.Approve, "")
	for _, a := range []Answer{<-ch, <-joined} {
		s := read(t, a)
		if s.status() != "approved" || !strings.Contains(s.text(), "SIGHUP") {
			t.Fatalf("the wait ended with %s: %s", s.status(), s.text())
		}
	}
	if n := len(b.dir.Calls()); n != 0 {
		t.Fatalf("it ran %d times", n)
	}
	if a := other.do(ana, CollectTool, `{"approval_id":"`+tk.ID+`"}`); read(t, a).status() == "approved" || len(b.dir.Calls()) != 1 {
		t.Fatalf("collected from the newest: %s, ran %d times", a.Result, len(b.dir.Calls()))
	}
}

// Only the newest policy makes void: by an older one the call does not fit, by the
// newest it does.
func TestAProcessBehindMakesNothingVoid(t *testing.T) {
	b := newBench(t)
	b.published(b.state.Load().Policy)
	other := b.replica()
	ch, tk := b.parked(req(ana, "cancel_order", `{"order":"1"}`))
	other.Load(other.stateOf(denyingPolicy)) // it forgot to publish, or was overtaken
	b.vote(tk, "ben", approvals.Approve, "")
	<-ch
	if s := b.ticket(tk.ID).State; s != approvals.Succeeded {
		t.Fatalf("in the newest: %s", s)
	}
	ch, tk = b.parked(req(ana, "cancel_order", `{"order":"2"}`))
	waits := other.later(req(ana, CollectTool, `{"approval_id":"`+tk.ID+`"}`))
	other.eventually("it is waited for", func() bool { return other.waiting(tk.ID) == 1 })
	b.calls.on("Claim", func(func() error) error { return errors.New("down") }) // leave it to the other
	b.vote(tk, "ben", approvals.Approve, "")
	if s := read(t, <-waits); s.status() != "approved" || !strings.Contains(s.text(), "SIGHUP") {
		t.Errorf("told %s: %s", s.status(), s.text())
	}
	if s := b.ticket(tk.ID).State; s == approvals.Void {
		t.Error("an older policy made it void")
	}
	<-ch
}

func TestParkedUnderAnotherPolicy(t *testing.T) {
	for name, c := range map[string]struct {
		text, status string
		runs         int
	}{
		"same routes":  {sameRoutesPolicy, "", 1},
		"other people": {otherPeoplePolicy, "void", 0},
		"denied now":   {denyingPolicy, "void", 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.published(b.state.Load().Policy)
			ch, tk := b.parked(req(ana, "cancel_order", `{"order":"1"}`))
			b.reload(c.text)
			b.vote(tk, "cleo", approvals.Approve, "")
			a := <-ch
			if n := len(b.dir.Calls()); n != c.runs {
				t.Errorf("it ran %d times, want %d", n, c.runs)
			}
			if c.status != "" {
				wantEnd(t, a, c.status)
				if got := b.ticket(tk.ID); got.Cause != approvals.CausePolicy {
					t.Errorf("cause %q", got.Cause)
				}
			}
		})
	}
}

// A reload between the claim and the first byte: the third check asks the new
// policy, and the call that was claimed is not run.
func TestReloadBetweenClaimAndForward(t *testing.T) {
	for name, text := range map[string]string{"denied now": denyingPolicy, "other people": otherPeoplePolicy} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.published(b.state.Load().Policy)
			b.calls.on("Renew", func(real func() error) error { // after the claim and exec_start, before the check
				b.reload(text)
				return real()
			})
			ch, tk := b.parked(req(ana, "cancel_order", `{"order":"1"}`))
			b.vote(tk, "cleo", approvals.Approve, "")
			<-ch
			got := b.ticket(tk.ID)
			if len(b.dir.Calls()) != 0 || got.State != approvals.NotRun || got.Cause != approvals.CausePolicy {
				t.Errorf("ran %d times, %s, %s", len(b.dir.Calls()), got.State, got.Cause)
			}
		})
	}
}

// A reload that replaces the upstream between the claim and the first byte: the
// new one's numbers say nothing about the old one's list.
func TestUpstreamReplacedBetweenClaimAndForward(t *testing.T) {
	b := newBench(t)
	b.published(b.state.Load().Policy)
	second, err := upstream.New(upstream.Config{Name: "desk", Command: b.dir.Command(), Env: b.dir.Env()}, b.log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { second.Close() })
	if err := second.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.calls.on("Renew", func(real func() error) error {
		s := b.stateOf(testPolicy)
		s.Upstreams["desk"] = second
		b.Load(s)
		return real()
	})
	ch, tk := b.parked(req(ana, "cancel_order", `{"order":"1"}`))
	b.vote(tk, "ben", approvals.Approve, "")
	<-ch
	if got := b.ticket(tk.ID); len(b.dir.Calls()) != 0 || got.State != approvals.NotRun {
		t.Errorf("ran %d times, %s", len(b.dir.Calls()), got.State)
	}
}

// Parked between the judgement by the old policy and its end: the store refuses,
// the call waits for the exchange and is judged by the new one. Its caller never
// hears of it.
func TestReloadBetweenJudgeAndPark(t *testing.T) {
	b := newBench(t)
	b.published(b.state.Load().Policy)
	var once sync.Once
	b.calls.on("Park", func(real func() error) error {
		once.Do(func() { b.reload(denyingPolicy) })
		return real()
	})
	a := b.do(ana, "cancel_order", `{"order":"1"}`)
	if r := reason(a); r != "unknown_tool" {
		t.Fatalf("reason %q, %s", r, a.Result)
	}
	ops := b.ops()
	if len(ops) != 2 || fmt.Sprint(b.told(ops[0])) != "[decision:review result:not_run]" || fmt.Sprint(b.told(ops[1])) != "[decision:deny]" {
		t.Errorf("%d decisions, the first %v, the last %v", len(ops), b.told(ops[0]), b.told(ops[len(ops)-1]))
	}
}

// A caller who came in by a token that the new state does not give is not judged by
// it, and roles that the old policy gave are not carried over.
func TestCallersAreTheStatesOwn(t *testing.T) {
	b := newBench(t)
	operator := ana
	operator.Roles = []string{"operator"}
	s := b.stateOf(testPolicy)
	s.Callers = []action.Actor{operator, dora}
	b.Load(s)
	for who, want := range map[*action.Actor]string{&ana: "token_changed", &robot: "token_changed", &operator: "", &dora: ""} {
		if a := b.do(*who, "echo", `{}`); reason(a) != want {
			t.Errorf("%s %v: reason %q, want %q", who.ID, who.Roles, reason(a), want)
		}
		if a := b.Tools(t.Context(), "desk", *who, nil); reason(a) != want {
			t.Errorf("%s %v lists: reason %q, want %q", who.ID, who.Roles, reason(a), want)
		}
	}
}

func TestWhatAGoneActorParkedIsVoid(t *testing.T) {
	b := newBench(t)
	_, tk := b.parked(req(ana, "auto_order", `{"order":"1"}`))
	s := b.stateOf(testPolicy)
	s.Callers, s.Gone = []action.Actor{dora}, map[string]bool{ana.ID: true}
	b.Load(s)
	b.vote(tk, "ben", approvals.Approve, "")
	if err := b.RunApproved(t.Context(), tk.ID); err != nil {
		t.Fatal(err)
	}
	if got := b.ticket(tk.ID); got.State != approvals.Void || got.Cause != approvals.CauseActor || len(b.dir.Calls()) != 0 {
		t.Errorf("%s, %s", got.State, got.Cause)
	}
}

// Fifty callers while the policy is exchanged again and again: each is judged by
// one policy or by the other, never by a part of each.
func TestExchangeUnderCallers(t *testing.T) {
	const (
		readers = "version: 2\ntiers: {read: allow}\ntools: {desk/echo: read}\nroles: {red: [ana@acme.test]}\n" +
			"rules: [{id: one, when: '!(\"red\" in actor.roles)', effect: deny, reason: first}]\n"
		writers = "version: 2\ntiers: {read: allow}\ntools: {desk/echo: read}\nroles: {blue: [ana@acme.test]}\n" +
			"rules: [{id: two, when: '!(\"blue\" in actor.roles)', effect: deny, reason: second}]\n"
	)
	b := newBench(t)
	b.Load(b.stateOf(readers))
	ctx, stop := context.WithCancel(t.Context())
	var loads, calls sync.WaitGroup
	loads.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			b.Exchange(b.stateOf([]string{readers, writers}[i%2]), nil)
		}
	})
	for range 50 {
		calls.Go(func() {
			for range 4 {
				// A mix would be one policy's rule with the other's roles: a deny.
				if a := b.do(ana, "echo", `{}`); a.Error != nil {
					t.Errorf("judged by parts of two: %v", a.Error)
				}
			}
		})
	}
	calls.Wait()
	stop()
	loads.Wait()
}
