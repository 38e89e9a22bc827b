package pins

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/countersign-mcp/countersign/approvals/action"
)

// Kinds of change.
const (
	Added   = "added"
	Removed = "removed"
	Changed = "changed"
)

// Changes are what differs between two states of one server.
type Changes struct {
	Identity []Part       // what makes it another server: command, dir, env, name
	About    []Part       // what is on record beside it: transport, package, auth_path, version, protocol, capabilities
	Tools    []ToolChange // by name
}

// ToolChange is what differs in one tool.
type ToolChange struct {
	Name  string
	Kind  string // Added, Removed or Changed
	Parts []Part // of an added or removed tool: all of it
}

// Part is one place of a definition. Before is nil where there was nothing, and
// After where there is nothing any more; a JSON null is not nil.
type Part struct {
	Path          string // JSON pointer, "/inputSchema/properties/id"
	Before, After json.RawMessage
}

// Empty tells whether nothing differs.
func (c Changes) Empty() bool { return len(c.Identity) == 0 && len(c.About) == 0 && len(c.Tools) == 0 }

// Diff compares two states of one server.
func Diff(before, after Server) Changes {
	var c Changes
	field := func(into *[]Part, path string, a, b []byte) { *into = parts(*into, path, a, b) }
	field(&c.Identity, "/command", list(before.Command), list(after.Command))
	field(&c.Identity, "/dir", quote(before.Dir), quote(after.Dir))
	field(&c.Identity, "/env", list(before.Env), list(after.Env))
	field(&c.Identity, "/name", quote(before.Name), quote(after.Name))
	if len(c.Identity) == 0 && before.Identity != after.Identity { // in what is hidden
		c.Identity = []Part{{Path: "/identity", Before: quote(before.Identity.Hex()), After: quote(after.Identity.Hex())}}
	}
	field(&c.About, "/transport", quote(before.Transport), quote(after.Transport))
	field(&c.About, "/package/kind", quote(before.Package.Kind), quote(after.Package.Kind))
	field(&c.About, "/package/name", quote(before.Package.Name), quote(after.Package.Name))
	field(&c.About, "/package/version", quote(before.Package.Version), quote(after.Package.Version))
	field(&c.About, "/auth_path", list(before.AuthPath), list(after.AuthPath))
	field(&c.About, "/version", quote(before.Version), quote(after.Version))
	field(&c.About, "/protocol", quote(before.Protocol), quote(after.Protocol))
	field(&c.About, "/capabilities", canonical(before.Capabilities), canonical(after.Capabilities))
	c.Tools = DiffTools(before.Tools, after.Tools)
	return c
}

// DiffTools compares two lists of tools. Their order is no change.
func DiffTools(before, after []Tool) []ToolChange {
	var out []ToolChange
	was, is := byName(before), byName(after)
	names := slices.Collect(maps.Keys(was))
	for name := range is {
		if _, known := was[name]; !known {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		a, had := was[name]
		b, has := is[name]
		switch {
		case !had:
			out = append(out, ToolChange{Name: name, Kind: Added, Parts: whole(b.Raw, false)})
		case !has:
			out = append(out, ToolChange{Name: name, Kind: Removed, Parts: whole(a.Raw, true)})
		case a.Digest != b.Digest:
			out = append(out, ToolChange{Name: name, Kind: Changed, Parts: parts(nil, "", canonical(a.Raw), canonical(b.Raw))})
		}
	}
	return out
}

func byName(tools []Tool) map[string]Tool {
	out := make(map[string]Tool, len(tools))
	for _, t := range tools {
		out[t.Name] = t
	}
	return out
}

// whole is a definition, member by member.
func whole(raw json.RawMessage, gone bool) []Part {
	var out []Part
	for _, m := range ordered(canonical(raw), nil) {
		p := Part{Path: "/" + action.EscapePointer(m.name), After: m.after}
		if gone {
			p.Before, p.After = m.after, nil
		}
		out = append(out, p)
	}
	return out
}

// parts appends where two values differ, each nil or canonical.
func parts(out []Part, path string, a, b []byte) []Part {
	if bytes.Equal(a, b) && (a == nil) == (b == nil) {
		return out
	}
	switch kind := kindOf(a); {
	case kind != kindOf(b):
	case kind == "object":
		for _, m := range ordered(a, b) {
			out = parts(out, path+"/"+action.EscapePointer(m.name), m.before, m.after)
		}
		return out
	case kind == "array":
		return elements(out, path, a, b)
	}
	return append(out, Part{Path: path, Before: a, After: b})
}

// elements compares two arrays. Of scalars they are shown as a whole: most are sets
// of words, where a place means nothing. Of others, what is the same at both ends
// is left aside.
func elements(out []Part, path string, a, b []byte) []Part {
	was, is := slices.Collect(action.Items(a)), slices.Collect(action.Items(b))
	if scalars(was) && scalars(is) {
		return append(out, Part{Path: path, Before: a, After: b})
	}
	from := 0
	for from < len(was) && from < len(is) && bytes.Equal(was[from], is[from]) {
		from++
	}
	end := 0
	for end < len(was)-from && end < len(is)-from && bytes.Equal(was[len(was)-1-end], is[len(is)-1-end]) {
		end++
	}
	was, is = was[:len(was)-end], is[:len(is)-end]
	for i := from; i < max(len(was), len(is)); i++ {
		var x, y json.RawMessage
		if i < len(was) {
			x = was[i]
		}
		if i < len(is) {
			y = is[i]
		}
		out = parts(out, path+"/"+strconv.Itoa(i), x, y)
	}
	return out
}

func scalars(items []json.RawMessage) bool {
	return !slices.ContainsFunc(items, func(v json.RawMessage) bool { return v[0] == '{' || v[0] == '[' })
}

func kindOf(v []byte) string {
	if len(v) == 0 {
		return ""
	}
	return action.TypeOf(v)
}

// pair is a member of one name in two objects.
type pair struct {
	name          string
	before, after json.RawMessage
}

// first are the members that a reader wants to see first.
var first = []string{"name", "title", "description", "inputSchema", "outputSchema", "annotations"}

// ordered are the members of two objects, the known ones first. With b nil they
// are those of a, as after.
func ordered(a, b []byte) []pair {
	var out []pair
	at := map[string]int{}
	for name, v := range action.Fields(a) {
		at[name] = len(out)
		p := pair{name: name, before: v}
		if b == nil {
			p = pair{name: name, after: v}
		}
		out = append(out, p)
	}
	for name, v := range action.Fields(b) {
		if i, both := at[name]; both {
			out[i].after = v
			continue
		}
		out = append(out, pair{name: name, after: v})
	}
	rank := func(name string) int {
		if i := slices.Index(first, name); i >= 0 {
			return i
		}
		return len(first)
	}
	slices.SortStableFunc(out, func(x, y pair) int {
		if d := rank(x.name) - rank(y.name); d != 0 {
			return d
		}
		return strings.Compare(x.name, y.name)
	})
	return out
}

// canonical is a value that was read before; nil stays nil.
func canonical(raw json.RawMessage) []byte {
	if raw == nil {
		return nil
	}
	c, err := action.Canonical(raw)
	if err != nil {
		return raw
	}
	return c
}

func list(items []string) []byte {
	var m members
	m.list("x", items)
	v, _ := action.Member(m.object(), "x")
	return v
}
