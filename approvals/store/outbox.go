package store

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countersign-mcp/countersign/approvals"
)

// Nudges takes up to limit entries of the outbox for a consumer, waiting up to
// block for a new one. An entry says only "look at this approval again"; several
// may name the same one. What is not Done is given out again after NudgeIdle, to
// this consumer or another.
func (s *Store) Nudges(ctx context.Context, consumer string, limit int, block time.Duration) ([]approvals.Nudge, error) {
	msgs, err := s.fetch(ctx, s.k.outbox(), nudgeGroup, consumer, limit, block)
	if err != nil {
		return nil, err
	}
	out := make([]approvals.Nudge, 0, len(msgs))
	for _, m := range msgs {
		out = append(out, approvals.Nudge{EntryID: m.ID, ID: text(m, "id")})
	}
	return out, nil
}

// Done removes an entry from the outbox.
func (s *Store) Done(ctx context.Context, n approvals.Nudge) error {
	return s.finish(ctx, s.k.outbox(), nudgeGroup, []string{n.EntryID})
}

// Events takes up to limit events for a consumer, waiting up to block for a new
// one; ids are for [Store.EventsDone], in the same order. An event may be given
// out twice: its Seq tells.
func (s *Store) Events(ctx context.Context, consumer string, limit int, block time.Duration) (events []approvals.Event, ids []string, err error) {
	msgs, err := s.fetch(ctx, s.k.events(), eventGroup, consumer, limit, block)
	if err != nil {
		return nil, nil, err
	}
	for _, m := range msgs {
		events, ids = append(events, event(m)), append(ids, m.ID)
	}
	return events, ids, nil
}

// EventsDone removes events that are durable elsewhere.
func (s *Store) EventsDone(ctx context.Context, ids ...string) error {
	return s.finish(ctx, s.k.events(), eventGroup, ids)
}

func event(m redis.XMessage) approvals.Event {
	seq, _ := strconv.ParseUint(text(m, "n"), 10, 64)
	row, _ := strconv.Atoi(text(m, "row"))
	return approvals.Event{
		Row: row, Until: parseMS(text(m, "until")),
		Seq: seq, At: parseMS(text(m, "at")), Kind: text(m, "kind"), ID: text(m, "id"),
		State: approvals.State(text(m, "state")), Cause: text(m, "cause"),
		Person: text(m, "person"), Actor: text(m, "actor"), Source: text(m, "source"), Route: text(m, "route"),
		Verdict: text(m, "verdict"), Refused: text(m, "refused"), Bound: text(m, "bound"), Shown: text(m, "shown"),
		Server: text(m, "server"), Tool: text(m, "tool"), Text: text(m, "text"),
	}
}

func text(m redis.XMessage, field string) string {
	v, _ := m.Values[field].(string)
	return v
}

// headMemory is how long a head's nonce is remembered; a retry comes within
// seconds.
const headMemory = time.Hour

// Head puts the head of a ledger file on the event stream. The same nonce is
// taken once.
func (s *Store) Head(ctx context.Context, nonce, text string) error {
	if nonce == "" {
		return fmt.Errorf("telling a head: a nonce is needed")
	}
	rep, err := s.run(ctx, s.sc.head,
		[]string{s.k.head(nonce), s.k.due(), s.k.outbox(), s.k.events(), s.k.eventCount()},
		"", "", ms(headMemory), nonce, text)
	if err != nil {
		return fmt.Errorf("telling a head: %w", err)
	}
	if rep.code != "ok" {
		return unexpected("telling a head", rep)
	}
	return nil
}
