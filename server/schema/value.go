package schema

import (
	"bytes"
	"errors"
	"io"

	"github.com/go-json-experiment/json/jsontext"
)

// kind is a JSON type, as one bit so that sets of them are numbers.
type kind uint8

const (
	null kind = 1 << iota
	boolean
	number
	text
	array
	object

	anything = null | boolean | number | text | array | object
)

// value is a JSON value, decoded once: it is looked at by many keywords.
type value struct {
	kind  kind
	text  string // a string decoded, a number as written, true or false
	kids  []value
	names []string       // of an object's members, as long as kids
	index map[string]int // of a large object; nil for a small one
}

// indexed is how many members are found faster by a map.
const indexed = 12

var errTooLarge = errors.New("too deep, or too many values")

// decode reads one JSON value of at most so many values in all and so deep.
func decode(raw []byte, most, depth int) (value, error) {
	d := decoder{Decoder: jsontext.NewDecoder(bytes.NewBuffer(raw)), left: most}
	v, err := d.value(depth)
	if err != nil {
		return value{}, err
	}
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return value{}, errors.New("something follows the value")
	}
	return v, nil
}

type decoder struct {
	*jsontext.Decoder
	left int
}

func (d *decoder) value(depth int) (v value, err error) {
	if d.left--; d.left < 0 || depth < 0 {
		return v, errTooLarge
	}
	t, err := d.ReadToken()
	if err != nil {
		return v, err
	}
	switch t.Kind() {
	case 'n':
		v.kind = null
	case 't', 'f':
		v.kind, v.text = boolean, t.String()
	case '"':
		v.kind, v.text = text, t.String()
	case '0':
		v.kind, v.text = number, t.String() // the literal, as it was written
	case '[':
		v.kind = array
		for d.PeekKind() != ']' {
			kid, err := d.value(depth - 1)
			if err != nil {
				return v, err
			}
			v.kids = append(v.kids, kid)
		}
		_, err = d.ReadToken()
	case '{':
		v.kind = object
		for d.PeekKind() != '}' {
			name, err := d.ReadToken()
			if err != nil {
				return v, err
			}
			v.names = append(v.names, name.String())
			kid, err := d.value(depth - 1)
			if err != nil {
				return v, err
			}
			v.kids = append(v.kids, kid)
		}
		if len(v.names) > indexed {
			v.index = make(map[string]int, len(v.names))
			for i, name := range v.names {
				v.index[name] = i
			}
		}
		_, err = d.ReadToken()
	}
	return v, err
}

// member is an object's member of a name; nil when there is none.
func (v *value) member(name string) *value {
	if v.index != nil {
		if i, ok := v.index[name]; ok {
			return &v.kids[i]
		}
		return nil
	}
	for i, n := range v.names {
		if n == name {
			return &v.kids[i]
		}
	}
	return nil
}

// truth is a boolean's value.
func (v *value) truth() bool { return v.kind == boolean && v.text == "true" }

// canon appends a form in which two values are the same bytes exactly when JSON
// Schema calls them equal: numbers by value, members in order of their names.
func (v *value) canon(out []byte) []byte {
	switch v.kind {
	case number:
		return newDecimal(v.text).canon(out)
	case text:
		return quoted(out, v.text)
	case array:
		out = append(out, '[')
		for i := range v.kids {
			out = append(v.kids[i].canon(out), ',')
		}
		return append(out, ']')
	case object:
		out = append(out, '{')
		for _, i := range v.ordered() {
			out = append(quoted(out, v.names[i]), ':')
			out = append(v.kids[i].canon(out), ',')
		}
		return append(out, '}')
	case null:
		return append(out, 'n')
	}
	return append(out, v.text...)
}
