package redact

import (
	"strconv"
	"strings"

	"github.com/countersign-mcp/countersign/approvals/action"
)

// place is where a value stands, as the steps from the root, which is nil. It is
// spelled out only where somebody asks: names can be long, and many values can
// stand below one.
type place struct {
	up    *place
	step  string // escaped
	label string // what people see of the step, where it holds a secret; else empty
	index bool   // the step is the number of an item
	size  int    // bytes of the whole pointer

	schemas []*schema // what the tool's schema says of the place
	looked  bool
}

func (p *place) len() int {
	if p == nil {
		return 0
	}
	return p.size
}

func (p *place) below(step string) *place {
	return &place{up: p, step: step, size: p.len() + 1 + len(step)}
}

func (p *place) item(i int) *place {
	b := p.below(strconv.Itoa(i))
	b.index = true
	return b
}

// String is the JSON pointer (RFC 6901).
func (p *place) String() string {
	b := make([]byte, p.len())
	for ; p != nil; p = p.up {
		copy(b[p.up.len():], "/"+p.step)
	}
	return string(b)
}

func (p *place) is(pointer string) bool { return p.len() == len(pointer) && p.String() == pointer }

// shown is the pointer as people see it: no secret in a name, and nothing that
// can't be seen.
func (p *place) shown() string {
	var steps []string
	for ; p != nil; p = p.up {
		if p.label != "" {
			steps = append(steps, p.label)
		} else {
			steps = append(steps, Visible(p.step))
		}
	}
	var b strings.Builder
	for i := len(steps) - 1; i >= 0; i-- {
		b.WriteString("/" + steps[i])
	}
	return b.String()
}

// below is the place of a member.
func (d *drawing) below(at *place, name string) *place {
	b := at.below(action.EscapePointer(name))
	if len(name) >= secretLeast {
		if found, c := d.secrets(name, levels-1); c == opaque {
			b.label = "⟦not shown⟧"
		} else if len(found) > 0 {
			b.label = labelled(name, found)
		}
	}
	return b
}

func labelled(name string, found []span) string {
	var w ink
	from := 0
	for _, f := range found {
		w.text(action.EscapePointer(name[from:f.from]))
		w.WriteString(f.mark())
		from = f.to
	}
	w.text(action.EscapePointer(name[from:]))
	return w.String()
}

// declared tells whether the tool's schema names the place.
func (d *drawing) declared(at *place) bool {
	return d.base == "" && len(d.says(at)) > 0
}

func (d *drawing) says(at *place) []*schema {
	if d.doc == nil {
		d.doc = readSchema(d.schema)
	}
	if at == nil {
		return d.doc.start()
	}
	if !at.looked {
		at.schemas = d.doc.step(d.says(at.up), action.UnescapePointer(at.step), at.index)
		at.looked = true
	}
	return at.schemas
}
