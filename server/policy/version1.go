package policy

import (
	"fmt"
	"maps"
	"slices"

	"cel.dev/cel-go/common/types"
	"go.yaml.in/yaml/v3"
)

// version1 reads the first form: two lists of names and rules on string
// arguments. Listed under allow and not under deny is allowed; all else is
// denied. An argument with a rule must be there and be a string.
func (l *loader) version1(root *yaml.Node) *Set {
	s := &Set{version: 1}
	rules := map[string][]argRule{}
	lines := map[string]int{} // of the tools under arg_rules
	name := func(n *yaml.Node, text string) pattern {
		if !validTool(text) {
			l.fail(n, "%q is not a tool's name", text)
		}
		return pattern{text: text, tool: text, literals: len(text)}
	}
	entries := func(n *yaml.Node, what string, deny bool) []entry {
		if n.Kind != yaml.SequenceNode {
			l.fail(n, "%s is a list", what)
			return nil
		}
		var out []entry
		for _, c := range n.Content {
			if text := l.text(c, "an item of "+what); text != "" {
				out = append(out, entry{pattern: name(c, text), deny: deny, line: c.Line})
			}
		}
		return out
	}
	l.keys(root, "a policy of version 1", map[string]func(*yaml.Node){
		"version": func(*yaml.Node) {},
		"allow":   func(n *yaml.Node) { s.tools = entries(n, "allow", false) },
		"deny":    func(n *yaml.Node) { s.denied = entries(n, "deny", true) },
		"arg_rules": func(n *yaml.Node) {
			l.mapping(n, "arg_rules", func(k, v *yaml.Node) {
				name(k, k.Value)
				lines[k.Value] = k.Line
				l.mapping(v, "the rules of "+k.Value, func(arg, bounds *yaml.Node) {
					rules[k.Value] = append(rules[k.Value], newArgRule(arg, l.bounds1(bounds, arg.Value)))
				})
			})
		},
	})
	for i := range s.tools {
		s.tools[i].args = rules[s.tools[i].pattern.text]
		s.tools[i].said, s.tools[i].seen = s.said(s.tools[i]), types.String("")
		delete(lines, s.tools[i].pattern.text)
	}
	for i := range s.denied {
		s.denied[i].said = s.said(s.denied[i])
	}
	listed := map[string]bool{}
	for _, e := range s.tools {
		tool := e.pattern.text
		if i := slices.IndexFunc(s.denied, func(d entry) bool { return d.pattern.text == tool }); i >= 0 {
			s.warns = append(s.warns, fmt.Sprintf("line %d: %s is never reached, since deny lists it too (line %d)", e.line, tool, s.denied[i].line))
		} else if listed[tool] {
			s.warns = append(s.warns, fmt.Sprintf("line %d: %s stands twice in allow", e.line, tool))
		}
		listed[tool] = true
	}
	for _, tool := range slices.Sorted(maps.Keys(lines)) {
		s.warns = append(s.warns, fmt.Sprintf("line %d: arg_rules of %s have no effect, since allow does not list it", lines[tool], tool))
	}
	return s
}

func (l *loader) bounds1(n *yaml.Node, arg string) length {
	c := length{most: -1, strict: true}
	l.keys(n, "the rule of "+arg, map[string]func(*yaml.Node){
		"min_len": func(n *yaml.Node) { c.least = l.whole(n, "min_len", 0) },
		"max_len": func(n *yaml.Node) { c.most = l.whole(n, "max_len", 0) },
	})
	if c.most >= 0 && c.most < c.least {
		l.fail(n, "no string is at least %d and at most %d characters long", c.least, c.most)
	}
	return c
}
