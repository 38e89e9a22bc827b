package schema

import (
	"net/url"
	"strconv"
	"strings"
)

// Bounds of what is compiled. A schema beyond them is one whole gap.
const (
	maxBytes    = 512 << 10
	maxValues   = 20_000
	maxDepth    = 64
	maxPatterns = 256
	maxPattern  = 1000     // bytes of one
	maxPatBytes = 16 << 10 // of all
)

// Schema is a compiled schema. It does not change, and may be used by many
// goroutines.
type Schema struct{ root *node }

// node is one schema of a document.
type node struct {
	never bool // the schema is false
	gaps  []gap
	ref   *node

	types kind       // 0: any
	whole bool       // of the numbers, whole ones alone
	null  bool       // "nullable": where it is understood, null is taken too
	enums [][][]byte // the value has to be in each of them: an enum, a const

	min, max, over, under, step *decimal

	minLen, maxLen *int
	pattern        *pattern

	prefix                   []*node
	items                    *node
	contains                 *node
	minContains, maxContains *int
	minItems, maxItems       *int
	unique                   bool

	props              map[string]*node
	patterns           []patterned
	lost               bool // there is a pattern of names that can't be judged
	more, names        *node
	required           []string
	filled             map[string]bool // of those required, what some servers fill in by default
	needs              []dependency
	minProps, maxProps *int

	all, any, one              []*node
	not, cond, then, otherwise *node
}

// gap is a keyword that can't be judged, and the kinds of value it speaks of.
type gap struct {
	keyword string
	of      kind
}

type patterned struct {
	pattern *pattern
	node    *node
}

// dependency holds where an object has a member of the name.
type dependency struct {
	name     string
	required []string
	node     *node // or nil
}

// draft is a version of JSON Schema.
type draft int

const (
	draft6 draft = iota
	draft7
	draft2019
	draft2020
)

var drafts = map[string]draft{
	"json-schema.org/draft-06/schema":      draft6,
	"json-schema.org/draft-07/schema":      draft7,
	"json-schema.org/draft/2019-09/schema": draft2019,
	"json-schema.org/draft/2020-12/schema": draft2020,
}

type compiler struct {
	doc      value
	draft    draft
	nodes    map[*value]*node // by place in the document
	refs     []reference
	patterns int
	expr     int // bytes of the patterns so far
}

type reference struct {
	from *node
	to   string
}

// Compile reads a schema. It never fails: what it can't read is a gap. An absent
// schema (nil) takes everything.
func Compile(raw []byte) *Schema {
	if len(raw) == 0 {
		return &Schema{root: &node{}}
	}
	unreadable := &Schema{root: &node{gaps: []gap{{"inputSchema", anything}}}}
	if len(raw) > maxBytes {
		return unreadable
	}
	doc, err := decode(raw, maxValues, maxDepth)
	if err != nil || doc.kind != object && doc.kind != boolean {
		return unreadable
	}
	c := &compiler{doc: doc, draft: draft2020, nodes: map[*value]*node{}}
	if named := doc.member("$schema"); named != nil {
		_, place, _ := strings.Cut(named.text, "://")
		known := false
		if c.draft, known = drafts[strings.TrimSuffix(place, "#")]; !known || named.kind != text {
			return &Schema{root: &node{gaps: []gap{{"$schema", anything}}}}
		}
	}
	root := c.node(&c.doc, false)
	for len(c.refs) > 0 {
		r := c.refs[0]
		c.refs = c.refs[1:]
		if r.from.ref = c.target(r.to); r.from.ref == nil {
			r.from.gaps = append(r.from.gaps, gap{"$ref", anything})
		}
	}
	return &Schema{root: root}
}

// node compiles the schema at a place, once. apart tells that it lies within a
// schema with an identity of its own, where references mean other places.
func (c *compiler) node(v *value, apart bool) *node {
	if n := c.nodes[v]; n != nil {
		return n
	}
	n := &node{}
	c.nodes[v] = n
	switch v.kind {
	case boolean:
		n.never = !v.truth()
		return n
	case object:
	default:
		n.gaps = []gap{{"schema", anything}}
		return n
	}
	apart = apart || v != &c.doc && v.member("$id") != nil
	p := &place{c: c, n: n, v: v, apart: apart}
	if ref := v.member("$ref"); ref != nil && c.draft <= draft7 { // then nothing else there has a meaning
		p.ref(ref)
		return n
	}
	for i, name := range v.names {
		if k, known := keywords[name]; known && c.draft >= k.since && (k.until == 0 || c.draft <= k.until) {
			if !k.read(p, &v.kids[i]) {
				n.gaps = append(n.gaps, gap{name, k.of})
			}
		}
	}
	p.fill()
	return n
}

// place is a schema that is being compiled.
type place struct {
	c     *compiler
	n     *node
	v     *value
	apart bool
}

// sub compiles a schema within this one.
func (p *place) sub(v *value) *node { return p.c.node(v, p.apart) }

// subs compiles a list of schemas.
func (p *place) subs(v *value) ([]*node, bool) {
	if v.kind != array {
		return nil, false
	}
	out := make([]*node, len(v.kids))
	for i := range v.kids {
		out[i] = p.sub(&v.kids[i])
	}
	return out, true
}

// ref notes a reference; it is followed when all else is read.
func (p *place) ref(v *value) bool {
	place, inside := strings.CutPrefix(v.text, "#")
	pointer, err := url.PathUnescape(place)
	if v.kind != text || !inside || p.apart || err != nil || pointer != "" && pointer[0] != '/' {
		p.n.gaps = append(p.n.gaps, gap{"$ref", anything})
		return true
	}
	p.c.refs = append(p.c.refs, reference{p.n, pointer})
	return true
}

// target is the schema that a pointer leads to; nil when there is none, or when the
// way leads into a schema with an identity of its own.
func (c *compiler) target(pointer string) *node {
	v := &c.doc
	for _, step := range strings.Split(pointer, "/")[1:] {
		step = strings.ReplaceAll(strings.ReplaceAll(step, "~1", "/"), "~0", "~")
		switch v.kind {
		case object:
			v = v.member(step)
		case array:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(v.kids) || strconv.Itoa(i) != step {
				return nil
			}
			v = &v.kids[i]
		default:
			return nil
		}
		if v == nil || v.member("$id") != nil {
			return nil
		}
	}
	return c.node(v, false)
}

func escape(name string) string {
	return strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1")
}
