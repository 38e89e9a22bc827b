package notifier

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
)

// Book is what the dispatcher needs of the store.
type Book interface {
	// Nudges returns entries of the outbox that this consumer should act on:
	// its own that are not done, those of consumers that died, and new ones. It
	// waits up to block for the first. An entry may be returned again while it
	// is not done.
	Nudges(ctx context.Context, consumer string, max int, block time.Duration) ([]approvals.Nudge, error)
	Done(ctx context.Context, n approvals.Nudge) error
	Ticket(ctx context.Context, id string) (approvals.Ticket, error)
	// Lease takes or renews the right to work on an approval's messages; false
	// when another owner has it.
	Lease(ctx context.Context, id, owner string, ttl time.Duration) (bool, error)
	Unlease(ctx context.Context, id, owner string) error
	Mark(ctx context.Context, id string, m approvals.Mark) error
	// Attempt is the open attempt mark of a channel; empty when there is none.
	Attempt(ctx context.Context, id, channel string) (string, error)
	// Alive says that a notifier works; it holds for ten seconds.
	Alive(ctx context.Context) error
}

// Config of a Dispatcher. Book and Find are needed; the rest has defaults.
type Config struct {
	Book Book
	// Find returns the channel that serves a name of Ticket.Channels, nil when
	// there is none. It is asked before every delivery, so a reload takes effect
	// at once. See Channels.Find.
	Find func(channel string) Channel
	// Owner names this process among all dispatchers; it must be unique.
	// Default: random.
	Owner    string
	Lease    time.Duration // of an approval; default 30 s
	Call     time.Duration // bound of one delivery; at most and by default half a lease, 10 s at most by default
	Workers  int           // deliveries at the same time; default 16
	Schedule Schedule
	Log      *slog.Logger
}

// Dispatcher brings messages to their record's version. Create it with New.
type Dispatcher struct {
	Config
	slots chan struct{}
	gate  gate

	mu   sync.Mutex
	jobs map[string]*job
	wg   sync.WaitGroup
}

const (
	aliveEvery = 3 * time.Second
	readBlock  = 2 * time.Second
	readMost   = 64
	storeTime  = 5 * time.Second // bound of one store call
)

// New checks the configuration and fills in defaults.
func New(c Config) (*Dispatcher, error) {
	if c.Book == nil || c.Find == nil {
		return nil, errors.New("notifier: a dispatcher needs a book and channels")
	}
	if c.Owner == "" {
		var b [8]byte
		rand.Read(b[:])
		c.Owner = "notifier-" + hex.EncodeToString(b[:])
	}
	if c.Lease <= 0 {
		c.Lease = 30 * time.Second
	}
	if c.Call <= 0 {
		c.Call = min(10*time.Second, c.Lease/2)
	}
	if c.Call > c.Lease/2 {
		return nil, fmt.Errorf("notifier: a delivery may take %s, more than half the lease of %s", c.Call, c.Lease)
	}
	if c.Workers <= 0 {
		c.Workers = 16
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.Schedule.fill()
	return &Dispatcher{Config: c, slots: make(chan struct{}, c.Workers), jobs: map[string]*job{}}, nil
}

// Run reads the outbox until ctx ends; then it lets the deliveries in flight
// finish (at most Config.Call each) and gives the leases back. Nothing is lost
// when it is killed instead. Run is called once.
func (d *Dispatcher) Run(ctx context.Context) error {
	defer d.wg.Wait()
	d.wg.Go(func() { d.beat(ctx) })
	for ctx.Err() == nil {
		nudges, err := d.Book.Nudges(ctx, d.Owner, readMost, readBlock)
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			d.Log.Warn("the outbox could not be read", "error", err)
			pause(ctx, d.Schedule.First)
			continue
		}
		fresh := false
		for _, n := range nudges {
			fresh = d.take(ctx, n) || fresh
		}
		if len(nudges) > 0 && !fresh {
			// All of these are being worked on already and are not done yet.
			pause(ctx, d.Schedule.First)
		}
	}
	return nil
}

// beat tells the gates that somebody delivers.
func (d *Dispatcher) beat(ctx context.Context) {
	tick := time.NewTicker(aliveEvery)
	defer tick.Stop()
	for {
		call, cancel := context.WithTimeout(ctx, storeTime)
		if err := d.Book.Alive(call); err != nil && ctx.Err() == nil {
			d.Log.Warn("the notifier's sign of life could not be written", "error", err)
		}
		cancel()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// take gives a nudge to the approval's job; false when the job has it already.
func (d *Dispatcher) take(ctx context.Context, n approvals.Nudge) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	j := d.jobs[n.ID]
	if j == nil {
		j = newJob(n.ID)
		j.nudges[n.EntryID] = n
		d.jobs[n.ID] = j
		d.wg.Go(func() { d.work(ctx, j) })
		return true
	}
	if _, known := j.nudges[n.EntryID]; known {
		return false
	}
	j.nudges[n.EntryID] = n
	select {
	case j.poke <- struct{}{}:
	default:
	}
	return true
}

// held lists the nudges that a job has now.
func (d *Dispatcher) held(j *job) []approvals.Nudge {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make([]approvals.Nudge, 0, len(j.nudges))
	for _, n := range j.nudges {
		out = append(out, n)
	}
	return out
}

// retire forgets nudges that are done and, when none came meanwhile, the job.
func (d *Dispatcher) retire(j *job, done []approvals.Nudge) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, n := range done {
		delete(j.nudges, n.EntryID)
	}
	if len(j.nudges) > 0 {
		return false
	}
	delete(d.jobs, j.id)
	return true
}

// pause waits without holding anything up that ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
