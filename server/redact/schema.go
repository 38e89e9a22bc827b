package redact

import (
	"encoding/json"
	"slices"
	"strconv"

	"github.com/countersign-mcp/countersign/approvals/action"
)

const (
	schemaBytes = 1 << 20
	schemaDepth = 64
	schemaWide  = 64 // schemas that may hold for one place
)

// schema is the part of a JSON schema that says which members exist. What it can't
// say in these words it doesn't declare: no reference leaves the document, and
// additionalProperties names nothing.
type schema struct {
	never      bool // the schema is false
	ref        string
	same       []*schema // allOf, anyOf, oneOf
	properties map[string]*schema
	patterns   []pattern
	prefix     []*schema
	items      *schema
}

type pattern struct {
	re *expr
	at *schema
}

// document is a tool's input schema.
type document struct {
	root    *schema
	defs    map[string]*schema // by reference: "#/$defs/Card"
	regexes int
	runs    int // of them
}

// readSchema returns a document that declares nothing where there is no schema that
// can be read.
func readSchema(raw json.RawMessage) *document {
	d := &document{defs: map[string]*schema{}}
	if len(raw) == 0 || action.Check(raw, action.Limits{Bytes: schemaBytes, Depth: schemaDepth}) != nil {
		return d
	}
	raw = trim(raw)
	d.root = d.read(raw)
	for _, home := range []string{"$defs", "definitions"} {
		defs, _ := action.Member(raw, home)
		for name, v := range action.Fields(defs) {
			d.defs["#/"+home+"/"+action.EscapePointer(name)] = d.read(v)
		}
	}
	return d
}

func (d *document) read(raw json.RawMessage) *schema {
	s := &schema{never: string(trim(raw)) == "false"}
	for name, v := range action.Fields(raw) {
		switch name {
		case "$ref":
			s.ref, _ = action.Text(v)
		case "allOf", "anyOf", "oneOf":
			s.same = append(s.same, d.list(v)...)
		case "properties":
			s.properties = map[string]*schema{}
			for member, v := range action.Fields(v) {
				s.properties[member] = d.read(v)
			}
		case "patternProperties":
			for text, v := range action.Fields(v) {
				if d.regexes++; d.regexes > schemaRegex {
					break
				}
				if re := readExpr(text); re != nil {
					s.patterns = append(s.patterns, pattern{re, d.read(v)})
				}
			}
		case "prefixItems":
			s.prefix = d.list(v)
		case "items":
			if v = trim(v); v[0] == '[' { // as drafts before 2020 wrote prefixItems
				s.prefix = d.list(v)
			} else {
				s.items = d.read(v)
			}
		}
	}
	return s
}

func (d *document) list(raw json.RawMessage) []*schema {
	var out []*schema
	for v := range action.Items(raw) {
		out = append(out, d.read(v))
	}
	return out
}

// start is what holds for the arguments themselves.
func (d *document) start() []*schema { return d.spread(nil, d.root) }

// spread adds a schema and those that hold where it does. A circle of references
// ends at what is there already.
func (d *document) spread(set []*schema, s *schema) []*schema {
	if s == nil || s.never || len(set) >= schemaWide || slices.Contains(set, s) {
		return set
	}
	set = append(set, s)
	if s.ref != "" {
		set = d.spread(set, d.defs[s.ref])
	}
	for _, other := range s.same {
		set = d.spread(set, other)
	}
	return set
}

// step is what holds one step further; empty where nothing declares it. array tells
// that the step is an index.
func (d *document) step(set []*schema, name string, array bool) []*schema {
	var out []*schema
	for _, s := range set {
		if array {
			i, _ := strconv.Atoi(name)
			if i < len(s.prefix) {
				out = d.spread(out, s.prefix[i])
			} else {
				out = d.spread(out, s.items)
			}
			continue
		}
		out = d.spread(out, s.properties[name])
		for _, p := range s.patterns {
			if d.matches(p.re, name) {
				out = d.spread(out, p.at)
			}
		}
	}
	return out
}
