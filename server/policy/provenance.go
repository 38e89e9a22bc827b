package policy

import (
	"slices"

	"go.yaml.in/yaml/v3"
)

// producible are the labels that a tool's results can have. What a tool returns
// is neither a person's word nor the operator's.
var producible = []string{"retrieved", "model"}

func (l *loader) provenance(n *yaml.Node, s *Set) {
	l.keys(n, "provenance", map[string]func(*yaml.Node){
		"trusted_labelers": func(n *yaml.Node) { s.trusted = l.list(n, "provenance.trusted_labelers") },
	})
}

// produces reads one label or a list of them.
func (l *loader) produces(n *yaml.Node) []string {
	const what = "a label that a tool produces"
	if n.Kind != yaml.SequenceNode {
		if word := l.oneOf(n, what, producible...); slices.Contains(producible, word) {
			return []string{word}
		}
		return nil
	}
	labels := l.list(n, "produces")
	if len(labels) == 0 {
		l.fail(n, "produces is %s, or a list of them", producible[0])
	}
	for i, label := range labels {
		if label != "" && !slices.Contains(producible, label) && i < len(n.Content) {
			l.oneOf(n.Content[i], what, producible...)
		}
	}
	return labels
}

// arrangeLabels warns of labels that nothing asks for.
func (s *Set) arrangeLabels() {
	if slices.ContainsFunc(s.rules, func(r rule) bool { return r.when != nil && r.when.labels }) {
		return
	}
	if s.UsesLabels() || len(s.trusted) > 0 {
		s.warns = append(s.warns, "no rule asks for labels(…), so produces and provenance change no decision")
	}
}

// UsesLabels tells whether it makes a difference to this policy where values come
// from: a rule asks for labels, or a tool produces some that later rules may ask
// for. Where it is false nobody has to know any.
func (s *Set) UsesLabels() bool {
	if s == nil {
		return false
	}
	return slices.ContainsFunc(s.rules, func(r rule) bool { return r.when != nil && r.when.labels }) ||
		slices.ContainsFunc(s.tools, func(e entry) bool { return len(e.gives) > 0 })
}

// TrustsLabels tells whether an actor is taken at its word on where the values of
// its calls come from.
func (s *Set) TrustsLabels(actor string) bool { return s != nil && slices.Contains(s.trusted, actor) }

// Produces are the labels of what a tool returns; nil when it has none.
func (s *Set) Produces(server, tool string) []string {
	if s == nil {
		return nil
	}
	if e, ok := s.find(server, tool); ok {
		return slices.Clone(e.gives)
	}
	return nil
}
