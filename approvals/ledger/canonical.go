package ledger

import (
	"bytes"
	"fmt"
	"unicode"
	"unicode/utf8"
)

// syntaxError says where a line stops being canonical.
type syntaxError struct {
	at     int // byte, from 0
	reason string
}

func (e *syntaxError) Error() string { return fmt.Sprintf("%s at byte %d", e.reason, e.at+1) }

// span is a member of the outermost object.
type span struct {
	key        []byte
	value      []byte // as written, quotes included
	start, end int    // of key, colon and value
}

const maxDepth = 16

// parser walks one line and accepts nothing that appendLine could not have
// written: that is stricter than JSON, and leaves a line no second reading.
type parser struct {
	b   []byte
	i   int
	top []span
}

// parse splits a line into its outermost members. The spans point into line and
// into the parser's own memory, which the next parse reuses.
func (p *parser) parse(line []byte) ([]span, error) {
	p.b, p.i, p.top = line, 0, p.top[:0]
	if err := p.object(1); err != nil {
		return nil, err
	}
	if p.i != len(p.b) {
		return nil, p.fail("something follows the record")
	}
	return p.top, nil
}

func (p *parser) fail(format string, args ...any) error {
	return &syntaxError{p.i, fmt.Sprintf(format, args...)}
}

func (p *parser) peek() byte {
	if p.i < len(p.b) {
		return p.b[p.i]
	}
	return 0
}

func (p *parser) expect(c byte) error {
	if p.i < len(p.b) && p.b[p.i] == c {
		p.i++
		return nil
	}
	if p.i >= len(p.b) {
		return p.fail("the line ends where %q belongs", c)
	}
	return p.fail("%q stands where %q belongs", p.b[p.i], c)
}

func (p *parser) object(depth int) error {
	if depth > maxDepth {
		return p.fail("nested too deeply")
	}
	if err := p.expect('{'); err != nil {
		return err
	}
	var seen [][]byte
	if p.peek() == '}' {
		p.i++
		return nil
	}
	for {
		start := p.i
		key, err := p.key(seen)
		if err != nil {
			return err
		}
		seen = append(seen, key)
		if err := p.expect(':'); err != nil {
			return err
		}
		from := p.i
		if err := p.value(depth); err != nil {
			return err
		}
		if depth == 1 {
			p.top = append(p.top, span{key, p.b[from:p.i], start, p.i})
		}
		if p.peek() != ',' {
			return p.expect('}')
		}
		p.i++
	}
}

// key reads a member's name: plain lower-case ASCII, so that no reader can take
// one name for another, in order, so that none can be there twice.
func (p *parser) key(seen [][]byte) ([]byte, error) {
	at := p.i
	if err := p.expect('"'); err != nil {
		return nil, err
	}
	from := p.i
	for c := p.peek(); c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_'; c = p.peek() {
		p.i++
	}
	key := p.b[from:p.i]
	if len(key) == 0 || p.peek() != '"' {
		return nil, p.fail("a key that is not lower-case letters, digits and _")
	}
	p.i++
	if len(seen) > 0 && bytes.Compare(seen[len(seen)-1], key) >= 0 {
		p.i = at
		for _, k := range seen {
			if bytes.Equal(k, key) {
				return nil, p.fail("the key %q is there twice,", key)
			}
		}
		return nil, p.fail("the key %q is out of order", key)
	}
	return key, nil
}

func (p *parser) value(depth int) error {
	switch c := p.peek(); {
	case c == '"':
		return p.text()
	case c == '{':
		return p.object(depth + 1)
	case c == '[':
		return p.array(depth + 1)
	case c == '-' || c >= '0' && c <= '9':
		return p.number()
	case c == 't':
		return p.literal("true")
	case c == 'f':
		return p.literal("false")
	}
	if p.i >= len(p.b) {
		return p.fail("the line ends where a value belongs")
	}
	return p.fail("%q stands where a value belongs", p.b[p.i])
}

func (p *parser) literal(word string) error {
	if !bytes.HasPrefix(p.b[p.i:], []byte(word)) {
		return p.fail("not a value")
	}
	p.i += len(word)
	return nil
}

func (p *parser) array(depth int) error {
	if depth > maxDepth {
		return p.fail("nested too deeply")
	}
	p.i++
	if p.peek() == ']' {
		p.i++
		return nil
	}
	for {
		if err := p.value(depth); err != nil {
			return err
		}
		if p.peek() != ',' {
			return p.expect(']')
		}
		p.i++
	}
}

// number reads an integer without sign or zeros that it does not need.
func (p *parser) number() error {
	from := p.i
	if p.peek() == '-' {
		p.i++
	}
	digits := p.i
	for c := p.peek(); c >= '0' && c <= '9'; c = p.peek() {
		p.i++
	}
	n := p.b[digits:p.i]
	if len(n) == 0 || len(n) > 20 || n[0] == '0' && (len(n) > 1 || digits > from) {
		p.i = from
		return p.fail("a number that is not a plain integer")
	}
	return nil
}

func (p *parser) text() error {
	p.i++
	for p.i < len(p.b) {
		switch c := p.b[p.i]; {
		case c == '"':
			p.i++
			return nil
		case c == '\\':
			if p.i+1 >= len(p.b) || p.b[p.i+1] != '"' && p.b[p.i+1] != '\\' {
				return p.fail("an escape that is not needed")
			}
			p.i += 2
		case c < 0x20 || c == 0x7f:
			return p.fail("a control character")
		case c < utf8.RuneSelf:
			p.i++
		default:
			r, n := utf8.DecodeRune(p.b[p.i:])
			if r == utf8.RuneError && n == 1 {
				return p.fail("bytes that are not UTF-8")
			}
			if unicode.IsControl(r) {
				return p.fail("a control character")
			}
			p.i += n
		}
	}
	return p.fail("the line ends inside a string")
}
