package gate

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
)

// desk is what this process remembers of one approval while callers come for it.
type desk struct {
	waiters  int
	collects int
	touched  time.Time
}

// maxDesks bounds what is remembered. Those where somebody waits are bounded by
// the edge, and stay.
const maxDesks = 10_000

// clear makes room when there is none: the eighth that was not touched for the
// longest goes, so that it is not done for each newcomer. What is lost with a desk is
// the advice to collect less often. g.mu is held.
func (g *Gate) clear() {
	if len(g.desks) < maxDesks {
		return
	}
	var idle []string
	for id, d := range g.desks {
		if d.waiters == 0 {
			idle = append(idle, id)
		}
	}
	slices.SortFunc(idle, func(a, b string) int { return g.desks[a].touched.Compare(g.desks[b].touched) })
	for _, id := range idle[:min(len(idle), maxDesks/8)] {
		delete(g.desks, id)
	}
}

// at returns the desk of an approval. g.mu is held.
func (g *Gate) at(id string) *desk {
	d := g.desks[id]
	if d == nil {
		g.clear()
		d = &desk{}
		g.desks[id] = d
	}
	d.touched = time.Now()
	return d
}

// sit takes one of the few places to wait for an approval; false when all are
// taken.
func (g *Gate) sit(id string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	d := g.at(id)
	if d.waiters >= g.set.Waiters {
		return false
	}
	d.waiters++
	return true
}

// rise gives the place up and tells whether it was the last one taken.
func (g *Gate) rise(id string) (last bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	d := g.at(id)
	d.waiters--
	if d.waiters == 0 && d.collects == 0 {
		delete(g.desks, id)
	}
	return d.waiters == 0
}

func (g *Gate) countCollect(id string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.at(id).collects++
}

// collected is how often the approval was collected in this process.
func (g *Gate) collected(id string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	if d := g.desks[id]; d != nil {
		return d.collects
	}
	return 0
}

// forget drops the desk of an approval that is over. Where somebody still waits, the
// last one to rise does it.
func (g *Gate) forget(id string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch d := g.desks[id]; {
	case d == nil:
	case d.waiters == 0:
		delete(g.desks, id)
	default:
		d.collects = 0
	}
}

func (g *Gate) holdFor(client string) time.Duration {
	if d, ok := g.set.Holds[client]; ok && d > 0 {
		return d
	}
	return g.set.Hold
}

// hold waits with a caller until the approval is over, its hold ends, or the
// caller leaves. It bounds the wait and the run together.
func (k *call) hold(ctx context.Context, t approvals.Ticket) Answer {
	if over(t.State) {
		return k.over(ctx, t)
	}
	if !k.g.sit(t.ID) {
		return k.pending(ctx, t, nil)
	}
	wait, cancel := context.WithDeadline(ctx, k.begun.Add(k.g.holdFor(k.req.Client)))
	defer cancel()
	a, t := k.watch(wait, t)
	last := k.g.rise(t.ID)
	if ctx.Err() != nil && last && !errors.Is(context.Cause(ctx), ErrStopping) {
		k.left(t)
	}
	return a
}

// over tells whether nothing more is to be waited for. An unknown outcome waits
// for a person, not for us.
func over(s approvals.State) bool { return s.Over() || s == approvals.Unknown }

// watch is the loop of a held call. It returns the answer and the record as it
// was last seen.
func (k *call) watch(wait context.Context, t approvals.Ticket) (Answer, approvals.Ticket) {
	approvedSeen := 0
	for {
		if over(t.State) {
			return k.over(wait, t), t
		}
		k.tell(k.update(t))
		var r *run
		switch t.State {
		case approvals.Approved:
			if approvedSeen++; approvedSeen > 3 {
				return k.pending(wait, t, &stuck{sayStuckStore}), t
			}
			if r = k.g.join(t.ID, k.req.Call.Actor, k.ofTwin()); r == nil {
				return k.pending(wait, t, &stuck{sayStopping}), t
			}
		case approvals.Executing:
			r = k.g.running(t.ID)
		}
		if r == nil {
			next, err := k.g.next(wait, t)
			if err != nil {
				return k.notNext(wait, t, err), t
			}
			t = next
			continue
		}
		if !k.join(wait, r) {
			return k.pending(wait, t, nil), t
		}
		switch {
		case r.ending != nil:
			k.g.forget(t.ID)
			k.hearRun(wait, r)
			return k.take(r, t), t
		case r.stuck != nil:
			return k.pending(wait, t, r.stuck), t
		}
		next, err := k.g.store.Ticket(wait, t.ID)
		if err != nil {
			return k.notNext(wait, t, err), t
		}
		t = next
	}
}

// join waits for a run to end, and passes its progress on meanwhile; false when
// the wait ends first.
func (k *call) join(wait context.Context, r *run) bool {
	var news <-chan json.RawMessage
	if k.req.Tell != nil {
		var leave func()
		news, leave = r.notes.listen()
		defer leave()
	}
	for {
		select {
		case <-r.done:
			for len(news) > 0 { // what came before the end is told before it
				k.hearRun(wait, r)
				k.tell(Update{Progress: <-news})
			}
			return true
		case params := <-news:
			k.hearRun(wait, r)
			k.tell(Update{Progress: params})
		case <-wait.Done():
			return false
		}
	}
}

// take hands out what a run gave: as it came to the first, marked to the others.
func (k *call) take(r *run, t approvals.Ticket) Answer {
	if r.at.IsZero() || r.taken.CompareAndSwap(false, true) {
		return r.answer
	}
	t.State = r.state
	return marked(r.answer, t, r.at)
}

// next waits until the record moves. A store that can't be reached is asked
// again: the record is the truth, and it is still there.
func (g *Gate) next(wait context.Context, t approvals.Ticket) (approvals.Ticket, error) {
	for {
		next, err := g.store.Wait(wait, t.ID, t.Rev)
		if err == nil || isFinal(err) || wait.Err() != nil {
			return next, err
		}
		g.log.Warn("waiting for an approval was interrupted", "approval", t.ID, "error", err)
		select {
		case <-time.After(500 * time.Millisecond):
		case <-wait.Done():
			return t, wait.Err()
		}
	}
}

// notNext is the answer when the record could not be followed to its end.
func (k *call) notNext(wait context.Context, t approvals.Ticket, err error) Answer {
	switch {
	case errors.Is(err, approvals.NotFound):
		return k.g.lost(t, "not_found", sayGone)
	case errors.Is(err, approvals.Forged):
		return k.g.lost(t, "forged", sayForgedRecord)
	}
	return k.pending(wait, t, nil)
}

// left does what the route wants when the last caller has gone.
func (k *call) left(t approvals.Ticket) {
	if t.OnCancel != withdraw || t.State != approvals.Pending && t.State != approvals.Approved {
		return
	}
	err := k.g.insist(k.g.life, func(ctx context.Context) error {
		_, err := k.g.store.End(ctx, t.ID, approvals.Withdrawn, "cancelled", k.c.Actor.ID, "")
		return err
	})
	if err != nil && !isFinal(err) {
		k.g.log.Warn("an approval could not be withdrawn after its caller left", "approval", t.ID, "error", err)
	}
}

// over answers with the end of an approval.
func (k *call) over(ctx context.Context, t approvals.Ticket) Answer {
	k.g.forget(t.ID)
	if t.State != approvals.Succeeded && t.State != approvals.Failed {
		return k.g.ends(t)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	p, err := k.g.store.Load(ctx, t.ID, k.c.Actor)
	switch {
	case err != nil:
		k.g.log.Warn("a kept result could not be read", "approval", t.ID, "error", err)
		return k.g.waits(t, &stuck{sayStuckResult})
	case p.Result == nil:
		if t.Cause == "" {
			t.Cause = approvals.CauseResultExpired
		}
		return k.g.ends(t)
	}
	k.hearKept(ctx, p)
	if p.Result.Error != nil {
		return marked(Answer{Error: kept(p.Result.Error)}, t, p.Result.At)
	}
	return marked(Answer{Result: p.Result.Result}, t, p.Result.At)
}

// pending is the answer of a call that is not over. The record is read again:
// what was delivered meanwhile does not move its version.
func (k *call) pending(ctx context.Context, t approvals.Ticket, why *stuck) Answer {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if now, err := k.g.store.Ticket(ctx, t.ID); err == nil {
		if over(now.State) {
			return k.over(ctx, now)
		}
		t = now
	}
	return k.g.waits(t, why)
}
