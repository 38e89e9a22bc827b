package policy

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// rule is one of the policy's rules: what it covers, when it fires, and what it
// says then.
type rule struct {
	id    string
	tools []pattern  // none: all listed tools
	when  *condition // nil: at every call that it covers
	fired Reason
	route string // of a review
	line  int
}

var ruleName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// covers tells whether the rule is judged for a listed tool.
func (r *rule) covers(server, tool string) bool {
	return len(r.tools) == 0 || slices.ContainsFunc(r.tools, func(p pattern) bool { return p.covers(server, tool) })
}

// bars tells whether the rule denies every call of a tool.
func (r *rule) bars(server, tool string) bool {
	if r.fired.Effect != Deny || r.when != nil {
		return false
	}
	for _, p := range r.tools {
		if p.covers(server, tool) {
			return true
		}
	}
	return r.tools == nil
}

// judge is what the rule says. What it can't judge it denies.
func (r *rule) judge(j *judgement) (Reason, Outcome) {
	if r.when == nil {
		return r.fired, Fired
	}
	holds, err := r.when.holds(j)
	switch {
	case err != nil:
		return Reason{ID: r.id, Text: "the rule " + r.id + " can't be judged: " + err.Error()}, Failed
	case holds:
		return r.fired, Fired
	}
	return Reason{}, NotFired
}

func (l *loader) rules(n *yaml.Node) []rule {
	if n.Kind != yaml.SequenceNode {
		l.fail(n, "rules is a list")
		return nil
	}
	if len(n.Content) > maxRules {
		l.fail(n, "a policy has at most %d rules", maxRules)
		return nil
	}
	var out []rule
	lines := map[string]int{}
	covers := 0
	for _, c := range n.Content {
		r := l.rule(c)
		if covers += len(r.tools); covers > maxCovers {
			l.fail(c, "the rules of a policy name at most %d tools", maxCovers)
			return nil
		}
		if first, twice := lines[r.id]; twice && r.id != "" {
			l.fail(c, "the rule %s stands twice, first on line %d", r.id, first)
		}
		lines[r.id] = c.Line
		out = append(out, r)
	}
	return out
}

func (l *loader) rule(n *yaml.Node) rule {
	r := rule{line: n.Line}
	what := "a rule"
	if id := field(n, "id"); id != nil && id.Kind == yaml.ScalarNode && id.Value != "" {
		r.id = id.Value
		what = "the rule " + r.id
	}
	var effect string
	l.keys(n, what, map[string]func(*yaml.Node){
		"id": func(n *yaml.Node) {
			if id := l.text(n, "id"); id != "" && (!ruleName.MatchString(id) || id == Unlisted) {
				l.fail(n, "%q can't be a rule's id; write up to 64 letters, digits and _ . -", id)
			}
		},
		"tools":  func(n *yaml.Node) { r.tools = l.patterns(n, what) },
		"effect": func(n *yaml.Node) { effect = l.oneOf(n, "effect", denyWord, "review") },
		"route":  func(n *yaml.Node) { r.route = l.text(n, "route") },
		"when":   func(n *yaml.Node) { r.when = l.when(n, what) },
		"reason": func(n *yaml.Node) { r.fired.Text = l.line(n, "reason") },
	})
	l.needs(n, what, "id", "effect", "reason")
	r.fired.ID = r.id
	switch {
	case effect == "review":
		r.fired.Effect = Review
		if r.route == "" {
			r.route = DefaultRoute
		}
	case r.route != "" && effect != "":
		l.fail(field(n, "route"), "%s denies, so it asks nobody and has no route", what)
	}
	return r
}

// needs refuses a mapping without one of the keys.
func (l *loader) needs(n *yaml.Node, what string, keys ...string) {
	for _, key := range keys {
		if n.Kind == yaml.MappingNode && field(n, key) == nil {
			l.fail(n, "%s has no %s", what, key)
		}
	}
}

// line is a text without line breaks.
func (l *loader) line(n *yaml.Node, what string) string {
	t := l.text(n, what)
	if strings.ContainsAny(t, "\n\t") {
		l.fail(n, "%s is one line", what)
	}
	return t
}

func (l *loader) patterns(n *yaml.Node, what string) []pattern {
	var out []pattern
	texts := l.list(n, "tools of "+what)
	if n.Kind == yaml.SequenceNode && len(texts) == 0 {
		l.fail(n, "the tools of %s are none; without the key it covers all listed tools", what)
	}
	for i, text := range texts {
		p, err := parsePattern(text)
		if err != nil && text != "" {
			l.fail(n.Content[i], "%s: %s", text, err)
			continue
		}
		p.line = n.Content[i].Line
		out = append(out, p)
	}
	return out
}

func (l *loader) when(n *yaml.Node, what string) *condition {
	text := l.text(n, "when")
	if text == "" {
		return nil
	}
	c, faults := compile(text)
	for _, f := range faults {
		at := &yaml.Node{Line: n.Line + f.line - 1}
		if n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
			at.Line++ // the text begins below the key
		}
		l.fail(at, "when of %s, character %d: %s", what, f.column, f.text)
	}
	return c
}

// arrangeRules checks each rule against the tools and the routes.
func (l *loader) arrangeRules(s *Set) {
	for i := range s.rules {
		r := &s.rules[i]
		if _, exists := s.routes[r.route]; r.fired.Effect == Review && !exists {
			l.fail(&yaml.Node{Line: r.line}, "the rule %s asks on the route %s, which does not exist; routes: %s",
				r.id, r.route, strings.Join(slices.Sorted(maps.Keys(s.routes)), ", "))
		}
	}
}
