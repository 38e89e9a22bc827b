package gate

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/approvals/ledger"
)

// watchman sees to what a reading of one upstream's list has brought up: records,
// pins to be written, calls to be voided, people to be asked. One goroutine does
// it at a time; calls don't wait for it.
type watchman struct {
	mu     sync.Mutex
	busy   bool
	latest *catalogue // to be looked at; nil when all was
	called bool       // somebody called a held tool since the last look
	seen   *catalogue // that was looked at last
	due    bool       // it is looked at once more, when people may be asked again

	// Of the goroutine alone.
	told  map[string]bool
	full  bool // it is told that no more is pinned at first sight
	noted int  // records since hour
	hour  time.Time
	huge  int    // tools that nobody can be asked about
	asked *asked // nil: none yet
	next  *asked // that could not be parked yet
}

// asked is the last request of this process for one upstream.
type asked struct {
	id     string
	change action.Digest
	parts  []action.Digest // one for each tool; see change.only
	route  approvals.Route

	mu    sync.Mutex
	over  bool // it ended, and the tools may still be held
	anew  bool // it ended although nobody let it pass: it is asked for again
	known bool // the decision is on the ledger
}

// end notes that the request ended. anew says that it is to be made again.
func (a *asked) end(anew bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over, a.anew = true, anew
}

// stands tells whether the same request needs not be made: it waits, or it was let
// pass and nobody has called a held tool since.
func (a *asked) stands(called bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.over || !called && !a.anew
}

// open tells whether a request was made and has not ended.
func (a *asked) open() bool {
	if a == nil {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.over
}

func (g *Gate) watchman(server string) *watchman {
	w, _ := g.watchmen.LoadOrStore(server, &watchman{told: map[string]bool{}})
	return w.(*watchman)
}

// notice hands a reading on.
func (g *Gate) notice(c *catalogue) { g.hand(c, false) }

// noticeCall hands a reading on in which a tool is held that somebody called:
// people are asked again if they let the question pass.
func (g *Gate) noticeCall(c *catalogue) { g.hand(c, true) }

func (g *Gate) hand(c *catalogue, called bool) {
	w := g.watchman(c.server)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.latest, w.called = c, w.called || called
	if w.busy {
		return
	}
	w.busy = g.background(func() { g.tend(w) })
}

// background runs something that Close ends and waits for; false when it is too
// late.
func (g *Gate) background(run func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.afterwards.Go(run)
	return true
}

// tend looks at the latest reading until none is left; what can't be done is tried
// again.
func (g *Gate) tend(w *watchman) {
	for pause := time.Second; ; {
		w.mu.Lock()
		c, called := w.latest, w.called
		w.latest, w.called = nil, false
		if c == nil {
			w.busy = false
			w.mu.Unlock()
			return
		}
		w.seen = c
		w.mu.Unlock()
		err := g.see(g.life, w, c, called)
		var l *later
		if errors.As(err, &l) {
			g.lookLater(w, called, l.after)
			err = nil
		}
		if err == nil {
			pause = time.Second
			continue
		}
		g.log.Warn("what changed in an upstream's tools is not seen to yet", "server", c.server, "error", err)
		select {
		case <-g.life.Done():
			return
		case <-time.After(pause):
			pause = min(2*pause, 30*time.Second)
		}
		w.mu.Lock()
		if w.latest == nil {
			w.latest = c
		}
		w.called = w.called || called
		w.mu.Unlock()
	}
}

// lookLater has the newest reading looked at once more after a time.
func (g *Gate) lookLater(w *watchman, called bool, after time.Duration) {
	w.mu.Lock()
	w.called = w.called || called
	was := w.due
	w.due = true
	w.mu.Unlock()
	if was {
		return
	}
	g.background(func() {
		select {
		case <-g.life.Done():
			return
		case <-time.After(after):
		}
		w.mu.Lock()
		w.due = false
		c := w.seen
		w.mu.Unlock()
		g.hand(c, false)
	})
}

// see does what one reading asks for.
func (g *Gate) see(ctx context.Context, w *watchman, c *catalogue, called bool) error {
	if err := g.recordChanges(ctx, w, c); err != nil {
		return err
	}
	if err := g.savePins(ctx, c); err != nil {
		return err
	}
	st := g.state.Load()
	if st.Upstreams[c.server] == nil {
		return nil
	}
	if len(c.held) == 0 {
		return g.withdraw(ctx, w)
	}
	have, err := g.pins.Pins(ctx, c.server) // whether anything is void is judged by what holds now
	if err != nil {
		return err
	}
	g.board.merge(c.server, have)
	have = g.board.now(c.server)
	if held, unseen := st.Pins.examined(c, have); len(unseen) > 0 || !sameHolds(held, c.held) {
		g.anew() // somebody pinned meanwhile
		again := *c
		again.held = held
		c = &again
	}
	if err := g.voidAll(ctx, st, c); err != nil {
		return err
	}
	return g.ask(ctx, st, w, c, have, called)
}

func sameHolds(a, b map[string]hold) bool {
	return maps.EqualFunc(a, b, func(x, y hold) bool {
		return x.reason == y.reason && x.pinned.digest == y.pinned.digest && x.pinned.identity == y.pinned.identity && x.pinned.rev == y.pinned.rev
	})
}

// anew makes every list be read and compared again.
func (g *Gate) anew() {
	g.epoch.Add(1)
	g.listings.Clear()
}

// What a manifest_changed record says of a tool.
const (
	changeNew      = "not_pinned"
	changeTool     = "changed"
	changeIdentity = "server_changed"
	changeFirst    = "first_use"
	changeAbsent   = "removed"
	changePinned   = "pinned"
	changeFull     = "too_many" // not pinned at first sight any more; said of the upstream, once
	changeMore     = "more"     // more changed than is recorded
)

// mostNoted bounds the records of one upstream's changes in an hour, but for what is
// pinned at first sight, which is bounded as it is.
const mostNoted = 5000

// room tells whether one more change is recorded in this hour. last is the first that
// is not.
func (w *watchman) room(now time.Time) (ok, last bool) {
	if now.Sub(w.hour) >= time.Hour {
		w.hour, w.noted = now, 0
	}
	w.noted++
	return w.noted <= mostNoted, w.noted == mostNoted+1
}

// recordChanges writes what this reading has that the one before had not.
func (g *Gate) recordChanges(ctx context.Context, w *watchman, c *catalogue) error {
	now := map[string]bool{}
	var recs []ledger.Record
	note := func(kind, tool string, is action.Digest, was action.Digest) {
		key := kind + " " + tool + " " + hexOf(is)
		if now[key] {
			return
		}
		if w.told[key] {
			now[key] = true
			return
		}
		if kind != changeFirst {
			switch ok, last := w.room(g.now()); {
			case last:
				kind, tool, is, was = changeMore, "", action.Digest{}, action.Digest{}
			case !ok:
				return // it is when there is room
			}
		}
		now[kind+" "+tool+" "+hexOf(is)] = true
		recs = append(recs, g.changeRecord(kind, c.server, tool, c.manifest, is, was))
		if kind != changeFirst {
			g.log.Warn("an upstream's tool is not as it was pinned", "server", c.server, "tool", ledger.Clean(tool), "what", kind)
		}
	}
	full := 0
	for _, d := range c.defs {
		h, held := c.held[d.Name]
		switch {
		case slices.Contains(c.first, d.Name):
			note(changeFirst, d.Name, d.Digest, action.Digest{})
		case !held:
		case h.full:
			full++
		case h.reason == toolNotPinned:
			note(changeNew, d.Name, d.Digest, action.Digest{})
		case h.pinned.digest == d.Digest:
			note(changeIdentity, d.Name, d.Digest, h.pinned.digest)
		default:
			note(changeTool, d.Name, d.Digest, h.pinned.digest)
		}
	}
	for _, tool := range c.absent {
		note(changeAbsent, tool, action.Digest{}, action.Digest{})
	}
	if full > 0 && !w.full {
		recs = append(recs, g.changeRecord(changeFull, c.server, "", c.manifest, action.Digest{}, action.Digest{}))
		g.log.Error("an upstream has more tools than are pinned as first seen; the others are held until they are pinned with: countersign policy pin",
			"server", c.server, "held", full, "most_tools", mostFirst, "most_bytes", mostFirstBytes)
	}
	if len(recs) > 0 {
		if err := g.write(ctx, recs...); err != nil {
			return err
		}
	}
	w.told, w.full = now, w.full || full > 0
	return nil
}

func (g *Gate) changeRecord(kind, server, tool string, manifest, is, was action.Digest) ledger.Record {
	return ledger.Record{
		Event: ledger.ManifestChanged, Server: ledger.Clean(server), Tool: ledger.Clean(tool), Reason: kind,
		ManifestDigest: hexOf(manifest), ToolDigest: hexOf(is), WasDigest: hexOf(was),
	}
}

// savePins writes the pins that the store has yet to be told. Where it has another
// one by now, that one holds.
func (g *Gate) savePins(ctx context.Context, c *catalogue) error {
	left := g.board.unsavedOf(c.server)
	var errs []error
	for _, p := range left {
		err := g.pins.Pin(ctx, c.server, nil, p)
		switch {
		case err == nil:
			g.board.remember(c.server, true, p)
		case errors.Is(err, approvals.Moved):
		default:
			errs = append(errs, err)
		}
	}
	if len(left) == 0 || len(errs) > 0 {
		return errors.Join(errs...)
	}
	have, err := g.pins.Pins(ctx, c.server)
	if err != nil {
		return err
	}
	g.board.merge(c.server, have)
	g.anew()
	return nil
}

// voidAll ends what is parked or approved on the held tools of a list.
func (g *Gate) voidAll(ctx context.Context, st *State, c *catalogue) error {
	open, err := g.store.List(ctx, []approvals.State{approvals.Pending, approvals.Approved}, g.set.Caps.Total)
	if err != nil {
		return err
	}
	for _, t := range open {
		if _, held := c.held[t.Tool]; !held || t.Server != c.server {
			continue
		}
		err := g.insist(ctx, func(ctx context.Context) error {
			_, err := g.store.Void(ctx, t.ID, approvals.CauseTool, st.Policy.Digest())
			return err
		})
		if err != nil && (!isFinal(err) || errors.Is(err, approvals.Behind)) { // else it is over, or runs
			return err
		}
	}
	return nil
}

// withdraw ends the request of this process that nothing needs any more. Another
// process's is left alone: its upstream may be another.
func (g *Gate) withdraw(ctx context.Context, w *watchman) error {
	if !w.asked.open() {
		return nil
	}
	err := g.insist(ctx, func(ctx context.Context) error {
		_, err := g.store.End(ctx, w.asked.id, approvals.Withdrawn, approvals.CauseTool, approvals.GateActor, "")
		return err
	})
	if err != nil && !isFinal(err) {
		return err
	}
	w.asked.end(false)
	return nil
}
