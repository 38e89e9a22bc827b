package redact

import (
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/countersign-mcp/countersign/approvals/action"
)

const (
	absentMark   = "⟨none⟩"
	titleValue   = 80 // runes of one value in a title
	summaryValue = 40 // runes of one value in a summary
	summaryArgs  = 3
)

// title fills the template's fields from the arguments.
func (d *drawing) title(template string, args json.RawMessage) string {
	var out strings.Builder
	pair := d.isPair(args)
	for template != "" {
		before, rest, found := strings.Cut(template, "{")
		out.WriteString(Visible(before))
		if !found {
			break
		}
		name, after, closed := strings.Cut(rest, "}")
		if !closed {
			out.WriteString(Visible("{" + rest))
			break
		}
		template = after
		v, ok := action.Member(args, name)
		if !ok {
			out.WriteString(absentMark)
			continue
		}
		out.WriteString(d.short(name, v, titleValue, pair))
	}
	return out.String()
}

// summary is the first arguments on one line.
func (d *drawing) summary(args json.RawMessage) string {
	var parts []string
	pair := d.isPair(args)
	for name, v := range action.Fields(args) {
		if len(parts) == summaryArgs {
			return strings.Join(parts, ", ") + ", …"
		}
		parts = append(parts, d.wording(name, summaryValue)+": "+d.short(name, v, summaryValue, pair))
	}
	return strings.Join(parts, ", ")
}

// short is one argument on one line: a string as its words, anything else as
// compact JSON with its secrets masked. pair says that the arguments are the name
// of a secret and its value.
func (d *drawing) short(name string, v json.RawMessage, most int, pair bool) string {
	at := (*place)(nil).below(action.EscapePointer(name))
	if pair && isValue(name) || d.hidesArg(name, v, at) {
		return maskedMark
	}
	if s, ok := action.Text(v); ok {
		return d.wording(s, most)
	}
	inner := &drawing{names: d.names, pointers: d.pointers, aws: d.aws}
	inner.value(v, at, 0)
	return cutShown(flat(inner.String()), most)
}

func (d *drawing) hidesArg(name string, v json.RawMessage, at *place) bool {
	base := d.base
	d.base = ""
	defer func() { d.base = base }()
	return d.hides(name, v, at)
}

// flat puts pretty-printed JSON on one line. No line break can come from a value:
// inside strings they are escapes.
func flat(pretty string) string {
	lines := strings.Split(pretty, "\n")
	for i, l := range lines {
		lines[i] = strings.TrimLeft(l, " ")
	}
	return strings.Join(lines, " ")
}

// wording shows a stranger's name or text: at most that many runes, never a part of
// a character's code, its secrets masked. What is more than one plain word stands in
// quotes: on a line with our own text, a value such as "1 (test, no effect)" would
// read as if we had said it.
func (d *drawing) wording(s string, most int) string {
	found, c := d.secrets(s, 0)
	switch {
	case c == opaque:
		return "⟦not shown⟧"
	case len(found) == 1 && found[0].from == 0 && found[0].to == len(s):
		return maskedMark
	case len(found) == 0 && plain(s):
		return cut(s, most)
	}
	l := line{most: most}
	from := 0
	for _, f := range found {
		l.text(s[from:f.from])
		l.add(f.mark())
		from = f.to
	}
	l.text(s[from:])
	shown := join(l.pieces, most)
	if l.total > most { // the … is ours and stands outside
		return `"` + strings.TrimSuffix(shown, "…") + `"…`
	}
	return `"` + shown + `"`
}

// line collects what fits on one.
type line struct {
	w      ink
	pieces []string
	total  int // runes
	most   int
}

func (l *line) add(piece string) {
	if l.total <= l.most {
		l.pieces = append(l.pieces, piece)
		l.total += utf8.RuneCountInString(piece)
	}
}

func (l *line) text(s string) {
	l.w.begin(s)
	for i, r := range s {
		if l.total > l.most {
			return
		}
		if r == '"' || r == '\\' {
			l.w.marks, l.w.based = 0, false
			l.add(escapes[r])
			continue
		}
		l.add(l.w.piece(i, r))
	}
}

// plain tells whether s can be nothing but one word.
func plain(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case strings.IndexByte("_.#@/:+-", c) >= 0:
		default:
			return false
		}
	}
	return s != ""
}

// cut shows the beginning of one plain word.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return s[:most-1] + "…"
}

// cutShown cuts what was already made visible.
func cutShown(s string, most int) string {
	var pieces []string
	total := 0
	for s != "" {
		_, n := utf8.DecodeRuneInString(s)
		p := s[:n]
		if strings.HasPrefix(s, "⟦") {
			if end := strings.Index(s, "⟧"); end > 0 {
				p = s[:end+len("⟧")]
			}
		}
		pieces = append(pieces, p)
		s = s[len(p):]
		if total += utf8.RuneCountInString(p); total > most {
			break
		}
	}
	return join(pieces, most)
}

// join puts pieces together as far as they fit, with … for the rest.
func join(pieces []string, most int) string {
	total := 0
	for _, p := range pieces {
		total += utf8.RuneCountInString(p)
	}
	if total <= most {
		return strings.Join(pieces, "")
	}
	for len(pieces) > 0 && total > most-1 {
		last := len(pieces) - 1
		total -= utf8.RuneCountInString(pieces[last])
		pieces = pieces[:last]
	}
	return strings.Join(pieces, "") + "…"
}
