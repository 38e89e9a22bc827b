package gate

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/server/pins"
)

// Pins say what the upstreams' tools are compared with. The zero value has
// nothing, so every tool is held until a person agrees to it.
type Pins struct {
	File *pins.File // nil: there is none
	// FirstUse takes the first definition that is seen of a tool without a pin for
	// the right one.
	FirstUse bool
	// MaxAge is how old a list of tools, and what is pinned, may be for a call that
	// is allowed outright; default 30 s. A change that the upstream announces, or a
	// new process of it, ends it sooner.
	MaxAge time.Duration
	// AskEvery is the least time between two requests for one upstream's tools, over
	// all gates; default 1 m. An upstream may change what it says without end, and a
	// person can't read so often.
	AskEvery time.Duration
}

func (p Pins) askEvery() time.Duration { return cmp.Or(p.AskEvery, time.Minute) }

func (p Pins) maxAge() time.Duration { return cmp.Or(p.MaxAge, 30*time.Second) }

// Why a tool is held, as callers are told.
const (
	toolChanged   = "tool_changed"
	toolNotPinned = "tool_not_pinned"
)

// hold is why one tool is not shown and not called.
type hold struct {
	reason string
	pinned pinned // zero where nothing is pinned
	full   bool   // it has no pin since no more are made at first sight
}

func (h hold) refusal() refusal {
	r := refusal{code: codeParams, reason: h.reason, message: sayHeld}
	if h.reason == toolNotPinned {
		r.message = sayUnpinned
	}
	return r
}

// pinned is what a tool has to be.
type pinned struct {
	digest, identity action.Digest
	definition       json.RawMessage
	over             action.Digest // of the file's pin; zero where it has none
	rev              uint64        // of the last pin that was made at run time, whether it counts or not
}

func (p pinned) is(tool pins.Tool, identity action.Digest) bool {
	return !p.digest.IsZero() && p.digest == tool.Digest && p.identity == identity
}

// fromFile is the file's pin of a tool.
func (p Pins) fromFile(server, tool string) (pinned, bool) {
	if p.File == nil {
		return pinned{}, false
	}
	s, ok := p.File.Servers[server]
	if !ok {
		return pinned{}, false
	}
	t, ok := s.Tool(tool)
	if !ok {
		return pinned{}, false
	}
	return pinned{digest: t.Digest, identity: s.Identity, definition: t.Raw, over: s.Over(tool)}, true
}

// effective is the pin that counts: the one that was made at run time, if it was
// made over the file's present one; else the file's. What was only seen first
// counts as long as first use is meant to.
func (p Pins) effective(server, tool string, at map[string]approvals.Pin) (pinned, bool) {
	file, has := p.fromFile(server, tool)
	r, made := at[tool]
	if made && r.Over == file.over && (r.Approval != "" || p.FirstUse) {
		return pinned{digest: r.Digest, identity: r.Identity, definition: r.Definition, over: file.over, rev: r.Rev}, true
	}
	file.rev = r.Rev
	return file, has
}

// What an upstream can have pinned at first sight: one that makes up new names all
// the time would fill the store and this process.
const (
	mostFirst      = 2000
	mostFirstBytes = 16 << 20 // of definitions
)

// examined compares a list with the pins. unseen are the tools that first use
// would pin, as far as there is room.
func (p Pins) examined(c *catalogue, have approvals.Pins) (held map[string]hold, unseen []pins.Tool) {
	held = map[string]hold{}
	count, size := len(have.Tools)+len(have.Forged), 0
	for _, p := range have.Tools {
		size += len(p.Definition)
	}
	for _, d := range c.defs {
		if !pins.Plausible(d.Name) {
			continue // it is neither shown nor called
		}
		switch h, first := p.compare(c.server, c.identity, d, have); {
		case first && (count >= mostFirst || size+len(d.Raw) > mostFirstBytes):
			held[d.Name] = hold{reason: toolNotPinned, full: true}
		case first:
			unseen = append(unseen, d)
			count, size = count+1, size+len(d.Raw)
		case h.reason != "":
			held[d.Name] = h
		}
	}
	return held, unseen
}

// compare says why a tool is held, if it is, or that first use would pin it.
func (p Pins) compare(server string, identity action.Digest, d pins.Tool, have approvals.Pins) (h hold, first bool) {
	want, ok := p.effective(server, d.Name, have.Tools)
	switch {
	case ok && want.is(d, identity):
		return hold{}, false
	case ok:
		return hold{reason: toolChanged, pinned: want}, false
	case !p.FirstUse || slices.Contains(have.Forged, d.Name):
		// A pin that does not open was one: nobody can say of which definition.
		return hold{reason: toolNotPinned, pinned: want}, false
	}
	return hold{}, true
}

// Compare says what becomes of one tool that a server lists: pinned tells whether
// it has a pin, held that it is neither shown nor called. A tool that is neither is
// pinned when a gate sees it first.
func (p Pins) Compare(server string, identity action.Digest, tool pins.Tool, have approvals.Pins) (pinned, held bool) {
	h, first := p.compare(server, identity, tool, have)
	return !first && h.reason != toolNotPinned, h.reason != ""
}

// absent are the pinned tools that the list does not have.
func (p Pins) absent(c *catalogue, have approvals.Pins) []string {
	var out []string
	note := func(tool string) {
		if !c.has(tool) && !slices.Contains(out, tool) {
			out = append(out, tool)
		}
	}
	if p.File != nil {
		s := p.File.Servers[c.server]
		for _, t := range s.Tools {
			note(t.Name)
		}
	}
	for tool := range have.Tools {
		if _, ok := p.effective(c.server, tool, have.Tools); ok {
			note(tool)
		}
	}
	slices.Sort(out)
	return out
}

// usable tells whether an upstream's name for a tool can be one: the gate's own
// are not, and neither is what a reader could take for something else.
func (g *Gate) usable(tool string) bool {
	return pins.Plausible(tool) && tool != definitionsTool && (tool != CollectTool || g.set.NoCollect)
}
