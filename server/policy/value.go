package policy

import (
	"errors"
	"strconv"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"github.com/countersign-mcp/countersign/approvals/action"
)

// What has no exact counterpart among a condition's values is an error value, and
// so is whatever is computed from it.
var (
	errNumber = errors.New("a number is not exactly one that a condition can compute with")
	errText   = errors.New("a string is not valid")
)

// value converts one JSON value. Objects and arrays are converted part by part,
// when a condition asks for one.
func value(raw []byte) ref.Val {
	switch raw[0] {
	case '"':
		if len(raw) >= 2 && verbatim(raw) {
			return types.String(raw[1 : len(raw)-1])
		}
		s, ok := action.Text(raw)
		if !ok {
			return types.WrapErr(errText)
		}
		return types.String(s)
	case '{':
		return &object{group: group{raw: raw}}
	case '[':
		return &list{group{raw: raw}}
	case 't':
		return types.True
	case 'f':
		return types.False
	case 'n':
		return types.NullValue
	}
	return number(string(raw))
}

// number is an int when the value is whole and fits one, else the double whose
// shortest decimal has the literal's value. No other literal has a number: a
// condition would compute with something that the upstream may not see.
func number(literal string) ref.Val {
	if !numberForm.MatchString(literal) {
		return types.WrapErr(errNumber)
	}
	if len(literal) <= 18 {
		if n, err := strconv.ParseInt(literal, 10, 64); err == nil {
			return types.Int(n)
		}
	}
	exact := newDecimal(literal)
	if n, ok := exact.int64(); ok {
		return types.Int(n)
	}
	f, err := strconv.ParseFloat(literal, 64)
	if err != nil || newDecimal(strconv.FormatFloat(f, 'e', -1, 64)).compare(exact) != 0 {
		return types.WrapErr(errNumber)
	}
	return types.Double(f)
}

// group is what objects and lists have in common: parts that are found at the
// first question, and converted at the first question for each. One goroutine
// uses it, for one judgement.
type group struct {
	raw    []byte
	read   bool
	broken bool // raw is not what it should be: somebody skipped the parser
	parts  []span
	few    [12]span
	values []ref.Val
}

func (g *group) load() {
	if !g.read {
		parts, ok := split(g.few[:0], g.raw)
		g.parts, g.read, g.broken = parts, true, !ok
	}
}

func (g *group) at(i int) ref.Val {
	if g.values == nil {
		g.values = make([]ref.Val, len(g.parts))
	}
	if g.values[i] == nil {
		g.values[i] = value(g.parts[i].value)
	}
	return g.values[i]
}
