package policy

import (
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/countersign-mcp/countersign/approvals"
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
		"version":   func(*yaml.Node) {},
		"policy_id": func(n *yaml.Node) { s.id = l.text(n, "policy_id") },
		"tiers":     func(n *yaml.Node) { l.tiers(n, s.tiers) },
		"tools":     func(n *yaml.Node) { tools = l.tools(n) },
		"routes":    func(n *yaml.Node) { l.routes(n, routes) },
		"roles":     func(n *yaml.Node) { l.roles(n, s.roles) },
		"redact": func(n *yaml.Node) {
			l.keys(n, "redact", map[string]func(*yaml.Node){
				"keys": func(n *yaml.Node) { s.keys = l.list(n, "redact.keys") },
			})
		},
	}, "rules", "limits", "cases", "methods", "observe", "provenance", "servers")
	s.warns = routes.warns
	l.arrange(s, tools)
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
var laterTool = []string{"ask_reason", "produces", "facts", "verify", "undo", "idempotency"}

func (l *loader) tools(n *yaml.Node) []toolEntry {
	var out []toolEntry
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
		"tier":  func(n *yaml.Node) { l.tier(n, &e.entry) },
		"route": func(n *yaml.Node) { e.route = l.text(n, "route") },
		"title": func(n *yaml.Node) { e.title = l.title(n) },
		"mask":  func(n *yaml.Node) { e.mask = l.pointers(n) },
		"args": func(n *yaml.Node) {
			l.mapping(n, "args of "+what, func(k, v *yaml.Node) {
				e.args = append(e.args, l.argRule(k.Value, v))
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

// laterArg are rules on an argument that other releases read.
var laterArg = []string{"min", "max", "pattern", "one_of", "within", "hosts"}

func (l *loader) argRule(name string, n *yaml.Node) argRule {
	var must bool
	var kind string
	size := length{most: -1}
	sized := false
	l.keys(n, "the rule of "+name, map[string]func(*yaml.Node){
		"required": func(n *yaml.Node) { must = l.flag(n, "required") },
		"type":     func(n *yaml.Node) { kind = l.oneOf(n, "type", types...) },
		"min_len":  func(n *yaml.Node) { size.least, sized = l.whole(n, "min_len", 0), true },
		"max_len":  func(n *yaml.Node) { size.most, sized = l.whole(n, "max_len", 0), true },
	}, laterArg...)
	switch {
	case sized && kind != "" && kind != "string":
		l.fail(n, "min_len and max_len are for strings, and %s is of type %s", name, kind)
	case size.most >= 0 && size.most < size.least:
		l.fail(n, "no string is at least %d and at most %d characters long", size.least, size.most)
	}
	var checks []check
	if must {
		checks = append(checks, required{})
	}
	if kind != "" {
		checks = append(checks, typed{kind})
	}
	if sized {
		checks = append(checks, size)
	}
	return newArgRule(name, checks...)
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
		bare := strings.NewReplacer("~0", "", "~1", "").Replace(p)
		if !strings.HasPrefix(p, "/") || strings.Contains(bare, "~") {
			l.fail(n.Content[i], "%q is not a JSON pointer such as /card/number", p)
		}
	}
	return out
}

// arrange sorts the entries into those that deny and the rest by weight, and
// refuses what can't be decided: a tie that can match one name, a route that
// isn't there.
func (l *loader) arrange(s *Set, tools []toolEntry) {
	slices.SortStableFunc(tools, func(a, b toolEntry) int { return b.pattern.literals - a.pattern.literals })
	for i, e := range tools {
		if e.deny {
			s.denied = append(s.denied, e.entry)
			continue
		}
		for _, o := range tools[:i] {
			if !o.deny && o.pattern.literals == e.pattern.literals && o.pattern.overlaps(e.pattern) {
				l.fail(e.node, "%s and %s (line %d) can match one tool and weigh the same; make one longer",
					e.pattern.text, o.pattern.text, o.line)
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
