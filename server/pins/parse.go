package pins

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/server/redact"
)

// Invalid is a file that is not one of pins. Its text says where and what to do,
// with a stranger's names made visible.
type Invalid struct {
	Line   int    // from 1
	Where  string // the members that lead there, as "servers/desk/tools/cancel"; empty at the top
	Reason string
}

func (e *Invalid) Error() string {
	if e.Where == "" {
		return fmt.Sprintf("line %d: %s", e.Line, e.Reason)
	}
	return fmt.Sprintf("line %d, %s: %s", e.Line, e.Where, e.Reason)
}

// pinAgain is what to do about a file that is not as `policy pin` left it.
const pinAgain = "; put the file back as it was, or move it away and write it anew with: countersign policy pin"

// Parse reads a file of pins. Every error is an *Invalid.
func Parse(b []byte) (*File, error) {
	if len(b) > MaxFile {
		return nil, &Invalid{Line: 1, Reason: fmt.Sprintf("the file is larger than %d KiB", MaxFile>>10)}
	}
	r := &reader{b: b, dec: jsontext.NewDecoder(bytes.NewBuffer(b))}
	f := &File{Servers: map[string]Server{}}
	err := r.object(nil, func(at []string, name string) error {
		switch name {
		case "version":
			return r.version(at)
		case "servers":
			return r.object(at, func(at []string, name string) error {
				s, err := r.server(at)
				f.Servers[name] = s
				return err
			})
		}
		return r.unknown(at)
	}, "version", "servers")
	if err != nil {
		return nil, err
	}
	if _, err := r.dec.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, r.fault(nil, "something follows the end of the pins")
	}
	return f, nil
}

type reader struct {
	b     []byte
	dec   *jsontext.Decoder
	start int // of what was read last
}

// fault is an error at what was read last.
func (r *reader) fault(at []string, reason string) error {
	shown := make([]string, len(at))
	for i, name := range at {
		shown[i] = redact.Visible(name)
	}
	return &Invalid{Line: 1 + bytes.Count(r.b[:r.start], []byte("\n")), Where: strings.Join(shown, "/"), Reason: reason}
}

// broken is an error of the decoder. Its own words may quote the file.
func (r *reader) broken(at []string, err error) error {
	r.start = int(r.dec.InputOffset())
	var se *jsontext.SyntacticError
	if errors.As(err, &se) {
		r.start = min(int(se.ByteOffset), len(r.b))
	}
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName):
		return r.fault(at, "a key stands here twice"+pinAgain)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return r.fault(at, "the file ends before it is complete"+pinAgain)
	}
	return r.fault(at, "this is not JSON in UTF-8"+pinAgain)
}

func (r *reader) unknown(at []string) error { return r.fault(at, "unknown key"+pinAgain) }

// object reads an object; member reads the value of each name. Names that are
// needed must all be there.
func (r *reader) object(at []string, member func(at []string, name string) error, needed ...string) error {
	if kind := r.dec.PeekKind(); kind != '{' && kind != 0 {
		r.start = int(r.dec.InputOffset())
		return r.fault(at, "this is not an object"+pinAgain)
	}
	if _, err := r.dec.ReadToken(); err != nil {
		return r.broken(at, err)
	}
	open := int(r.dec.InputOffset()) - 1
	var seen []string
	for r.dec.PeekKind() != '}' {
		raw, err := r.raw(at)
		if err != nil {
			return err
		}
		name, ok := action.Text(raw)
		if !ok {
			return r.fault(at, "this is not a key"+pinAgain)
		}
		seen = append(seen, name)
		if err := member(append(slices.Clip(at), name), name); err != nil {
			return err
		}
	}
	if _, err := r.dec.ReadToken(); err != nil {
		return r.broken(at, err)
	}
	for _, name := range needed {
		if !slices.Contains(seen, name) {
			r.start = open
			return r.fault(at, "the key "+name+" is missing"+pinAgain)
		}
	}
	return nil
}

// raw reads a whole value, as it stands in the file.
func (r *reader) raw(at []string) (json.RawMessage, error) {
	v, err := r.dec.ReadValue()
	if err != nil {
		return nil, r.broken(at, err)
	}
	end := int(r.dec.InputOffset())
	r.start = end - len(v)
	return r.b[r.start:end:end], nil
}

func (r *reader) version(at []string) error {
	raw, err := r.raw(at)
	if err == nil && string(raw) != version {
		err = r.fault(at, "this version of the file is not known here; use the countersign that wrote it, or pin anew")
	}
	return err
}

func (r *reader) text(at []string, into *string) error {
	raw, err := r.raw(at)
	if err != nil {
		return err
	}
	s, ok := action.Text(raw)
	if !ok {
		return r.fault(at, "this is not a text"+pinAgain)
	}
	*into = s
	return nil
}

func (r *reader) list(at []string, into *[]string) error {
	raw, err := r.raw(at)
	if err != nil {
		return err
	}
	if action.TypeOf(raw) != "array" {
		return r.fault(at, "this is not a list of texts"+pinAgain)
	}
	var out []string
	for item := range action.Items(raw) {
		s, ok := action.Text(item)
		if !ok {
			return r.fault(at, "this is not a list of texts"+pinAgain)
		}
		out = append(out, s)
	}
	*into = out
	return nil
}

// names reads a list that is a set.
func (r *reader) names(at []string, into *[]string) error {
	if err := r.list(at, into); err != nil {
		return err
	}
	slices.Sort(*into)
	if len(slices.Compact(slices.Clone(*into))) != len(*into) {
		return r.fault(at, "a name stands here twice"+pinAgain)
	}
	return nil
}

func (r *reader) digest(at []string, into *action.Digest) error {
	var s string
	if err := r.text(at, &s); err != nil {
		return err
	}
	d, err := action.ParseDigest(s)
	if err != nil || d.Hex() != s {
		return r.fault(at, "this is not a digest: 64 hex digits in lower case"+pinAgain)
	}
	*into = d
	return nil
}

var serverKeys = []string{
	"transport", "command", "dir", "env", "package", "auth_path", "name", "version", "protocol", "capabilities", "identity", "tools",
}

func (r *reader) server(at []string) (Server, error) {
	var s Server
	identity := 0
	err := r.object(at, func(at []string, name string) error {
		switch name {
		case "transport":
			return r.text(at, &s.Transport)
		case "command":
			return r.list(at, &s.Command)
		case "dir":
			return r.text(at, &s.Dir)
		case "env":
			return r.names(at, &s.Env)
		case "package":
			return r.pkg(at, &s.Package)
		case "auth_path":
			return r.names(at, &s.AuthPath)
		case "name":
			return r.text(at, &s.Name)
		case "version":
			return r.text(at, &s.Version)
		case "protocol":
			return r.text(at, &s.Protocol)
		case "capabilities":
			return r.capabilities(at, &s.Capabilities)
		case "identity":
			err := r.digest(at, &s.Identity)
			identity = r.start
			return err
		case "tools":
			return r.object(at, func(at []string, name string) error { return r.tool(at, name, &s) })
		}
		return r.unknown(at)
	}, serverKeys...)
	if err != nil {
		return s, err
	}
	s.Tools = sortedTools(s.Tools)
	if !s.hidden() && s.Identity != action.ServerID(s.Command, s.Dir, s.Env, s.Name) {
		r.start = identity
		return s, r.fault(at, "the identity is not that of command, dir, env and name: something was edited by hand"+pinAgain)
	}
	return s, nil
}

func (r *reader) pkg(at []string, into *Package) error {
	return r.object(at, func(at []string, name string) error {
		switch name {
		case "kind":
			return r.text(at, &into.Kind)
		case "name":
			return r.text(at, &into.Name)
		case "version":
			return r.text(at, &into.Version)
		}
		return r.unknown(at)
	}, "kind", "name", "version")
}

func (r *reader) capabilities(at []string, into *json.RawMessage) error {
	raw, err := r.raw(at)
	if err != nil {
		return err
	}
	switch action.TypeOf(raw) {
	case "null":
		return nil
	case "object":
		if *into, err = action.Canonical(raw); err == nil {
			return nil
		}
	}
	return r.fault(at, "this is neither an object nor null"+pinAgain)
}

func (r *reader) tool(at []string, name string, s *Server) error {
	var said action.Digest
	var t Tool
	err := r.object(at, func(at []string, member string) error {
		switch member {
		case "digest":
			return r.digest(at, &said)
		case "definition":
			raw, err := r.raw(at)
			if err != nil {
				return err
			}
			canon, err := action.Canonical(raw)
			if err == nil {
				t, err = Define(canon)
			}
			switch {
			case err != nil:
				return r.fault(at, "this defines no tool"+pinAgain)
			case t.Name != name:
				return r.fault(at, "this defines a tool of another name"+pinAgain)
			}
			return nil
		}
		return r.unknown(at)
	}, "digest", "definition")
	if err != nil {
		return err
	}
	if said != t.Digest {
		return r.fault(at, "the digest is not that of the definition: one of them was edited by hand"+pinAgain)
	}
	s.Tools = append(s.Tools, t)
	return nil
}
