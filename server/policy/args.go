package policy

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/countersign-mcp/countersign/approvals/action"
)

// argRule is what the policy says about one argument. The first check that
// objects decides.
type argRule struct {
	name    string
	pointer string // of the argument, as in reason ids
	kind    string // the only type that passes; empty when there are several
	checks  []check
	line    int
}

// judge is what is wrong with the argument, without its value; "" when nothing
// is. nil is an absent one.
func (r *argRule) judge(raw json.RawMessage, left *steps) string {
	for _, c := range r.checks {
		if why := c.judge(raw, left); why != "" {
			return why
		}
	}
	return ""
}

// check looks at one argument. raw is nil when the argument is absent. It returns
// what is wrong, without the value; "" when nothing is.
type check interface {
	judge(raw json.RawMessage, left *steps) string
}

// newArgRule takes the argument's name as it stands in the file.
func newArgRule(name *yaml.Node, checks ...check) argRule {
	return argRule{name: name.Value, pointer: "/" + action.EscapePointer(name.Value), checks: checks, line: name.Line}
}

// required refuses an argument that is absent or null.
type required struct{}

func (required) judge(raw json.RawMessage, _ *steps) string {
	if raw == nil || raw[0] == 'n' {
		return "is required"
	}
	return ""
}

// typed refuses a value of another type. Absent passes.
type typed struct{ want string }

var jsonTypes = []string{"string", "number", "integer", "boolean", "array", "object"}

func (c typed) judge(raw json.RawMessage, _ *steps) string {
	if raw == nil || c.want == action.TypeOf(raw) || c.want == "integer" && action.TypeOf(raw) == "number" && newDecimal(string(raw)).integral() {
		return ""
	}
	if strings.ContainsAny(c.want[:1], "aio") {
		return "is not an " + c.want
	}
	return "is not a " + c.want
}

// length bounds a string in code points, both ends included. It refuses what is
// not a string; absent passes unless strict.
type length struct {
	least, most int  // most < 0: no upper bound
	strict      bool // version 1: absent is refused
}

func (c length) judge(raw json.RawMessage, _ *steps) string {
	if raw == nil {
		if c.strict {
			return "is required"
		}
		return ""
	}
	s, ok := action.Text(raw)
	if !ok {
		return "is not a string"
	}
	switch n := utf8.RuneCountInString(s); {
	case n < c.least:
		return fmt.Sprintf("is shorter than %d characters", c.least)
	case c.most >= 0 && n > c.most:
		return fmt.Sprintf("is longer than %d characters", c.most)
	}
	return ""
}
