package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/keys"
)

// Sweep writes down what the clock has decided: expired, lapsed, unknown at the
// end of a lease, and forgotten when an ended record's time is over. It handles
// at most limit records and returns how many moved. Any number of processes may
// sweep at once.
func (s *Store) Sweep(ctx context.Context, limit int) (int, error) {
	if err := s.ready(ctx); err != nil {
		return 0, unavailable("sweeping", err)
	}
	ids, err := s.sc.due.Run(ctx, s.rdb, []string{s.k.due()}, limit).StringSlice()
	if err != nil && !errors.Is(err, redis.Nil) {
		return 0, unavailable("sweeping", err)
	}
	moved := 0
	for batch := range slices.Chunk(ids, 100) {
		replies, err := s.tickAll(ctx, batch)
		for _, r := range replies {
			switch r.code {
			case "expired", "lapsed", "unknown", "forgotten":
				moved++
			}
		}
		if err != nil {
			return moved, fmt.Errorf("sweeping: %w", err)
		}
	}
	return moved, nil
}

// tick does for one record what its timer says.
func (s *Store) tick(ctx context.Context, id string) error {
	replies, err := s.tickAll(ctx, []string{id})
	if err == nil && replies[0].code == "broken" {
		return unexpected("ticking", replies[0])
	}
	return err
}

// tickAll ticks records in one pipeline, by the scripts' text: a NOSCRIPT in a
// pipeline would come too late to answer.
func (s *Store) tickAll(ctx context.Context, ids []string) ([]reply, error) {
	pipe := s.rdb.Pipeline()
	reads := make([]*redis.SliceCmd, len(ids))
	for i, id := range ids {
		reads[i] = pipe.HMGet(ctx, s.k.record(id), "ac", "ix", "own", "b", "f", "st")
	}
	// Each command's error is judged by itself: one bad record must not keep the
	// others from being ticked.
	_, _ = pipe.Exec(ctx)
	for _, cmd := range reads {
		if err := cmd.Err(); err != nil && !ofTheRecord(err) {
			return nil, unavailable("ticking", err)
		}
	}
	pipe = s.rdb.Pipeline()
	ran := make([]*redis.Cmd, len(ids))
	for i, id := range ids {
		f := fieldsOf(reads[i].Val())
		index := f[1]
		if index == "" {
			index = s.k.record(id)
		}
		ran[i] = pipe.Eval(ctx, s.sc.tick.text,
			s.k.moving(id, f[0], s.k.view(id), s.k.result(id), s.k.refused(id), s.k.all(), index, s.k.ownedBy(f[2])),
			id, s.k.wakeChannel(), ms(s.opt.Retain), ms(s.opt.ResultTTL), s.sealedDeadline(id, f), ms(s.opt.MissTTL))
	}
	_, _ = pipe.Exec(ctx)
	out := make([]reply, len(ids))
	for i, cmd := range ran {
		if err := cmd.Err(); err != nil && !ofTheRecord(err) {
			return out, unavailable("ticking", err)
		} else if err != nil {
			out[i] = reply{"broken", err.Error()}
		} else if out[i], err = parseReply(cmd.Val()); err != nil {
			return out, unavailable("ticking", err)
		}
		if out[i].code == "broken" {
			if err := s.postpone(ctx, ids[i], out[i].text); err != nil {
				return out, err
			}
		}
	}
	return out, nil
}

// ofTheRecord tells whether the server could not do this one command, for what is
// in its keys. All else is the server's or the network's trouble.
func ofTheRecord(err error) bool {
	var told redis.Error
	return errors.As(err, &told) && (strings.HasPrefix(told.Error(), "WRONGTYPE ") || strings.HasPrefix(told.Error(), "ERR "))
}

// brokenRest is how long a record that can't be ticked is left alone.
const brokenRest = time.Minute

func (s *Store) postpone(ctx context.Context, id, why string) error {
	s.opt.Log.Error("a record can't be ticked: what its keys hold is not ours; it is tried again later",
		"approval", id, "found", why, "in", brokenRest)
	rep, err := s.run(ctx, s.sc.postpone, []string{s.k.due()}, id, ms(brokenRest))
	if err == nil && rep.code != "ok" {
		err = unexpected("ticking", rep)
	}
	return err
}

func fieldsOf(vals []any) [6]string {
	var out [6]string
	for i := range min(len(vals), len(out)) {
		out[i], _ = vals[i].(string)
	}
	return out
}

// sealedDeadline is the deadline that nobody can have moved; "" where the state
// has none or the record does not open. Then the open copy, or the votes, rule.
func (s *Store) sealedDeadline(id string, f [6]string) string {
	if approvals.State(f[5]) != approvals.Pending {
		return ""
	}
	var fx fixed
	if s.openJSON(keys.Record, id, "record", f[3], f[4], &fx) != nil {
		return ""
	}
	return fmt.Sprint(fx.Deadline)
}
