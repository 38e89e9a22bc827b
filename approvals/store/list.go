package store

import (
	"context"
	"errors"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/countersign-mcp/countersign/approvals"
)

// List reads up to limit approvals in the given states (all states when none is
// given), the newest first. A record that does not open is left out and logged:
// one bad record must not hide the others.
func (s *Store) List(ctx context.Context, states []approvals.State, limit int) ([]approvals.Ticket, error) {
	if err := s.ready(ctx); err != nil {
		return nil, unavailable("listing", err)
	}
	from := s.k.all()
	if len(states) == 1 && states[0] == approvals.Pending {
		from = s.k.pending()
	}
	const page = 200
	var out []approvals.Ticket
	for start := int64(0); len(out) < limit; start += page {
		ids, err := s.rdb.ZRevRange(ctx, from, start, start+page-1).Result()
		if err != nil {
			return nil, unavailable("listing", err)
		}
		if len(ids) == 0 {
			break
		}
		tickets, err := s.readAll(ctx, ids, states, limit-len(out))
		if err != nil {
			return nil, err
		}
		out = append(out, tickets...)
	}
	return out, nil
}

// ToRun lists what is approved and is to run without being collected, the one
// whose claim deadline is next first. It is a hint: whoever runs one judges its
// sealed record, and finds out there when it is no longer so.
func (s *Store) ToRun(ctx context.Context) ([]string, error) {
	if err := s.ready(ctx); err != nil {
		return nil, unavailable("looking for what is to run", err)
	}
	ids, err := s.rdb.ZRange(ctx, s.k.toRun(), 0, -1).Result() // no more than the cap of all
	if err != nil {
		return nil, unavailable("looking for what is to run", err)
	}
	return ids, nil
}

// readAll reads those of ids that are in one of the states.
func (s *Store) readAll(ctx context.Context, ids []string, states []approvals.State, limit int) ([]approvals.Ticket, error) {
	pipe := s.rdb.Pipeline()
	found := make([]*redis.StringCmd, len(ids))
	for i, id := range ids {
		found[i] = pipe.HGet(ctx, s.k.record(id), "st")
	}
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return nil, unavailable("listing", err)
	}
	var out []approvals.Ticket
	for i, id := range ids {
		st := approvals.State(found[i].Val())
		if len(out) >= limit || st == "" || (len(states) > 0 && !slices.Contains(states, st)) {
			continue
		}
		t, err := s.Ticket(ctx, id)
		switch {
		case err == nil:
			out = append(out, t)
		case errors.Is(err, approvals.NotFound):
		case errors.Is(err, approvals.Forged):
			s.opt.Log.Error("an approval is left out of a list: it does not verify; it was changed, or its key is not in keys.current and keys.previous", "approval", id, "error", err)
		default:
			return nil, err
		}
	}
	return out, nil
}
