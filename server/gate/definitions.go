package gate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/server/pins"
	"github.com/countersign-mcp/countersign/server/policy"
	"github.com/countersign-mcp/countersign/server/redact"
)

// definitionsTool is the tool under which the gate itself asks for a changed
// definition. No upstream's tool can have the name.
const definitionsTool = "countersign/definitions"

// self asks then.
var self = action.Actor{ID: approvals.GateActor, Auth: "gate"}

// ours tells whether an approval is the gate's own.
func ours(actor, tool string) bool { return actor == approvals.GateActor && tool == definitionsTool }

// change is what people are asked to agree to: other definitions of one
// upstream's tools. It is what the arguments of the gate's own request say.
type change struct {
	Server   string
	Identity action.Digest // of the server as it is now
	Tools    []newPin      // by name
	Left     int           // tools that are asked for later
}

// newPin is one tool of a change.
type newPin struct {
	tool pins.Tool
	from pinned // zero where nothing was pinned
}

// mostAsked bounds the definitions of one request, in bytes, and mostTools their
// number: what is more is asked for when it is decided.
const (
	mostAsked = 256 << 10
	mostTools = 100
)

// only is the digest of what becomes of one of the tools, whatever else changes.
func (ch change) only(t newPin) action.Digest {
	return action.Sum("countersign/change/v2", []byte(ch.Server), ch.Identity.Bytes(), []byte(t.tool.Name), t.tool.Digest.Bytes(),
		t.from.digest.Bytes(), t.from.identity.Bytes(), t.from.over.Bytes(), strconv.AppendUint(nil, t.from.rev, 10))
}

// parts are the digests of all of them.
func (ch change) parts() []action.Digest {
	var out []action.Digest
	for _, t := range ch.Tools {
		out = append(out, ch.only(t))
	}
	return out
}

// changeOf makes the change of a list's held tools, as far as the policy shows
// them, nobody has said no to them, and people can be asked at all: huge counts those
// that are longer than what anyone is ever asked about. A long one comes alone, when
// nothing else is left, so that it keeps nobody from the others.
func (g *Gate) changeOf(st *State, c *catalogue, refused map[action.Digest]bool) (ch change, huge int) {
	ch = change{Server: c.server, Identity: c.identity}
	size := 0
	var long []newPin
	defs := slices.SortedFunc(slices.Values(c.defs), func(a, b pins.Tool) int { return strings.Compare(a.Name, b.Name) })
	for _, d := range defs {
		h, held := c.held[d.Name]
		if !held || h.full || !g.usable(d.Name) || !g.gates.list(st, c.server, d.Name) {
			continue
		}
		t := newPin{tool: d, from: h.pinned}
		if refused[ch.only(t)] {
			continue
		}
		switch n := len(d.Raw) + len(h.pinned.definition); {
		case len(d.Raw) > g.set.ReviewArgs:
			huge++
		case n > mostAsked:
			long = append(long, t)
		case size+n > mostAsked || len(ch.Tools) == mostTools:
			ch.Left++
		default:
			size += n
			ch.Tools = append(ch.Tools, t)
		}
	}
	if len(ch.Tools) == 0 && len(long) > 0 {
		ch.Tools, long = long[:1], long[1:]
	}
	ch.Left += len(long)
	return ch, huge
}

// wireChange and wirePin are the arguments of the gate's own request.
type wireChange struct {
	Server   string    `json:"server"`
	Identity string    `json:"identity"`
	Tools    []wirePin `json:"tools"`
}

type wirePin struct {
	Name         string          `json:"name"`
	From         string          `json:"from,omitempty"`          // digest
	FromIdentity string          `json:"from_identity,omitempty"` // of the server that From was pinned for
	Over         string          `json:"over,omitempty"`          // digest of the file's pin
	Rev          uint64          `json:"rev"`                     // of the pin before
	To           string          `json:"to"`                      // digest
	Definition   json.RawMessage `json:"definition"`
}

func hexOf(d action.Digest) string {
	if d.IsZero() {
		return ""
	}
	return d.Hex()
}

// args are the change as arguments. Definitions stand there in their canonical
// form, so that the same change has the same arguments.
func (ch change) args() (json.RawMessage, error) {
	w := wireChange{Server: ch.Server, Identity: hexOf(ch.Identity)}
	for _, t := range ch.Tools {
		canon, err := action.Canonical(t.tool.Raw)
		if err != nil {
			return nil, fmt.Errorf("the definition of %s has no canonical form: %w", t.tool.Name, err)
		}
		w.Tools = append(w.Tools, wirePin{
			Name: t.tool.Name, From: hexOf(t.from.digest), FromIdentity: hexOf(t.from.identity), Over: hexOf(t.from.over),
			Rev: t.from.rev, To: t.tool.Digest.Hex(), Definition: canon,
		})
	}
	b, err := json.Marshal(w)
	if err != nil {
		return nil, fmt.Errorf("writing the change: %w", err)
	}
	return action.Canonical(b)
}

// parseChange reads what args wrote.
func parseChange(args json.RawMessage) (wireChange, []pins.Tool, error) {
	var w wireChange
	if err := json.Unmarshal(args, &w); err != nil {
		return w, nil, fmt.Errorf("reading the change: %w", err)
	}
	if w.Server == "" || len(w.Tools) == 0 {
		return w, nil, errors.New("the change has no server or no tools")
	}
	var tools []pins.Tool
	for _, p := range w.Tools {
		t, err := pins.Define(p.Definition)
		if err != nil || t.Name != p.Name || t.Digest.Hex() != p.To {
			return w, nil, errors.New("a definition is not the one that was asked for")
		}
		tools = append(tools, t)
	}
	return w, tools, nil
}

// digestOfArgs names a change.
func digestOfArgs(args json.RawMessage) action.Digest {
	return action.Sum("countersign/change/v1", args)
}

// view is what people are shown: what was pinned beside what is there now, and a
// new tool whole.
func (ch change) view(st *State, info Info) (title string, v approvals.View) {
	var before, after []pins.Tool
	moved := false
	var same []string
	for _, t := range ch.Tools {
		after = append(after, t.tool)
		if t.from.digest.IsZero() {
			continue
		}
		before = append(before, pins.Tool{Name: t.tool.Name, Raw: t.from.definition, Digest: t.from.digest})
		if t.from.identity != ch.Identity {
			moved = true
			if t.from.digest == t.tool.Digest {
				same = append(same, redact.Visible(t.tool.Name))
			}
		}
	}
	var w strings.Builder
	if moved {
		fmt.Fprintf(&w, "another server: its command, directory, variables or name are not those that were pinned\n  it calls itself now: %s\n",
			redact.Visible(strings.TrimSpace(info.Name+" "+info.Version)))
		w.WriteString(ch.becomes(st, info.Name))
	}
	for _, name := range same {
		fmt.Fprintf(&w, "tool as before, of the other server: %s\n", name)
	}
	w.WriteString(pins.Changes{Tools: pins.DiffTools(before, after)}.Text())
	if ch.Left > 0 {
		fmt.Fprintf(&w, "%d more tools are held and asked for after these\n", ch.Left)
	}
	v = approvals.View{Text: w.String()}
	if n := strings.Count(v.Text, "⟦U+"); n > 0 {
		v.Warnings = append(v.Warnings, "characters that can't be seen or trusted are shown by their code, as ⟦U+XXXX⟧")
	}
	if len(v.Text) > redact.MaxText {
		v.Text = "⟦not shown: longer than 1 MiB⟧"
		v.Missing = []string{"the definitions are longer than 1 MiB, so they can't be shown"}
	}
	tools := "1 tool"
	if n := len(ch.Tools); n != 1 {
		tools = fmt.Sprintf("%d tools", n)
	}
	return fmt.Sprintf("Agree to other definitions of %s of %s", tools, redact.Visible(ch.Server)), v
}

// becomes says what makes it another server, as far as that is known: where the pins
// are the file's, what it was and what it is; else what it is, since of pins that were
// made at run time only the digest of the server is kept.
func (ch change) becomes(st *State, name string) string {
	is, known := st.Starts[ch.Server]
	if !known {
		return ""
	}
	is.Name, is.Identity = name, ch.Identity
	var was pins.Server
	if st.Pins.File != nil {
		was = st.Pins.File.Servers[ch.Server]
	}
	inFile := func(t newPin) bool { return t.from.digest.IsZero() || t.from.identity == was.Identity }
	if !was.Identity.IsZero() && !slices.ContainsFunc(ch.Tools, func(t newPin) bool { return !inFile(t) }) {
		return pins.Changes{Identity: pins.Diff(was, is).Identity}.Text()
	}
	return "what it was is not on record; this is what it is now\n" + pins.Changes{Identity: pins.Diff(pins.Server{}, is).Identity}.Text()
}

// asking is the gate's own request.
func (g *Gate) asking(st *State, route approvals.Route, ch change, args json.RawMessage, op string) approvals.Park {
	info := st.Upstreams[ch.Server].Info()
	e := action.Envelope{
		V: action.EnvelopeVersion, OperationID: op, Policy: st.Policy.Digest(), ServerID: ch.Identity, Tier: ruleDefinitions,
		ServerName: strings.TrimSpace(info.Name + " " + info.Version), Routes: []string{route.Name}, Rules: []string{ruleDefinitions},
		Call: action.Call{Server: ch.Server, Tool: definitionsTool, Args: args, Actor: self},
	}
	// One upstream's turns are bounded as they are, so that the caps need not keep
	// another one's from being asked.
	caps := g.set.Caps
	caps.Parked = max(caps.Parked, 2*len(st.Upstreams))
	caps.NewPerHour = max(caps.NewPerHour, 2*int(time.Hour/st.Pins.askEvery())*len(st.Upstreams))
	p := approvals.Park{
		Nonce: op, Envelope: e, Caps: caps, Links: route.Links, Run: runOnApprove,
		Rules:        []string{ruleDefinitions + ": the server describes these tools in another way than what is pinned; they are held back until someone agrees"},
		Requirements: []approvals.Requirement{route.Require(nil)}, Channels: slices.Clone(route.Channels),
	}
	p.Title, p.View = ch.view(st, Info{Name: info.Name, Version: info.Version})
	return p
}

const ruleDefinitions = "definitions"

// definitionsRoute is the route of the gate's own requests.
func (s *State) definitionsRoute() (approvals.Route, bool) {
	for _, r := range s.Policy.Routes() {
		if r.Name == policy.DefinitionsRoute {
			return r, true
		}
	}
	return approvals.Route{}, false
}

// stamped is a pin as an approval makes it.
func stamped(t pins.Tool, identity, over action.Digest, rev uint64, tk approvals.Ticket) approvals.Pin {
	by := tk.By
	for _, v := range tk.Votes {
		if v.Verdict == approvals.Approve {
			by = v.Person
		}
	}
	return approvals.Pin{
		Tool: t.Name, Digest: t.Digest, Definition: t.Raw, Identity: identity, Over: over, Rev: rev + 1,
		Approval: tk.ID, By: by, At: tk.DecidedAt.Truncate(time.Millisecond),
	}
}

// rememberNo keeps a person's no, so that the same is not asked again.
func (g *Gate) rememberNo(ctx context.Context, server string, changes []action.Digest, t approvals.Ticket) error {
	g.board.refuse(server, changes)
	return g.insist(ctx, func(ctx context.Context) error { return g.pins.RefusePins(ctx, server, changes, t.ID, t.By) })
}
