package notifier

import (
	"context"
	"errors"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
)

// job is the work on one approval's messages in this process. All but nudges
// and poke belong to its own goroutine.
type job struct {
	id     string
	nudges map[string]approvals.Nudge // by entry; guarded by Dispatcher.mu
	poke   chan struct{}

	leased  bool
	renewed time.Time // when the last renewal was sent

	troubles map[string]approvals.Trouble // this process's own last failure, by channel
	refs     map[string]approvals.Ref     // what this process delivered, until the record is seen to know it
	clean    map[string]string            // attempts that are known to have posted nothing
	looked   map[string]uint64            // version at which no message was found, and none is needed
	slots    map[string]time.Time         // reserved moments, by channel
	errs     int                          // store failures in a row
}

func newJob(id string) *job {
	return &job{
		id: id, nudges: map[string]approvals.Nudge{}, poke: make(chan struct{}, 1),
		troubles: map[string]approvals.Trouble{}, refs: map[string]approvals.Ref{},
		clean: map[string]string{}, looked: map[string]uint64{}, slots: map[string]time.Time{},
	}
}

// work runs passes until the job's nudges are done.
func (d *Dispatcher) work(ctx context.Context, j *job) {
	for {
		select {
		case d.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		held := d.held(j)
		next, settled := d.pass(ctx, j)
		<-d.slots
		if ctx.Err() != nil {
			return
		}
		if settled {
			d.finish(ctx, held)
			if d.retire(j, held) {
				return
			}
			continue
		}
		timer := time.NewTimer(time.Until(next))
		select {
		case <-timer.C:
		case <-j.poke:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// finish takes nudges off the outbox. One that can't be taken off comes again,
// which does no harm.
func (d *Dispatcher) finish(ctx context.Context, nudges []approvals.Nudge) {
	for _, n := range nudges {
		call, cancel := context.WithTimeout(ctx, storeTime)
		err := d.Book.Done(call, n)
		cancel()
		if err != nil {
			d.Log.Warn("a nudge could not be taken off the outbox", "approval", n.ID, "error", err)
		}
	}
}

// pass delivers what is due. It returns when to come back, or settled when every
// channel is where it should be. The nudges held before a settled pass are done.
func (d *Dispatcher) pass(ctx context.Context, j *job) (next time.Time, settled bool) {
	// The lease goes back even when the process is being stopped.
	defer func() {
		if j.leased {
			_ = d.unlease(context.WithoutCancel(ctx), j)
		}
	}()
	for ctx.Err() == nil {
		t, err := d.load(ctx, j)
		if errors.Is(err, approvals.NotFound) {
			return time.Time{}, true
		}
		if err != nil {
			return d.storeDown(j, "the approval could not be read", err), false
		}
		todo, later := d.plan(j, t, time.Now())
		switch {
		case todo == nil && j.leased:
			// Give the lease back, then read once more: a change that another
			// dispatcher was told of while we held it is seen here.
			if err := d.unlease(ctx, j); err != nil {
				return d.storeDown(j, "the lease could not be given back", err), false
			}
			continue
		case todo == nil:
			j.errs = 0
			return later, later.IsZero()
		}
		ok, err := d.lease(ctx, j)
		if err != nil {
			return d.storeDown(j, "the lease could not be taken", err), false
		}
		if !ok {
			return time.Now().Add(d.Schedule.Jitter(d.Lease / 3)), false
		}
		if err := d.act(ctx, j, t, todo); err != nil {
			return d.storeDown(j, "a delivery could not be recorded", err), false
		}
	}
	return time.Now(), false
}

// load reads the ticket. A message that this process delivered and the record
// does not have (the write failed or was lost) is written again.
func (d *Dispatcher) load(ctx context.Context, j *job) (approvals.Ticket, error) {
	call, cancel := context.WithTimeout(ctx, storeTime)
	t, err := d.Book.Ticket(call, j.id)
	cancel()
	if err != nil {
		return t, err
	}
	for channel, ref := range j.refs {
		if _, exists := messageBehind(t, channel); exists {
			delete(j.refs, channel)
			continue
		}
		if err := d.mark(ctx, j, approvals.Mark{Channel: channel, Ref: &ref}); err != nil {
			return t, err
		}
		t.Refs = append(t.Refs, ref)
	}
	return t, nil
}

func (d *Dispatcher) lease(ctx context.Context, j *job) (bool, error) {
	call, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	sent := time.Now()
	ok, err := d.Book.Lease(call, j.id, d.Owner, d.Lease)
	j.leased = ok && err == nil
	j.renewed = sent
	return ok, err
}

func (d *Dispatcher) unlease(ctx context.Context, j *job) error {
	call, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	j.leased = false
	return d.Book.Unlease(call, j.id, d.Owner)
}

func (d *Dispatcher) mark(ctx context.Context, j *job, m approvals.Mark) error {
	call, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	return d.Book.Mark(call, j.id, m)
}

// storeDown says when to come back after the store failed.
func (d *Dispatcher) storeDown(j *job, what string, err error) time.Time {
	j.errs++
	d.Log.Warn(what, "approval", j.id, "error", err)
	ceiling := min(d.Schedule.First<<min(j.errs, 6), d.Lease)
	return time.Now().Add(d.Schedule.Jitter(ceiling))
}
