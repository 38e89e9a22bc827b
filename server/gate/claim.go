package gate

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/approvals/fault"
	"github.com/countersign-mcp/countersign/approvals/keys"
	"github.com/countersign-mcp/countersign/approvals/ledger"
	"github.com/countersign-mcp/countersign/server/policy"
	"github.com/countersign-mcp/countersign/server/provenance"
)

// claimed is an approved call that was found fit to run, and, once the claim is
// won, the grant to run it.
type claimed struct {
	parked approvals.Parked
	gives  []string            // what a session carries that gets anything of its result
	labels map[string][]string // known by now, beside those that it was parked with
	policy *policy.Set         // by which it was found fit
	up     Upstream
	cat    *catalogue // the list that was compared last
	grant  approvals.Grant
}

// errSettled: the record is not (or no longer) waiting to be run; its state says
// why.
var errSettled = errors.New("the approval is settled")

// stuck is why an approved call can't be run now. It stays approved.
type stuck struct{ words string }

func (s *stuck) Error() string { return s.words }

// fit loads an approved call and looks whether everything still is as it was
// when people agreed to it. What does not fit is ended as void.
//
// also are labels that whoever comes for it has of the same call.
func (g *Gate) fit(ctx context.Context, id string, who action.Actor, also map[string][]string) (*claimed, error) {
	st := g.state.Load()
	p, err := g.loadApproved(ctx, st, id, who)
	if err != nil {
		return nil, err
	}
	labels := provenance.Union(also, g.carries(ctx, st, p.Envelope.Call))
	if cause, err := g.misfit(st, p, who, labels); cause != "" {
		return nil, g.void(ctx, st.Policy, p, cause, err)
	} else if err != nil {
		return nil, err
	}
	up := st.Upstreams[p.Envelope.Call.Server]
	cat, err := g.catalogue(ctx, st, p.Envelope.Call.Server, 0)
	if err != nil {
		g.log.Warn("an approved call waits for its upstream", "approval", id, "error", err)
		return nil, &stuck{sayStuckUpstream}
	}
	switch offered := cat.offers(p.Envelope.Call.Tool); {
	case !cat.still(&p.Envelope):
		return nil, g.void(ctx, st.Policy, p, approvals.CauseTool, nil)
	case !offered && !cat.fresh: // what is pinned may have been agreed on elsewhere
		return nil, &stuck{sayStuckStore}
	case !offered:
		return nil, g.void(ctx, st.Policy, p, approvals.CauseTool, nil)
	}
	if err := g.notStarted(ctx, st, p); err != nil {
		return nil, err
	}
	return &claimed{parked: p, policy: st.Policy, up: up, cat: cat, labels: labels}, nil
}

// loadApproved loads an approval that waits to be run. One that can't be read is
// ended as void.
func (g *Gate) loadApproved(ctx context.Context, st *State, id string, who action.Actor) (p approvals.Parked, err error) {
	err = g.insist(ctx, func(ctx context.Context) (err error) {
		p, err = g.store.Load(ctx, id, who)
		return err
	})
	switch {
	case errors.Is(err, approvals.Forged):
		return p, g.void(ctx, st.Policy, approvals.Parked{Ticket: approvals.Ticket{ID: id}}, approvals.CauseForged, err)
	case isFinal(err):
		return p, errSettled
	case err != nil:
		return p, &stuck{sayStuckStore}
	case p.State != approvals.Approved:
		return p, errSettled
	}
	return p, nil
}

// still tells whether a list is of the server that an approved call was bound to,
// and describes its tool in the same way.
func (c *catalogue) still(e *action.Envelope) bool {
	def, ok := c.find(e.Call.Tool)
	return ok && def.Digest == e.ToolDef && c.identity == e.ServerID
}

// misfit compares an approved call with what holds now. A cause means that it
// may not run; the error says more, for the log.
func (g *Gate) misfit(st *State, p approvals.Parked, who action.Actor, labels map[string][]string) (cause string, err error) {
	c := p.Envelope.Call
	if cause, err := g.genuine(p, c.Actor.ID == who.ID); cause != "" || err != nil {
		return cause, err
	}
	if !g.gates.list(st, c.Server, c.Tool) {
		return approvals.CausePolicy, nil
	}
	if cause, err := g.still(st, c, p, labels, approvals.CausePolicy); cause != "" || err != nil {
		return cause, err
	}
	if st.Gone[who.ID] {
		return approvals.CauseActor, errors.New("who asked may not call any more")
	}
	for _, face := range st.faces(who) {
		if cause, err = g.stillWho(st, c, p, labels, face); cause == "" {
			return cause, err
		}
	}
	return cause, err
}

// notStarted ends an approval of which a ledger here has a start, although its record
// says approved: somebody put an old record back.
func (g *Gate) notStarted(ctx context.Context, st *State, p approvals.Parked) error {
	switch started, err := g.ledger.Started(p.ID); {
	case err != nil:
		g.log.Error("what was approved waits: nobody knows whether it was started before", "approval", p.ID, "error", err)
		return &stuck{sayStuckLedger}
	case started:
		return g.void(ctx, st.Policy, p, string(approvals.AlreadyUsed), nil)
	}
	return nil
}

// genuine tells whether what is stored is what people saw, and whether they agreed
// to it. theirs says that it is of the actor who comes for it, by the sealed part.
func (g *Gate) genuine(p approvals.Parked, theirs bool) (cause string, err error) {
	e := &p.Envelope
	if !g.ring.Verify(keys.Bound, p.Bound, digestOf(*e)) || e.OperationID != p.ID || !theirs {
		return approvals.CauseForged, errors.New("what is stored is not what people saw")
	}
	err = g.store.Recount(p)
	switch {
	case errors.Is(err, approvals.Forged):
		return approvals.CauseForged, err
	case err != nil:
		return "", errSettled // too late to claim, and the like
	}
	return "", nil
}

// stillWho judges an approved call as the actor is now.
func (g *Gate) stillWho(st *State, c action.Call, p approvals.Parked, labels map[string][]string, who action.Actor) (string, error) {
	c.Actor = who
	c.Actor.Roles = st.roles(who)
	if cause, err := g.still(st, c, p, labels, approvals.CauseActor); cause != "" || err != nil {
		return cause, err
	}
	if approvedBy(p, st.people(who)) {
		return approvals.CauseActor, errors.New("who agreed counts as a requester now")
	}
	return "", nil
}

// still judges an approved call again: it has to ask the same people as before,
// or it ends with the cause. It is judged by the labels that it was parked with,
// and by all that are known now: so those that came since can stop it, and never
// lift what was asked for. A judgement that ran out of time says nothing of the
// call; it is tried again.
func (g *Gate) still(st *State, c action.Call, p approvals.Parked, labels map[string][]string, cause string) (string, error) {
	then := factsOf(c, p.Envelope)
	now := st.believed(grown(then, labels))
	tries := []struct {
		facts policy.Facts
		cause string
	}{{then, cause}, {now, approvals.CauseLabels}}
	if maps.EqualFunc(then.Labels, now.Labels, slices.Equal[[]string]) && slices.Equal(then.Evidence, now.Evidence) {
		tries = tries[:1]
	}
	for _, try := range tries {
		switch v := g.gates.call(st, try.facts); {
		case v.Hurried:
			return "", &stuck{sayStuckBusy}
		case v.Effect != policy.Review || !sameRoutes(v.Routes, p.Requirements):
			return try.cause, nil
		}
	}
	return "", nil
}

// approvedBy tells whether one of the people whom the actor stands for agreed
// where a requester may not, or whether nobody knows any more who they are.
func approvedBy(p approvals.Parked, now people) bool {
	for _, q := range p.Requirements {
		if q.AllowRequester {
			continue
		}
		if len(now.excluded) == 0 {
			return true
		}
		for _, v := range p.Votes {
			if v.Requirement == q.Route && v.Verdict == approvals.Approve && slices.Contains(now.excluded, v.Person) {
				return true
			}
		}
	}
	return false
}

// void ends what may not run. Votes that don't verify are told on the ledger at
// once: somebody wrote into the store. A policy that is not the newest ends nothing.
func (g *Gate) void(ctx context.Context, by *policy.Set, p approvals.Parked, cause string, why error) error {
	if cause == approvals.CauseForged {
		if err := g.writeLate(forgedRecord(p.ID)); err != nil {
			return &stuck{sayNoLedger}
		}
	}
	err := g.insist(ctx, func(ctx context.Context) error {
		_, err := g.store.Void(ctx, p.ID, cause, by.Digest())
		return err
	})
	if errors.Is(err, approvals.Behind) {
		return g.behind(by) // it may fit all the same, so there is nothing to tell yet
	}
	g.log.Warn("an approved call may not run", "approval", p.ID, "cause", cause, "error", why)
	switch {
	case errors.Is(err, approvals.Forged):
		return &stuck{sayForgedRecord} // so broken that it can't even be ended
	case err != nil && !isFinal(err):
		return &stuck{sayStuckStore}
	}
	return errSettled
}

// behind says why a step was refused that was judged by a policy which is not the
// newest: this process was reloaded meanwhile, so it is to be looked at again, or it
// has not, and someone has to reload it.
func (g *Gate) behind(judgedBy *policy.Set) error {
	if g.present().Policy != judgedBy {
		return approvals.Moved
	}
	g.tellBehind()
	return &stuck{sayStuckBehind}
}

// forgedRecord names an approval whose record does not verify.
func forgedRecord(id string) ledger.Record {
	return ledger.Record{
		Event: ledger.VoteRefused, OperationID: id, Reason: approvals.CauseForged, Approval: &ledger.Approval{ID: id},
	}
}

// claim takes the one right to run. With no clear reply it is not taken for won;
// if it was, it is given back as not run.
func (g *Gate) claim(ctx context.Context, c *claimed) error {
	nonce := newID()
	d := c.parked.Envelope.Digest()
	unclear := false // an earlier try may have claimed
	err := g.insist(ctx, func(ctx context.Context) (err error) {
		c.grant, err = g.store.Claim(ctx, c.parked.ID, c.parked.Rev, d, nonce, c.policy.Digest())
		unclear = unclear || err != nil && !isFinal(err)
		return err
	})
	switch {
	case err == nil:
		if c.grant.Lease <= 0 {
			c.grant.Lease = g.set.Lease
		}
		return nil
	case errors.Is(err, approvals.Moved):
		return approvals.Moved
	case errors.Is(err, approvals.Forged), errors.Is(err, approvals.WrongDigest):
		return g.void(ctx, c.policy, c.parked, approvals.CauseForged, err)
	}
	if unclear {
		// Also where it is told as used: the claim may be ours, and its lease over.
		// Another's is left alone by the nonce.
		g.finishLater(approvals.Grant{ID: c.parked.ID, Nonce: nonce, Owner: g.ledger.ID()},
			approvals.Outcome{State: approvals.NotRun, Cause: approvals.CauseUnclearClaim})
	}
	if errors.Is(err, approvals.Behind) {
		return g.behind(c.policy)
	}
	if isFinal(err) {
		return errSettled
	}
	g.log.Warn("a claim has no clear reply; the call is not run", "approval", c.parked.ID, "error", err)
	return &stuck{sayStuckStore}
}

// renew makes the lease whole and returns the moment before which bytes may be
// written: half a lease after the renewal was sent.
func (g *Gate) renew(ctx context.Context, grant approvals.Grant) (before time.Time, err error) {
	err = g.insist(ctx, func(ctx context.Context) error {
		before = time.Now().Add(grant.Lease / 2)
		return g.store.Renew(ctx, grant)
	})
	return before, err
}

// keep renews the lease at a third while the call runs. A lease that is lost
// then changes nothing: the call was sent, and its end is accepted by the
// claim's nonce.
func (g *Gate) keep(ctx context.Context, grant approvals.Grant) {
	tick := time.NewTicker(max(grant.Lease/3, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		one, cancel := context.WithTimeout(ctx, max(grant.Lease/3, time.Second))
		err := g.store.Renew(one, grant)
		cancel()
		if err != nil && ctx.Err() == nil {
			g.log.Warn("the lease of a running call could not be renewed", "approval", grant.ID, "error", err)
		}
	}
}

// start makes the beginning of the execution durable: who agreed, and what they
// were shown.
func (g *Gate) start(c *claimed) error {
	r := g.claimRecord(ledger.ExecStart, c.parked)
	r.Labels = c.gives
	r.Approval = approvalOf(c.parked.Ticket)
	if err := g.writeLate(r); err != nil {
		return err
	}
	fault.Point("exec_start.after")
	return nil
}

// leaveToRun is everything between exec_start and the first byte. The error's
// outcome is what becomes of the approval.
func (g *Gate) leaveToRun(ctx context.Context, c *claimed) (permit, outcome) {
	notRun := func(why string) outcome { return outcome{status: statusNotRun, errorType: why} }
	before, err := g.renew(ctx, c.grant)
	if err != nil {
		g.log.Warn("a claim was lost before its call was sent", "approval", c.parked.ID, "error", err)
		return permit{}, notRun(approvals.CauseOverslept)
	}
	fault.Point("renew.after")
	call := c.parked.Envelope.Call
	// One that was replaced meanwhile is found by leaveFor: its numbers say nothing
	// about the other's.
	if st := g.state.Load(); st.Upstreams[call.Server] == c.up && g.outdated(c.cat, st) {
		cat, err := g.catalogue(ctx, st, call.Server, 0)
		if err != nil {
			return permit{}, notRun(approvals.CauseNotSent)
		}
		if !cat.still(&c.parked.Envelope) || !cat.offers(call.Tool) {
			return permit{}, notRun(approvals.CauseTool)
		}
		c.cat = cat
	}
	// As in still: by what was known when it was parked, and by all that is now.
	cause, then := approvals.CausePolicy, factsOf(call, c.parked.Envelope)
	p, err := g.leaveFor(then, grounds{won: c}, before)
	if err == nil {
		cause = approvals.CauseLabels
		p, err = g.leaveFor(grown(then, c.labels), grounds{won: c}, before)
	}
	if err != nil {
		g.log.Warn("an approved call was stopped by the last check", "approval", c.parked.ID, "cause", cause, "error", err)
		return permit{}, notRun(cause)
	}
	if now := time.Now(); !now.Before(before) || !now.Round(0).Before(before.Round(0)) {
		return permit{}, notRun(approvals.CauseOverslept)
	}
	return p, outcome{}
}
