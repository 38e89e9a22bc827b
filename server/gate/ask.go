package gate

import (
	"context"
	"errors"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/approvals/fault"
	"github.com/countersign-mcp/countersign/approvals/keys"
	"github.com/countersign-mcp/countersign/approvals/ledger"
)

// ask parks the gate's own request for what is held, unless it waits already or
// was refused. Without a route for it nobody is asked; the ledger and the log have
// it all the same.
func (g *Gate) ask(ctx context.Context, st *State, w *watchman, c *catalogue, have approvals.Pins, called bool) error {
	ch := g.changeOf(st, c)
	route, ok := st.definitionsRoute()
	if !ok || len(ch.Tools) == 0 {
		return g.withdraw(ctx, w)
	}
	args, err := ch.args()
	if err != nil {
		return err
	}
	key := digestOfArgs(args)
	if w.asked != nil && w.asked.change == key && w.asked.route.SameAs(route) {
		if w.asked.stands(called) {
			return nil
		}
	} else if err := g.withdraw(ctx, w); err != nil {
		return err
	}
	if have.Refused[key] {
		return nil
	}
	if w.next == nil || w.next.change != key { // else it was tried before, under the same id
		w.next = &asked{id: newID(), change: key}
	}
	t, err := g.parkOwn(ctx, g.asking(st, route, ch, args, w.next.id), &w.next.known)
	if err != nil {
		return err
	}
	w.next = nil
	a := &asked{id: t.ID, change: key, route: route}
	w.asked = a
	g.log.Warn("an upstream's tools are held until somebody agrees to them", "server", c.server, "tools", len(ch.Tools), "approval", t.ID)
	g.background(func() { g.follow(a, c.server, t) })
	return nil
}

// parkOwn parks the gate's own request, with its records. decided is whether the
// first of them is written.
func (g *Gate) parkOwn(ctx context.Context, p approvals.Park, decided *bool) (approvals.Ticket, error) {
	e := p.Envelope
	d := g.base(ledger.Decision, e.OperationID, e.Call)
	d.Outcome, d.Reason, d.PolicyDigest = ledger.Review, ruleDefinitions, e.Policy.Hex()
	d.Rules = []ledger.Rule{{ID: ruleDefinitions, Effect: ledger.Review}}
	d.ArgsDigest, d.EnvelopeDigest = g.argsDigest(e.Call), g.ring.MAC(keys.Bound, digestOf(e))
	if !*decided {
		if err := g.write(ctx, d); err != nil {
			return approvals.Ticket{}, err
		}
		*decided = true
	}
	fault.Point("park.before")
	var t approvals.Ticket
	var fresh bool
	err := g.insist(ctx, func(ctx context.Context) (err error) {
		t, fresh, err = g.store.Park(ctx, p)
		return err
	})
	if err != nil {
		return t, err
	}
	fault.Point("park.after")
	if !fresh {
		r := g.base(ledger.Attached, e.OperationID, e.Call)
		r.To = t.ID
		err = g.write(ctx, r)
	}
	return t, err
}

// follow waits for the end of the gate's own request. A no is remembered for as
// long as the change is the same; after a yes every list is compared anew.
func (g *Gate) follow(a *asked, server string, t approvals.Ticket) {
	for !t.State.Over() {
		next, err := g.next(g.life, t)
		if err != nil {
			if g.life.Err() == nil { // gone, or not to be read
				g.log.Warn("the request for changed tools can't be followed", "approval", t.ID, "error", err)
				a.end(true)
			}
			return
		}
		t = next
	}
	if t.State == approvals.Denied {
		g.remembered(server, a.change, t)
	}
	carried := t.State == approvals.Succeeded || t.State == approvals.Void || t.State == approvals.NotRun
	a.end(carried) // a yes that could not be carried out any more is nobody's no
	g.anew()
	if carried {
		g.again(server)
	}
}

// remembered keeps a no until it is kept.
func (g *Gate) remembered(server string, change action.Digest, t approvals.Ticket) {
	for g.life.Err() == nil {
		err := g.rememberNo(g.life, server, change, t)
		if err == nil {
			return
		}
		g.log.Warn("a no to changed tools is not kept yet", "approval", t.ID, "error", err)
		select {
		case <-g.life.Done():
		case <-time.After(time.Second):
		}
	}
}

// again reads a list anew, for what is still to be asked of it.
func (g *Gate) again(server string) {
	st := g.state.Load()
	if st.Upstreams[server] == nil {
		return
	}
	if _, err := g.catalogue(g.life, st, server, 0); err != nil && !errors.Is(err, context.Canceled) {
		g.log.Warn("the upstream's tools can't be listed", "server", server, "error", err)
	}
}
