package gate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
)

// isFinal tells whether an error is a conflict that a second try would meet
// again. "Unavailable" is not: it leaves open what happened.
func isFinal(err error) bool {
	c, ok := approvals.AsConflict(err)
	return ok && c != approvals.StoreUnavailable && c != approvals.Moved
}

// storeTimeout bounds one call to the store.
const storeTimeout = 5 * time.Second

// insist repeats a step until its reply is known, a few times. Every step is
// safe to send twice.
func (g *Gate) insist(ctx context.Context, step func(context.Context) error) error {
	pause := 50 * time.Millisecond
	for try := 1; ; try++ {
		one, cancel := context.WithTimeout(ctx, storeTimeout)
		err := step(one)
		cancel()
		if err == nil || isFinal(err) || errors.Is(err, approvals.Moved) || try == 4 {
			return err
		}
		select {
		case <-time.After(pause):
			pause *= 3
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}
