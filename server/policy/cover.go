package policy

import "slices"

// Unmatched lists the entries for exactly this upstream that are for none of its
// tools, as they are written: a slip of the pen, or a tool that is gone. Entries
// for several upstreams are left out, and so are those that deny: what isn't there
// may be denied in advance.
func (s *Set) Unmatched(server string, tools []string) []string {
	var out []string
	for _, e := range s.tools {
		if e.pattern.server == server && !slices.ContainsFunc(tools, func(t string) bool { return e.pattern.covers(server, t) }) {
			out = append(out, e.pattern.text)
		}
	}
	slices.Sort(out)
	return out
}

// CanList tells whether a policy can list the tool at all: both names have the
// characters that patterns are made of.
func CanList(server, tool string) bool { return validServer(server) && validTool(tool) }
