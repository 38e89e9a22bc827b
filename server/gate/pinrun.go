package gate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/approvals/fault"
	"github.com/countersign-mcp/countersign/approvals/ledger"
)

// The gate's own approvals have an execution of their own: pins are written, and
// no upstream is called. It goes the same way as a call's, by a claim that one
// process wins and between an exec_start and a result. What became of it can always
// be found out, since the pins say it, and they are written only while the claim
// stands.

// ownClaim is an approved change that may be pinned, and, once the claim is won,
// the grant to do it.
type ownClaim struct {
	claimed
	server string
	pins   []approvals.Pin
}

// tryOwn claims and pins; see try.
func (g *Gate) tryOwn(r *run, id string) {
	for range 5 {
		c, err := g.fitOwn(g.life, id)
		if err == nil {
			err = g.claim(g.life, &c.claimed)
		}
		if errors.Is(err, approvals.Moved) {
			continue
		}
		if err != nil {
			errors.As(err, &r.stuck)
			return
		}
		fault.Point("claim.after")
		r.ending = g.executeOwn(c)
		return
	}
	r.stuck = &stuck{sayStuckStore}
}

// fitOwn is fit for the gate's own approvals.
func (g *Gate) fitOwn(ctx context.Context, id string) (*ownClaim, error) {
	st := g.state.Load()
	p, err := g.loadApproved(ctx, st, id, self)
	if err != nil {
		return nil, err
	}
	if cause, err := g.misfitOwn(st, p); cause != "" {
		return nil, g.void(ctx, st.Policy, p, cause, err)
	} else if err != nil {
		return nil, err
	}
	c, cause, err := g.toPin(ctx, st, p)
	if cause != "" {
		return nil, g.void(ctx, st.Policy, p, cause, err)
	} else if err != nil {
		return nil, err
	}
	return c, g.notStarted(ctx, st, p)
}

// misfitOwn compares an approved change with what holds now.
func (g *Gate) misfitOwn(st *State, p approvals.Parked) (cause string, err error) {
	c := p.Envelope.Call
	if cause, err := g.genuine(p, ours(c.Actor.ID, c.Tool)); cause != "" || err != nil {
		return cause, err
	}
	return sameAsked(st, p), nil
}

// sameAsked gives a cause where the gate would not ask the same people any more.
func sameAsked(st *State, p approvals.Parked) string {
	route, ok := st.definitionsRoute()
	if !ok || st.Upstreams[p.Envelope.Call.Server] == nil || !sameRoutes([]approvals.Route{route}, p.Requirements) {
		return approvals.CausePolicy
	}
	return ""
}

// toPin are the pins of an approved change, if what is pinned now is still what it
// was agreed in place of.
func (g *Gate) toPin(ctx context.Context, st *State, p approvals.Parked) (c *ownClaim, cause string, err error) {
	w, tools, err := parseChange(p.Envelope.Call.Args)
	if err != nil {
		return nil, approvals.CauseForged, err
	}
	identity, err := action.ParseDigest(w.Identity)
	if err != nil || w.Server != p.Envelope.Call.Server {
		return nil, approvals.CauseForged, fmt.Errorf("the change of another server: %w", err)
	}
	read, err := g.pins.Pins(ctx, w.Server)
	if err != nil {
		g.log.Warn("an approved change waits for the store", "approval", p.ID, "error", err)
		return nil, "", &stuck{sayStuckStore}
	}
	g.board.merge(w.Server, read)
	have := g.board.now(w.Server)
	c = &ownClaim{claimed: claimed{parked: p, policy: st.Policy}, server: w.Server}
	for i, t := range tools {
		now, _ := st.Pins.effective(w.Server, t.Name, have.Tools)
		is := w.Tools[i]
		if hexOf(now.digest) != is.From || hexOf(now.identity) != is.FromIdentity || hexOf(now.over) != is.Over || now.rev != is.Rev {
			return nil, approvals.CauseTool, errors.New("what is pinned is not what it was")
		}
		c.pins = append(c.pins, stamped(t, identity, now.over, now.rev, p.Ticket))
	}
	return c, "", nil
}

// executeOwn pins what was agreed to, under a won claim, and records it.
func (g *Gate) executeOwn(c *ownClaim) *ending {
	if err := g.start(&c.claimed); err != nil {
		g.log.Error("exec_start could not be written; nothing is pinned", "approval", c.parked.ID, "error", err)
		return g.finish(&c.claimed, outcome{status: statusNotRun, errorType: approvals.CauseLedger})
	}
	begun := time.Now()
	out := outcome{status: statusNotRun, errorType: approvals.CausePolicy}
	if sameAsked(g.state.Load(), c.parked) == "" {
		out = g.writePins(c)
	}
	out.took = time.Since(begun)
	if out.err != nil {
		return &ending{} // the gate is closing; what the pins say is recorded by Recover
	}
	recs := []ledger.Record{g.ended(g.claimRecord(ledger.Result, c.parked), out)}
	if out.status == ledger.StatusOK {
		recs = append(recs, c.records(g)...)
	}
	if err := g.writeLate(recs...); err != nil {
		g.log.Error("a result could not be written to the ledger", "approval", c.parked.ID, "error", err)
		return g.finish(&c.claimed, outcome{status: ledger.StatusUnknown, errorType: approvals.CauseLedger, err: err})
	}
	fault.Point("result.after")
	if out.status == ledger.StatusOK {
		g.board.remember(c.server, true, c.pins...)
		g.anew()
	}
	return g.finish(&c.claimed, out)
}

// records tell which definitions were pinned.
func (c *ownClaim) records(g *Gate) []ledger.Record {
	w, _, err := parseChange(c.parked.Envelope.Call.Args)
	var recs []ledger.Record
	for i, p := range c.pins {
		r := g.changeRecord(changePinned, c.server, p.Tool, action.Digest{}, p.Digest, action.Digest{})
		if err == nil {
			r.WasDigest = w.Tools[i].From
		}
		r.Approval = &ledger.Approval{ID: c.parked.ID, State: string(approvals.Executing), By: ledger.Clean(p.By)}
		recs = append(recs, r)
	}
	return recs
}

// writePins writes until it is known whether they are written. Its err is set only
// where the gate was closed before.
func (g *Gate) writePins(c *ownClaim) outcome {
	ctx, cancel := context.WithCancel(g.life)
	defer cancel()
	go g.keep(ctx, c.grant)
	fault.Point("pin.before")
	for {
		err := g.insist(ctx, func(ctx context.Context) error { return g.pins.Pin(ctx, c.server, &c.grant, c.pins...) })
		if err == nil {
			fault.Point("pin.after")
			return pinnedOutcome()
		}
		if errors.Is(err, approvals.Moved) || isFinal(err) {
			// A try before whose reply was lost may have written them.
			done, _, readErr := g.arePinned(ctx, c.server, c.parked.ID, c.pins)
			switch {
			case readErr == nil && done:
				return pinnedOutcome()
			case readErr == nil && errors.Is(err, approvals.Moved):
				return outcome{status: statusNotRun, errorType: approvals.CauseTool}
			case readErr == nil:
				return outcome{status: statusNotRun, errorType: approvals.CauseOverslept}
			}
			err = readErr
		}
		g.log.Warn("agreed definitions are not pinned yet", "approval", c.parked.ID, "error", err)
		select {
		case <-ctx.Done():
			return outcome{err: context.Cause(ctx)}
		case <-time.After(time.Second):
		}
	}
}

func pinnedOutcome() outcome {
	return outcome{status: ledger.StatusOK, result: json.RawMessage(`{"pinned":true}`), at: time.Now().UTC()}
}

// arePinned tells whether an approval's pins stand in the store. over says that
// newer ones do, so that nobody can tell.
func (g *Gate) arePinned(ctx context.Context, server, id string, ps []approvals.Pin) (done, over bool, err error) {
	var have approvals.Pins
	err = g.insist(ctx, func(ctx context.Context) (err error) {
		have, err = g.pins.Pins(ctx, server)
		return err
	})
	if err != nil {
		return false, false, err
	}
	done = true
	for _, p := range ps {
		now := have.Tools[p.Tool]
		done = done && now.Approval == id && now.Digest == p.Digest
		over = over || now.Rev > p.Rev
	}
	return done && len(ps) > 0, over, nil
}

// settleOwn ends the claim of a dead process on the gate's own approval. The pins
// say whether it was carried out. Where they don't yet, the claim is first made one
// under which nothing more can be written.
func (g *Gate) settleOwn(ctx context.Context, grant approvals.Grant) (approvals.Outcome, string, error) {
	unknown := approvals.Outcome{State: approvals.Unknown, Cause: approvals.CauseOwnerLost}
	p, err := g.store.Load(ctx, grant.ID, self)
	if err != nil {
		return unknown, "", err
	}
	w, tools, err := parseChange(p.Envelope.Call.Args)
	if err != nil {
		g.log.Error("a change that was being pinned can't be read; a person has to look at it", "approval", grant.ID, "error", err)
		return unknown, ledger.StatusUnknown, nil
	}
	var ps []approvals.Pin
	for i, t := range tools {
		ps = append(ps, approvals.Pin{Tool: t.Name, Digest: t.Digest, Rev: w.Tools[i].Rev + 1})
	}
	for _, fenced := range []bool{grant.Ticket.State == approvals.Unknown, true} {
		done, over, err := g.arePinned(ctx, grant.Ticket.Server, grant.ID, ps)
		switch {
		case err != nil:
			return unknown, "", err
		case done:
			return approvals.Outcome{State: approvals.Succeeded}, ledger.StatusOK, nil
		case over:
			return unknown, ledger.StatusUnknown, nil
		case fenced:
			return approvals.Outcome{State: approvals.NotRun, Cause: approvals.CauseNeverStarted}, ledger.StatusNotRun, nil
		}
		err = g.insist(ctx, func(ctx context.Context) error {
			_, err := g.store.Finish(ctx, grant, unknown)
			return err
		})
		if err != nil && !isFinal(err) {
			return unknown, "", err
		}
	}
	return unknown, ledger.StatusUnknown, nil
}
