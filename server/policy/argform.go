package policy

import (
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// argForm is a rule on an argument as it is written.
type argForm struct {
	required, sized      bool
	kind                 string
	size                 length
	least, most          *yaml.Node // min, max
	pattern              *regexp.Regexp
	oneOf, within, hosts *yaml.Node
	forText, forNumber   []string // keys that only a string, or only a number, can meet
}

// argRule reads the rule on one argument.
func (l *loader) argRule(name, n *yaml.Node) argRule {
	f := argForm{size: length{most: -1}}
	text := func(key string, read func(*yaml.Node)) func(*yaml.Node) {
		return func(n *yaml.Node) { f.forText = append(f.forText, key); read(n) }
	}
	number := func(key string, read func(*yaml.Node)) func(*yaml.Node) {
		return func(n *yaml.Node) { f.forNumber = append(f.forNumber, key); read(n) }
	}
	l.keys(n, "the rule of "+name.Value, map[string]func(*yaml.Node){
		"required": func(n *yaml.Node) { f.required = l.flag(n, "required") },
		"type":     func(n *yaml.Node) { f.kind = l.oneOf(n, "type", jsonTypes...) },
		"min_len":  text("min_len", func(n *yaml.Node) { f.size.least, f.sized = l.whole(n, "min_len", 0), true }),
		"max_len":  text("max_len", func(n *yaml.Node) { f.size.most, f.sized = l.whole(n, "max_len", 0), true }),
		"pattern":  text("pattern", func(n *yaml.Node) { f.pattern = l.regexp(n) }),
		"within":   text("within", func(n *yaml.Node) { f.within = n }),
		"hosts":    text("hosts", func(n *yaml.Node) { f.hosts = n }),
		"min":      number("min", func(n *yaml.Node) { f.least = n }),
		"max":      number("max", func(n *yaml.Node) { f.most = n }),
		"one_of":   func(n *yaml.Node) { f.oneOf = n },
	})
	switch {
	case len(f.forText) > 0 && len(f.forNumber) > 0:
		l.fail(n, "%s is for strings and %s for numbers, and %s can't be both", f.forText[0], f.forNumber[0], name.Value)
	case len(f.forText) > 0 && f.kind != "" && f.kind != "string":
		l.fail(n, "%s is for strings, and %s is of type %s", f.forText[0], name.Value, f.kind)
	case len(f.forNumber) > 0 && f.kind != "" && f.kind != "number" && f.kind != "integer":
		l.fail(n, "%s is for numbers, and %s is of type %s", f.forNumber[0], name.Value, f.kind)
	case f.size.most >= 0 && f.size.most < f.size.least:
		l.fail(n, "no string is at least %d and at most %d characters long", f.size.least, f.size.most)
	}
	return newArgRule(name, l.checks(n, f)...)
}

// checks stand in the order in which they say most: what is missing, then the
// type, then the value.
func (l *loader) checks(n *yaml.Node, f argForm) []check {
	var out []check
	if f.required {
		out = append(out, required{})
	}
	if f.kind != "" {
		out = append(out, typed{f.kind})
	}
	if f.sized {
		out = append(out, f.size)
	}
	if f.least != nil || f.most != nil {
		out = append(out, l.bounds(n, f.least, f.most))
	}
	if f.pattern != nil {
		out = append(out, matching{f.pattern})
	}
	if f.oneOf != nil {
		out = append(out, l.choice(f.oneOf, f.kind))
	}
	if f.within != nil {
		out = append(out, l.within(f.within))
	}
	if f.hosts != nil {
		out = append(out, l.hosts(f.hosts))
	}
	return out
}

func (l *loader) bounds(n, least, most *yaml.Node) bounds {
	var b bounds
	if least != nil {
		b.least = l.bound(least, "min")
	}
	if most != nil {
		b.most = l.bound(most, "max")
	}
	if b.least != nil && b.most != nil && b.least.compare(b.most.decimal) > 0 {
		l.fail(n, "no number is at least %s and at most %s", b.least.literal, b.most.literal)
	}
	return b
}

// bound reads a number as it is written: in JSON's form, whatever else YAML takes
// for one.
func (l *loader) bound(n *yaml.Node, what string) *bound {
	if !isNumber(n) {
		l.fail(n, "%s is a number such as 0.01", what)
		return nil
	}
	return &bound{decimal: newDecimal(n.Value), literal: n.Value}
}

// isNumber tells whether a scalar is written as a JSON number. YAML's own idea of
// one is not asked: it takes 1e400 for a string, and 0o17 for a number.
func isNumber(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.Style == 0 && numberForm.MatchString(n.Value)
}

func (l *loader) regexp(n *yaml.Node) *regexp.Regexp {
	text := l.text(n, "pattern")
	// By itself first: what closes a group too early must not end the whole.
	if _, err := regexp.Compile(text); err != nil {
		l.fail(n, "pattern: %s", strings.TrimPrefix(err.Error(), "error parsing regexp: "))
		return nil
	}
	whole, err := regexp.Compile(`\A(?:` + text + `)\z`)
	if err != nil { // at the limits of size
		l.fail(n, "pattern: %s", strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	}
	return whole
}

func (l *loader) choice(n *yaml.Node, kind string) choice {
	var c choice
	if n.Kind != yaml.SequenceNode || len(n.Content) == 0 {
		l.fail(n, "one_of is a list of the values that may be")
		return c
	}
	for _, item := range n.Content {
		o, ok := newOption(item)
		switch {
		case !ok:
			l.fail(item, "an item of one_of is a string, a number, true or false")
		case kind != "" && kind != o.kind && (kind != "integer" || o.kind != "number" || !o.number.integral()):
			l.fail(item, "%s is a %s, and the type is %s", item.Value, o.kind, kind)
		case slices.ContainsFunc(c.options, o.equal):
			l.fail(item, "%s stands twice in one_of", item.Value)
		}
		c.options = append(c.options, o)
	}
	return c
}

func newOption(n *yaml.Node) (option, bool) {
	switch {
	case n.Kind != yaml.ScalarNode:
		return option{}, false
	case isNumber(n):
		return option{kind: "number", number: newDecimal(n.Value)}, true
	case n.ShortTag() == "!!str":
		return option{kind: "string", text: n.Value}, true
	case n.ShortTag() == "!!bool" && (n.Value == "true" || n.Value == "false"):
		return option{kind: "boolean", text: n.Value}, true
	}
	return option{}, false
}

// texts reads one string or a list of them, and what each line says.
func (l *loader) texts(n *yaml.Node, what string, each func(text string) (wrong string)) []string {
	texts, nodes := []string{n.Value}, []*yaml.Node{n}
	switch {
	case n.Kind != yaml.SequenceNode:
		l.text(n, what)
	case len(n.Content) == 0:
		l.fail(n, "%s is empty", what)
		return nil
	default:
		texts, nodes = l.list(n, what), n.Content
	}
	for i, text := range texts {
		if text == "" {
			continue // said already
		}
		if wrong := each(text); wrong != "" {
			l.fail(nodes[i], "%s: %q %s", what, text, wrong)
		}
	}
	return texts
}

func (l *loader) within(n *yaml.Node) inside {
	return inside{l.texts(n, "within", badPath)}
}

func (l *loader) hosts(n *yaml.Node) onHosts {
	var h onHosts
	l.texts(n, "hosts", func(text string) string {
		may, ok := newHost(text)
		if !ok {
			return "is not a host such as api.acme.test, *.acme.test or api.acme.test:8443"
		}
		h.allowed = append(h.allowed, may)
		return ""
	})
	return h
}
