package slack

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/countersign-mcp/countersign/approvals"
)

// visible shows every invisible rune as ⟦U+XXXX⟧. Line breaks are kept when
// lines is set.
func visible(s string, lines bool) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	var b strings.Builder
	b.Grow(len(s))
	for _, r := range s {
		if approvals.Invisible(r) && !(lines && r == '\n') {
			fmt.Fprintf(&b, "⟦U+%04X⟧", r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// spaceRun is how many spaces in a row are shown as they are: more could push
// what follows off a phone's screen.
const spaceRun = 4

// line makes a stranger's text fit for one line of at most most bytes as they
// count on the wire. It says whether all of it is there. What is beyond the limit
// costs nothing.
func line(s string, most int) (string, bool) {
	var b strings.Builder
	size, keep := 0, 0 // keep: where to cut so that an ellipsis fits
	put := func(part string) bool {
		n := wireLen(part)
		if size+n > most {
			return false
		}
		b.WriteString(part)
		if size += n; size <= most-len("…") {
			keep = b.Len()
		}
		return true
	}
	for s != "" {
		part, rest := next(s)
		if !put(part) {
			return b.String()[:keep] + "…", false
		}
		s = rest
	}
	return b.String(), true
}

// next takes one rune, or a run of spaces, off s and shows it.
func next(s string) (part, rest string) {
	if n := len(s) - len(strings.TrimLeft(s, " ")); n > spaceRun {
		return fmt.Sprintf("⟦%d spaces⟧", n), s[n:]
	}
	r, n := utf8.DecodeRuneInString(s)
	if approvals.Invisible(r) {
		return fmt.Sprintf("⟦U+%04X⟧", r), s[n:]
	}
	return string(r), s[n:]
}

// prefix is the longest beginning of whole runes whose JSON form has at most most
// bytes.
func prefix(s string, most int) string {
	size := 0
	for i, r := range s {
		size += wire(r)
		if size > most {
			return s[:i]
		}
	}
	return s
}

// wire is how many bytes a rune takes inside a JSON string as the client library
// writes it.
func wire(r rune) int {
	switch {
	case r == '"', r == '\\', r == '\n', r == '\r', r == '\t':
		return 2
	case r < 0x20, r == '<', r == '>', r == '&', r == 0x2028, r == 0x2029:
		return 6
	}
	return utf8.RuneLen(r)
}

func wireLen(s string) int {
	n := 0
	for _, r := range s {
		n += wire(r)
	}
	return n
}

// escape makes plain text safe as a message's text: the three characters that
// begin or end Slack's markup.
var escape = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace

// pieces cuts text into parts of at most most bytes on the wire, at line ends
// where it can.
func pieces(s string, most int) []string {
	var out []string
	for s != "" {
		p := prefix(s, most)
		if len(p) < len(s) {
			if i := strings.LastIndexByte(p, '\n'); i > len(p)/2 {
				p = p[:i+1]
			}
		}
		s = s[len(p):]
		// A line break at the end of an element would show as an empty line.
		if p = strings.TrimSuffix(p, "\n"); p != "" {
			out = append(out, p)
		}
	}
	return out
}

// size is what a value takes on the wire.
func size(v any) int {
	b, err := json.Marshal(v)
	if err != nil {
		return 1 << 30 // never fits
	}
	return len(b)
}
