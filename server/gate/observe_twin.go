package gate

import (
	"context"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/action"
)

// twinTimeout bounds the look for a twin. An observed call is not held up for
// longer by a store that does not answer.
const twinTimeout = time.Second

// joinAsked answers an observed call that people were asked about before nobody was
// asked: it joins that one, as it would have. Run beside it, the same call would run
// again with the yes, or in spite of a no. Where another process has loaded another
// policy since, nobody knows whether it still observes, and the call is reviewed:
// so it is refused.
//
// A store that can't be reached knows of no twin, and the call runs.
func (k *call) joinAsked(ctx context.Context) (Answer, bool) {
	one, cancel := context.WithTimeout(ctx, twinTimeout)
	t, _, err := k.g.store.Park(one, k.likeness())
	cancel()
	c, known := approvals.AsConflict(err)
	switch {
	case err == nil:
	case !known, c == approvals.NotFound, c == approvals.StoreUnavailable:
		return Answer{}, false
	default:
		k.observed = false
		if no := k.find(ctx, k.st); no != nil { // read anew, as for all that is parked
			return k.refuse(ctx, *no), true
		}
		return k.review(ctx), true
	}
	k.observed = false
	if err := k.g.write(ctx, k.decision("review", "")); err != nil {
		return k.noLedger(err), true
	}
	if err := k.attach(ctx, t.ID); err != nil {
		return k.noLedger(err), true
	}
	k.also = true
	return k.hold(ctx, t), true
}

// likeness is what finds a call's twin, and nothing that could be parked.
func (k *call) likeness() approvals.Park {
	p := approvals.Park{
		Nonce: k.op, AttachOnly: true, Caps: k.g.set.Caps,
		Envelope: action.Envelope{V: action.EnvelopeVersion, OperationID: k.op, Call: k.c, Policy: k.verdict.Policy},
	}
	for _, r := range k.verdict.Routes {
		p.Requirements = append(p.Requirements, r.Require(nil))
	}
	return p
}
