package gate

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/approvals/fault"
	"github.com/countersign-mcp/countersign/server/pins"
	"github.com/countersign-mcp/countersign/server/policy"
	"github.com/countersign-mcp/countersign/server/provenance"
	"github.com/countersign-mcp/countersign/server/upstream"
)

// call is one tools/call on its way.
type call struct {
	g      *Gate
	st     *State // as it was when the call came in
	op     string // operation id; the approval's id too, if this call parks
	req    Request
	c      action.Call
	begun  time.Time
	judged int // how often it was begun again, since the policy changed

	claimed  map[string][]string // the client's labels, as far as they count
	evidence []string
	labels   map[string][]string   // claimed, and what the session carries
	also     bool                  // it waits for an approval that a twin of it parked
	heard    []string              // what the session carries because of a result of this call
	labelled atomic.Pointer[State] // the last state by which an allowed call's session was labelled after st
	sent     bool                  // an allowed call was forwarded

	verdict policy.Verdict
	// observed: the verdict asks for people, and the call runs without them.
	observed bool
	tool     pins.Tool  // of the called tool
	cat      *catalogue // in which it was found
	unsure   []string   // keywords of its inputSchema that leave open whether the arguments fit
}

// newID draws an operation id: 128 random bits.
func newID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	return "cs_" + hex.EncodeToString(b[:])
}

// Call answers one tools/call. For a call that is parked, the end of ctx ends
// only the wait; for a call that is allowed and running it cancels the upstream.
// An end with the cause ErrStopping does neither more nor less than end waits.
func (g *Gate) Call(ctx context.Context, r Request) Answer {
	return g.newCall(r).answer(ctx)
}

// newCall begins a call under the state of this moment.
func (g *Gate) newCall(r Request) *call {
	k := &call{g: g, st: g.state.Load(), op: newID(), req: r, c: r.Call, begun: time.Now()}
	k.c.Actor.Roles = k.st.roles(k.c.Actor)
	return k
}

func (k *call) answer(ctx context.Context) Answer {
	g, r := k.g, k.req
	if !k.st.admits(r.Call.Actor) {
		return k.refuse(ctx, refusal{code: codeParams, reason: "token_changed", message: sayTokenChanged})
	}
	if r.Call.Actor.ID == approvals.GateActor { // the configuration knows no such caller
		return k.refuse(ctx, refusal{code: codeParams, reason: "reserved_actor", message: sayReserved})
	}
	if no := k.believe(); no != nil {
		return k.refuse(ctx, *no)
	}
	if r.Name == CollectTool && !g.set.NoCollect {
		return k.collect(ctx)
	}
	if no := k.judge(ctx); no != nil {
		return k.refuse(ctx, *no)
	}
	if k.observed {
		if a, joined := k.joinAsked(ctx); joined {
			return a
		}
	}
	switch {
	case k.verdict.Effect == policy.Allow, k.observed:
		if no := k.limited(); no != nil {
			return k.refuse(ctx, *no)
		}
		a := k.runAllowed(ctx)
		if !k.sent { // then it counts for no limit
			k.st.limiter.Uncount(k.c.Actor.ID, k.verdict.Tier, k.c.Server, k.c.Tool)
		}
		return a
	case k.verdict.Effect == policy.Review:
		return k.review(ctx)
	}
	return k.refuse(ctx, noSuchTool("unlisted"))
}

// roles are the actor's own and those that the policy gives.
func (s *State) roles(a action.Actor) []string {
	return s.Policy.Roles(a.Roles, a.ID, s.Roster.Groups(s.Roster.ByActor(a.ID)))
}

// judge passes the call through the first two gates and finds its tool. A nil
// refusal means that verdict says allow or review.
func (k *call) judge(ctx context.Context) *refusal {
	if k.g.isClosing() {
		return &refusal{code: codeInternal, reason: "stopping", message: sayStopping}
	}
	server, tool, ok := k.st.resolve(k.req.Front, k.req.Name)
	// An upstream's tool of the gate's own name is in no list, so it is not there
	// under a joined name either.
	if !ok || !k.g.usable(tool) {
		return ptr(noSuchTool("unknown_tool"))
	}
	k.c.Server, k.c.Tool = server, tool
	k.labels = provenance.Union(k.claimed, k.g.carries(ctx, k.st, k.c))
	k.verdict = k.g.gates.call(k.st, k.facts())
	if !k.g.gates.list(k.st, server, tool) {
		return ptr(noSuchTool("not_shown"))
	}
	if k.verdict.Effect == policy.Deny {
		return ptr(denied(k.verdict))
	}
	k.observed = k.verdict.Effect == policy.Review && k.st.Policy.Observes(server, k.g.now())
	return k.find(ctx, k.st)
}

// find looks the tool up in what the upstream lists. A call that will be parked
// is bound to the definition, so the list is read anew for it.
func (k *call) find(ctx context.Context, st *State) *refusal {
	age := st.Pins.maxAge()
	if k.verdict.Effect == policy.Review && !k.observed {
		age = 0
	}
	cat, err := k.g.catalogue(ctx, st, k.c.Server, age)
	if err == nil && age > 0 && !cat.offers(k.c.Tool) && time.Since(cat.at) > time.Second {
		cat, err = k.g.catalogue(ctx, st, k.c.Server, time.Second)
	}
	if err != nil {
		k.g.log.Warn("the upstream's tools can't be listed", "server", k.c.Server, "error", err)
		return &refusal{code: codeInternal, reason: "upstream_unavailable", message: sayNoUpstream}
	}
	def, ok := cat.find(k.c.Tool)
	if !ok {
		return ptr(noSuchTool("not_in_list"))
	}
	k.cat, k.tool = cat, def
	if h, held := cat.held[k.c.Tool]; held {
		k.g.noticeCall(cat)
		return ptr(h.refusal())
	}
	return nil
}

// resolve turns a name as sent into an upstream and its own name for the tool.
func (s *State) resolve(front, name string) (server, tool string, ok bool) {
	if !pins.Plausible(name) { // no tool has it, so nobody compares it
		return "", "", false
	}
	if front == "" {
		front = s.only()
	}
	if front == "" {
		server, tool, ok = strings.Cut(name, "__")
	} else {
		server, tool, ok = front, name, true
	}
	if !ok || tool == "" || s.Upstreams[server] == nil {
		return "", "", false
	}
	return server, tool, true
}

// runAllowed is the way of a call that nobody has to agree to, or not yet.
func (k *call) runAllowed(ctx context.Context) Answer {
	if !k.g.begin() {
		return k.refuse(ctx, refusal{code: codeInternal, reason: "stopping", message: sayStopping})
	}
	defer k.g.work.Done()
	gives := k.st.given(k.c.Server, k.c.Tool, k.claimed)
	if err := k.g.write(ctx, k.allowed(), k.start(gives)); err != nil {
		return k.noLedger(err)
	}
	k.labels = provenance.Union(k.labels, k.g.carries(ctx, k.st, k.c))
	p, err := k.leave()
	if err != nil {
		return k.stopped()
	}
	// What a narrow session carries doesn't tell whether its actor does.
	if !k.g.sure(k.labels[""], gives) || k.st.narrow(k.c.Version, k.c.Session) {
		k.g.taint(ctx, k.c, gives)
	}
	fault.Point("labels.after")
	run, letGo := k.g.untilLeft(ctx)
	defer letGo()
	run, cancel := context.WithTimeout(run, k.g.set.ExecTimeout)
	defer cancel()
	out, no := k.forward(run, p)
	k.sent = no == nil && out.status != statusNotRun
	k.relabel()
	if no != nil {
		if err := k.g.writeLate(k.result(outcome{status: statusNotRun, errorType: no.detail})); err != nil {
			k.g.log.Error("a result could not be written to the ledger", "operation", k.op, "error", err)
		}
		return no.answer()
	}
	if err := k.g.writeLate(k.result(out)); err != nil {
		k.g.log.Error("a result could not be written to the ledger", "operation", k.op, "error", err)
		return unknownAnswer(sayLedgerLost)
	}
	return out.answer()
}

// stopped ends an allowed call that the last check does not let pass.
func (k *call) stopped() Answer {
	no := refusal{code: codeParams, reason: "policy_denied", message: sayChanged}
	why := approvals.CausePolicy
	if k.g.state.Load() == k.st {
		no.message, why = sayGrown, approvals.CauseLabels
	}
	if err := k.g.writeLate(k.result(outcome{status: statusNotRun, errorType: why})); err != nil {
		return k.noLedger(err)
	}
	return no.answer()
}

// leave asks the third check for an allowed call.
func (k *call) leave() (permit, error) {
	f := k.facts()
	f.Call.Actor = k.req.Call.Actor
	p, err := k.g.leaveFor(f, grounds{observed: k.observed}, time.Time{})
	p.gen = k.cat.gen
	return p, err
}

// forward sends an allowed call to the process that listed its tool. If that is no
// more, or a change was announced, or other pins count by now, what is listed then is
// looked at, once.
func (k *call) forward(ctx context.Context, p permit) (outcome, *refusal) {
	listed := k.st
	if now := k.g.state.Load(); k.g.outdated(k.cat, now) {
		listed = now
		if no := k.look(ctx, listed); no != nil {
			return outcome{}, no
		}
		p.gen = k.cat.gen
	}
	changed := &refusal{code: codeParams, reason: "policy_denied", message: sayChanged, detail: approvals.CausePolicy}
	if p.up != listed.Upstreams[k.c.Server] {
		return outcome{}, changed
	}
	out := k.g.forward(ctx, p, k.progress())
	if !errors.Is(out.err, upstream.ErrChanged) {
		return out, nil
	}
	if no := k.look(ctx, listed); no != nil {
		return outcome{}, no
	}
	p, err := k.leave()
	if err != nil || p.up != listed.Upstreams[k.c.Server] {
		return outcome{}, changed
	}
	return k.g.forward(ctx, p, k.progress()), nil
}

// look finds the tool once more, in what is listed now.
func (k *call) look(ctx context.Context, st *State) *refusal {
	no := k.find(ctx, st)
	if no != nil {
		no.detail = cmp.Or(no.detail, no.reason)
	}
	return no
}

// noLedger refuses because nothing may run unrecorded.
func (k *call) noLedger(err error) Answer {
	k.g.log.Error("the ledger can't be written; the call is refused", "operation", k.op, "error", err)
	return refusal{code: codeInternal, reason: "ledger_unavailable", message: sayNoLedger}.answer()
}

// refuse records a no and says it.
func (k *call) refuse(ctx context.Context, r refusal) Answer {
	why := r.reason
	if r.detail != "" {
		why = r.detail
	}
	if err := k.g.write(ctx, k.decision("deny", why)); err != nil {
		return k.noLedger(err)
	}
	return r.answer()
}

func (k *call) tell(u Update) {
	if k.req.Tell != nil {
		k.req.Tell(u)
	}
}

// progress passes an upstream's progress on, if the caller can be told.
func (k *call) progress() func([]byte) {
	if k.req.Tell == nil {
		return nil
	}
	return func(params []byte) {
		k.relabel()
		k.req.Tell(Update{Progress: params})
	}
}

func (g *Gate) isClosing() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closing
}

// answer is what the caller of an execution gets.
func (o outcome) answer() Answer {
	switch {
	case o.fault != nil:
		return Answer{Error: &Error{Code: o.fault.Code, Message: o.fault.Message, Raw: o.fault.Raw}}
	case o.err == nil:
		return Answer{Result: o.result}
	case errors.Is(o.err, upstream.ErrNotSent):
		return refusal{code: codeInternal, reason: "upstream_unavailable", message: sayNoUpstream}.answer()
	}
	return unknownAnswer(sayUnknown)
}

func ptr[T any](v T) *T { return &v }
