package policy

import (
	"fmt"
	"slices"
	"strings"
)

// Unmatched lists the entries for exactly this upstream that are for none of its
// tools, as they are written: a slip of the pen, or a tool that is gone. Entries
// for several upstreams are left out, and so are those that deny: what isn't there
// may be denied in advance.
func (s *Set) Unmatched(server string, tools []string) []string {
	var out []string
	for _, e := range s.tools {
		if e.pattern.server == server && !e.coversAny(tools) {
			out = append(out, e.pattern.text)
		}
	}
	slices.Sort(out)
	return out
}

// Against compares the table of tools with the tools that upstreams are known to
// have, by upstream: which tools no entry lists, and which entries list none. Of
// upstreams that are not among them it says nothing. Call it after Bind.
func (s *Set) Against(known map[string][]string) []string {
	var out []string
	for _, e := range s.tools {
		if said := e.listsNone(known); said != "" {
			out = append(out, said)
		}
	}
	for server, tools := range known {
		for _, tool := range tools {
			if !s.lists(server, tool) {
				out = append(out, fmt.Sprintf("%s/%s is pinned and no entry lists it: denied and not shown", server, tool))
			}
		}
	}
	slices.Sort(out)
	return out
}

// listsNone says that an entry lists none of the known tools. It is silent as long
// as an upstream that it could mean is not known.
func (e *entry) listsNone(known map[string][]string) string {
	if strings.Contains(e.pattern.server, "*") {
		return ""
	}
	tools, ok := known[e.pattern.server]
	if !ok || e.coversAny(tools) {
		return ""
	}
	if strings.Contains(e.pattern.tool, "*") {
		return fmt.Sprintf("line %d: %s covers no pinned tool", e.line, e.pattern.text)
	}
	return fmt.Sprintf("line %d: %s is not pinned", e.line, e.pattern.text)
}

// lists tells whether any entry is about a tool, also one that denies it.
func (s *Set) lists(server, tool string) bool {
	if !validTool(tool) {
		return false // no entry can name it
	}
	about := func(e entry) bool { return e.pattern.covers(server, tool) }
	return slices.ContainsFunc(s.tools, about) || slices.ContainsFunc(s.denied, about)
}

// coversAny tells whether an entry for one upstream is for any of its tools.
func (e *entry) coversAny(tools []string) bool {
	return slices.ContainsFunc(tools, func(t string) bool { return e.pattern.covers(e.pattern.server, t) })
}

// CanList tells whether a policy can list the tool at all: both names have the
// characters that patterns are made of.
func CanList(server, tool string) bool { return validServer(server) && validTool(tool) }
