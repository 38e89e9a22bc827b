package policy

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/countersign-mcp/countersign/approvals/action"
)

// argRule is what the policy says about one argument. The first check that
// objects decides.
type argRule struct {
	name    string
	pointer string // of the argument, as in reason ids
	checks  []check
}

// check looks at one argument. raw is nil when the argument is absent. It returns
// what is wrong, without the value; "" when nothing is.
type check interface {
	judge(raw json.RawMessage) string
}

func newArgRule(name string, checks ...check) argRule {
	escaped := strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
	return argRule{name: name, pointer: "/" + escaped, checks: checks}
}

// required refuses an argument that is absent or null.
type required struct{}

func (required) judge(raw json.RawMessage) string {
	if raw == nil || raw[0] == 'n' {
		return "is required"
	}
	return ""
}

// typed refuses a value of another type. Absent passes.
type typed struct{ want string }

var types = []string{"string", "number", "integer", "boolean", "array", "object"}

func (c typed) judge(raw json.RawMessage) string {
	if raw == nil || c.want == action.TypeOf(raw) || c.want == "integer" && action.TypeOf(raw) == "number" && integral(string(raw)) {
		return ""
	}
	if strings.ContainsAny(c.want[:1], "aio") {
		return "is not an " + c.want
	}
	return "is not a " + c.want
}

// integral tells whether a number literal has a whole value, by its digits: no
// float is involved, so none is rounded.
func integral(literal string) bool {
	mantissa, exponent, _ := strings.Cut(strings.ToLower(literal), "e")
	whole, fraction, _ := strings.Cut(strings.TrimPrefix(mantissa, "-"), ".")
	fraction = strings.TrimRight(fraction, "0")
	digits := strings.TrimLeft(whole+fraction, "0")
	if digits == "" {
		return true // zero
	}
	shift := 0
	if exponent != "" {
		e, err := strconv.Atoi(exponent)
		if err != nil { // beyond any number of digits that fits a message
			return !strings.HasPrefix(exponent, "-")
		}
		shift = e
	}
	// value = digits × 10^(shift − len(fraction))
	trailing := len(digits) - len(strings.TrimRight(digits, "0"))
	return shift-len(fraction)+trailing >= 0
}

// length bounds a string in code points, both ends included. It refuses what is
// not a string; absent passes unless strict.
type length struct {
	least, most int  // most < 0: no upper bound
	strict      bool // version 1: absent is refused
}

func (c length) judge(raw json.RawMessage) string {
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
