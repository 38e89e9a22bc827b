package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/approvals/keys"
)

func (k keyspace) turn(server string) string { return string(k) + "pt:" + server }

// turnField binds the seal of a turn, as a field of the pins binds theirs.
const turnField = "t:"

// sealedTurn is a turn as it is sealed.
type sealedTurn struct {
	ID     string `json:"id"`
	Change string `json:"change"`
	Until  int64  `json:"until"` // ms
}

// TurnToAsk takes the turn to ask people for a change of an upstream's tools, which
// nobody else has for rest then. The turn that counts is returned: mine, or whose it
// is until then. One that does not open is nobody's, and ends all the same. It may be
// sent twice.
func (s *Store) TurnToAsk(ctx context.Context, server string, mine approvals.Turn, rest time.Duration) (approvals.Turn, error) {
	if err := s.ready(ctx); err != nil {
		return approvals.Turn{}, unavailable("taking the turn to ask", err)
	}
	now, err := s.clock(ctx)
	if err != nil {
		return approvals.Turn{}, fmt.Errorf("taking the turn to ask: %w", err)
	}
	plain, err := json.Marshal(sealedTurn{ID: mine.ID, Change: mine.Change.Hex(), Until: now.Add(rest).UnixMilli()})
	if err != nil {
		return approvals.Turn{}, fmt.Errorf("writing the turn to ask: %w", err)
	}
	sealed := s.opt.Ring.Seal(keys.PinSeal, plain, s.pinBound(server, turnField)...)
	for range 3 {
		got, err := s.rdb.SetNX(ctx, s.k.turn(server), sealed, rest).Result()
		if err != nil {
			return approvals.Turn{}, unavailable("taking the turn to ask", err)
		}
		if got {
			mine.Left = rest
			return mine, nil
		}
		is, err := s.rdb.Get(ctx, s.k.turn(server)).Result()
		if errors.Is(err, redis.Nil) {
			continue // it ended in between
		}
		if err != nil {
			return approvals.Turn{}, unavailable("looking whose turn it is to ask", err)
		}
		return s.openTurn(server, is, now, rest), nil
	}
	return approvals.Turn{}, unavailable("taking the turn to ask", errors.New("it did not settle"))
}

func (s *Store) openTurn(server, sealed string, now time.Time, rest time.Duration) approvals.Turn {
	out := approvals.Turn{Left: rest}
	plain, err := s.opt.Ring.Open(keys.PinSeal, []byte(sealed), s.pinBound(server, turnField)...)
	if err != nil {
		return out
	}
	var v sealedTurn
	if err := json.Unmarshal(plain, &v); err != nil {
		return out
	}
	out.Change, err = action.ParseDigest(v.Change)
	if err != nil {
		return approvals.Turn{Left: rest}
	}
	out.ID, out.Left = v.ID, min(max(time.UnixMilli(v.Until).Sub(now), time.Millisecond), rest)
	return out
}
