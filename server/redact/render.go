package redact

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/action"
)

// MaxText is the most a view holds, in bytes. A request that needs more is not
// shown at all, and the view says so.
const MaxText = 1 << 20

const maskedMark = "⟦masked⟧"

// Render makes title and view of a call. digest makes the keyed digest of a
// masked value, which then stands for it.
//
// The text is the arguments as a pretty-printed JSON object: members in the order
// they were sent, numbers as they were written. Members of the request beside
// the arguments, which are forwarded too, follow under headings of their own.
// The title is the template with its fields filled in; without a template it is
// the tool's name, and View.Summary has the first arguments.
//
// Render never fails: what can't be taken apart is not shown, and the view is
// then marked as incomplete.
func Render(c action.Call, r Rules, digest func([]byte) string) (title string, v approvals.View) {
	d := &drawing{names: newNames(r.Keys), pointers: r.Pointers, schema: r.Schema, digest: digest}
	d.aws = slices.ContainsFunc([]json.RawMessage{c.Args, c.Extra, c.Meta}, holdsKeyID)
	args := c.Args
	if len(args) == 0 {
		args = json.RawMessage("{}")
	}
	d.section("", "", args)
	if c.Extra != nil {
		d.section("\n\nOther members of the request:\n", "extra:", c.Extra)
	}
	if c.Meta != nil {
		d.section("\n\nMetadata of the request:\n", "meta:", c.Meta)
	}
	if d.full() {
		d.whole("longer than 1 MiB, so it can't be shown")
	}
	v = approvals.View{Text: d.String(), Masked: d.masked, Warnings: d.warnings(), Missing: d.lacking()}
	switch {
	case !d.readable: // no field could be filled in
		return Visible(c.Tool), v
	case r.Title == "":
		v.Summary = d.summary(args)
		return Visible(c.Tool), v
	}
	return d.title(r.Title, args), v
}

// drawing is one view in the making.
type drawing struct {
	ink
	names    names
	pointers []string
	digest   func([]byte) string

	base     string // of pointers outside the arguments: "extra:" or "meta:"
	readable bool   // the arguments could be taken apart
	masked   []approvals.Mask
	pointed  int // bytes of the pointers in masked
	missing  []string

	schema     json.RawMessage
	doc        *document // of schema, read when the first mask asks
	aws        bool      // an AWS key id is in the call
	undeclared listing   // masked, and not in the schema
	unread     listing   // could not be taken apart
	alike      listing   // with words of mixed scripts
}

// whole replaces everything drawn by one line that says why.
func (d *drawing) whole(why string) {
	d.Reset()
	d.masked, d.undeclared, d.unread = nil, listing{}, listing{}
	d.WriteString("⟦not shown: " + why + "⟧")
	d.missing = []string{"the request is " + why}
}

func (d *drawing) section(heading, base string, raw json.RawMessage) {
	d.WriteString(heading)
	d.base = base
	if err := action.Check(raw, action.Limits{Bytes: MaxText}); err != nil {
		why := "it can't be taken apart"
		if len(raw) > MaxText {
			why = "it is longer than 1 MiB"
		}
		d.WriteString("⟦not shown: " + why + "⟧")
		d.missing = append(d.missing, partName(base)+": "+why)
		return
	}
	if base == "" {
		d.readable = trim(raw)[0] == '{'
	}
	d.value(raw, nil, 0)
}

func partName(base string) string {
	switch base {
	case "extra:":
		return "other members of the request"
	case "meta:":
		return "metadata of the request"
	}
	return "the arguments"
}

func (d *drawing) value(raw json.RawMessage, at *place, depth int) {
	raw = trim(raw)
	switch raw[0] {
	case '{':
		d.object(raw, at, depth)
	case '[':
		d.array(raw, at, depth)
	case '"':
		s, _ := action.Text(raw)
		d.words(s, at, raw)
	default:
		d.Write(raw) // a number as written, true, false, null
	}
}

// full tells that drawing on is of no use: Render says that the whole is not
// shown. Pointers count like text, since they hold names as long as the caller
// likes, each once for every masked value below it.
func (d *drawing) full() bool { return d.Len()+d.pointed > MaxText }

func (d *drawing) object(raw json.RawMessage, at *place, depth int) {
	pair := d.isPair(raw)
	first := true
	for name, v := range action.Fields(raw) {
		if d.full() {
			return
		}
		d.open(&first, '{', depth)
		below := d.below(at, name)
		d.words(name, below, nil)
		d.WriteString(": ")
		d.member(name, v, below, depth, pair && isValue(name))
	}
	d.close(first, "{}", '}', depth)
}

func (d *drawing) array(raw json.RawMessage, at *place, depth int) {
	first, i := true, 0
	beside := d.names.row(raw)
	for v := range action.Items(raw) {
		if d.full() {
			return
		}
		d.open(&first, '[', depth)
		d.member("", v, at.item(i), depth, beside.hides(v))
		i++
	}
	d.close(first, "[]", ']', depth)
}

func (d *drawing) open(first *bool, bracket byte, depth int) {
	if *first {
		d.WriteByte(bracket)
	} else {
		d.WriteByte(',')
	}
	*first = false
	d.line(depth + 1)
}

func (d *drawing) close(empty bool, both string, bracket byte, depth int) {
	if empty {
		d.WriteString(both)
		return
	}
	d.line(depth)
	d.WriteByte(bracket)
}

func (d *drawing) line(depth int) {
	d.WriteByte('\n')
	d.WriteString(strings.Repeat("  ", depth))
}

func (d *drawing) member(name string, v json.RawMessage, at *place, depth int, hidden bool) {
	if !hidden && !d.hides(name, v, at) {
		d.value(v, at, depth+1)
		return
	}
	d.WriteString(mark(action.TypeOf(v), len(v)))
	d.mask(at, "", action.TypeOf(v), len(v), v)
	d.expect(d.expected(v, at, hidden), at)
}

// hides tells whether a value is masked: by the policy's pointer, or by its name
// unless it is true, false or null, which is nobody's secret.
func (d *drawing) hides(name string, v json.RawMessage, at *place) bool {
	if d.base == "" && slices.ContainsFunc(d.pointers, at.is) {
		return true
	}
	return d.hidden(name, v)
}

// hidden is hides by the name alone.
func (d *drawing) hidden(name string, v json.RawMessage) bool {
	kind := action.TypeOf(v)
	return kind != "boolean" && kind != "null" && d.names.secret(name, kind == "number")
}

func trim(raw json.RawMessage) json.RawMessage {
	for len(raw) > 1 && (raw[0] == ' ' || raw[0] == '\t' || raw[0] == '\n' || raw[0] == '\r') {
		raw = raw[1:]
	}
	return raw
}
