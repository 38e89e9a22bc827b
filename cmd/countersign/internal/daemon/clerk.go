package daemon

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/ledger"
	"github.com/countersign-mcp/countersign/approvals/store"
)

// clerk copies the store's events into this process's ledger. An event leaves
// the stream only after its record is durable, so it is copied at least once;
// its number tells copies apart.
type clerk struct {
	store    *store.Store
	ledger   *ledger.Ledger
	consumer string
	log      *slog.Logger
	ready    func() bool // the store was reached once; before that silence is normal
	// approved is told of each approval that is approved.
	approved func(ctx context.Context, id string)
}

const (
	clerkBatch = 128
	clerkBlock = 2 * time.Second
	clerkRest  = time.Second // after an error
)

// run copies until ctx ends.
func (c *clerk) run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := c.step(ctx); err != nil && ctx.Err() == nil {
			if c.ready() {
				c.log.Warn("events are not copied to the ledger", "error", err)
			}
			rest(ctx, clerkRest)
		}
	}
	return nil
}

func (c *clerk) step(ctx context.Context) error {
	if err := c.ledger.Retry(ctx); err != nil {
		return err // the events can wait
	}
	events, ids, err := c.store.Events(ctx, c.consumer, clerkBatch, clerkBlock)
	if err != nil || len(events) == 0 {
		return err
	}
	recs := make([]ledger.Record, 0, len(events))
	for _, e := range events {
		recs = append(recs, record(e))
	}
	if _, err := c.ledger.Append(ctx, recs...); err != nil {
		var invalid *ledger.Invalid
		if !errors.As(err, &invalid) {
			return err
		}
		c.log.Error("an event can't be written to the ledger as it is", "error", err)
		return err
	}
	if err := c.store.EventsDone(ctx, ids...); err != nil {
		return err
	}
	for _, e := range events {
		if e.Kind == "state" && e.State == approvals.Approved {
			c.approved(ctx, e.ID)
		}
	}
	return nil
}

// record is an event as the ledger keeps it.
func record(e approvals.Event) ledger.Record {
	r := ledger.Record{
		OperationID: e.ID, EventSeq: e.Seq, Actor: ledger.Clean(e.Actor),
		Server: ledger.Clean(e.Server), Tool: ledger.Clean(e.Tool),
		EnvelopeDigest: e.Bound, DisplayDigest: e.Shown,
	}
	a := &ledger.Approval{ID: e.ID, State: string(e.State), Cause: e.Cause}
	switch e.Kind {
	case "requested":
		r.Event = ledger.ApprovalRequested
	case "vote":
		r.Event = ledger.ApprovalVote
		a.Votes = []ledger.Vote{vote(e)}
	case "vote_refused":
		r.Event = ledger.VoteRefused
		v := vote(e)
		v.Refused = e.Refused
		a.Votes = []ledger.Vote{v}
	default:
		r.Event = ledger.ApprovalResolved
		a.By = ledger.Clean(e.Person)
		if a.By == "" {
			a.By = ledger.Clean(e.Actor)
		}
	}
	r.Approval = a
	return r
}

func vote(e approvals.Event) ledger.Vote {
	return ledger.Vote{
		Route: ledger.Clean(e.Route), Person: ledger.Clean(e.Person), Verdict: e.Verdict,
		Source: ledger.Clean(e.Source), At: e.At,
	}
}

// rest waits, at most until ctx ends.
func rest(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
