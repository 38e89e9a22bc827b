package redact

import (
	"encoding/json"
	"strings"

	"github.com/countersign-mcp/countersign/approvals/action"
)

// row tells which items of an array are masked for what stands beside them:
// ["--password","x"], ["Authorization","x"], and a PEM block that is kept as its
// lines.
type row struct {
	names names
	pair  bool // two items: the name of a secret and its value
	flag  bool // the item before is an option that takes a secret
	open  bool // a PEM block began and has not ended
	n     int
}

func (n names) row(raw json.RawMessage) row {
	r := row{names: n}
	var first []json.RawMessage
	for v := range action.Items(raw) {
		if first = append(first, v); len(first) > 2 {
			return r
		}
	}
	if len(first) == 2 && action.TypeOf(first[1]) == "string" {
		name, ok := action.Text(first[0])
		value, _ := action.Text(first[1])
		r.pair = ok && n.secret(name, false) && !n.secret(value, false)
	}
	return r
}

// hides takes the next item and tells whether it is masked.
func (r *row) hides(raw json.RawMessage) bool {
	kind := action.TypeOf(raw)
	s, _ := action.Text(raw)
	hide := kind == "string" && (r.open || r.pair && r.n == 1 || r.flag && !strings.HasPrefix(s, "-")) || r.flag && kind == "number"
	r.n++
	r.flag = kind == "string" && r.names.option(s)
	switch {
	case r.open:
		r.open = !pemEnd.MatchString(s)
	case strings.Contains(s, "BEGIN "):
		r.open = openPEM(s)
	}
	return hide
}

// option tells whether a text is an option whose value is a secret.
func (n names) option(s string) bool {
	name := strings.TrimLeft(s, "-")
	dashes := len(s) - len(name)
	return dashes > 0 && dashes <= 2 && len(name) >= 3 && !strings.HasPrefix(name, "no-") && run(name, 0, tokenByte) == len(name) && n.secret(name, false)
}

// openPEM tells whether a block begins in s and does not end.
func openPEM(s string) bool {
	for {
		at := pemBegin.FindStringIndex(s)
		if at == nil {
			return false
		}
		s = s[at[1]:]
		if at = pemEnd.FindStringIndex(s); at == nil {
			return true
		}
		s = s[at[1]:]
	}
}

// isPair tells whether an object is the name of a secret and its value:
// {"name": "Authorization", "value": "…"}, or sets one by its path as JSON Patch
// does.
func (d *drawing) isPair(raw json.RawMessage) bool {
	patch, path := false, false
	for name, v := range action.Fields(raw) {
		switch strings.ToLower(name) {
		case "name", "key", "header", "field", "variable", "var", "k", "param", "parameter", "property", "attribute", "setting":
			if s, ok := action.Text(v); ok && d.names.secret(s, false) {
				return true
			}
		case "path":
			s, ok := action.Text(v)
			path = ok && strings.HasPrefix(s, "/") && d.names.secret(s, false)
		case "op":
			patch = true
		}
	}
	return patch && path
}

// isValue tells whether a member of a pair is its value.
func isValue(name string) bool {
	switch strings.ToLower(name) {
	case "value", "val", "v", "values", "default", "old", "new", "oldvalue", "newvalue", "old_value", "new_value":
		return true
	}
	return false
}

// plainSecret tells whether a value can be nothing but a secret's one word, or a
// number. A scheme may stand before it: "Bearer x".
func plainSecret(v json.RawMessage) bool {
	switch action.TypeOf(v) {
	case "number":
		return len(v) <= 256
	case "string":
		s, _ := action.Text(v)
		if word, rest, ok := strings.Cut(s, " "); ok && isScheme(word) {
			s = rest
		}
		return s == "" || bounded(s)
	}
	return false
}
