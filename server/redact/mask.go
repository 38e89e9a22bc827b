package redact

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/action"
)

// mark stands in a text for what is masked.
func mark(kind string, size int) string {
	return fmt.Sprintf("⟦masked %s, %s⟧", kind, plural(size, "byte", "bytes"))
}

func (f span) mark() string { return mark(f.kind, f.to-f.from) }

// words draws a string, a value or a name, with its secrets masked; raw is a value's
// JSON.
func (d *drawing) words(s string, at *place, raw json.RawMessage) {
	found, c := d.secrets(s, 0)
	if c != certain {
		d.unread.add(d.base, at)
	}
	if c == opaque {
		if raw == nil {
			raw = quote(s)
		}
		d.WriteString("⟦not shown: text of " + plural(len(s), "byte", "bytes") + " that can't be taken apart safely⟧")
		d.mask(at, "", "string", len(raw), raw)
		d.expect(d.base != "" || d.declared(at), at)
		return
	}
	mixed := d.mixed
	d.WriteByte('"')
	from := 0
	for _, f := range found {
		if d.full() {
			return
		}
		d.escaped(s[from:f.from])
		d.WriteString(f.mark())
		if f.form == nil {
			f.form = quote(s[f.from:f.to])
		}
		d.mask(at, f.inner, f.kind, f.to-f.from, f.form)
		from = f.to
	}
	if len(found) > 0 {
		d.expect(d.base != "" || d.declared(at), at)
	}
	d.escaped(s[from:])
	d.WriteByte('"')
	if n := d.mixed - mixed; n > 0 {
		d.alike.add(d.base, at)
	}
}

// mask notes that a value, or a part of one, is masked.
func (d *drawing) mask(at *place, inner, kind string, size int, form []byte) {
	m := approvals.Mask{Pointer: Visible(d.base) + at.shown(), Type: kind, Len: size}
	if inner != "" {
		m.Pointer += insideMark + inner
	}
	d.pointed += len(m.Pointer)
	if d.digest != nil {
		if canon, err := action.Canonical(form); err == nil {
			form = canon
		}
		m.Digest = d.digest(form)
	}
	d.masked = append(d.masked, m)
}

// expect notes a mask that nobody expects where it is.
func (d *drawing) expect(ok bool, at *place) {
	if !ok {
		d.undeclared.add(d.base, at)
	}
}

// expected tells whether a masked value is one that people can be asked to agree to
// unseen. In the arguments somebody must have said that it is there: the policy by
// a pointer, or the tool's schema, which must declare all of it. A value that is
// masked for its neighbour's sake, and one beside the arguments, where no schema
// speaks, must be one plain word besides or instead: an id or a token.
func (d *drawing) expected(v json.RawMessage, at *place, near bool) bool {
	switch {
	case d.base != "":
		return plainSecret(v)
	case slices.ContainsFunc(d.pointers, at.is):
		return true
	}
	return d.declares(v, at) && (!near || plainSecret(v))
}

// declares tells whether the tool's schema names the place and all that is in the
// value.
func (d *drawing) declares(v json.RawMessage, at *place) bool {
	if !d.declared(at) {
		return false
	}
	for name, below := range action.Fields(v) {
		if !d.declares(below, at.below(action.EscapePointer(name))) {
			return false
		}
	}
	i := 0
	for below := range action.Items(v) {
		if !d.declares(below, at.item(i)) {
			return false
		}
		i++
	}
	return true
}

// lacking is why the view is not the whole.
func (d *drawing) lacking() []string {
	out := d.missing
	if d.unread.n > 0 {
		out = append(out, "text that can't be taken apart safely: "+d.unread.String())
	}
	if d.undeclared.n > 0 {
		out = append(out, "masked, and not declared by the tool's schema or the policy: "+d.undeclared.String())
	}
	return out
}

// warnings are the ink's own, and where words of mixed scripts stand.
func (d *drawing) warnings() []string {
	out := d.ink.warnings()
	if n := d.mixed; n > 0 {
		out = append(out, plural(n, "word mixes", "words mix")+" Latin letters with look-alikes of another script: "+d.alike.String())
	}
	return out
}

// listing names places for people: the first ones, and how many more there are.
type listing struct {
	names []string
	n     int
	last  *place
}

const (
	listed  = 5
	pointed = 120 // runes of one pointer in a list; masks have them whole
)

func (l *listing) add(base string, at *place) {
	if l.n > 0 && l.last == at {
		return // a second part of the same text
	}
	l.last = at
	if l.n++; l.n <= listed {
		l.names = append(l.names, cutShown(base+at.shown(), pointed))
	}
}

func (l *listing) String() string {
	s := strings.Join(l.names, ", ")
	if more := l.n - len(l.names); more > 0 {
		s += fmt.Sprintf(" and %d more", more)
	}
	return s
}

var keyID = regexp.MustCompile(`A[KS]IA[A-Z0-9]{16}`)

// holdsKeyID tells whether an AWS key id is in the JSON. Escapes of plain letters
// could spell one, and nobody else writes them.
func holdsKeyID(raw json.RawMessage) bool {
	return (bytes.Contains(raw, []byte("AKIA")) || bytes.Contains(raw, []byte("ASIA"))) && keyID.Match(raw) ||
		bytes.Contains(raw, []byte(`\u003`)) || bytes.Contains(raw, []byte(`\u004`)) || bytes.Contains(raw, []byte(`\u005`))
}
