package gate

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/approvals/ledger"
)

// In this policy echo and its like fetch; a note is written freely until the
// session has read something, and an order needs one more yes after that.
const labelPolicy = `version: 2
provenance: {trusted_labelers: [planner@acme.test]}
tools:
  desk/echo: {tier: read, produces: retrieved}
  desk/*_read: {tier: read, produces: retrieved}
  desk/echo_note: write
  desk/cancel_order: destructive
  desk/wait_it: {tier: destructive, produces: retrieved}
  desk/auto_order: {tier: destructive, route: auto, produces: [retrieved, model]}
rules:
  - id: after-reading
    tools: [desk/echo_note, desk/cancel_order]
    effect: review
    route: second
    when: labels("").exists(l, l in ["session:retrieved", "unknown"])
    reason: the session has read what others wrote
  - id: no-retrieved
    tools: [desk/echo_note, desk/cancel_order]
    effect: deny
    when: '"retrieved" in labels("/to")'
    reason: nothing that was retrieved says where to
  - id: whose
    tools: [desk/echo_note]
    effect: deny
    when: has(args.of) && !labels("/of").all(l, l in ["user", "system"])
    reason: only a person says whose it is
  - id: seen
    tools: [desk/echo_note]
    effect: deny
    when: has(args.seen) && !(args.seen in evidence)
    reason: it was not looked up
routes:
  default: {channels: [link:ben], approvers: [ben, cleo], allow_requester: false}
  second: {channels: [link:ben], approvers: [cleo], allow_requester: false}
  auto: {channels: [link:ben], approvers: [ben], run: on_approve, allow_requester: false}
`

func labelBench(t *testing.T, opts ...option) *bench {
	t.Helper()
	b := newBench(t, append([]option{settings(func(s *Settings) { s.Hold = 50 * time.Second })}, opts...)...)
	b.Load(b.stateOf(labelPolicy))
	return b
}

// another is a second process with the same policy.
func (b *bench) another() *bench {
	r := b.replica()
	r.Load(r.stateOf(labelPolicy))
	return r
}

// in is a call in a session.
func in(session string, r Request) Request {
	r.Call.Session = session
	return r
}

// claiming is a call with a claim.
func claiming(r Request, claim string) Request {
	r.Provenance = json.RawMessage(claim)
	return r
}

func (b *bench) runs(r Request) {
	b.t.Helper()
	if s := read(b.t, b.Call(b.t.Context(), r)); s.IsError || s.text() == "" && !strings.HasPrefix(r.Name, "progress") {
		b.t.Fatalf("it did not run: %v", s)
	}
}

// asks tells that a call waits for a person, and on which routes; the call is left.
func (b *bench) asks(r Request, routes ...string) approvals.Ticket {
	b.t.Helper()
	tk := b.abandoned(r)
	var got []string
	for _, q := range tk.Requirements {
		got = append(got, q.Route)
	}
	slices.Sort(got)
	if !slices.Equal(got, routes) {
		b.t.Fatalf("it asks on %v, want %v", got, routes)
	}
	return tk
}

// stored is what the store says of a session of ana's.
func (b *bench) stored(session string) string {
	b.t.Helper()
	got, err := b.store.Labels(b.t.Context(), ana.ID, session)
	if err != nil {
		b.t.Fatal(err)
	}
	return strings.Join(got, " ")
}

func (b *bench) wantStored(session, want string) {
	b.t.Helper()
	if got := b.stored(session); got != want {
		b.t.Fatalf("session %q carries %q, want %q", session, got, want)
	}
}

// A policy that no label makes a difference to costs an allowed call nothing: the
// store is not asked for anything.
func TestPolicyWithoutLabelsAsksTheStoreNothing(t *testing.T) {
	b := newBench(t)
	b.Gate.store = struct{ Store }{} // every method of it panics
	b.calls.on("Labels", func(func() error) error { t.Error("labels were read"); return nil })
	b.calls.on("AddLabels", func(func() error) error { t.Error("labels were written"); return nil })
	b.runs(req(ana, "echo", `{}`))
	b.runs(claiming(req(ana, "echo", `{"a":1}`), `{"v":1,"labels":{"/a":["retrieved"]}}`))
	b.runs(in("s", req(ana, "echo_note", `{"title":"x"}`)))

	// And the same bench notices when it is.
	n := 0
	b.calls.on("Labels", func(real func() error) error { n++; return real() })
	b.calls.on("AddLabels", func(real func() error) error { n++; return real() })
	b.Load(b.stateOf(labelPolicy))
	b.runs(req(ana, "echo_note", `{}`))
	if n == 0 {
		t.Error("the store was not asked where it matters")
	}
}

func TestBadClaimsAreRefused(t *testing.T) {
	b := newBench(t) // the policy has no part in it
	for _, claim := range []string{
		`null`, `[]`, `{}`, `{"v":2}`, `{"v":1,"x":1}`, `{"v":1,"labels":{"/absent":["user"]}}`, `{"v":1,"labels":{"":["user"]}}`,
		`{"v":1,"labels":{"/a":["trusted"]}}`, `{"v":1,"labels":{"/a":["session:user"]}}`,
	} {
		wantRefusal(t, b.Call(t.Context(), claiming(req(ana, "echo", `{"a":1}`), claim)), codeParams, "malformed")
		wantRefusal(t, b.Call(t.Context(), claiming(req(ana, "nope", `{"a":1}`), claim)), codeParams, "malformed")
		wantRefusal(t, b.Call(t.Context(), claiming(req(ana, CollectTool, `{"approval_id":"x"}`), claim)), codeParams, "malformed")
	}
	if calls := b.dir.Calls(); calls != nil {
		t.Errorf("ran %v", calls)
	}
	for _, r := range b.records() {
		if r.Event == ledger.Decision && (r.Outcome != ledger.Deny || r.Reason != "malformed") {
			t.Errorf("the ledger says %s %s", r.Outcome, r.Reason)
		}
	}
}

func TestWhoseWordCounts(t *testing.T) {
	b := labelBench(t)
	planner := action.Actor{ID: "planner@acme.test", Auth: "token", Owners: []string{"dora"}}
	note := func(who action.Actor, args, claim string) Answer {
		return b.Call(t.Context(), claiming(in("w"+claim, req(who, "echo_note", args)), claim))
	}
	of := `{"v":1,"labels":{"/of":["user"]}}`
	wantRefusal(t, note(ana, `{"of":1}`, of), codeParams, "policy_denied")
	if s := read(t, note(planner, `{"of":1}`, of)); s.IsError {
		t.Errorf("the trusted labeler's word does not count: %v", s)
	}
	wantRefusal(t, note(planner, `{"of":1}`, `{"v":1,"labels":{"/of":["user","model"]}}`), codeParams, "policy_denied")
	wantRefusal(t, b.Call(t.Context(), in("n", req(planner, "echo_note", `{"of":1}`))), codeParams, "policy_denied")
	// Evidence is a trusted labeler's, too.
	seen := `{"v":1,"evidence":["ticket 1"]}`
	wantRefusal(t, note(ana, `{"seen":"ticket 1"}`, seen), codeParams, "policy_denied")
	if s := read(t, note(planner, `{"seen":"ticket 1"}`, seen)); s.IsError {
		t.Errorf("the trusted labeler's evidence does not count: %v", s)
	}
	// What lowers trust counts from everyone.
	wantRefusal(t, note(ana, `{"to":1}`, `{"v":1,"labels":{"/to":["retrieved"]}}`), codeParams, "policy_denied")
	var told [][]string
	for _, r := range b.records() {
		if r.Event == ledger.Decision {
			told = append(told, r.Labels)
		}
	}
	if want := "[[unknown] [user] [model user] [] [] [] [retrieved unknown]]"; fmt.Sprint(told) != want {
		t.Errorf("the ledger says %v, want %v", told, want)
	}
}

// A session that has read something carries it: into every later call, a second
// process, a restart; and no other session does.
func TestSessionsCarryWhatTheyRead(t *testing.T) {
	b := labelBench(t)
	note := func(session string) Request { return in(session, req(ana, "echo_note", `{"n":"`+session+`"}`)) }
	b.runs(note("s"))
	b.runs(in("s", req(ana, "echo", `{"url":"a"}`)))
	b.asks(note("s"), "second")
	b.runs(note("other"))
	other := b.another()
	other.asks(in("s", req(ana, "echo_note", `{"n":2}`)), "second")
	other.runs(note(""))
	if s := read(t, b.Call(t.Context(), in("s", req(dora, "echo_note", `{}`)))); s.IsError {
		t.Errorf("another actor's session of the same name carries it: %v", s)
	}
	// Without a session it is the actor who carries it.
	b.runs(req(ana, "echo", `{"url":"a"}`))
	other.asks(note(""), "second")

	if err := b.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	again := b.another()
	again.asks(in("s", req(ana, "echo_note", `{"n":3}`)), "second")
	for _, r := range again.records() {
		if r.Event == ledger.Decision && r.Session == "s" && r.Outcome == ledger.Review && !slices.Contains(r.Labels, "session:retrieved") {
			t.Errorf("the ledger says %v of %s", r.Labels, r.Tool)
		}
	}
}

// With several upstreams an older client has a session at each: what it read in one
// is known in the others, in other processes and after a death too. Where a client
// names its session itself, that name is enough.
func TestSessionsAtSeveralUpstreamsShareWhatTheyRead(t *testing.T) {
	two := func(b *bench) *bench {
		st := b.stateOf(labelPolicy)
		st.Upstreams["mail"] = b.up
		b.Load(st)
		return b
	}
	of := func(version, session, tool, args string) Request {
		r := in(session, req(ana, tool, args))
		r.Front, r.Call.Version = "desk", version
		return r
	}
	b := two(labelBench(t))
	b.runs(of("2026-07-28", "m", "echo", `{"url":"a"}`))
	b.runs(of("2026-07-28", "n", "echo_note", `{"n":0}`))
	b.runs(of("2025-11-25", "s", "echo_note", `{"n":0}`))
	b.runs(of("2025-11-25", "s", "echo", `{"url":"a"}`))
	b.asks(of("2025-11-25", "t", "echo_note", `{"n":1}`), "second")
	other := two(b.replica())
	other.asks(of("2025-11-25", "u", "echo_note", `{"n":2}`), "second")
	other.runs(of("2026-07-28", "n", "echo_note", `{"n":3}`))

	if err := b.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.mini.FlushAll()
	again := two(b.replica())
	if err := b.book.Ledger.(*ledger.Ledger).Close(); err != nil { // as its death does
		t.Fatal(err)
	}
	if err := again.Recall(t.Context()); err != nil {
		t.Fatal(err)
	}
	again.asks(of("2025-11-25", "v", "echo_note", `{"n":4}`), "second")
}

// The label is there before the upstream can say anything: its progress, its
// errors, and what it did when the gate died in between.
func TestLabelsComeBeforeTheCall(t *testing.T) {
	t.Run("while it runs", func(t *testing.T) {
		b := labelBench(t)
		ch := b.later(in("s", req(ana, "wait_read", `{}`)))
		b.dir.Await("calls.log", 1)
		b.wantStored("s", "session:retrieved")
		b.another().asks(in("s", req(ana, "echo_note", `{}`)), "second")
		b.dir.Release()
		<-ch
	})
	for _, tool := range []string{"fail_read", "rpcerror_read", "crash_read"} {
		t.Run(tool, func(t *testing.T) {
			b := labelBench(t)
			b.Call(t.Context(), in("s", req(ana, tool, `{}`)))
			b.wantStored("s", "session:retrieved")
		})
	}
	t.Run("progress", func(t *testing.T) {
		b := labelBench(t)
		r := in("s", req(ana, "progress_read", `{}`))
		told := 0
		r.Tell = func(u Update) {
			told++
			b.wantStored("s", "session:retrieved")
		}
		b.runs(r)
		if told == 0 {
			t.Error("no progress was told")
		}
	})
	t.Run("a run that was approved", func(t *testing.T) {
		b := labelBench(t)
		ch, tk := b.parked(in("s", req(ana, "wait_it", `{}`)))
		b.wantStored("s", "")
		b.vote(tk, "ben", approvals.Approve, "")
		b.dir.Await("calls.log", 1)
		b.wantStored("s", "session:retrieved")
		b.dir.Release()
		<-ch
	})
	t.Run("what it brings does not stop the call that brings it", func(t *testing.T) {
		b := newBench(t)
		b.Load(b.stateOf(strings.Replace(labelPolicy, "tools: [desk/echo_note, desk/cancel_order]\n    effect: review", "tools: [desk/echo, desk/wait_it]\n    effect: review", 1)))
		b.runs(in("s", req(ana, "echo", `{}`)))
		b.asks(in("s", req(ana, "echo", `{}`)), "second")
		b.dir.Release()
		ch, tk := b.parked(in("t", req(ana, "wait_it", `{}`)))
		b.vote(tk, "ben", approvals.Approve, "")
		if s := read(t, <-ch); s.IsError {
			t.Errorf("it did not run: %v", s)
		}
	})
}

// Whoever is handed a result carries what it brings: the session that asked, one
// that collects, one that makes the same call again, and one that comes late.
func TestEveryoneWhoIsHandedAResultCarriesIt(t *testing.T) {
	b := labelBench(t)
	b.dir.Release()
	tk := b.abandoned(in("asked", req(ana, "wait_it", `{"to":1}`)))
	b.vote(tk, "ben", approvals.Approve, "")
	b.runs(in("collects", req(ana, CollectTool, collect(tk.ID))))
	for _, session := range []string{"asked", "collects"} {
		b.wantStored(session, "session:retrieved")
	}
	b.wantStored("again", "")
	b.runs(in("again", req(ana, "wait_it", `{"to":1}`)))
	b.wantStored("again", "session:retrieved")
	late := b.another()
	late.runs(in("late", req(ana, CollectTool, collect(tk.ID))))
	late.wantStored("late", "session:retrieved")
	if n := len(b.dir.Calls()); n != 1 {
		t.Errorf("ran %d times", n)
	}

	// Nobody waits for this one.
	auto := b.abandoned(in("auto", req(ana, "auto_order", `{}`)))
	b.vote(auto, "ben", approvals.Approve, "")
	if err := b.RunApproved(t.Context(), auto.ID); err != nil {
		t.Fatal(err)
	}
	b.wantStored("auto", "session:model session:retrieved")

	// A denial brings nothing.
	no := b.abandoned(in("denied", req(ana, "wait_it", `{"to":2}`)))
	b.vote(no, "ben", approvals.Deny, "")
	wantEnd(t, b.Call(t.Context(), in("denied", req(ana, CollectTool, collect(no.ID)))), "denied")
	b.wantStored("denied", "")
}

// What is computed from labelled arguments carries their labels.
func TestResultsCarryTheLabelsOfArguments(t *testing.T) {
	b := labelBench(t)
	b.runs(claiming(in("s", req(ana, "echo_note", `{"a":1,"b":{"c":2}}`)), `{"v":1,"labels":{"/a":["user"],"/b/c":["model"]}}`))
	b.wantStored("s", "session:model session:unknown")
	b.dir.Release()
	r := claiming(in("t", req(ana, "wait_it", `{"a":1}`)), `{"v":1,"labels":{"/a":["model"]}}`)
	ch, tk := b.parked(r)
	b.vote(tk, "ben", approvals.Approve, "")
	<-ch
	b.wantStored("t", "session:model session:retrieved session:unknown")
	// Also where it is collected.
	b.runs(in("u", req(ana, CollectTool, collect(tk.ID))))
	b.wantStored("u", "session:model session:retrieved session:unknown")
}

// What a parked call was judged by is in its envelope, and under its digest.
func TestEnvelopesHoldTheLabels(t *testing.T) {
	b := labelBench(t)
	planner := action.Actor{ID: "planner@acme.test", Auth: "token", Owners: []string{"dora"}}
	b.runs(in("s", req(planner, "echo", `{}`)))
	tk := b.abandoned(claiming(in("s", req(planner, "cancel_order", `{"to":1}`)), `{"v":1,"labels":{"/to":["user"]},"evidence":["ticket 1"]}`))
	p, err := b.store.Load(t.Context(), tk.ID, planner)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(p.Envelope.Provenance, p.Envelope.Evidence); got != "map[:[session:retrieved] /to:[user]] [ticket 1]" {
		t.Errorf("the envelope holds %s", got)
	}
}
