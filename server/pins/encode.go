package pins

import (
	"fmt"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/action"
)

// version is the file's form.
const version = "1"

// Encode writes the file. Equal files have equal bytes, whatever order their
// upstreams gave things in, and nothing in them is invisible: characters that
// can't be seen are written as \uXXXX. What Parse reads, Encode writes again.
func (f *File) Encode() ([]byte, error) { return f.encode(MaxFile) }

func (f *File) encode(most int) ([]byte, error) {
	servers := members{}
	for _, name := range f.Names() {
		s := f.Servers[name]
		b, err := s.encode()
		if err != nil {
			return nil, fmt.Errorf("writing the pins of %s: %w", name, err)
		}
		servers.add(name, b)
	}
	var top members
	top.add("version", []byte(version))
	top.add("servers", servers.object())
	v := jsontext.Value(top.object())
	if err := v.Indent(jsontext.WithIndent("  ")); err != nil {
		return nil, fmt.Errorf("writing the pins: %w", err)
	}
	out := append(Plain(v), '\n')
	if len(out) > most { // nobody could read it
		return nil, fmt.Errorf("writing the pins: they are larger than %d KiB", most>>10)
	}
	return out, nil
}

func (s *Server) encode() ([]byte, error) {
	capabilities := []byte("null")
	if s.Capabilities != nil {
		var err error
		if capabilities, err = action.Canonical(s.Capabilities); err != nil {
			return nil, fmt.Errorf("its capabilities: %w", err)
		}
	}
	var tools members
	for _, t := range sortedTools(s.Tools) {
		canon, err := action.Canonical(t.Raw)
		if err != nil {
			return nil, fmt.Errorf("the tool %q: %w", t.Name, err)
		}
		var tool members
		tool.text("digest", t.Digest.Hex())
		tool.add("definition", canon)
		tools.add(t.Name, tool.object())
	}
	var pkg, out members
	pkg.text("kind", s.Package.Kind)
	pkg.text("name", s.Package.Name)
	pkg.text("version", s.Package.Version)
	out.text("transport", s.Transport)
	out.list("command", s.Command)
	out.text("dir", s.Dir)
	out.list("env", s.Env)
	out.add("package", pkg.object())
	out.list("auth_path", s.AuthPath)
	out.text("name", s.Name)
	out.text("version", s.Version)
	out.text("protocol", s.Protocol)
	out.add("capabilities", capabilities)
	out.text("identity", s.Identity.Hex())
	out.add("tools", tools.object())
	return out.object(), nil
}

// members is an object that is being written.
type members struct{ b []byte }

func (m *members) add(name string, value []byte) {
	m.b = append(m.b, ',')
	m.b = append(m.b, quote(name)...)
	m.b = append(m.b, ':')
	m.b = append(m.b, value...)
}

func (m *members) text(name, value string) { m.add(name, quote(value)) }

func (m *members) list(name string, items []string) {
	b := []byte{'['}
	for i, s := range items {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, quote(s)...)
	}
	m.add(name, append(b, ']'))
}

func (m *members) object() []byte {
	if len(m.b) == 0 {
		return []byte("{}")
	}
	out := append([]byte{'{'}, m.b[1:]...)
	return append(out, '}')
}

// quote writes a string; what is no UTF-8 becomes U+FFFD.
func quote(s string) []byte {
	b, _ := jsontext.AppendQuote(nil, s) // the error only says that it did
	return b
}

// Plain writes a JSON text so that all of it can be seen: in strings, what is
// invisible or turns a line around stands as \uXXXX. The value stays the same.
func Plain(text []byte) []byte {
	var out []byte
	copied := 0
	for i := 0; i < len(text); {
		if text[i] < utf8.RuneSelf && text[i] != 0x7f {
			i++
			continue
		}
		r, n := utf8.DecodeRune(text[i:])
		if approvals.Invisible(r) {
			out = append(out, text[copied:i]...)
			out = appendEscape(out, r)
			copied = i + n
		}
		i += n
	}
	if copied == 0 {
		return text
	}
	return append(out, text[copied:]...)
}

func appendEscape(b []byte, r rune) []byte {
	if r > 0xffff {
		r -= 0x10000
		return fmt.Appendf(b, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
	}
	return fmt.Appendf(b, `\u%04x`, r)
}
