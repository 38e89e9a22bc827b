package redact

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/countersign-mcp/countersign/approvals/action"
)

// clarity is how far a text could be taken apart.
type clarity int

const (
	certain  clarity = iota
	doubtful         // the parts are masked, but a mask may hide something else
	opaque           // no part can be told from another: nothing of it is shown
)

// levels is how often JSON may stand in a string of JSON.
const levels = 8

// secretLeast is the length of the shortest text with a secret in it: pin=1.
const secretLeast = 5

// secrets finds what is masked in a text: the values of a text that is itself JSON,
// by the same rules as outside, and what looks like a secret anywhere. A text that
// another reading has more secrets in, with its escapes taken for what they mean or
// without what can't be seen, has no parts that are certain.
func (d *drawing) secrets(s string, level int) ([]span, clarity) {
	body := strings.Trim(s, " \t\r\n")
	if len(body) < secretLeast {
		return nil, certain
	}
	if strings.IndexByte(`{["`, body[0]) >= 0 {
		raw := []byte(body)
		switch {
		case action.Check(raw, action.Limits{Bytes: MaxText}) == nil:
			if level >= levels {
				return nil, opaque
			}
			return d.parts(s, strings.Index(s, body), level)
		case json.Valid(raw): // others would read it, and not all in the same way
			return nil, opaque
		case likeJSON.MatchString(body) && d.names.named(plainEscapes(body)):
			return nil, opaque
		}
	}
	found, c := d.loose(s, level)
	for _, other := range readings(s) {
		if more, _ := d.loose(other, levels); len(more) > len(found) {
			return nil, opaque
		}
	}
	return found, c
}

// loose finds the secrets of a text that has no form. At the last level nothing is
// decoded any more.
func (d *drawing) loose(s string, level int) ([]span, clarity) {
	found, doubt := values(s, d.aws)
	found = d.names.parameters(s, found)
	found, odd := d.names.spoken(s, found)
	n := len(found)
	found = d.encodedTexts(s, level, found)
	if doubt || odd || len(found) > n {
		return apart(found), doubtful
	}
	return apart(found), certain
}

var (
	likeJSON = regexp.MustCompile(`^(?:\{\s*["'\\/#]|\{\s*[\pL\pN_.-]+\s*[:=]|\[\s*[{\["'\\/#])`)
	namedIn  = regexp.MustCompile(`([\pL\pN_.-]+)\\*["']?\s*[:=]`)
)

// named tells whether a text that only looks like JSON has a member with a
// secret's name.
func (n names) named(s string) bool {
	for s != "" {
		m := namedIn.FindStringSubmatchIndex(s)
		if m == nil {
			return false
		}
		if n.secret(s[m[2]:m[3]], false) {
			return true
		}
		s = s[m[1]:]
	}
	return false
}

// parts finds the secrets of a text that is one JSON value, which begins at i.
func (d *drawing) parts(s string, i, level int) ([]span, clarity) {
	x := &inside{d: d, s: s, level: level}
	x.value(i, nil)
	if x.state == opaque {
		return nil, opaque
	}
	return apart(x.found), x.state
}

// inside walks a text that is JSON and was checked, so it looks for no faults.
type inside struct {
	d     *drawing
	s     string
	level int
	found []span
	state clarity
	size  int // bytes of the pointers in found
}

func (x *inside) blank(i int) int {
	return run(x.s, i, func(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' })
}

func (x *inside) add(f span) {
	if x.size += len(f.inner); x.size > MaxText {
		x.state = opaque
	}
	if x.state != opaque {
		x.found = append(x.found, f)
	}
}

// value walks the value at i and returns where it ends.
func (x *inside) value(i int, at *place) int {
	if x.state == opaque { // what more is found is of no use
		return skip(x.s, i)
	}
	switch x.s[i] {
	case '{':
		return x.object(i, at)
	case '[':
		return x.array(i, at)
	case '"':
		end := literal(x.s, i)
		x.text(i, end, at)
		return end
	}
	return run(x.s, i, func(c byte) bool { return c > ' ' && strings.IndexByte(",]}", c) < 0 })
}

func (x *inside) array(i int, at *place) int {
	start := i
	beside := x.d.names.row(json.RawMessage(x.s[i:skip(x.s, i)]))
	i = x.blank(i + 1)
	for n := 0; x.s[i] != ']'; n++ {
		if x.s[i] == ',' {
			i = x.blank(i + 1)
		}
		if x.state == opaque {
			return skip(x.s, start)
		}
		item := at.item(n)
		if end := skip(x.s, i); beside.hides(json.RawMessage(x.s[i:end])) {
			x.hide(i, end, item)
			i = end
		} else {
			i = x.value(i, item)
		}
		i = x.blank(i)
	}
	return i + 1
}

// hide masks the value between i and end. No schema speaks of it, and the text may
// be meant for a shell: what is not one plain word is doubtful.
func (x *inside) hide(i, end int, at *place) {
	raw := json.RawMessage(x.s[i:end])
	if !plainSecret(raw) {
		x.state = max(x.state, doubtful)
	}
	x.add(span{from: i, to: end, kind: action.TypeOf(raw), inner: at.shown(), form: raw})
}

func (x *inside) object(i int, at *place) int {
	start := i
	pair := x.d.isPair(json.RawMessage(x.s[i:skip(x.s, i)]))
	i = x.blank(i + 1)
	for x.s[i] != '}' {
		if x.s[i] == ',' {
			i = x.blank(i + 1)
		}
		end := literal(x.s, i)
		name, _ := action.Text(json.RawMessage(x.s[i:end]))
		below := x.d.below(at, name)
		x.text(i, end, below)
		i = x.blank(x.blank(end) + 1) // the colon
		end = skip(x.s, i)
		raw := json.RawMessage(x.s[i:end])
		if x.state == opaque {
			return skip(x.s, start)
		}
		if pair && isValue(name) || x.d.hidden(name, raw) {
			x.hide(i, end, below)
		} else {
			x.value(i, below)
		}
		i = x.blank(end)
	}
	return i + 1
}

// text looks into the string at from, which ends at to.
func (x *inside) text(from, to int, at *place) {
	raw := x.s[from:to]
	s, ok := action.Text(json.RawMessage(raw))
	if !ok {
		x.state = opaque
		return
	}
	found, c := x.d.secrets(s, x.level+1)
	if c == opaque {
		x.state = max(x.state, doubtful)
		x.add(span{from: from, to: to, kind: "string", inner: at.shown(), form: []byte(raw)})
		return
	}
	x.state = max(x.state, c)
	if len(found) == 0 {
		return
	}
	outer, pointer := offsets(raw, len(s)), at.shown()
	for _, f := range found {
		if x.state == opaque {
			return
		}
		if f.form == nil {
			f.form = quote(s[f.from:f.to])
		}
		if f.inner != "" {
			f.inner = insideMark + f.inner
		}
		f.inner = pointer + f.inner
		f.from, f.to = from+outer(f.from), from+outer(f.to)
		x.add(f)
	}
}

// insideMark stands in a pointer before the part that leads through a text that is
// JSON.
const insideMark = "⟨JSON⟩"

// offsets says where in a literal the bytes of its text stand.
func offsets(raw string, size int) func(int) int {
	if !strings.Contains(raw, `\`) {
		return func(i int) int { return i + 1 }
	}
	at := make([]int32, 0, size+1)
	for i := 1; i < len(raw)-1; {
		n, bytes := 1, 1
		if raw[i] == '\\' {
			n = 2
			if raw[i+1] == 'u' {
				n = 6
				v, _ := strconv.ParseUint(raw[i+2:i+6], 16, 16)
				if bytes = utf8.RuneLen(rune(v)); bytes < 0 { // half of a pair
					n, bytes = 12, 4
				}
			}
		}
		for range bytes {
			at = append(at, int32(i))
		}
		i += n
	}
	at = append(at, int32(len(raw)-1))
	return func(i int) int { return int(at[i]) }
}

// literal is where the string literal at i ends.
func literal(s string, i int) int {
	from := i
	for i++; s[i] != '"'; i++ {
		if s[i] == '\\' {
			i++
		}
	}
	read(i - from)
	return i + 1
}

// skip is where the value at i ends.
func skip(s string, i int) int {
	for depth := 0; i < len(s); {
		switch s[i] {
		case '"':
			i = literal(s, i)
		case '{', '[':
			depth++
			i++
			continue
		case '}', ']':
			depth--
			i++
		case ',', ':', ' ', '\t', '\n', '\r':
			i++
			continue
		default:
			i = run(s, i, func(c byte) bool { return c > ' ' && strings.IndexByte(",]}", c) < 0 })
		}
		if depth == 0 {
			return i
		}
	}
	return i
}

// quote is the text as JSON.
func quote(s string) []byte {
	b, _ := json.Marshal(s) // a string can't fail
	return b
}
