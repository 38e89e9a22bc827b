package webhook

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

const (
	replySlots = 32               // replies on their way at once
	replyTime  = 10 * time.Second // for one reply
)

// replies sends ephemeral sentences beside the request: Slack waits for the 200,
// not for them. What finds no slot is dropped; the card tells the truth anyway.
type replies struct {
	to    Replier
	log   *slog.Logger
	slots chan struct{}
	wg    sync.WaitGroup
}

func newReplies(to Replier, log *slog.Logger) *replies {
	return &replies{to: to, log: log, slots: make(chan struct{}, replySlots)}
}

func (r *replies) send(responseURL, text string) {
	if r.to == nil || responseURL == "" {
		return
	}
	select {
	case r.slots <- struct{}{}:
	default:
		r.log.Warn("a sentence for a clicker was dropped: too many are on their way")
		return
	}
	r.wg.Go(func() {
		defer func() { <-r.slots }()
		ctx, cancel := context.WithTimeout(context.Background(), replyTime)
		defer cancel()
		if err := r.to.Ephemeral(ctx, responseURL, text); err != nil {
			// The error may hold the response URL, which is a bearer of its own.
			r.log.Warn("a sentence for a clicker was not delivered", "timeout", errors.Is(err, context.DeadlineExceeded))
		}
	})
}

func (r *replies) close(ctx context.Context) error {
	done := make(chan struct{})
	go func() { r.wg.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for replies: %w", ctx.Err())
	}
}
