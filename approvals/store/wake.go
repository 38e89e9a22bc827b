package store

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countersign-mcp/countersign/approvals"
)

// A wake-up is a hint on one Pub/Sub connection of the process; the record is
// the truth. A hint can be lost at any time, so whoever waits is registered
// first and reads the record after that, and everything is read again on each
// new subscription, at each missed heartbeat and every 5 to 15 s.
const (
	beatEvery   = time.Second
	beatsMissed = 3 // then the connection is taken for dead; go-redis would never notice
	rereadMin   = 5 * time.Second
	rereadMax   = 15 * time.Second
	rereadBatch = 500
)

// wake holds who waits in this process.
type wake struct {
	mu      sync.Mutex
	waiting map[string]map[*waiter]struct{}
	running atomic.Bool // Run is at work
}

type waiter struct {
	rev  uint64
	hint chan struct{} // of size 1
}

func newWake() *wake { return &wake{waiting: map[string]map[*waiter]struct{}{}} }

func (w *wake) register(id string, rev uint64) *waiter {
	w.mu.Lock()
	defer w.mu.Unlock()
	me := &waiter{rev: rev, hint: make(chan struct{}, 1)}
	if w.waiting[id] == nil {
		w.waiting[id] = map[*waiter]struct{}{}
	}
	w.waiting[id][me] = struct{}{}
	return me
}

func (w *wake) forget(id string, me *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.waiting[id], me)
	if len(w.waiting[id]) == 0 {
		delete(w.waiting, id)
	}
}

func (w *wake) hint(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for me := range w.waiting[id] {
		select {
		case me.hint <- struct{}{}:
		default:
		}
	}
}

func (w *wake) ids() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make([]string, 0, len(w.waiting))
	for id := range w.waiting {
		out = append(out, id)
	}
	return out
}

// outdated tells whether somebody waits for more than what a waiter knows.
func (w *wake) outdated(id string, rev uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for me := range w.waiting[id] {
		if rev == 0 || rev > me.rev {
			return true
		}
	}
	return false
}

// Wait returns the approval once its Rev is beyond rev. It ends otherwise only
// by its own context, with the context's error and the ticket as last read, and
// for a record that is gone or does not verify. A server that can't be reached
// is waited for.
func (s *Store) Wait(ctx context.Context, id string, rev uint64) (approvals.Ticket, error) {
	me := s.wake.register(id, rev)
	defer s.wake.forget(id, me)
	var last approvals.Ticket
	pause := 100 * time.Millisecond
	for {
		t, err := s.Ticket(ctx, id)
		next := rereadMax
		switch {
		case err == nil && t.Rev > rev:
			return t, nil
		case err == nil:
			last, pause = t, 100*time.Millisecond
		case errors.Is(err, approvals.StoreUnavailable):
			if ctx.Err() != nil {
				return last, ctx.Err()
			}
			next, pause = jitter(pause/2, pause), min(2*pause, 2*time.Second)
		default:
			return last, err
		}
		if err == nil && !s.wake.running.Load() { // nobody reads hints for us
			next = beatEvery
		}
		timer := time.NewTimer(next)
		select {
		case <-me.hint:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return last, ctx.Err()
		}
		timer.Stop()
	}
}

func jitter(lo, hi time.Duration) time.Duration {
	var b [8]byte
	rand.Read(b[:])
	return lo + time.Duration(binary.BigEndian.Uint64(b[:])%uint64(hi-lo+1))
}

// Run reads the wake-up hints until ctx ends, and returns its error. One Run a
// process; without it a Wait looks once a second.
func (s *Store) Run(ctx context.Context) error {
	if !s.wake.running.CompareAndSwap(false, true) {
		return errors.New("store: Run is running already")
	}
	defer s.wake.running.Store(false)
	beat := "beat " + rand.Text()
	for ctx.Err() == nil {
		if err := s.listen(ctx, beat); err != nil && ctx.Err() == nil {
			s.opt.Log.Warn("the wake-up connection is made again", "reason", err)
		}
	}
	return ctx.Err()
}

// listen reads one subscription until it is taken for dead.
func (s *Store) listen(ctx context.Context, beat string) error {
	sub := s.rdb.Subscribe(ctx, s.k.wakeChannel())
	defer sub.Close()
	messages := sub.ChannelWithSubscriptions()
	beats := time.NewTicker(beatEvery)
	defer beats.Stop()
	reread := time.NewTimer(jitter(rereadMin, rereadMax))
	defer reread.Stop()
	ctx, cancel := context.WithCancel(ctx)
	resync := s.resyncer(ctx)
	defer resync.Wait()
	defer cancel()
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case m, ok := <-messages:
			if !ok {
				return errors.New("the subscription was closed")
			}
			last = time.Now()
			s.heard(m, resync)
		case <-beats.C:
			silent := time.Since(last)
			if silent > beatsMissed*beatEvery+beatEvery/2 {
				resync.ask()
				return fmt.Errorf("nothing was heard for %s", silent.Round(time.Millisecond))
			}
			if silent > beatEvery+beatEvery/2 {
				resync.ask()
			}
			resync.beat(beat)
		case <-reread.C:
			resync.ask()
			reread.Reset(jitter(rereadMin, rereadMax))
		}
	}
}

func (s *Store) heard(m any, resync *resyncer) {
	switch m := m.(type) {
	case *redis.Subscription:
		resync.ask() // hints may have been lost before it
	case *redis.Message:
		if id, _, ok := strings.Cut(m.Payload, " "); ok && id != "beat" {
			s.wake.hint(id)
		}
	}
}

// resyncer does what needs the network beside the listening loop, so that a
// slow server does not look like a dead connection.
type resyncer struct {
	sync.WaitGroup
	asked, beats chan string
}

func (r *resyncer) ask()             { put(r.asked, "") }
func (r *resyncer) beat(text string) { put(r.beats, text) }

func put(c chan string, v string) {
	select {
	case c <- v:
	default: // it is asked for already
	}
}

func (s *Store) resyncer(ctx context.Context) *resyncer {
	r := &resyncer{asked: make(chan string, 1), beats: make(chan string, 1)}
	r.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case text := <-r.beats:
				c, cancel := context.WithTimeout(ctx, beatEvery)
				s.rdb.Publish(c, s.k.wakeChannel(), text)
				cancel()
			case <-r.asked:
				c, cancel := context.WithTimeout(ctx, readTimeout)
				s.resync(c)
				cancel()
			}
		}
	})
	return r
}

// resync reads the version of everything that is waited for, in pipelines, and
// wakes who has missed something.
func (s *Store) resync(ctx context.Context) {
	for batch := range slices.Chunk(s.wake.ids(), rereadBatch) {
		pipe := s.rdb.Pipeline()
		revs := make([]*redis.StringCmd, len(batch))
		for i, id := range batch {
			revs[i] = pipe.HGet(ctx, s.k.record(id), "rev")
		}
		if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
			return // the next round comes soon
		}
		for i, id := range batch {
			rev, _ := strconv.ParseUint(revs[i].Val(), 10, 64)
			if s.wake.outdated(id, rev) {
				s.wake.hint(id)
			}
		}
	}
}
