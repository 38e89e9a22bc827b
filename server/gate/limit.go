package gate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/server/policy"
)

// limited counts a call against the policy's limits. Only what would run or be
// asked for counts: refused calls don't, and neither does waiting, collecting, or
// a repeated call that joins one that waits already.
func (k *call) limited() *refusal {
	err := k.st.limiter.Allow(k.c.Actor.ID, k.verdict.Tier, k.c.Server, k.c.Tool)
	var over *policy.Exceeded
	if !errors.As(err, &over) {
		return nil
	}
	no := &refusal{
		code: codeParams, reason: "rate_limited", after: over.After,
		message: fmt.Sprintf(sayLimited, over.After.Round(time.Second)+time.Second),
	}
	if over.Limit.Match != "" { // else there are too many callers to count for
		no.rule = over.Limit.String()
	}
	return no
}

// parkWithin parks a call unless that would exceed a limit. What is parked
// already is joined first, since that counts for nothing.
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
	return k.park(ctx, p)
}

// overLimit is a call that was not parked because of a limit.
type overLimit struct{ no refusal }

func (e *overLimit) Error() string { return "over a limit of the policy " + e.no.rule }
