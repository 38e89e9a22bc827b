package action

import (
	"bytes"
	"encoding/json"
	"iter"

	"github.com/go-json-experiment/json/jsontext"
)

// The functions below read and change values that [Parse] or [Check] accepted.
// Of an object that was never checked, Member and SetMember see the first member of
// a name.

// Member returns the value of an object's member by its exact name, as it stands
// in the bytes. False when obj is not an object or has no such member.
func Member(obj json.RawMessage, name string) (json.RawMessage, bool) {
	for m := range walk(obj) {
		if m.name == name {
			return m.value, true
		}
	}
	return nil, false
}

// Fields yields the members of an object, names decoded and values as they
// stand; nothing when obj is not an object.
func Fields(obj json.RawMessage) iter.Seq2[string, json.RawMessage] {
	return func(yield func(string, json.RawMessage) bool) {
		for m := range walk(obj) {
			if !yield(m.name, m.value) {
				return
			}
		}
	}
}

// Items yields the elements of an array as they stand; nothing when arr is not
// an array.
func Items(arr json.RawMessage) iter.Seq[json.RawMessage] {
	return func(yield func(json.RawMessage) bool) {
		dec := jsontext.NewDecoder(bytes.NewBuffer(arr), jsontext.AllowDuplicateNames(true))
		if dec.PeekKind() != '[' {
			return
		}
		if _, err := dec.ReadToken(); err != nil {
			return
		}
		for dec.PeekKind() != ']' {
			v, err := dec.ReadValue()
			if err != nil {
				return
			}
			end := int(dec.InputOffset())
			if !yield(arr[end-len(v) : end : end]) {
				return
			}
		}
	}
}

// Text decodes a JSON string. False when raw is not one, or holds invalid UTF-8
// or a lone surrogate.
func Text(raw json.RawMessage) (string, bool) {
	raw = bytes.TrimSpace(raw)
	if len(raw) < 2 || raw[0] != '"' {
		return "", false
	}
	out, err := jsontext.AppendUnquote(nil, []byte(raw))
	if err != nil {
		return "", false
	}
	return string(out), true
}

// TypeOf names the JSON type of a value that begins at its first byte: string,
// number, boolean, null, object or array.
func TypeOf(raw json.RawMessage) string {
	switch raw[0] {
	case '"':
		return "string"
	case '{':
		return "object"
	case '[':
		return "array"
	case 't', 'f':
		return "boolean"
	case 'n':
		return "null"
	}
	return "number"
}

// SetMember returns a copy of obj in which the member has the given value, which
// must be JSON: in the old one's place, or at the end. All other bytes stay. An
// obj that is empty or not an object gives an object with this one member.
func SetMember(obj json.RawMessage, name string, value json.RawMessage) json.RawMessage {
	members := 0
	closing := -1
	for m := range walk(obj) {
		if m.name == name {
			return splice(obj, m.start, m.end, value)
		}
		members++
	}
	obj = bytes.TrimSpace(obj)
	if len(obj) >= 2 && obj[0] == '{' {
		closing = len(obj) - 1
	} else {
		obj, closing = json.RawMessage("{}"), 1
	}
	var add []byte
	if members > 0 {
		add = append(add, ',')
	}
	add, err := jsontext.AppendQuote(add, name)
	if err != nil {
		return bytes.Clone(obj) // a name that is not UTF-8 is no member
	}
	add = append(append(add, ':'), value...)
	return splice(obj, closing, closing, add)
}

// DropMember returns a copy of obj without the member, or obj itself when it has
// none. All other bytes stay, but for one comma and the blanks around the member.
func DropMember(obj json.RawMessage, name string) json.RawMessage {
	return DropMembers(obj, func(n string) bool { return n == name })
}

// DropMembers is DropMember for every member whose name drop says yes to, in one
// pass: a stranger's object may have very many of them.
func DropMembers(obj json.RawMessage, drop func(name string) bool) json.RawMessage {
	var out []byte
	copied := 0 // of obj, to out
	keptEnd, dropEnd := 0, 0
	run := -1 // where the members that are being left out begin
	for m := range walk(obj) {
		switch {
		case drop(m.name):
			if run < 0 {
				run = m.nameStart
			}
			dropEnd = m.end
			continue
		case run >= 0:
			out = append(out, obj[copied:run]...)
			copied, run = m.nameStart, -1
		}
		keptEnd = m.end
	}
	if run >= 0 {
		if keptEnd > 0 {
			run = keptEnd // the comma after it goes, too
		}
		out = append(out, obj[copied:run]...)
		copied = dropEnd
	}
	if copied == 0 {
		return obj
	}
	return append(out, obj[copied:]...)
}

func splice(b []byte, from, to int, mid []byte) json.RawMessage {
	out := make([]byte, 0, len(b)-(to-from)+len(mid))
	out = append(out, b[:from]...)
	out = append(out, mid...)
	return append(out, b[to:]...)
}

type member struct {
	name                  string
	value                 json.RawMessage
	nameStart, start, end int
}

// walk yields the members of an object; it stops where the bytes stop being one.
func walk(obj json.RawMessage) iter.Seq[member] {
	return func(yield func(member) bool) {
		dec := jsontext.NewDecoder(bytes.NewBuffer(obj), jsontext.AllowDuplicateNames(true))
		if dec.PeekKind() != '{' {
			return
		}
		if _, err := dec.ReadToken(); err != nil {
			return
		}
		for dec.PeekKind() == '"' {
			raw, err := dec.ReadValue()
			if err != nil {
				return
			}
			var m member
			m.nameStart = int(dec.InputOffset()) - len(raw)
			m.name, _ = unquote(raw)
			v, err := dec.ReadValue()
			if err != nil {
				return
			}
			m.end = int(dec.InputOffset())
			m.start = m.end - len(v)
			m.value = obj[m.start:m.end:m.end]
			if !yield(m) {
				return
			}
		}
	}
}

// Canonical is the form in which two writings of the same value are equal:
// RFC 8785's order of members, strings and blanks, but number literals stay as
// they were written, so none is refused or rounded: 1.0 and 1 differ, and so do
// 9007199254740993 and 9007199254740992.
func Canonical(raw json.RawMessage) ([]byte, error) {
	v := jsontext.Value(bytes.Clone(raw))
	if err := v.Canonicalize(jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false)); err != nil {
		return nil, &Malformed{Code: CodeParse, Reason: "no canonical form: not one JSON value with distinct names"}
	}
	return v, nil
}
