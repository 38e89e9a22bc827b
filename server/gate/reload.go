package gate

import (
	"context"
	"errors"
	"slices"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/approvals/ledger"
)

// Exchange is Load with a step right before it: first tells the other processes
// of the new policy. Calls that the store refuses meanwhile, because they were
// judged by the old one, wait for the exchange and are judged again. Only one
// exchange runs at a time.
func (g *Gate) Exchange(s State, first func()) {
	g.loading.Lock()
	defer g.loading.Unlock()
	if first != nil {
		first()
	}
	g.Load(s)
}

// present is the state after an exchange that is under way.
func (g *Gate) present() *State {
	g.loading.RLock()
	defer g.loading.RUnlock()
	return g.state.Load()
}

// maxJudged is how often one call is judged because the policy changed before it
// was parked.
const maxJudged = 8

// rejudged answers a call that the store did not park since its policy is not the
// newest, if this process has been reloaded meanwhile, be it with the same one. What
// was decided by the old one is ended on the ledger; the call begins again, under an
// id of its own.
func (k *call) rejudged(ctx context.Context, err error) (Answer, bool) {
	if !errors.Is(err, approvals.Behind) {
		return Answer{}, false
	}
	if errors.Is(err, errUnclear) || k.judged >= maxJudged || k.g.present() == k.st {
		k.g.tellBehind()
		return Answer{}, false
	}
	if err := k.g.writeLate(k.result(outcome{status: ledger.StatusNotRun, errorType: approvals.CausePolicy})); err != nil {
		return k.noLedger(err), true
	}
	again := k.g.newCall(k.req)
	again.begun, again.judged = k.begun, k.judged+1
	return again.answer(ctx), true
}

// tellBehind lets whoever runs the gate know that a step was refused because
// another process has a newer policy. It never blocks.
func (g *Gate) tellBehind() {
	if g.onBehind != nil {
		g.onBehind()
	}
}

// admits tells whether a caller is one of those who may call by this state. One
// who came in under another may have roles there that this one does not give, and
// a call is never judged by parts of two.
func (s *State) admits(a action.Actor) bool {
	return s.Callers == nil || slices.ContainsFunc(s.Callers, func(c action.Actor) bool { return SameActor(a, c) })
}

// SameActor tells whether two credentials stand for the same caller, with the same
// roles and owners.
func SameActor(a, b action.Actor) bool {
	return a.ID == b.ID && a.Auth == b.Auth && slices.Equal(a.Roles, b.Roles) && slices.Equal(a.Owners, b.Owners)
}

// faces are what an actor who asked before may be now: one for each credential.
// An actor of whom this process never knew is taken as it was: another process
// let it in.
func (s *State) faces(who action.Actor) []action.Actor {
	if s.admits(who) {
		return []action.Actor{who}
	}
	var now []action.Actor
	for _, c := range s.Callers {
		if c.ID == who.ID {
			now = append(now, c)
		}
	}
	if now == nil {
		return []action.Actor{who}
	}
	return now
}
