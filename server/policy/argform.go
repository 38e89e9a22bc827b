package policy

import (
	"bytes"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/countersign-mcp/countersign/approvals/action"
)

// argForm is a rule on an argument, or on the items of one, as it is written.
type argForm struct {
	name                 string // for messages
	required, sized      bool
	kind                 string
	size                 length
	least, most          *yaml.Node // min, max
	pattern              *form
	oneOf, within, hosts *yaml.Node
	list                 items
	forText              []string // keys that only a string can meet
	forNumber            []string // only a number
	forList              []string // only an array
}

// argRule reads the rule on one argument.
func (l *loader) argRule(name, n *yaml.Node) argRule {
	l.argument(name)
	f := argForm{name: name.Value}
	r := newArgRule(name, l.argForm(n, &f, "the rule of "+f.name)...)
	switch r.kind = f.kind; {
	case r.kind != "":
	case len(f.forText) > 0:
		r.kind = "string"
	case len(f.forNumber) > 0:
		r.kind = "number"
	case len(f.forList) > 0:
		r.kind = "array"
	}
	return r
}

// argument refuses a name that no call can have.
func (l *loader) argument(name *yaml.Node) {
	var call bytes.Buffer
	call.WriteByte('{')
	quote(&call, name.Value)
	call.WriteString(":0}")
	if err := action.Check(call.Bytes(), action.Limits{}); err != nil {
		l.fail(name, "no call can have an argument called %q", name.Value)
	}
}

func (l *loader) argForm(n *yaml.Node, f *argForm, what string) []check {
	f.size.most, f.list.most = -1, -1
	in := func(keys *[]string, key string, read func(*yaml.Node)) func(*yaml.Node) {
		return func(n *yaml.Node) { *keys = append(*keys, key); read(n) }
	}
	text, number, list := &f.forText, &f.forNumber, &f.forList
	l.keys(n, what, map[string]func(*yaml.Node){
		"required":  func(n *yaml.Node) { f.required = l.flag(n, "required") },
		"type":      func(n *yaml.Node) { f.kind = l.oneOf(n, "type", jsonTypes...) },
		"min_len":   in(text, "min_len", func(n *yaml.Node) { f.size.least, f.sized = l.whole(n, "min_len", 0), true }),
		"max_len":   in(text, "max_len", func(n *yaml.Node) { f.size.most, f.sized = l.whole(n, "max_len", 0), true }),
		"pattern":   in(text, "pattern", func(n *yaml.Node) { f.pattern = l.regexp(n) }),
		"within":    in(text, "within", func(n *yaml.Node) { f.within = n }),
		"hosts":     in(text, "hosts", func(n *yaml.Node) { f.hosts = n }),
		"min":       in(number, "min", func(n *yaml.Node) { f.least = n }),
		"max":       in(number, "max", func(n *yaml.Node) { f.most = n }),
		"min_items": in(list, "min_items", func(n *yaml.Node) { f.list.least = l.whole(n, "min_items", 0) }),
		"max_items": in(list, "max_items", func(n *yaml.Node) { f.list.most = l.whole(n, "max_items", 0) }),
		"items":     in(list, "items", func(n *yaml.Node) { f.list.each = l.items(n, f.name) }),
		"one_of":    func(n *yaml.Node) { f.oneOf = n },
	})
	l.agree(n, f)
	return l.checks(n, f)
}

// items reads the rule on every item of an array.
func (l *loader) items(n *yaml.Node, name string) []check {
	f := argForm{name: "an item of " + name}
	each := l.argForm(n, &f, "the rule of the items of "+name)
	switch {
	case f.required:
		l.fail(n, "an item of %s is always there; write its type instead of required", name)
	case n.Kind == yaml.MappingNode && len(n.Content) == 0:
		l.fail(n, "the rule of the items of %s says nothing", name)
	}
	return each
}

// agree refuses keys that no value can meet together.
func (l *loader) agree(n *yaml.Node, f *argForm) {
	type group struct {
		keys  []string
		what  string
		kinds []string
	}
	groups := []group{{f.forText, "strings", []string{"string"}}, {f.forNumber, "numbers", []string{"number", "integer"}}, {f.forList, "arrays", []string{"array"}}}
	groups = slices.DeleteFunc(groups, func(g group) bool { return len(g.keys) == 0 })
	switch {
	case len(groups) > 1:
		l.fail(n, "%s is for %s and %s for %s, and %s can't be both", groups[0].keys[0], groups[0].what, groups[1].keys[0], groups[1].what, f.name)
	case len(groups) == 1 && f.kind != "" && !slices.Contains(groups[0].kinds, f.kind):
		l.fail(n, "%s is for %s, and %s is of type %s", groups[0].keys[0], groups[0].what, f.name, f.kind)
	case len(f.forList) > 0 && f.oneOf != nil:
		l.fail(n, "%s is for arrays, and one_of has none; a rule on each item stands under items", f.forList[0])
	case f.size.most >= 0 && f.size.most < f.size.least:
		l.fail(n, "no string is at least %d and at most %d characters long", f.size.least, f.size.most)
	case f.list.most >= 0 && f.list.most < f.list.least:
		l.fail(n, "no array has at least %d and at most %d items", f.list.least, f.list.most)
	}
}

// checks stand in the order in which they say most: what is missing, then the
// type, then the value.
func (l *loader) checks(n *yaml.Node, f *argForm) []check {
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
		out = append(out, matching{*f.pattern})
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
	if len(f.forList) > 0 {
		out = append(out, f.list)
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

func (l *loader) regexp(n *yaml.Node) *form {
	f, wrong := newForm(l.text(n, "pattern"), true)
	if wrong != "" {
		l.fail(n, "pattern: %s", wrong)
		return nil
	}
	return &f
}

func (l *loader) choice(n *yaml.Node, kind string) choice {
	c := choice{options: map[option]bool{}}
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
		case c.options[o]:
			l.fail(item, "%s stands twice in one_of", item.Value)
		}
		c.options[o] = true
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
