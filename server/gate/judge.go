package gate

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/server/policy"
)

// gates are the three places that a call has to pass. They share no code but the
// policy they ask, so a fault in one leaves two. They are values so that a test
// can break one and watch the others.
type gates struct {
	// list tells whether a tool may be shown, and so whether it exists for the
	// caller at all.
	list func(st *State, server, tool string) bool
	// call judges one call by the state it came in under.
	call func(st *State, f policy.Facts) policy.Verdict
	// last is asked right before the bytes leave, with the state of that moment.
	last func(st *State, f policy.Facts, by grounds, now time.Time) error
}

func theGates() gates {
	return gates{
		list: func(st *State, server, tool string) bool {
			return st.Upstreams[server] != nil && st.Policy.Shows(server, tool)
		},
		call: func(st *State, f policy.Facts) policy.Verdict { return st.Policy.Judge(f) },
		last: lastWord,
	}
}

var errNotNow = errors.New("the call may not run any more")

// grounds are why a call may run although its policy asks for people. The zero
// value is that of a call which is simply allowed.
type grounds struct {
	won      *claimed // they agreed: a won claim, with what they agreed to
	observed bool     // its decision says that nobody is asked on this upstream yet
}

// lastWord is the third check. It takes nothing from the first two, and asks the
// clock again: what was observed a moment ago may have to be asked for now.
func lastWord(st *State, f policy.Facts, by grounds, now time.Time) error {
	c := f.Call
	if st == nil || st.Policy == nil {
		return fmt.Errorf("no policy: %w", errNotNow)
	}
	if _, known := st.Upstreams[c.Server]; !known || c.Tool == "" {
		return fmt.Errorf("no such upstream: %w", errNotNow)
	}
	v := st.Policy.Judge(f)
	won := by.won
	if won == nil {
		if v.Effect == policy.Allow || by.observed && v.Effect == policy.Review && st.Policy.Observes(c.Server, now) {
			return nil
		}
		return fmt.Errorf("the policy does not allow it: %w", errNotNow)
	}
	switch {
	case v.Effect != policy.Review || !sameRoutes(v.Routes, won.parked.Requirements):
		return fmt.Errorf("the policy does not ask the same people: %w", errNotNow)
	case won.grant.ID == "" || won.grant.ID != won.parked.Envelope.OperationID || won.grant.Nonce == "":
		return fmt.Errorf("the claim is not this call's: %w", errNotNow)
	case !sameCall(c, won.parked.Envelope.Call):
		return fmt.Errorf("the call is not the approved one: %w", errNotNow)
	}
	return nil
}

// sameRoutes tells whether the routes of a judgement are the ones that people
// answered on: as many, by name, each with equal approvers, quorum and
// allow_requester.
func sameRoutes(now []approvals.Route, then []approvals.Requirement) bool {
	if len(now) != len(then) || len(now) == 0 {
		return false
	}
	for _, q := range then {
		old := approvals.Route{Name: q.Route, Approvers: q.Approvers, Quorum: q.Quorum, AllowRequester: q.AllowRequester}
		if !slices.ContainsFunc(now, func(r approvals.Route) bool {
			r.Quorum = max(r.Quorum, 1) // as Require stores it
			return r.SameAs(old)
		}) {
			return false
		}
	}
	return true
}

// sameCall compares what is about to be forwarded with what was approved.
func sameCall(a, b action.Call) bool {
	return a.Server == b.Server && a.Tool == b.Tool && a.Actor.ID == b.Actor.ID &&
		slices.Equal(a.Args, b.Args) && slices.Equal(a.Meta, b.Meta) && slices.Equal(a.Extra, b.Extra)
}

// carried are the reasons that brought the effect about.
func carried(v policy.Verdict) []policy.Reason {
	var out []policy.Reason
	for _, r := range v.Reasons {
		if r.Effect == v.Effect {
			out = append(out, r)
		}
	}
	return out
}
