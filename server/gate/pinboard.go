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
	"github.com/countersign-mcp/countersign/server/pins"
)

// PinStore is what the gate needs of the store for pins that are made at run time.
type PinStore interface {
	Pins(ctx context.Context, server string, tools ...string) (approvals.Pins, error)
	Pin(ctx context.Context, server string, under *approvals.Grant, ps ...approvals.Pin) error
	RefusePins(ctx context.Context, server string, changes []action.Digest, approval, by string) error
	TurnToAsk(ctx context.Context, server string, mine approvals.Turn, rest time.Duration) (approvals.Turn, error)
}

const (
	// pinsTimeout bounds one reading of the pins. A call that nobody has to agree to
	// waits no longer for a store that does not answer.
	pinsTimeout = time.Second
	// pinsRest is how long a store that did not answer is left alone: until then
	// what is remembered decides.
	pinsRest = 5 * time.Second
)

// board is what this process remembers of the pins. It never forgets one: a store
// that lost its pins, or was given older ones, is told them again.
type board struct {
	mu    sync.Mutex
	of    map[string]*wall // by upstream
	rests time.Time        // the store is not asked before
}

// wall are the pins of one upstream.
type wall struct {
	approvals.Pins
	unsaved map[string]bool // the store may not have them
}

func (b *board) wall(server string) *wall {
	if b.of == nil {
		b.of = map[string]*wall{}
	}
	w := b.of[server]
	if w == nil {
		w = &wall{Pins: approvals.Pins{Tools: map[string]approvals.Pin{}, Refused: map[action.Digest]bool{}}, unsaved: map[string]bool{}}
		b.of[server] = w
	}
	return w
}

// now is a copy of what is remembered.
func (b *board) now(server string) approvals.Pins {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.wall(server)
	return approvals.Pins{Tools: maps.Clone(w.Tools), Forged: slices.Clone(w.Forged), Refused: maps.Clone(w.Refused)}
}

// merge takes in what the store has. lost are the pins that are remembered and
// that the store lacks, does not open or has an older one of.
func (b *board) merge(server string, read approvals.Pins) (lost []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.wall(server)
	for tool, p := range read.Tools {
		was, ok := w.Tools[tool]
		if ok && was.Rev > p.Rev {
			continue
		}
		if ok && was.Rev == p.Rev && !w.unsaved[tool] && (was.Digest != p.Digest || was.Identity != p.Identity) {
			// The store had ours and has another one of the same number, so it lost
			// ours and somebody pinned anew. What was agreed on first holds.
			was.Rev++
			w.Tools[tool] = was
			continue
		}
		w.Tools[tool] = p // also over a first sight of our own that was not written: the store's was there before
		delete(w.unsaved, tool)
	}
	for tool, p := range w.Tools {
		if read.Tools[tool].Rev < p.Rev && !w.unsaved[tool] {
			w.unsaved[tool] = true
			lost = append(lost, tool)
		}
	}
	w.Forged = slices.DeleteFunc(slices.Clone(read.Forged), func(tool string) bool {
		_, known := w.Tools[tool]
		return known
	})
	for d := range read.Refused {
		w.Refused[d] = true
	}
	slices.Sort(lost)
	return lost
}

// remember notes pins that were made here. saved says that the store has them.
func (b *board) remember(server string, saved bool, ps ...approvals.Pin) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.wall(server)
	for _, p := range ps {
		w.note(p, saved)
	}
}

func (w *wall) note(p approvals.Pin, saved bool) {
	w.Tools[p.Tool] = p
	if saved {
		delete(w.unsaved, p.Tool)
	} else {
		w.unsaved[p.Tool] = true
	}
}

// rememberFirst is remember for pins of what was seen first. Of two that are seen at
// once one is first: Moved, and nothing is noted, when another one is known by now.
func (b *board) rememberFirst(server string, saved bool, ps ...approvals.Pin) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.wall(server)
	for _, p := range ps {
		is, known := w.Tools[p.Tool]
		if known && (is.Rev > p.Rev || is.Rev == p.Rev && (is.Digest != p.Digest || is.Identity != p.Identity)) {
			return approvals.Moved
		}
	}
	for _, p := range ps {
		w.note(p, saved)
	}
	return nil
}

func (b *board) refuse(server string, changes []action.Digest) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, d := range changes {
		b.wall(server).Refused[d] = true
	}
}

// unsavedOf lists the pins that the store has yet to be told.
func (b *board) unsavedOf(server string) []approvals.Pin {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.wall(server)
	var out []approvals.Pin
	for _, tool := range slices.Sorted(maps.Keys(w.unsaved)) {
		out = append(out, w.Tools[tool])
	}
	return out
}

func (b *board) resting() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return time.Now().Before(b.rests)
}

func (b *board) rest(until time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rests = until
}

// readPins brings what is remembered up to date. An error means that the store
// did not say; what is remembered is then all there is.
func (g *Gate) readPins(ctx context.Context, server string) (approvals.Pins, error) {
	if g.board.resting() {
		return g.board.now(server), approvals.StoreUnavailable
	}
	ctx, cancel := context.WithTimeout(ctx, pinsTimeout)
	defer cancel()
	read, err := g.pins.Pins(ctx, server)
	if err != nil {
		g.board.rest(time.Now().Add(pinsRest))
		return g.board.now(server), err
	}
	if lost := g.board.merge(server, read); len(lost) > 0 {
		g.log.Error("the store has lost pins that it had, or was given older ones; those that are remembered here hold and are written again",
			"server", server, "tools", len(lost))
	}
	return g.board.now(server), nil
}

// pinFirst pins what is seen for the first time. Where the store can't be told,
// it holds in this process and is written later.
func (g *Gate) pinFirst(ctx context.Context, c *catalogue, unseen []pins.Tool, have approvals.Pins) error {
	first := make([]approvals.Pin, 0, len(unseen))
	for _, t := range unseen {
		first = append(first, approvals.Pin{
			Tool: t.Name, Digest: t.Digest, Definition: t.Raw, Identity: c.identity,
			Rev: have.Tools[t.Name].Rev + 1, At: time.Now().UTC().Truncate(time.Millisecond),
		})
	}
	if g.board.resting() {
		return g.board.rememberFirst(c.server, false, first...)
	}
	ctx, cancel := context.WithTimeout(ctx, pinsTimeout)
	defer cancel()
	err := g.pins.Pin(ctx, c.server, nil, first...)
	if errors.Is(err, approvals.Moved) {
		return err // another process saw it first
	}
	if err != nil {
		g.board.rest(time.Now().Add(pinsRest))
	}
	return g.board.rememberFirst(c.server, err == nil, first...)
}

// mostTries is how often a first sight is compared again because other pins came
// between.
const mostTries = 4

// examine compares a list with the pins, and pins what may be pinned at first
// sight. What could be pinned neither here nor by another is held.
func (g *Gate) examine(ctx context.Context, p Pins, c *catalogue) {
	have, err := g.readPins(ctx, c.server)
	for try := 0; ; try++ {
		var unseen []pins.Tool
		if c.held, unseen = p.examined(c, have); len(unseen) == 0 {
			break
		}
		if try == mostTries {
			for _, t := range unseen {
				c.held[t.Name] = hold{reason: toolNotPinned}
			}
			break
		}
		if g.pinFirst(ctx, c, unseen, have) != nil {
			have, err = g.readPins(ctx, c.server)
			continue
		}
		for _, t := range unseen {
			c.first = append(c.first, t.Name)
		}
		have = g.board.now(c.server)
	}
	c.fresh = err == nil
	c.absent = p.absent(c, have)
}
