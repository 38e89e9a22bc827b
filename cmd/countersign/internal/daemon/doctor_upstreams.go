package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/server/gate"
	"github.com/countersign-mcp/countersign/server/pins"
	"github.com/countersign-mcp/countersign/server/policy"
	"github.com/countersign-mcp/countersign/server/upstream"
)

// looked is an upstream that was started, asked for its tools and stopped.
type looked struct {
	info     upstream.Info
	identity action.Digest
	tools    []pins.Tool
	err      error
}

func (l *looked) names() []string {
	var out []string
	for _, t := range l.tools {
		out = append(out, t.Name)
	}
	return out
}

func lookAtUpstreams(ctx context.Context, p *patient) []Finding {
	if p.NoStart {
		return []Finding{fine("not started: --no-start")}
	}
	p.startAll(ctx)
	var found []Finding
	for _, name := range slices.Sorted(maps.Keys(p.servers)) {
		l := p.servers[name]
		if l.err != nil {
			found = append(found, fail("run its command by hand; the gate needs it to answer MCP on standard output", "%s: %v", name, l.err))
			delete(p.servers, name)
			continue
		}
		found = append(found, fine("%s: %s %s, protocol %s, %s", name, said(l.info.Name), l.info.Version, said(l.info.Protocol),
			count(len(l.tools), "tool", "tools")))
		if p.policy != nil {
			found = append(found, p.covered(name, l.names())...)
		}
	}
	return found
}

// startAll starts a process of each upstream beside those of a gate, and ends it.
func (p *patient) startAll(ctx context.Context) {
	var all sync.WaitGroup
	for name := range p.cfg.Upstreams {
		l := &looked{}
		p.servers[name] = l
		up, err := upstream.New(StartOf(p.cfg, name, p.Version), slog.New(slog.DiscardHandler))
		if err != nil {
			l.err = err
			continue
		}
		all.Go(func() {
			defer up.Close()
			l.look(ctx, up)
		})
	}
	all.Wait()
}

func (l *looked) look(ctx context.Context, up *upstream.Upstream) {
	raws, err := up.Tools(ctx)
	if err != nil {
		l.err = err
		return
	}
	l.info, l.identity = up.Info(), up.Identity()
	var tools []pins.Tool
	for _, raw := range raws {
		if t, err := pins.Define(raw); err == nil { // the gate leaves the others out, too
			tools = append(tools, t)
		}
	}
	l.tools, _ = pins.Distinct(tools) // and those that it can't tell apart
}

// covered says what the policy makes of an upstream's tools.
func (p *patient) covered(server string, names []string) []Finding {
	var shown, denied, unlisted []string
	for _, tool := range names {
		v := p.policy.Judge(policy.Facts{Call: action.Call{Server: server, Tool: tool, Args: json.RawMessage(`{}`)}})
		switch {
		case p.policy.Shows(server, tool):
			shown = append(shown, tool)
		case v.Reasons[0].ID == policy.Unlisted:
			unlisted = append(unlisted, tool)
		default:
			denied = append(denied, tool)
		}
	}
	found := []Finding{fine("%s: the policy shows %d of them and denies %d", server, len(shown), len(denied)+len(unlisted))}
	if len(denied) > 0 {
		found = append(found, fine("%s: denied: %s", server, listed(denied)))
	}
	if len(unlisted) > 0 {
		found = append(found, warn("list each with a tier or deny, so that it is a choice", "%s: no entry lists these, so they are denied: %s", server, listed(unlisted)))
	}
	if missing := p.policy.Unmatched(server, names); len(missing) > 0 {
		found = append(found, warn("take the entries out or put their names right", "%s: no tool is meant by these entries: %s", server, listed(missing)))
	}
	return found
}

// lookAtPins compares what the upstreams list with what was agreed on.
func lookAtPins(ctx context.Context, p *patient) []Finding {
	var file *pins.File // nil: none is configured
	first := p.cfg.Pins.FirstUse || p.cfg.PinsPath() == ""
	var found []Finding
	if path := p.cfg.PinsPath(); path != "" {
		read, err := pins.Load(path)
		if err != nil {
			p.pinned = Fail
			todo := "put the file right first; until then no gate starts with it or reloads"
			if errors.Is(err, pins.ErrNoFile) {
				todo = "write it with: countersign policy pin"
			}
			return failures(todo, err)
		}
		file = read
		found = append(found, private("the pins", path, false)...)
	}
	if first {
		found = append(found, warn("set pins.file, then run countersign policy pin", "tool definitions are pinned as first seen: nobody has agreed on them"))
	}
	for _, name := range slices.Sorted(maps.Keys(p.servers)) {
		runtime, err := p.runtimePins(ctx, name)
		if err != nil {
			found = append(found, warn("see the section redis", "%s: what was pinned at run time can't be read: %v", name, err))
		}
		found = append(found, p.servers[name].compare(name, file, runtime, first)...)
	}
	p.pinned = gravest(found)
	return found
}

// runtimePins are those that a gate wrote: at first use, or by a person's yes.
func (p *patient) runtimePins(ctx context.Context, server string) (approvals.Pins, error) {
	s, err := p.look(&notebook{})
	if err != nil || s == nil {
		return approvals.Pins{}, err
	}
	defer s.Close()
	if _, err := s.Inspect(ctx); err != nil {
		return approvals.Pins{}, err
	}
	return s.Pins(ctx, server)
}

// compare says which tools are what they were agreed to be. A pin of the run
// time counts in place of the file's pin that it was made over.
func (l *looked) compare(server string, file *pins.File, runtime approvals.Pins, first bool) []Finding {
	var same int
	var changed, unknown []string
	rules := gate.Pins{File: file, FirstUse: first}
	for _, t := range l.tools {
		switch pinned, held := rules.Compare(server, l.identity, t, runtime); {
		case !pinned:
			unknown = append(unknown, t.Name)
		case held:
			changed = append(changed, t.Name)
		default:
			same++
		}
	}
	var found []Finding
	if len(runtime.Forged) > 0 {
		found = append(found, fail("see whether a key is gone from keys.previous, or somebody else writes to this Redis",
			"%s: pins that do not open: %s", server, listed(runtime.Forged)))
	}
	look := "look at the change: countersign policy pin --diff"
	if file == nil {
		look = "to be shown the change and asked, give the policy a route named definitions; to agree to all that is listed now, set pins.file, then run countersign policy pin"
	}
	if len(changed) > 0 {
		found = append(found, fail(look, "%s: not what was agreed on, so held: %s", server, listed(changed)))
	}
	if len(unknown) > 0 && first {
		found = append(found, fine("%s: to be pinned when first seen: %s", server, listed(unknown)))
	} else if len(unknown) > 0 {
		found = append(found, warn(look, "%s: not pinned, so held: %s", server, listed(unknown)))
	}
	if len(unknown) == len(l.tools) {
		return found
	}
	return append(found, fine("%s: %d of %s as agreed on", server, same, count(len(l.tools), "tool is", "tools are")))
}
