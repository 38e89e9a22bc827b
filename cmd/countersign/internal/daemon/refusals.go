package daemon

import (
	"context"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/countersign-mcp/countersign/approvals/ledger"
	"github.com/countersign-mcp/countersign/server"
)

const (
	refusalRate   = rate.Limit(1) // records a second for one actor
	refusalBurst  = 20
	refusalActors = 1024 // with counts of their own; the others share one
	refusalQueue  = 256
	refusalEvery  = time.Minute     // between summaries
	refusalEnd    = 5 * time.Second // for one write, and to begin the last ones
)

// The reasons of a record about messages that could not be read.
const (
	oneMalformed  = "malformed"
	manyMalformed = "malformed_summary" // Records says how many had no record of their own
)

// refusals puts messages that could not be read on the ledger. A record is a
// durable write, and whoever sends rubbish sends it as fast as the line goes:
// so each actor has a rate, the rest is counted, and nobody waits for the disk.
type refusals struct {
	ledger interface {
		Append(ctx context.Context, recs ...ledger.Record) (ledger.Pos, error)
	}
	log   *slog.Logger
	now   func() time.Time
	queue chan ledger.Record

	mu     sync.Mutex
	actors map[string]*refused
}

// refused is what one actor sent.
type refused struct {
	rate *rate.Limiter
	last ledger.Record // the latest one that was counted only
	left uint64        // how many were
}

func newRefusals(l *ledger.Ledger, log *slog.Logger) *refusals {
	return &refusals{ledger: l, log: log, now: time.Now, queue: make(chan ledger.Record, refusalQueue), actors: map[string]*refused{}}
}

// take hears of one message. It never blocks.
func (f *refusals) take(_ context.Context, m server.Malformed) {
	r := ledger.Record{
		Event: ledger.Malformed, Actor: ledger.Clean(m.Actor.ID), Auth: m.Actor.Auth, Server: ledger.Clean(m.Front),
		Outcome: ledger.Deny, Reason: oneMalformed, ErrorType: strconv.Itoa(m.Code),
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	a := f.actors[r.Actor]
	if a == nil {
		key := r.Actor
		if len(f.actors) >= refusalActors {
			key = ""
		}
		if a = f.actors[key]; a == nil {
			a = &refused{rate: rate.NewLimiter(refusalRate, refusalBurst)}
			f.actors[key] = a
		}
	}
	if !a.rate.AllowN(f.now(), 1) || !f.offer(r) {
		a.left++
		a.last = r
		return
	}
	f.summarize(a)
}

// summarize offers what was counted only.
func (f *refusals) summarize(a *refused) {
	if a.left == 0 {
		return
	}
	r := a.last
	r.Reason, r.Records, r.ErrorType = manyMalformed, a.left, ""
	if f.offer(r) {
		a.left = 0
	}
}

func (f *refusals) offer(r ledger.Record) bool {
	select {
	case f.queue <- r:
		return true
	default:
		return false
	}
}

func (f *refusals) summarizeAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range f.actors {
		f.summarize(a)
	}
}

// run writes until ctx ends, and then what is left.
func (f *refusals) run(ctx context.Context) error {
	every := time.NewTicker(refusalEvery)
	defer every.Stop()
	for {
		select {
		case r := <-f.queue:
			f.write(ctx, r)
		case <-every.C:
			f.summarizeAll()
		case <-ctx.Done():
			f.finish(ctx)
			return nil
		}
	}
}

// finish writes what waits, then what was counted: in turns, since there may be
// more of them than the queue holds.
func (f *refusals) finish(ctx context.Context) {
	until := time.Now().Add(refusalEnd)
	for time.Now().Before(until) {
		f.summarizeAll()
		if len(f.queue) == 0 {
			return
		}
		for range len(f.queue) {
			f.write(ctx, <-f.queue)
		}
	}
}

func (f *refusals) write(ctx context.Context, r ledger.Record) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), refusalEnd)
	defer cancel()
	if _, err := f.ledger.Append(ctx, r); err != nil {
		f.log.Warn("a message that could not be read is not on the ledger", "error", err)
	}
}
