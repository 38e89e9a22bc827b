package gate

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/server/pins"
	"github.com/countersign-mcp/countersign/server/policy"
)

// listTimeout bounds one reading of an upstream's list.
const listTimeout = 20 * time.Second

// catalogue is an upstream's list of tools at one moment.
type catalogue struct {
	defs     []pins.Tool // in the upstream's order
	manifest action.Digest
	gen      uint64 // of the upstream before the list was read
	at       time.Time

	server   string        // the upstream's name
	identity action.Digest // of the server that gave the list
	by       *State        // with whose pins it was compared
	epoch    uint64        // of the gate before what is pinned was read
	held     map[string]hold
	first    []string // tools that were pinned at this first sight of them
	absent   []string // pinned tools that the list does not have
	fresh    bool     // what is pinned was read from the store for it
}

func (c *catalogue) find(name string) (pins.Tool, bool) {
	i := slices.IndexFunc(c.defs, func(d pins.Tool) bool { return d.Name == name })
	if i < 0 {
		return pins.Tool{}, false
	}
	return c.defs[i], true
}

// offers tells whether the list has the tool and it is not held.
func (c *catalogue) offers(name string) bool {
	_, held := c.held[name]
	return !held && c.has(name)
}

func (c *catalogue) has(name string) bool {
	_, ok := c.find(name)
	return ok
}

// catalogue reads an upstream's list, or returns one not older than age. With
// age 0 it is read now, and shared with nobody.
func (g *Gate) catalogue(ctx context.Context, st *State, server string, age time.Duration) (*catalogue, error) {
	up := st.Upstreams[server]
	if age == 0 {
		ctx, cancel := context.WithTimeout(ctx, listTimeout)
		defer cancel()
		return g.read(ctx, st, server)
	}
	if known, ok := g.listings.Load(up); ok {
		c := known.(*catalogue)
		if !g.outdated(c, st) && time.Since(c.at) <= age {
			return c, nil
		}
	}
	// Those who come meanwhile share one reading, which no one's leaving ends. Who
	// comes after a change was announced, or by another state, has one of its own.
	ch := g.lists.DoChan(fmt.Sprintf("%p %p %d %d", up, st, g.epoch.Load(), up.Generation()), func() (any, error) {
		ctx, cancel := context.WithTimeout(g.life, listTimeout)
		defer cancel()
		return g.read(ctx, st, server)
	})
	select {
	case r := <-ch:
		if r.Err != nil {
			return nil, r.Err
		}
		return r.Val.(*catalogue), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// outdated tells whether a list, or what it was compared with, may not be what
// counts for this state any more.
func (g *Gate) outdated(c *catalogue, st *State) bool {
	up := st.Upstreams[c.server]
	return c.by != st || c.epoch != g.epoch.Load() || up == nil || c.gen != up.Generation()
}

// read reads an upstream's list and compares it with what is pinned.
func (g *Gate) read(ctx context.Context, st *State, server string) (*catalogue, error) {
	up, epoch := st.Upstreams[server], g.epoch.Load()
	c, err := g.list(ctx, up)
	if err != nil {
		return nil, err
	}
	c.server, c.by, c.epoch = server, st, epoch
	g.examine(ctx, st.Pins, c)
	if !g.outdated(c, g.state.Load()) { // else it may be of the process before, or of other pins
		g.listings.Store(up, c)
	}
	g.notice(c)
	return c, nil
}

// list reads a list that is of one process, and of no moment at which it changed.
func (g *Gate) list(ctx context.Context, up Upstream) (*catalogue, error) {
	var c *catalogue
	for range 3 {
		c = &catalogue{gen: up.Generation(), at: time.Now()}
		tools, err := up.Tools(ctx)
		if err != nil {
			return nil, err
		}
		wrong, why := 0, error(nil)
		for _, raw := range tools {
			def, err := pins.Define(raw)
			if err != nil {
				wrong, why = wrong+1, err
				continue
			}
			c.defs = append(c.defs, def)
		}
		if wrong > 0 { // once for all of them: there may be thousands
			g.log.Warn("some tools in the upstream's list are none; they are left out", "tools", wrong, "error", why)
		}
		c.identity = up.Identity()
		if c.gen == up.Generation() {
			break
		}
	}
	c.defs, _ = pins.Distinct(c.defs)
	c.manifest = pins.Manifest(c.defs)
	return c, nil
}

// Tools answers tools/list for one actor: the upstreams' own lists without what
// the policy hides, each tool's bytes as they were sent but for a joined name and
// the annotations that our tier decides. All of it stands on one page.
func (g *Gate) Tools(ctx context.Context, front string, who action.Actor, params json.RawMessage) Answer {
	if cursor, ok := action.Member(params, "cursor"); ok && string(cursor) != "null" {
		return Answer{Error: &Error{Code: codeParams, Message: "This cursor was not given out here: the list has one page."}}
	}
	st := g.state.Load()
	if !st.admits(who) {
		return refusal{code: codeParams, reason: "token_changed", message: sayTokenChanged}.answer()
	}
	servers := []string{front}
	if front == "" {
		servers = g.Fronts()
	}
	joined := front == "" && len(servers) > 1
	who.Roles = st.roles(who)
	var out [][]byte
	for _, server := range servers {
		up := st.Upstreams[server]
		if up == nil {
			return Answer{Error: &Error{Code: codeParams, Message: "There is no such upstream."}}
		}
		cat, err := g.catalogue(ctx, st, server, time.Second)
		if err != nil {
			g.log.Warn("the upstream's tools can't be listed", "server", server, "error", err)
			if len(servers) == 1 {
				return refusal{code: codeInternal, reason: "upstream_unavailable", message: sayNoUpstream}.answer()
			}
			continue // the others' tools are still there
		}
		for _, d := range cat.defs {
			if _, held := cat.held[d.Name]; held || !g.usable(d.Name) || !g.gates.list(st, server, d.Name) {
				continue
			}
			out = append(out, g.shown(st, server, d, who, joined))
		}
	}
	if st.Policy.Reviews() && !g.set.NoCollect {
		out = append(out, []byte(collectDefinition))
	}
	return Answer{Result: slices.Concat([]byte(`{"tools":[`), bytes.Join(out, []byte(",")), []byte(`]}`))}
}

// shown is a tool's definition as a client sees it.
func (g *Gate) shown(st *State, server string, d pins.Tool, who action.Actor, joined bool) json.RawMessage {
	raw := d.Raw
	if joined {
		raw = action.SetMember(raw, "name", quote(server+"__"+d.Name))
	}
	hints, ok := tierHints[g.gates.call(st, policy.Facts{Call: action.Call{Server: server, Tool: d.Name, Args: json.RawMessage(`{}`), Actor: who}}).Tier]
	if !ok {
		return raw
	}
	notes, _ := action.Member(raw, "annotations")
	if len(notes) == 0 || notes[0] != '{' {
		notes = json.RawMessage(`{}`)
	}
	for _, h := range hints {
		notes = action.SetMember(notes, h.name, h.value)
	}
	return action.SetMember(raw, "annotations", notes)
}

type hint struct {
	name  string
	value json.RawMessage
}

// tierHints are what a tier says of a tool. An upstream's own word on it is not
// believed: a client may skip its question to the user because of it.
var tierHints = map[string][]hint{
	"read":        hints("true", "false"),
	"write":       hints("false", "false"),
	"destructive": hints("false", "true"),
}

func hints(readOnly, destructive string) []hint {
	return []hint{
		{"readOnlyHint", json.RawMessage(readOnly)},
		{"destructiveHint", json.RawMessage(destructive)},
	}
}

func quote(s string) json.RawMessage {
	b, err := json.Marshal(s)
	if err != nil {
		panic("gate: a string always encodes: " + err.Error())
	}
	return b
}
