package policy

import (
	"errors"
	"regexp"
	"strings"
)

// pattern is SERVER/TOOL, either part literal or with `*` for any run of
// characters. The first `/` parts the two, and no `*` crosses it. Names compare
// exactly: case matters, and there is no Unicode.
type pattern struct {
	text         string // as written
	server, tool string
	literals     int // characters that are not `*`
	line         int // in the file, where it matters
}

const maxToolName = 128

var (
	serverName    = regexp.MustCompile(`^[a-z0-9-]+$`)
	serverPattern = regexp.MustCompile(`^[a-z0-9*-]+$`)
	toolName      = regexp.MustCompile(`^[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*$`)
	toolPattern   = regexp.MustCompile(`^[A-Za-z0-9_.*-]+(/[A-Za-z0-9_.*-]+)*$`)
)

func validServer(s string) bool { return serverName.MatchString(s) }
func validTool(s string) bool   { return len(s) <= maxToolName && toolName.MatchString(s) }

func parsePattern(text string) (pattern, error) {
	server, tool, ok := strings.Cut(text, "/")
	switch {
	case !ok:
		return pattern{}, errors.New("a tool is written UPSTREAM/TOOL")
	case !serverPattern.MatchString(server):
		return pattern{}, errors.New("an upstream's name has lower-case letters, digits and - only")
	case !toolPattern.MatchString(tool) || len(tool) > maxToolName:
		return pattern{}, errors.New("a tool's name has up to 128 ASCII letters, digits and _ . - only, in parts between single slashes")
	case strings.Contains(text, "**"):
		return pattern{}, errors.New("** is not a pattern; one * is any run of characters")
	}
	return pattern{
		text: text, server: server, tool: tool,
		literals: len(server) + len(tool) - strings.Count(text, "*"),
	}, nil
}

func (p pattern) covers(server, tool string) bool {
	return p.coversServer(server) && matches(p.tool, tool)
}

func (p pattern) coversServer(server string) bool { return matches(p.server, server) }

// overlaps tells whether some name matches both patterns.
func (p pattern) overlaps(o pattern) bool {
	return meet(p.server, o.server) && meet(p.tool, o.tool)
}

// matches compares a name with a glob in which only `*` is special, in time
// proportional to their product at worst.
func matches(glob, name string) bool {
	g, n := 0, 0
	star, mark := -1, 0
	for n < len(name) {
		switch {
		case g < len(glob) && glob[g] == '*':
			star, mark = g, n
			g++
		case g < len(glob) && glob[g] == name[n]:
			g, n = g+1, n+1
		case star >= 0:
			mark++
			g, n = star+1, mark
		default:
			return false
		}
	}
	for g < len(glob) && glob[g] == '*' {
		g++
	}
	return g == len(glob)
}

// meet tells whether two globs have a name in common.
func meet(a, b string) bool {
	if a == b {
		return true
	}
	// Most differ before the first star.
	for i := 0; i < len(a) && i < len(b) && a[i] != '*' && b[i] != '*'; i++ {
		if a[i] != b[i] {
			return false
		}
	}
	if !strings.Contains(a, "*") {
		return matches(b, a)
	}
	if !strings.Contains(b, "*") {
		return matches(a, b)
	}
	// reach[j]: a[:i] and b[:j] can match the same text.
	reach := make([]bool, len(b)+1)
	reach[0] = true
	for j := 1; j <= len(b) && b[j-1] == '*'; j++ {
		reach[j] = true
	}
	for i := 1; i <= len(a); i++ {
		next := make([]bool, len(b)+1)
		star := a[i-1] == '*'
		next[0] = star && reach[0]
		for j := 1; j <= len(b); j++ {
			switch {
			case star && b[j-1] == '*':
				next[j] = reach[j] || next[j-1] || reach[j-1]
			case star:
				next[j] = reach[j] || next[j-1]
			case b[j-1] == '*':
				next[j] = next[j-1] || reach[j]
			default:
				next[j] = reach[j-1] && a[i-1] == b[j-1]
			}
		}
		reach = next
	}
	return reach[len(b)]
}
