package policy

import (
	"maps"
	"slices"
	"strings"

	"cel.dev/cel-go/common/types"
	"go.yaml.in/yaml/v3"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/action"
)

// Bounds of a policy. Loading one compares its patterns with each other.
const (
	maxPatterns = 1000 // tools with a *
	maxTools    = 5000
	maxRules    = 1000
	maxCovers   = 1000 // patterns of all rules together
)

// denyWord stands in the table of tools where a tier would.
const denyWord = "deny"

func (l *loader) version2(root *yaml.Node) *Set {
	s := &Set{
		version: 2,
		tiers:   map[string]Effect{"read": Allow, "write": Allow, "destructive": Review},
		routes:  map[string]approvals.Route{},
		roles:   map[string][]string{},
	}
	routes := &routeTable{byName: s.routes}
	var tools []toolEntry
	l.keys(root, "a policy of version 2", map[string]func(*yaml.Node){
		"version":    func(*yaml.Node) {},
		"policy_id":  func(n *yaml.Node) { s.id = l.text(n, "policy_id") },
		"tiers":      func(n *yaml.Node) { l.tiers(n, s.tiers) },
		"tools":      func(n *yaml.Node) { tools = l.tools(n) },
		"routes":     func(n *yaml.Node) { l.routes(n, routes) },
		"roles":      func(n *yaml.Node) { l.roles(n, s.roles) },
		"rules":      func(n *yaml.Node) { s.rules = l.rules(n) },
		"limits":     func(n *yaml.Node) { l.limits(n, s) },
		"cases":      func(n *yaml.Node) { s.cases = l.cases(n) },
		"observe":    func(n *yaml.Node) { s.observed = l.observe(n) },
		"provenance": func(n *yaml.Node) { l.provenance(n, s) },
		"redact": func(n *yaml.Node) {
			l.keys(n, "redact", map[string]func(*yaml.Node){
				"keys": func(n *yaml.Node) { s.keys = l.list(n, "redact.keys") },
			})
		},
	}, "methods", "servers")
	s.warns = routes.warns
	l.arrange(s, tools)
	l.arrangeRules(s)
	if len(l.problems) == 0 {
		s.warn()
	}
	s.arrangeLimits()
	s.arrangeLabels()
	return s
}

func (l *loader) tiers(n *yaml.Node, into map[string]Effect) {
	l.mapping(n, "tiers", func(k, v *yaml.Node) {
		if _, known := into[k.Value]; !known {
			l.fail(k, "%s is not a tier; the tiers are read, write and destructive", k.Value)
			return
		}
		switch l.oneOf(v, "the effect of "+k.Value, "allow", "review", denyWord) {
		case "allow":
			into[k.Value] = Allow
		case "review":
			into[k.Value] = Review
		default:
			into[k.Value] = Deny
		}
	})
}

func (l *loader) roles(n *yaml.Node, into map[string][]string) {
	l.mapping(n, "roles", func(k, v *yaml.Node) {
		into[k.Value] = l.list(v, "the role "+k.Value)
	})
}

// toolEntry is an entry with the nodes that messages point to.
type toolEntry struct {
	entry
	node *yaml.Node // the pattern
}

// laterTool are keys of a tool that other releases read.
var laterTool = []string{"ask_reason", "facts", "verify", "undo", "idempotency"}

func (l *loader) tools(n *yaml.Node) []toolEntry {
	var out []toolEntry
	if len(n.Content) > 2*maxTools {
		l.fail(n, "a policy has at most %d tools", maxTools)
		return nil
	}
	l.mapping(n, "tools", func(k, v *yaml.Node) {
		p, err := parsePattern(k.Value)
		if err != nil {
			l.fail(k, "%s: %s", k.Value, err)
			return
		}
		e := toolEntry{node: k, entry: entry{pattern: p, line: k.Line, route: DefaultRoute}}
		switch v.Kind {
		case yaml.ScalarNode:
			l.tier(v, &e.entry)
		case yaml.MappingNode:
			l.tool(v, &e)
		default:
			l.fail(v, "%s is a tier, deny, or a mapping with a tier", k.Value)
		}
		out = append(out, e)
	})
	return out
}

func (l *loader) tool(n *yaml.Node, e *toolEntry) {
	what := e.pattern.text
	l.keys(n, what, map[string]func(*yaml.Node){
		"tier":     func(n *yaml.Node) { l.tier(n, &e.entry) },
		"route":    func(n *yaml.Node) { e.route = l.text(n, "route") },
		"title":    func(n *yaml.Node) { e.title = l.title(n) },
		"mask":     func(n *yaml.Node) { e.mask = l.pointers(n) },
		"produces": func(n *yaml.Node) { e.gives = l.produces(n) },
		"args": func(n *yaml.Node) {
			l.mapping(n, "args of "+what, func(k, v *yaml.Node) {
				e.args = append(e.args, l.argRule(k, v))
			})
		},
	}, laterTool...)
	switch {
	case e.deny && len(n.Content) > 2:
		l.fail(e.node, "%s is denied, so nothing else of it has a meaning", what)
	case e.tier == "" && !e.deny:
		l.fail(e.node, "%s has no tier", what)
	}
}

func (l *loader) tier(n *yaml.Node, e *entry) {
	switch word := l.oneOf(n, "a tier", "read", "write", "destructive", denyWord); word {
	case denyWord:
		e.deny = true
	default:
		e.tier = word
	}
}

// title checks a template: text with {field}, on one line.
func (l *loader) title(n *yaml.Node) string {
	t := l.text(n, "title")
	if strings.ContainsAny(t, "\n\t") {
		l.fail(n, "a title is one line")
	}
	for rest := t; rest != ""; {
		i := strings.IndexAny(rest, "{}")
		if i < 0 {
			break
		}
		end := strings.IndexAny(rest[i+1:], "{}")
		if rest[i] == '}' || end < 1 || rest[i+1+end] != '}' {
			l.fail(n, "a field in a title is written {name}")
			break
		}
		rest = rest[i+end+2:]
	}
	return t
}

func (l *loader) pointers(n *yaml.Node) []string {
	out := l.list(n, "mask")
	for i, p := range out {
		if p != "" && !action.IsPointer(p) {
			l.fail(n.Content[i], "%q is not a JSON pointer such as /card/number", p)
		}
	}
	return out
}

// arrange sorts the entries into those that deny and the rest by weight, and
// refuses what can't be decided: a tie that can match one name, a route that
// isn't there.
func (l *loader) arrange(s *Set, tools []toolEntry) {
	stars := 0
	for _, e := range tools {
		if stars += min(strings.Count(e.pattern.text, "*"), 1); stars > maxPatterns {
			l.fail(e.node, "a policy has at most %d tools with a *", maxPatterns)
			return
		}
	}
	slices.SortStableFunc(tools, func(a, b toolEntry) int { return b.pattern.literals - a.pattern.literals })
	for i, e := range tools {
		e.said, e.seen = s.said(e.entry), types.String(e.tier)
		if e.deny {
			s.denied = append(s.denied, e.entry)
			continue
		}
		for _, o := range slices.Backward(tools[:i]) {
			if o.pattern.literals != e.pattern.literals {
				break
			}
			if !o.deny && o.pattern.overlaps(e.pattern) {
				l.fail(e.node, "%s and %s (line %d) can match one tool and weigh the same; make one longer",
					e.pattern.text, o.pattern.text, o.line)
				break
			}
		}
		s.tools = append(s.tools, e.entry)
		_, exists := s.routes[e.route]
		// Without a route of its own an allowed tool never asks anybody.
		if needed := s.tiers[e.tier] == Review || e.route != DefaultRoute; needed && !exists {
			l.fail(e.node, "%s asks on the route %s, which does not exist; routes: %s",
				e.pattern.text, e.route, strings.Join(slices.Sorted(maps.Keys(s.routes)), ", "))
		}
	}
}
