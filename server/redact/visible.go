package redact

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/bidi"

	"github.com/countersign-mcp/countersign/approvals"
)

// Visible returns s on one line with every character that can't be seen, or that
// changes how others are seen, replaced by its code: controls (line breaks too),
// format and bidirectional characters, odd spaces, fillers, variation selectors,
// tags, private use, unassigned, and piles of combining marks. Whoever shows a
// stranger's words passes them through here.
func Visible(s string) string {
	var w ink
	w.text(s)
	return w.String()
}

// marksInARow is how many combining marks may follow one character; living
// scripts need no more.
const marksInARow = 3

// seen tells whether r is shown as it is. Our own brackets are not: a stranger
// could write with them what looks like a remark of ours.
func seen(r rune) bool {
	switch r {
	case '⟦', '⟧', '⟨', '⟩':
		return false
	}
	return !approvals.Invisible(r)
}

// ink writes a stranger's characters and remembers which were shown by code.
type ink struct {
	strings.Builder
	marks  int
	coded  int
	kinds  []rune // distinct, in order of appearance, up to a few
	script scripts
	spaces int  // in a row, so far
	pads   int  // long runs of spaces
	turned bool // letters that are written from right to left
}

const (
	kindsShown = 5
	padRun     = 20 // spaces in a row that nobody needs to read a text
)

// piece is how one character is shown outside JSON.
func (w *ink) piece(r rune) string {
	if unicode.Is(unicode.M, r) {
		w.marks++
	} else {
		w.marks = 0
	}
	w.script.add(r)
	if c := bidirectional(r); c == bidi.R || c == bidi.AL {
		w.turned = true
	}
	if seen(r) && w.marks <= marksInARow {
		return string(r)
	}
	w.coded++
	if !slices.Contains(w.kinds, r) && len(w.kinds) < kindsShown {
		w.kinds = append(w.kinds, r)
	}
	return code(r)
}

// put writes one character. Most text is ASCII, and it needs no tables.
func (w *ink) put(r rune) {
	w.pad(r)
	if ' ' <= r && r < '\x7f' {
		w.marks = 0
		w.script.ascii(r)
		w.WriteByte(byte(r))
		return
	}
	w.WriteString(w.piece(r))
}

// pad notes a run of spaces that is long enough to push what follows out of
// sight.
func (w *ink) pad(r rune) {
	if r != ' ' {
		w.spaces = 0
		return
	}
	if w.spaces++; w.spaces == padRun {
		w.pads++
	}
}

func bidirectional(r rune) bidi.Class {
	p, _ := bidi.LookupRune(r)
	return p.Class()
}

func code(r rune) string { return fmt.Sprintf("⟦U+%04X⟧", r) }

func (w *ink) text(s string) {
	w.marks, w.spaces = 0, 0
	for _, r := range s {
		w.put(r)
	}
	w.script.end()
}

// quoted writes s as a JSON string that reads as it was meant: the short escapes
// stay escapes, everything else that can't be seen is shown by its code.
func (w *ink) quoted(s string) {
	w.WriteByte('"')
	w.escaped(s)
	w.WriteByte('"')
}

// escaped is what quoted writes between the quotes.
func (w *ink) escaped(s string) {
	w.marks, w.spaces = 0, 0
	for _, r := range s {
		if e, ok := escapes[r]; ok {
			w.WriteString(e)
			w.marks, w.spaces = 0, 0
			w.script.end()
			continue
		}
		w.put(r)
	}
	w.script.end()
}

var escapes = map[rune]string{
	'"': `\"`, '\\': `\\`, '\n': `\n`, '\r': `\r`, '\t': `\t`, '\b': `\b`, '\f': `\f`,
}

func (w *ink) warnings() []string {
	var out []string
	if w.coded > 0 {
		codes := make([]string, len(w.kinds))
		for i, r := range w.kinds {
			codes[i] = code(r)
		}
		out = append(out, fmt.Sprintf("%s shown by code: %s",
			plural(w.coded, "character that can't be seen or trusted is", "characters that can't be seen or trusted are"), strings.Join(codes, " ")))
	}
	if n := w.pads; n > 0 {
		out = append(out, plural(n, "long run of spaces pushes", "long runs of spaces push")+" what follows out of sight")
	}
	if w.turned {
		out = append(out, "some letters are written from right to left, so a line can read in another order than it is sent")
	}
	return out
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// scripts counts words that mix Latin with a script whose letters look like it.
type scripts struct {
	latin, alike bool
	mixed        int
}

func (s *scripts) add(r rune) {
	switch {
	case unicode.Is(unicode.Latin, r):
		s.latin = true
	case unicode.In(r, unicode.Cyrillic, unicode.Greek, unicode.Armenian, unicode.Cherokee, unicode.Coptic):
		s.alike = true
	case unicode.IsLetter(r), unicode.IsDigit(r), unicode.Is(unicode.M, r), !seen(r):
	default:
		s.end()
	}
}

func (s *scripts) ascii(r rune) {
	switch {
	case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z':
		s.latin = true
	case '0' <= r && r <= '9':
	default:
		s.end()
	}
}

func (s *scripts) end() {
	if s.latin && s.alike {
		s.mixed++
	}
	s.latin, s.alike = false, false
}
