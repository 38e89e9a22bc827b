package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/ledger"
)

// eventStream is what the clerk needs of the store, and eventBook what it needs of
// the ledger.
type (
	eventStream interface {
		Events(ctx context.Context, consumer string, limit int, block time.Duration) (events []approvals.Event, ids []string, err error)
		EventsDone(ctx context.Context, ids ...string) error
	}
	eventBook interface {
		Append(ctx context.Context, recs ...ledger.Record) (ledger.Pos, error)
		Retry(ctx context.Context) error
	}
)

// clerk copies the store's events into this process's ledger. An event leaves
// the stream only after its record is durable, so it is copied at least once;
// its number tells copies apart.
type clerk struct {
	store    eventStream
	ledger   eventBook
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
	if err := c.write(ctx, events); err != nil {
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

// write makes the events durable, all with one sync. An event that is no record
// of ours (whoever can write to Redis can put anything on the stream) must not
// keep the others from the ledger: of it only the number is written.
func (c *clerk) write(ctx context.Context, events []approvals.Event) error {
	recs := make([]ledger.Record, 0, len(events))
	for _, e := range events {
		recs = append(recs, record(e))
	}
	_, err := c.ledger.Append(ctx, recs...)
	var invalid *ledger.Invalid
	if !errors.As(err, &invalid) {
		return err
	}
	for _, r := range recs {
		_, err := c.ledger.Append(ctx, r)
		if errors.As(err, &invalid) {
			c.log.Error("an event can't be written to the ledger as it is; its number is", "event", r.EventSeq, "field", invalid.Field)
			_, err = c.ledger.Append(ctx, unreadable(r.EventSeq))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// unreadable stands for an event that the ledger can't hold.
func unreadable(seq uint64) ledger.Record {
	return ledger.Record{Event: ledger.Malformed, EventSeq: seq, Reason: "event"}
}

// record is an event as the ledger keeps it.
func record(e approvals.Event) ledger.Record {
	if e.Kind == "head" {
		return headRecord(e)
	}
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
	case "review_closed":
		r.Event, r.Reason = ledger.ReviewClosed, fmt.Sprintf("denials_%d", e.Row)
		a.By, a.ExpiresAt = ledger.Clean(e.Person), e.Until
	case "state":
		r.Event = ledger.ApprovalResolved
		a.By = ledger.Clean(e.Person)
		if a.By == "" {
			a.By = ledger.Clean(e.Actor)
		}
	default:
		return unreadable(e.Seq)
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
