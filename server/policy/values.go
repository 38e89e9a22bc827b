package policy

import (
	"encoding/json"
	"path"
	"regexp"
	"strings"

	"golang.org/x/text/unicode/norm"

	"github.com/countersign-mcp/countersign/approvals/action"
)

// An absent argument passes all of these checks; a value of another type passes
// none.

// bound is a number as the policy has it.
type bound struct {
	decimal
	literal string
}

// bounds compares a number's literal with others, as decimals, both ends
// included.
type bounds struct{ least, most *bound }

func (b bounds) judge(raw json.RawMessage, _ *steps) string {
	if raw == nil {
		return ""
	}
	if action.TypeOf(raw) != "number" {
		return "is not a number"
	}
	switch d := newDecimal(string(raw)); {
	case b.least != nil && d.compare(b.least.decimal) < 0:
		return "is less than " + b.least.literal
	case b.most != nil && d.compare(b.most.decimal) > 0:
		return "is more than " + b.most.literal
	}
	return ""
}

// matching compares a whole string with a regular expression.
type matching struct{ whole form }

func (m matching) judge(raw json.RawMessage, left *steps) string {
	return ofText(raw, func(s string) string {
		switch found, ok := m.whole.match(s, left); {
		case !ok:
			return "is too long to look for the form that it should have"
		case !found:
			return "does not have the form that it should"
		}
		return ""
	})
}

// ofText applies a check to a string.
func ofText(raw json.RawMessage, check func(string) string) string {
	if raw == nil {
		return ""
	}
	s, ok := action.Text(raw)
	if !ok {
		return "is not a string"
	}
	return check(s)
}

// choice is a list of the values that may be.
type choice struct{ options map[option]bool }

type option struct {
	kind   string // as in action.TypeOf
	text   string
	number decimal
}

func (c choice) judge(raw json.RawMessage, _ *steps) string {
	if raw == nil {
		return ""
	}
	o := option{kind: action.TypeOf(raw)}
	switch o.kind {
	case "number":
		o.number = newDecimal(string(raw))
	case "string":
		var ok bool
		if o.text, ok = action.Text(raw); !ok {
			return "is not a string"
		}
	default:
		o.text = string(raw)
	}
	if c.options[o] {
		return ""
	}
	return "is not one of the values that may be"
}

// inside wants an absolute path at or below one of the roots, in its plainest
// writing, so that it means the same to whoever opens it. Only the text is looked
// at: what a symbolic link leads to is not seen from here.
type inside struct{ roots []string }

func (c inside) judge(raw json.RawMessage, _ *steps) string {
	return ofText(raw, func(p string) string {
		if why := badPath(p); why != "" {
			return why
		}
		for _, root := range c.roots {
			if p == root || root == "/" || strings.HasPrefix(p, root+"/") {
				return ""
			}
		}
		return "is not within a directory that it may be in"
	})
}

// hidden are the writings of dots, separators and NUL that a decoder of URLs
// would undo, of the percent sign, which a second one would, and of the bytes that
// begin a needlessly long form of one of them.
var hidden = regexp.MustCompile(`(?i)%(2e|2f|5c|25|00|c0|c1|e0%80|f0%80)`)

// badPath is what is wrong with a path; "" when nothing is.
func badPath(p string) string {
	switch {
	case !strings.HasPrefix(p, "/"):
		return "is not an absolute path"
	case strings.ContainsFunc(p, func(r rune) bool { return r == '\\' || r == '\n' || r == '\t' || unseen(r) }):
		return "has a backslash or a control character"
	case hidden.MatchString(p):
		return "has an encoded dot or separator"
	case path.Clean(p) != p:
		return "is not a plain path (no . or .. or double slash, and no slash at the end)"
	case disguised(p):
		return "has a dot or a separator in disguise"
	}
	return ""
}

// disguised tells whether a path gets another dot, separator or percent sign by
// compatibility normalisation, or has a part that some systems take for . or ..
// since they drop blanks and dots at its end.
func disguised(p string) bool {
	for rest := strings.TrimPrefix(p, "/"); rest != ""; {
		var part string
		part, rest, _ = strings.Cut(rest, "/")
		if strings.Trim(part, ". ") == "" {
			return true
		}
	}
	plain := norm.NFKC.String(p)
	for _, c := range []string{".", "/", `\`, "%"} {
		if strings.Count(plain, c) != strings.Count(p, c) {
			return true
		}
	}
	return false
}
