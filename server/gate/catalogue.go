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

// listAge is how old a list of tools may be for a call that is allowed outright.
// A change that the upstream announces, or a new process of it, ends it sooner.
const listAge = 30 * time.Second

// listTimeout bounds one reading of an upstream's list.
const listTimeout = 20 * time.Second

// catalogue is an upstream's list of tools at one moment.
type catalogue struct {
	defs     []pins.Tool // in the upstream's order
	manifest action.Digest
	gen      uint64 // of the upstream before the list was read
	at       time.Time
}

func (c *catalogue) find(name string) (pins.Tool, bool) {
	i := slices.IndexFunc(c.defs, func(d pins.Tool) bool { return d.Name == name })
	if i < 0 {
		return pins.Tool{}, false
	}
	return c.defs[i], true
}

func (c *catalogue) has(name string) bool {
	_, ok := c.find(name)
	return ok
}

// catalogue reads an upstream's list, or returns one not older than age. With
// age 0 it is read now, and shared with nobody.
func (g *Gate) catalogue(ctx context.Context, up Upstream, age time.Duration) (*catalogue, error) {
	if age == 0 {
		ctx, cancel := context.WithTimeout(ctx, listTimeout)
		defer cancel()
		return g.read(ctx, up)
	}
	if known, ok := g.listings.Load(up); ok {
		c := known.(*catalogue)
		if c.gen == up.Generation() && time.Since(c.at) <= age {
			return c, nil
		}
	}
	// Those who come meanwhile share one reading, which no one's leaving ends.
	ch := g.lists.DoChan(fmt.Sprintf("%p", up), func() (any, error) {
		ctx, cancel := context.WithTimeout(g.life, listTimeout)
		defer cancel()
		return g.read(ctx, up)
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

func (g *Gate) read(ctx context.Context, up Upstream) (*catalogue, error) {
	c := &catalogue{gen: up.Generation(), at: time.Now()}
	tools, err := up.Tools(ctx)
	if err != nil {
		return nil, err
	}
	seen := map[string]int{}
	for _, raw := range tools {
		def, err := pins.Define(raw)
		if err != nil {
			g.log.Warn("a tool in the upstream's list is not one; it is left out", "error", err)
			continue
		}
		seen[def.Name]++
		c.defs = append(c.defs, def)
	}
	// Two tools of one name: nobody can say which definition a call means.
	c.defs = slices.DeleteFunc(c.defs, func(d pins.Tool) bool { return seen[d.Name] > 1 })
	c.manifest = pins.Manifest(c.defs)
	if c.gen == up.Generation() { // else it may be of the process before
		g.listings.Store(up, c)
	}
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
		cat, err := g.catalogue(ctx, up, time.Second)
		if err != nil {
			g.log.Warn("the upstream's tools can't be listed", "server", server, "error", err)
			if len(servers) == 1 {
				return refusal{code: codeInternal, reason: "upstream_unavailable", message: sayNoUpstream}.answer()
			}
			continue // the others' tools are still there
		}
		for _, d := range cat.defs {
			if d.Name == CollectTool && !g.set.NoCollect || !plausible(d.Name) || !g.gates.list(st, server, d.Name) {
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
