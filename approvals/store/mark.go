package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
)

// aliveFor is how long a notifier counts as alive after its last word.
const aliveFor = 10 * time.Second

// Mark writes what is known of a message: the message itself (which clears the
// attempt), the trouble (nil clears it), an attempt that may have posted. It
// moves no Rev and wakes nobody. Only the holder of the approval's lease calls
// it, so two marks don't race.
func (s *Store) Mark(ctx context.Context, id string, m approvals.Mark) error {
	if m.Channel == "" {
		return fmt.Errorf("marking: no channel")
	}
	ref, err := optional(m.Ref)
	if err != nil {
		return fmt.Errorf("marking: %w", err)
	}
	trouble, err := optional(m.Trouble)
	if err != nil {
		return fmt.Errorf("marking: %w", err)
	}
	refID := ""
	if m.Ref != nil {
		refID = m.Ref.ID
	}
	rep, err := s.run(ctx, s.sc.mark, []string{s.k.record(id)}, m.Channel, ref, trouble, m.Attempt, refID, m.Gone)
	switch {
	case err != nil:
		return fmt.Errorf("marking: %w", err)
	case rep.code == "ok":
		return nil
	case rep.code == "gone":
		return fmt.Errorf("marking: approval %s: %w", id, approvals.NotFound)
	}
	return unexpected("marking", rep)
}

// maxAdopted is how many messages of one approval a channel may have beside the
// one we know we posted.
const maxAdopted = 8

// Adopt takes a message of ours that the record does not know of, and puts the
// approval on the outbox so that it is brought up to date. It may be called by
// anybody, at any time.
func (s *Store) Adopt(ctx context.Context, id string, ref approvals.Ref) error {
	if ref.Channel == "" || ref.ID == "" {
		return fmt.Errorf("adopting a message: it has no channel or no id")
	}
	text, err := optional(&ref)
	if err != nil {
		return fmt.Errorf("adopting a message: %w", err)
	}
	rep, err := s.run(ctx, s.sc.adopt, []string{s.k.record(id), s.k.outbox()}, id, ref.Channel, text, ref.ID, maxAdopted)
	switch {
	case err != nil:
		return fmt.Errorf("adopting a message: %w", err)
	case rep.code == "ok", rep.code == "known":
		return nil
	case rep.code == "many":
		return fmt.Errorf("adopting a message of approval %s: %w", id, approvals.TooMany)
	case rep.code == "gone":
		return fmt.Errorf("adopting a message: approval %s: %w", id, approvals.NotFound)
	}
	return unexpected("adopting a message", rep)
}

func optional[T any](v *T) (string, error) {
	if v == nil {
		return "", nil
	}
	b, err := json.Marshal(v)
	return string(b), err
}

// Attempt is the open attempt of a channel: a post that may have happened. ""
// when there is none.
func (s *Store) Attempt(ctx context.Context, id, channel string) (string, error) {
	r, _, err := s.read(ctx, id)
	if err != nil {
		return "", fmt.Errorf("reading an attempt: %w", err)
	}
	return r.fields["att:"+channel], nil
}

// Lease makes owner the one who tells about an approval for ttl, or extends it.
// false when another holds it.
func (s *Store) Lease(ctx context.Context, id, owner string, ttl time.Duration) (bool, error) {
	if owner == "" || ttl < time.Millisecond {
		return false, fmt.Errorf("leasing: an owner and a time are needed")
	}
	return s.lease(ctx, id, owner, ms(ttl))
}

// Unlease gives a lease back; another's is left alone.
func (s *Store) Unlease(ctx context.Context, id, owner string) error {
	_, err := s.lease(ctx, id, owner, 0)
	return err
}

func (s *Store) lease(ctx context.Context, id, owner string, ttl int64) (bool, error) {
	rep, err := s.run(ctx, s.sc.lease, []string{s.k.teller(id)}, owner, ttl)
	switch {
	case err != nil:
		return false, fmt.Errorf("leasing: %w", err)
	case rep.code == "ok":
		return true, nil
	case rep.code == "held":
		return false, nil
	}
	return false, unexpected("leasing", rep)
}

// Alive says that a notifier is at work. Called every few seconds.
func (s *Store) Alive(ctx context.Context) error {
	now, err := s.clock(ctx)
	if err != nil {
		return fmt.Errorf("saying that a notifier is alive: %w", err)
	}
	until := strconv.FormatInt(now.Add(aliveFor).UnixMilli(), 10)
	if err := s.rdb.Set(ctx, s.k.alive(), until, aliveFor).Err(); err != nil {
		return unavailable("saying that a notifier is alive", err)
	}
	return nil
}

// NotifierAlive tells whether some notifier has called Alive in the last 10 s.
func (s *Store) NotifierAlive(ctx context.Context) (bool, error) {
	now, err := s.clock(ctx)
	if err != nil {
		return false, fmt.Errorf("looking for a notifier: %w", err)
	}
	vals, err := s.rdb.MGet(ctx, s.k.alive()).Result()
	if err != nil {
		return false, unavailable("looking for a notifier", err)
	}
	until, _ := vals[0].(string)
	return now.Before(parseMS(strings.TrimSpace(until))), nil
}
