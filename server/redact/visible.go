package redact

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/bidi"

	"github.com/countersign-mcp/countersign/approvals"
)

// Visible returns s on one line with every character that can't be seen, or that
// changes how others are seen, replaced by its code: controls (line breaks too),
// format and bidirectional characters, odd spaces, fillers, variation selectors,
// tags, private use, unassigned, piles of combining marks and marks that strike a
// letter out or stand on none, and look-alikes of other characters. Whoever shows a
// stranger's words passes them through here.
func Visible(s string) string {
	var w ink
	w.text(s)
	return w.String()
}

// marksInARow is how many combining marks may follow one character; living
// scripts need no more.
const marksInARow = 3

// seen tells whether r is shown as it is. Our own brackets are not, nor those that
// look like them: a stranger could write with them what looks like a remark of
// ours.
func seen(r rune) bool {
	switch r {
	case '⟦', '⟧', '⟨', '⟩', '\u301a', '\u301b', '\u2329', '\u232a', '\u3008', '\u3009', '\u276c', '\u276d', '\u29fc', '\u29fd':
		return false
	}
	return !approvals.Invisible(r)
}

// ink writes a stranger's characters and remembers which were shown by code.
type ink struct {
	strings.Builder
	based  bool // a letter or number stands before, which marks can follow
	marks  int
	coded  int
	kinds  []rune // distinct, in order of appearance, up to a few
	mixed  int    // words with letters of two scripts
	pad    padding
	turned bool // letters that are written from right to left

	alike []int // places in the text being written that look like others
}

const kindsShown = 5

// begin makes ready to write the characters of s.
func (w *ink) begin(s string) {
	w.marks, w.based, w.alike = 0, false, nil
	w.pad.end()
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			var mixed int
			w.alike, mixed = lookalikes(s)
			slices.Sort(w.alike)
			w.mixed += mixed
			return
		}
	}
}

// piece is how the character at i is shown outside JSON.
func (w *ink) piece(i int, r rune) string {
	mark := unicode.Is(unicode.M, r)
	if mark {
		w.marks++
	} else {
		w.marks = 0
	}
	if c := bidirectional(r); c == bidi.R || c == bidi.AL {
		w.turned = true
	}
	for len(w.alike) > 0 && w.alike[0] < i {
		w.alike = w.alike[1:]
	}
	alike := len(w.alike) > 0 && w.alike[0] == i
	if seen(r) && !alike && (!mark || w.based && w.marks <= marksInARow) {
		w.based = mark || unicode.IsLetter(r) || unicode.IsNumber(r)
		return string(r)
	}
	w.based = false
	w.coded++
	if !slices.Contains(w.kinds, r) && len(w.kinds) < kindsShown {
		w.kinds = append(w.kinds, r)
	}
	return code(r)
}

// put writes the character at i. Most text is ASCII, and it needs no tables.
func (w *ink) put(i int, r rune) {
	w.pad.add(r)
	if ' ' <= r && r < '\x7f' {
		w.marks, w.based = 0, alnum(byte(r))
		w.WriteByte(byte(r))
		return
	}
	w.WriteString(w.piece(i, r))
}

func bidirectional(r rune) bidi.Class {
	p, _ := bidi.LookupRune(r)
	return p.Class()
}

func code(r rune) string { return fmt.Sprintf("⟦U+%04X⟧", r) }

func (w *ink) text(s string) {
	w.begin(s)
	for i, r := range s {
		w.put(i, r)
	}
	w.pad.end()
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
	w.begin(s)
	for i, r := range s {
		if e, ok := escapes[r]; ok {
			w.pad.add(r)
			w.WriteString(e)
			w.marks, w.based = 0, false
			continue
		}
		w.put(i, r)
	}
	w.pad.end()
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
	out = append(out, w.pad.warnings()...)
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
