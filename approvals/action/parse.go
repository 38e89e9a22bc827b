package action

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// JSON-RPC error codes that a [Malformed] carries.
const (
	CodeParse          = -32700 // not JSON as this package accepts it
	CodeInvalidRequest = -32600 // JSON, but not one JSON-RPC 2.0 message
	CodeInvalidParams  = -32602 // a message whose params have the wrong shape
)

// Parse reads one JSON-RPC 2.0 message in one pass. What it accepts has one
// meaning for every decoder: see [Check] for the rules of JSON, which hold for
// the whole message, with one exception: inside a response's result and error,
// names that differ only by case or form are let through, because nothing is
// judged on them and an answer that was given must not be lost for its style.
//
// Beyond that it refuses batches, a jsonrpc member other than "2.0", an id that
// is neither a string nor an integer of 64 bits, a message that is both request
// and response, a response with both result and error or neither, params that
// are not an object, and names that only look like a member the gate or the
// protocol reads ("Method", "argumentſ"). A tools/call needs a name and, if it has
// arguments, an object. Other members beside the known ones are ignored.
//
// The error is always a [*Malformed]. Its ID is set when the message had exactly
// one usable id, before or after the fault, except where the bytes stop being
// JSON before it.
func Parse(b []byte, l Limits) (Frame, error) {
	s := newScan(b, l)
	if m := s.open(); m != nil {
		return Frame{}, m
	}
	var e members
	switch s.dec.PeekKind() {
	case '{':
		s.object(func(name string, at int) { s.envelope(&e, name, at) }, envelopeNames, true)
	case '[':
		return Frame{}, &Malformed{Code: CodeInvalidRequest, Reason: "batches are not accepted; send one message at a time"}
	default:
		s.value(true)
		s.refuse(CodeInvalidRequest, "a message is an object")
	}
	s.end()
	f, m := e.frame()
	if s.bad != nil {
		m = s.bad
	}
	if m != nil {
		m.ID = nil
		if !s.idAmbiguous && checkID(e.id) == "" {
			m.ID = e.id
		}
		return Frame{}, m
	}
	return f, nil
}

// Check tells whether b is one JSON value as this project accepts it from
// strangers: valid UTF-8, no byte order mark, nothing after the value, no deeper
// and no longer than l, no object with a name twice, none with two names that
// are equal after compatibility normalisation and case folding, no control, format
// or other invisible character in a name, no name "__proto__", and none of more than
// 1024 bytes beyond ASCII. Escapes are decoded before names are compared. The error is a [*Malformed].
func Check(b []byte, l Limits) error {
	s := newScan(b, l)
	if m := s.open(); m != nil {
		return m
	}
	s.value(true)
	s.end()
	if s.bad != nil {
		return s.bad
	}
	return nil
}

// scan walks a message once. The first fault is kept and the walk goes on as
// long as the bytes are JSON, so that an id after the fault is still found.
type scan struct {
	b           []byte
	l           Limits
	dec         *jsontext.Decoder
	depth       int
	bad         *Malformed
	broken      bool // the bytes stopped being JSON
	idAmbiguous bool
}

func newScan(b []byte, l Limits) *scan {
	if l.Bytes <= 0 {
		l.Bytes = DefaultLimits.Bytes
	}
	if l.Depth <= 0 {
		l.Depth = DefaultLimits.Depth
	}
	return &scan{b: b, l: l}
}

// open refuses what needs no reading. Duplicate names are found by the scan's
// own comparison, which is coarser than the decoder's.
func (s *scan) open() *Malformed {
	if len(s.b) > s.l.Bytes {
		return &Malformed{Code: CodeParse, Reason: "longer than " + strconv.Itoa(s.l.Bytes) + " bytes"}
	}
	if bytes.HasPrefix(s.b, []byte("\xef\xbb\xbf")) {
		return &Malformed{Code: CodeParse, Reason: "begins with a byte order mark"}
	}
	s.dec = jsontext.NewDecoder(bytes.NewBuffer(s.b), jsontext.AllowDuplicateNames(true))
	return nil
}

func (s *scan) end() {
	if s.broken {
		return
	}
	_, err := s.dec.ReadToken()
	switch {
	case err == nil:
		s.refuse(CodeParse, "something follows the value")
		s.broken = true
	case !errors.Is(err, io.EOF):
		s.syntax(err)
	}
}

func (s *scan) refuse(code int, reason string) {
	if s.bad == nil {
		s.bad = &Malformed{Code: code, Reason: reason}
	}
}

// syntax records that the bytes are not JSON. The decoder's own words may quote
// the message, so only the place is told.
func (s *scan) syntax(err error) {
	s.broken = true
	at := s.dec.InputOffset()
	var se *jsontext.SyntacticError
	if errors.As(err, &se) {
		at = se.ByteOffset
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		s.refuse(CodeParse, "ends before it is complete")
		return
	}
	s.refuse(CodeParse, "not valid JSON in UTF-8 at byte "+strconv.FormatInt(at, 10))
}

// value walks one value and returns its exact bytes. With fold set, sibling
// names must differ by more than case and form.
func (s *scan) value(fold bool) json.RawMessage {
	if s.broken {
		return nil
	}
	switch s.dec.PeekKind() {
	case '{':
		return s.object(func(string, int) { s.value(fold) }, nil, fold)
	case '[':
		return s.array(fold)
	}
	v, err := s.dec.ReadValue()
	if err != nil {
		s.syntax(err)
		return nil
	}
	end := int(s.dec.InputOffset())
	return s.b[end-len(v) : end : end]
}

// enter reads the opening delimiter; false when the value is too deep, and then
// it was skipped.
func (s *scan) enter() (start int, ok bool) {
	if s.depth >= s.l.Depth {
		s.refuse(CodeParse, "nested deeper than "+strconv.Itoa(s.l.Depth))
		if err := s.dec.SkipValue(); err != nil {
			s.syntax(err)
		}
		return 0, false
	}
	if _, err := s.dec.ReadToken(); err != nil {
		s.syntax(err)
		return 0, false
	}
	s.depth++
	return int(s.dec.InputOffset()) - 1, true
}

func (s *scan) leave(start int) json.RawMessage {
	if _, err := s.dec.ReadToken(); err != nil {
		s.syntax(err)
		return nil
	}
	s.depth--
	end := int(s.dec.InputOffset())
	return s.b[start:end:end]
}

func (s *scan) array(fold bool) json.RawMessage {
	start, ok := s.enter()
	if !ok {
		return nil
	}
	for !s.broken && s.more(']') {
		s.value(fold)
	}
	if s.broken {
		return nil
	}
	return s.leave(start)
}

// more tells whether another element or member follows. At bad bytes it says
// yes: the next read then has the error.
func (s *scan) more(closing jsontext.Kind) bool { return s.dec.PeekKind() != closing }

// object walks an object. member is called for each name and must read the value
// with s.value or s.object. reserved names may not be imitated.
func (s *scan) object(member func(name string, at int), reserved map[string]string, fold bool) json.RawMessage {
	start, ok := s.enter()
	if !ok {
		return nil
	}
	var seen siblings
	for !s.broken && s.more('}') {
		raw, err := s.dec.ReadValue()
		if err != nil {
			s.syntax(err)
			return nil
		}
		at := int(s.dec.InputOffset()) - len(raw)
		name, ok := unquote(raw)
		if !ok {
			s.syntax(errors.New("name"))
			return nil
		}
		s.name(&seen, name, at, reserved, fold)
		member(name, at)
	}
	if s.broken {
		return nil
	}
	return s.leave(start)
}

func (s *scan) name(seen *siblings, name string, at int, reserved map[string]string, fold bool) {
	where := " at byte " + strconv.Itoa(at)
	if invisibleIn(name) {
		s.refuse(CodeParse, "a control or invisible character in the name"+where)
	}
	if fold {
		switch {
		case name == "__proto__":
			// Whoever merges such an object in JavaScript gets members that nobody judged.
			s.refuse(CodeParse, "a name"+where+" that JavaScript gives a meaning of its own")
		case len(name) > longestFolded && !isASCII(name):
			s.refuse(CodeParse, "the name"+where+" is longer than "+strconv.Itoa(longestFolded)+" bytes and not plain ASCII")
			return // folding it could take many times its size
		}
	}
	if seen.clash(name, fold) {
		s.refuse(CodeParse, "the name"+where+" stands twice in one object, exactly or but for case or form")
		s.idAmbiguous = s.idAmbiguous || s.depth == 1
	}
	if reserved == nil {
		return
	}
	if _, exact := reserved[name]; exact {
		return
	}
	a, b := foldKeys(name)
	for _, k := range [...]string{a, b} {
		if _, looksLike := reserved[k]; looksLike {
			s.refuse(CodeParse, "the name"+where+" only looks like a member of the protocol")
			s.idAmbiguous = s.idAmbiguous || s.depth == 1
		}
	}
}

// longestFolded is the longest name, in bytes, that is compared by its folded forms.
const longestFolded = 1024

// unquote decodes a JSON string that the decoder has accepted.
func unquote(raw []byte) (string, bool) {
	if len(raw) < 2 || raw[0] != '"' {
		return "", false
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1]), true
	}
	out, err := jsontext.AppendUnquote(nil, raw)
	return string(out), err == nil
}
