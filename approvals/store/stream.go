package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	nudgeGroup = "notify" // of the outbox
	eventGroup = "ledger" // of the events
)

// longestBlock is how long one blocking read may hang: go-redis does not end it
// when a context is cancelled.
const longestBlock = time.Second

// taken remembers what this process was given and has not finished, so that its
// own pending entries can be read again after a lost reply without handing out
// what is in hand.
type taken struct {
	mu  sync.Mutex
	ids map[string]bool      // stream + entry id
	at  map[string]time.Time // what is looked at now and then → the last look
}

func newTaken() *taken { return &taken{ids: map[string]bool{}, at: map[string]time.Time{}} }

func (t *taken) take(stream, id string) (fresh bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fresh = !t.ids[stream+id]
	t.ids[stream+id] = true
	return fresh
}

func (t *taken) drop(stream string, ids []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, id := range ids {
		delete(t.ids, stream+id)
	}
}

// due tells whether it is time for a look that is made every so often.
func (t *taken) due(key string, every time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if last, seen := t.at[key]; seen && time.Since(last) < every {
		return false
	}
	t.at[key] = time.Now()
	return true
}

// overdue makes the next look due at once.
func (t *taken) overdue(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.at, key)
}

func (s *Store) makeGroup(ctx context.Context, stream, group string) error {
	err := s.rdb.XGroupCreateMkStream(ctx, stream, group, "0").Err()
	if redis.HasErrorPrefix(err, "BUSYGROUP") {
		return nil
	}
	return err
}

// fetch takes up to limit entries for a consumer: what was delivered to it and
// got lost on the way, what another left undone for NudgeIdle, and new ones, for
// which it waits up to block.
func (s *Store) fetch(ctx context.Context, stream, group, consumer string, limit int, block time.Duration) ([]redis.XMessage, error) {
	if err := s.ready(ctx); err != nil {
		return nil, unavailable("reading "+group, err)
	}
	if consumer == "" || limit < 1 {
		return nil, fmt.Errorf("reading %s: a consumer and a number are needed", group)
	}
	var out []redis.XMessage
	end := time.Now().Add(block)
	for {
		lost, err := s.lost(ctx, stream, group, consumer, limit)
		if err == nil && len(lost) < limit {
			out = lost
			var left []redis.XMessage
			left, err = s.left(ctx, stream, group, consumer, limit-len(out))
			out = append(out, left...)
		} else {
			out = lost
		}
		if err == nil && len(out) < limit {
			wait := min(time.Until(end), longestBlock)
			if len(out) > 0 || wait < time.Millisecond {
				wait = -1
			}
			var news []redis.XMessage
			news, err = s.news(ctx, stream, group, consumer, limit-len(out), wait)
			out = append(out, news...)
		}
		if redis.HasErrorPrefix(err, "NOGROUP") { // the server lost its memory
			if err = s.makeGroup(ctx, stream, group); err == nil && ctx.Err() == nil {
				continue
			}
		}
		if err != nil {
			s.taken.overdue("lost " + stream + consumer)
		}
		switch {
		case err != nil && len(out) == 0:
			return nil, unavailable("reading "+group, err)
		case len(out) > 0 || !time.Now().Before(end):
			return out, nil
		case ctx.Err() != nil:
			return nil, unavailable("reading "+group, ctx.Err())
		}
	}
}

// lostEvery is how often a consumer looks at what is pending for it. A delivery
// whose loss was seen is looked for at once; one that go-redis retried by itself
// is found by the next look.
const lostEvery = time.Second

// lost reads what is pending for the consumer and not in hand. The whole list of
// what is pending is read for that, so it is not done for each delivery.
func (s *Store) lost(ctx context.Context, stream, group, consumer string, limit int) (found []redis.XMessage, err error) {
	look := "lost " + stream + consumer
	if !s.taken.due(look, lostEvery) {
		return nil, nil
	}
	defer func() {
		if err != nil || len(found) >= limit { // there may be more
			s.taken.overdue(look)
		}
	}()
	var out []redis.XMessage
	from := "0"
	for {
		res, err := s.stream.XReadGroup(ctx, &redis.XReadGroupArgs{
			Group: group, Consumer: consumer, Streams: []string{stream, from}, Count: 100, Block: -1,
		}).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return out, err
		}
		if len(res) == 0 || len(res[0].Messages) == 0 {
			return out, nil
		}
		for _, m := range res[0].Messages {
			from = m.ID
			switch {
			case m.Values == nil: // done by another, but still on our list
				s.rdb.XAck(ctx, stream, group, m.ID)
			case len(out) < limit && s.taken.take(stream, m.ID):
				out = append(out, m)
			}
		}
		if len(res[0].Messages) < 100 || len(out) >= limit {
			return out, nil
		}
	}
}

// left takes over what others, or we, were given and did not finish.
func (s *Store) left(ctx context.Context, stream, group, consumer string, limit int) ([]redis.XMessage, error) {
	if !s.taken.due(stream+consumer, s.opt.NudgeIdle/4) {
		return nil, nil
	}
	if silent := consumerSilence * s.opt.NudgeIdle; !s.opt.Embedded && s.taken.due(stream, silent) {
		s.prune(ctx, stream, group, silent)
	}
	msgs, _, err := s.stream.XAutoClaim(ctx, &redis.XAutoClaimArgs{
		Stream: stream, Group: group, Consumer: consumer, MinIdle: s.opt.NudgeIdle, Start: "0-0", Count: int64(limit),
	}).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, err
	}
	var out []redis.XMessage
	for _, m := range msgs {
		if m.Values != nil {
			s.taken.take(stream, m.ID)
			out = append(out, m)
		}
	}
	return out, nil
}

// consumerSilence is how long a consumer of an earlier boot is remembered after it
// owes nothing any more, in times of NudgeIdle. A server in this process has none.
const consumerSilence = 10

func (s *Store) prune(ctx context.Context, stream, group string, silent time.Duration) {
	if _, err := s.run(ctx, s.sc.prune, []string{stream}, group, ms(silent)); err != nil {
		s.opt.Log.Debug("consumers that are gone could not be forgotten", "group", group, "error", err)
	}
}

func (s *Store) news(ctx context.Context, stream, group, consumer string, limit int, block time.Duration) ([]redis.XMessage, error) {
	res, err := s.stream.XReadGroup(ctx, &redis.XReadGroupArgs{
		Group: group, Consumer: consumer, Streams: []string{stream, ">"}, Count: int64(limit), Block: block,
	}).Result()
	if errors.Is(err, redis.Nil) || (err == nil && len(res) == 0) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, m := range res[0].Messages {
		s.taken.take(stream, m.ID)
	}
	return res[0].Messages, nil
}

// finish acknowledges entries and removes them. Doing it twice is harmless.
func (s *Store) finish(ctx context.Context, stream, group string, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	if err := s.ready(ctx); err != nil {
		return unavailable("finishing an entry of "+group, err)
	}
	pipe := s.rdb.Pipeline()
	pipe.XAck(ctx, stream, group, ids...)
	pipe.XDel(ctx, stream, ids...)
	if _, err := pipe.Exec(ctx); err != nil {
		return unavailable("finishing an entry of "+group, err)
	}
	s.taken.drop(stream, ids)
	return nil
}
