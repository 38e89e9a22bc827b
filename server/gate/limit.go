package gate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/server/policy"
)

// limited counts a call against the policy's limits. Only what runs or is asked
// for counts: refused calls don't, and neither does waiting, collecting, or a
// repeated call that joins one that waits already.
func (k *call) limited() *refusal {
	err := k.st.limiter.Allow(k.c.Actor.ID, k.verdict.Tier, k.c.Server, k.c.Tool)
	var over *policy.Exceeded
	if !errors.As(err, &over) {
		return nil
	}
	no := &refusal{
		code: codeParams, reason: "rate_limited", after: over.After,
		message: fmt.Sprintf(sayLimited, sayAfter(over.After)),
	}
	if over.Limit.Match != "" { // else there are too many callers to count for
		no.rule = over.Limit.String()
	}
	return no
}

// sayAfter is a wait as callers are told it: in whole seconds, never too short.
func sayAfter(d time.Duration) time.Duration { return d.Truncate(time.Second) + time.Second }

// parkWithin parks a call unless that would exceed a limit. What is parked
// already is joined first, since that counts for nothing; and so is what in the end
// made no card of its own. A park without a clear reply stays counted: it may be
// there.
func (k *call) parkWithin(ctx context.Context, p approvals.Park) (approvals.Ticket, bool, error) {
	if p.AttachOnly || !k.st.limiter.Covers(k.verdict.Tier, k.c.Server, k.c.Tool) {
		return k.park(ctx, p)
	}
	p.AttachOnly = true
	t, fresh, err := k.park(ctx, p)
	if !errors.Is(err, approvals.NotFound) {
		return t, fresh, err
	}
	if no := k.limited(); no != nil {
		return t, false, &overLimit{*no}
	}
	p.AttachOnly = false
	t, fresh, err = k.park(ctx, p)
	if !fresh && !errors.Is(err, errUnclear) {
		k.st.limiter.Uncount(k.c.Actor.ID, k.verdict.Tier, k.c.Server, k.c.Tool)
	}
	return t, fresh, err
}

// overLimit is a call that was not parked because of a limit.
type overLimit struct{ no refusal }

func (e *overLimit) Error() string { return "over a limit of the policy " + e.no.rule }

// noRoom says why a call could not be put before people, each cap in its own words.
func noRoom(full *approvals.NoRoom) refusal {
	no := refusal{code: codeParams, reason: string(full.Why), after: full.After}
	switch full.Why {
	case approvals.TooManyPending:
		no.message = sayTooMany
	case approvals.TooManyPendingInAll:
		no.message = sayTooManyInAll
	case approvals.TooManyNew:
		no.message = fmt.Sprintf(sayTooManyNew, sayAfter(full.After))
	case approvals.TooManyNewInAll:
		no.message = fmt.Sprintf(sayTooManyNewInAll, sayAfter(full.After))
	case approvals.ReviewClosed:
		no.message = fmt.Sprintf(sayClosed, sayAfter(full.After))
	default:
		no.message = sayNotParked
	}
	return no
}
