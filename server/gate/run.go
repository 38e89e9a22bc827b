package gate

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/approvals/fault"
	"github.com/countersign-mcp/countersign/approvals/ledger"
	"github.com/countersign-mcp/countersign/server/provenance"
)

// maxKept is the largest answer that is kept for those who come later.
const maxKept = 1 << 20

// run is one try of this process to run an approved call. All waiters share it;
// it lives on its own context, so no caller's leaving ends it.
type run struct {
	done  chan struct{}
	notes notes // the upstream's progress
	// also are labels that a caller has of the call, beside those it was parked
	// with.
	also map[string][]string
	// gives is what a session carries that gets anything of this run; it is set
	// before the call is forwarded.
	gives atomic.Pointer[gift]

	// Set before done is closed. With neither, the record says what happened.
	*ending
	stuck *stuck // why it could not be tried

	taken atomic.Bool // somebody got the answer as it came
}

// ending is what an execution came to.
type ending struct {
	answer Answer
	state  approvals.State
	at     time.Time // when the upstream's answer was read; zero when there is none
}

// join returns the run of an approval in this process, starting one when there
// is none; nil when the gate is closing.
func (g *Gate) join(id string, who action.Actor, also map[string][]string) *run {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r := g.runs[id]; r != nil {
		return r
	}
	if g.closing {
		return nil
	}
	r := &run{done: make(chan struct{}), also: also}
	g.runs[id] = r
	g.work.Add(1)
	go func() {
		defer g.work.Done()
		g.try(r, id, who)
		g.mu.Lock()
		delete(g.runs, id)
		g.mu.Unlock()
		close(r.done)
	}()
	return r
}

// running is the run under way here, if any.
func (g *Gate) running(id string) *run {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.runs[id]
}

// try claims and executes. The order of its steps is the argument that a call
// runs at most once, and only as it was approved; see doc.go.
func (g *Gate) try(r *run, id string, who action.Actor) {
	if who.ID == approvals.GateActor {
		g.tryOwn(r, id)
		return
	}
	for range 5 {
		c, err := g.fit(g.life, id, who, r.also)
		if err == nil {
			err = g.claim(g.life, c)
		}
		if errors.Is(err, approvals.Moved) {
			continue // a vote or the like came between; look again
		}
		if err != nil {
			errors.As(err, &r.stuck)
			return
		}
		fault.Point("claim.after")
		r.ending = g.execute(c, r)
		return
	}
	r.stuck = &stuck{sayStuckStore}
}

// execute runs a call whose claim is won, to its end.
func (g *Gate) execute(c *claimed, r *run) *ending {
	e := &c.parked.Envelope
	c.gives = g.state.Load().given(e.Call.Server, e.Call.Tool, provenance.Union(e.Provenance, c.labels))
	if err := g.start(c); err != nil {
		g.log.Error("exec_start could not be written; the call is not run", "approval", c.parked.ID, "error", err)
		return g.finish(c, outcome{status: statusNotRun, errorType: approvals.CauseLedger})
	}
	g.label(c, r)
	fault.Point("labels.after")
	p, out := g.leaveToRun(g.life, c)
	if out.status == "" {
		out = g.send(c, p, r)
	}
	if err := g.writeLate(g.ended(g.claimRecord(ledger.Result, c.parked), out)); err != nil {
		// It may have run, and we can't say so durably. Nothing more runs until
		// the ledger works: every call begins with a record.
		g.log.Error("a result could not be written to the ledger", "approval", c.parked.ID, "error", err)
		return g.finish(c, outcome{status: ledger.StatusUnknown, errorType: approvals.CauseLedger, err: err})
	}
	fault.Point("result.after")
	return g.finish(c, out)
}

func (g *Gate) send(c *claimed, p permit, r *run) outcome {
	ctx, cancel := context.WithTimeout(g.life, g.set.ExecTimeout)
	defer cancel()
	go g.keep(ctx, c.grant)
	fault.Point("forward.before")
	out := g.forward(ctx, p, r.notes.pass)
	fault.Point("forward.after")
	return out
}

// finish stores how the execution ended and makes the answer. When the store
// can't be reached the caller is answered all the same, and the store is told
// later by the claim's nonce.
func (g *Gate) finish(c *claimed, out outcome) *ending {
	end := out.end()
	var t approvals.Ticket
	err := g.insist(g.life, func(ctx context.Context) (err error) {
		t, err = g.store.Finish(ctx, c.grant, end)
		return err
	})
	switch {
	case err == nil:
		fault.Point("finish.after")
	case isFinal(err):
		g.log.Error("the end of a call was refused by the store", "approval", c.parked.ID, "state", end.State, "error", err)
	default:
		g.log.Warn("the end of a call could not be stored yet", "approval", c.parked.ID, "state", end.State, "error", err)
		g.finishLater(c.grant, end)
	}
	if out.result != nil || out.fault != nil {
		return &ending{answer: out.answer(), state: end.State, at: out.at}
	}
	if err != nil {
		t = c.parked.Ticket
		t.State, t.Cause = end.State, end.Cause
	}
	return &ending{answer: g.ends(t), state: t.State}
}

// finishLater goes on telling the store how a claim ended until it is told, it
// refuses, or the gate is closed.
func (g *Gate) finishLater(grant approvals.Grant, end approvals.Outcome) {
	go func() {
		for pause := time.Second; ; pause = min(2*pause, 30*time.Second) {
			select {
			case <-g.life.Done():
				return
			case <-time.After(pause):
			}
			ctx, cancel := context.WithTimeout(g.life, storeTimeout)
			_, err := g.store.Finish(ctx, grant, end)
			cancel()
			if err == nil || isFinal(err) {
				return
			}
		}
	}()
}

// end is what the store is told of an execution.
func (o outcome) end() approvals.Outcome {
	switch o.status {
	case ledger.StatusOK, ledger.StatusToolError, ledger.StatusProtocolError:
		end := approvals.Outcome{State: approvals.Succeeded, Kept: &approvals.Kept{Result: o.result, At: o.at}}
		if o.status != ledger.StatusOK {
			end.State = approvals.Failed
		}
		if o.fault != nil {
			end.Kept.Error = o.fault.Raw
		}
		if len(end.Kept.Result)+len(end.Kept.Error) > maxKept {
			end.Kept, end.Cause = nil, approvals.CauseResultTooBig
		}
		return end
	case ledger.StatusNotRun:
		return approvals.Outcome{State: approvals.NotRun, Cause: o.errorType}
	}
	cause := approvals.CauseNoAnswer
	if o.errorType == approvals.CauseLedger {
		cause = approvals.CauseLedger
	}
	return approvals.Outcome{State: approvals.Unknown, Cause: cause}
}

// RunApproved runs an approved call whose routes all say run: on_approve, without
// waiting for its caller. It returns when that is done, or ctx ends. Approvals
// that are not of this kind, or not approved any more, are left alone.
func (g *Gate) RunApproved(ctx context.Context, id string) error {
	t, err := g.store.Ticket(ctx, id)
	if err != nil {
		return err
	}
	if t.State != approvals.Approved || t.Run != runOnApprove {
		return nil
	}
	p, err := g.store.Load(ctx, id, action.Actor{ID: t.Actor})
	if err != nil {
		return err
	}
	r := g.join(id, p.Envelope.Call.Actor, nil)
	if r == nil {
		return errors.New("the gate is closing")
	}
	select {
	case <-r.done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if r.stuck != nil {
		return r.stuck
	}
	return nil
}
