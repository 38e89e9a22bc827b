package policy

import (
	"fmt"
	"slices"
	"strings"
)

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
	if !ok || slices.ContainsFunc(tools, func(t string) bool { return e.pattern.covers(e.pattern.server, t) }) {
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
