package redact

import (
	"regexp"
	"regexp/syntax"
)

// Bounds of a schema's patterns: repetitions are short to write and long to run. A
// pattern beyond them declares nothing.
const (
	schemaRegex = 64  // patterns in all
	exprBytes   = 500 // of one
	exprWeight  = 1000
	exprRuns    = 20_000_000 // instructions on bytes, of all patterns on all names
)

// expr is a pattern of names.
type expr struct {
	*regexp.Regexp
	weight int
}

// readExpr returns nil for what can't be read or would be too much.
func readExpr(text string) *expr {
	if len(text) > exprBytes {
		return nil
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil
	}
	w := weigh(parsed)
	if w > exprWeight {
		return nil
	}
	re, err := regexp.Compile(text)
	if err != nil {
		return nil
	}
	return &expr{re, w}
}

// weigh is about how many instructions an expression comes to, more than exprWeight
// where it is too many. It makes none of them.
func weigh(re *syntax.Regexp) int {
	sum := 1
	if re.Op == syntax.OpLiteral {
		sum += len(re.Rune)
	}
	for _, sub := range re.Sub {
		if sum += weigh(sub); sum > exprWeight {
			return sum
		}
	}
	if re.Op == syntax.OpRepeat {
		sum *= max(re.Min, re.Max, 1)
	}
	return sum
}

// matches tells whether a name is one that a pattern speaks of; none is when the
// patterns have run for too long.
func (d *document) matches(e *expr, name string) bool {
	if d.runs += (1 + len(name)) * e.weight; d.runs > exprRuns {
		return false
	}
	return e.MatchString(name)
}
