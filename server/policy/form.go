package policy

import (
	"regexp"
	"regexp/syntax"
	"strings"
)

// steps is what regular expressions may still cost in one judgement. An expression
// is matched in time proportional to its size times the text's length, and nothing
// can interrupt it. Steps are counted and time is not, so the same call is always
// judged alike.
type steps int

const (
	maxFormSize = 10_000     // characters that an expression can ask for, repetitions written out
	maxSteps    = 12_000_000 // size times bytes, of all of a judgement; 300 ms at the very worst

	stepsVariable = "@steps" // nobody can write it
)

// form is a regular expression whose cost is known.
type form struct {
	re   *regexp.Regexp
	size int
}

// newForm compiles an expression, to be found anywhere in a text or, where whole
// says so, to be all of it. wrong is what is wrong with it; empty when nothing is.
func newForm(text string, whole bool) (f form, wrong string) {
	// By itself first: what closes a group too early must not end the whole.
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return form{}, strings.TrimPrefix(err.Error(), "error parsing regexp: ")
	}
	if f.size = 1 + written(parsed); f.size > maxFormSize {
		return form{}, "it is too large; repeat less"
	}
	if whole {
		text = `\A(?:` + text + `)\z`
	}
	if f.re, err = regexp.Compile(text); err != nil { // at the limits of size
		return form{}, strings.TrimPrefix(err.Error(), "error parsing regexp: ")
	}
	return f, ""
}

// match tells whether the form is found. ok is false where the text is too long to
// look.
func (f form) match(text string, left *steps) (found, ok bool) {
	cost := steps(f.size) * steps(len(text))
	if *left < cost {
		*left = 0
		return false, false
	}
	*left -= cost
	return f.re.MatchString(text), true
}

// written counts the characters that an expression can ask for, with repetitions
// written out as they are compiled. It stops counting above what is allowed.
func written(re *syntax.Regexp) int {
	n := 0
	switch re.Op {
	case syntax.OpLiteral:
		n = len(re.Rune)
	case syntax.OpCharClass, syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		n = 1
	}
	for _, sub := range re.Sub {
		n = min(n+written(sub), maxFormSize+1)
	}
	if re.Op == syntax.OpRepeat {
		n *= max(re.Min, re.Max, 1)
	}
	return min(n, maxFormSize+1)
}

// halfBound tells whether an expression is a choice whose first way alone is bound
// to the text's beginning and whose last alone to its end, as in ^a|b$: meant is
// ^(a|b)$.
func halfBound(text string) bool {
	re, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return false
	}
	for re.Op == syntax.OpCapture {
		re = re.Sub[0]
	}
	if re.Op != syntax.OpAlternate {
		return false
	}
	first, last := re.Sub[0], re.Sub[len(re.Sub)-1]
	return edge(first, 0) == syntax.OpBeginText && edge(first, -1) != syntax.OpEndText &&
		edge(last, -1) == syntax.OpEndText && edge(last, 0) != syntax.OpBeginText
}

// edge is the first or the last part of a concatenation.
func edge(re *syntax.Regexp, at int) syntax.Op {
	for re.Op == syntax.OpConcat || re.Op == syntax.OpCapture {
		if at < 0 {
			re = re.Sub[len(re.Sub)-1]
		} else {
			re = re.Sub[0]
		}
	}
	return re.Op
}
