package policy

import (
	"bytes"

	"github.com/countersign-mcp/countersign/approvals/action"
)

// The functions below cut up JSON that the strict parser accepted (action.Parse,
// action.Check), and allocate nothing for what nobody asks for. Of other bytes
// they read no further than the first that makes no sense.

// span is a member of an object, or an element of an array.
type span struct {
	name  []byte // decoded; nil in an array
	value []byte // as it stands, never empty
}

// split appends the members of an object or the elements of an array. False when
// b is neither.
func split(into []span, b []byte) ([]span, bool) {
	i := skipSpace(b, 0)
	if i == len(b) || b[i] != '{' && b[i] != '[' {
		return into, false
	}
	object := b[i] == '{'
	i = skipSpace(b, i+1)
	for i < len(b) && b[i] != '}' && b[i] != ']' {
		var s span
		if object {
			end := skipValue(b, i)
			name, ok := unquoted(b[i:end])
			i = skipSpace(b, end)
			if !ok || i == len(b) || b[i] != ':' {
				return into, false
			}
			s.name = name
			i = skipSpace(b, i+1)
		}
		end := skipValue(b, i)
		if end == i {
			return into, false
		}
		s.value = b[i:end:end]
		into = append(into, s)
		i = skipSpace(b, end)
		if i < len(b) && b[i] == ',' {
			i = skipSpace(b, i+1)
		}
	}
	return into, i < len(b)
}

// unquoted decodes a string; one without escapes is a part of raw.
func unquoted(raw []byte) ([]byte, bool) {
	if len(raw) < 2 || raw[0] != '"' {
		return nil, false
	}
	if verbatim(raw) {
		return raw[1 : len(raw)-1], true
	}
	s, ok := action.Text(raw)
	return []byte(s), ok
}

// verbatim tells whether a string literal means its own bytes, all ASCII.
func verbatim(raw []byte) bool {
	for _, c := range raw {
		if c == '\\' || c < ' ' || c > '~' {
			return false
		}
	}
	return true
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// skipValue is where the value that begins at i ends.
func skipValue(b []byte, i int) int {
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '{', '[':
			depth++
			i++
			continue
		case '}', ']':
			if depth == 0 {
				return i
			}
			depth--
			i++
		case ',', ':', ' ', '\n', '\t', '\r':
			if depth == 0 {
				return i
			}
			i++
			continue
		case '"':
			i = skipString(b, i)
		default:
			for i < len(b) && !ends(b[i]) {
				i++
			}
		}
		if depth == 0 {
			return i
		}
	}
	return i
}

// ends tells whether a number or a word ends before c.
func ends(c byte) bool {
	switch c {
	case ',', ':', ' ', '\n', '\t', '\r', '}', ']', '{', '[', '"':
		return true
	}
	return false
}

// skipString looks for the next quote and the next backslash by themselves: that is
// how a long text costs little. Each byte is looked at once for each of them.
func skipString(b []byte, i int) int {
	quote := -1
	for i++; i < len(b); {
		if quote < i {
			n := bytes.IndexByte(b[i:], '"')
			if n < 0 {
				return len(b)
			}
			quote = i + n
		}
		n := bytes.IndexByte(b[i:quote], '\\')
		if n < 0 {
			return quote + 1
		}
		i += n + 2
	}
	return len(b)
}
