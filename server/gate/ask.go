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

// later says that people can't be asked before some time has gone by.
type later struct{ after time.Duration }

func (l *later) Error() string { return "people are asked in " + l.after.String() }

// ask parks the gate's own request for what is held, unless it waits already or
// was refused. Without a route for it nobody is asked; the ledger and the log have
// it all the same. The error is a later while it is not this upstream's turn.
func (g *Gate) ask(ctx context.Context, st *State, w *watchman, c *catalogue, have approvals.Pins, called bool) error {
	ch, huge := g.changeOf(st, c, have.Refused)
	w.tellHuge(g, c, huge)
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
	if w.next == nil || w.next.change != key { // else it was tried before, under the same id
		w.next = &asked{id: newID(), change: key}
	}
	turn, err := g.turn(ctx, st, c.server, w.next)
	if err != nil {
		return err
	}
	p := g.asking(st, route, ch, args, w.next.id)
	p.AttachOnly = turn.ID != w.next.id // the turn was used for the same: it is there, or was
	t, err := g.parkOwn(ctx, p, &w.next.known)
	var full *approvals.NoRoom
	switch {
	case p.AttachOnly && errors.Is(err, approvals.NotFound):
		return &later{min(turn.Left, 2*time.Second)} // it may be on its way
	case errors.As(err, &full):
		g.log.Warn("there is no room to ask for an upstream's changed tools", "server", c.server, "why", full.Why)
		return &later{st.Pins.askEvery()}
	case err != nil:
		return err
	}
	w.next = nil
	a := &asked{id: t.ID, change: key, parts: ch.parts(), route: route}
	w.asked = a
	g.log.Warn("an upstream's tools are held until somebody agrees to them", "server", c.server, "tools", len(ch.Tools), "approval", t.ID)
	g.background(func() { g.follow(a, c.server, t) })
	return nil
}

// turn takes the upstream's turn for a request, or finds that it was taken for the
// same change.
func (g *Gate) turn(ctx context.Context, st *State, server string, a *asked) (turn approvals.Turn, err error) {
	err = g.insist(ctx, func(ctx context.Context) (err error) {
		turn, err = g.pins.TurnToAsk(ctx, server, approvals.Turn{ID: a.id, Change: a.change}, st.Pins.askEvery())
		return err
	})
	if err == nil && turn.Change != a.change {
		err = &later{turn.Left}
	}
	return turn, err
}

// tellHuge says once that nobody can be asked about some tools.
func (w *watchman) tellHuge(g *Gate, c *catalogue, huge int) {
	if huge > w.huge {
		g.log.Warn("tools are held whose definitions are too long for people to be asked about; pin them with: countersign policy pin",
			"server", c.server, "tools", huge, "most_bytes", g.set.ReviewArgs)
	}
	w.huge = huge
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
	denied := t.State == approvals.Denied
	if denied {
		g.remembered(server, a.parts, t)
	}
	carried := t.State == approvals.Succeeded || t.State == approvals.Void || t.State == approvals.NotRun
	a.end(carried) // a yes that could not be carried out any more is nobody's no
	g.anew()
	if carried || denied { // there may be others to be asked for
		g.again(server)
	}
}

// remembered keeps a no until it is kept.
func (g *Gate) remembered(server string, changes []action.Digest, t approvals.Ticket) {
	for g.life.Err() == nil {
		err := g.rememberNo(g.life, server, changes, t)
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
