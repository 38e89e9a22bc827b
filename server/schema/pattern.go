package schema

import (
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode/utf8"
)

// maxProgram bounds the instructions of one pattern, and with it what reading one
// takes: repetitions are short to write and long to run.
const maxProgram = 5000

// pattern is a regular expression, and what of it other languages than Go read
// differently in some texts. The schema does not say which one its server goes by.
type pattern struct {
	*regexp.Regexp
	cost    int  // instructions
	classes bool // \w, \d, \s, \b, (?i): elsewhere some take more than ASCII
	dot     bool // "." leaves out more line ends than \n elsewhere
	end     bool // "$" also stands before a last \n elsewhere
	wide    bool // it takes characters that are two units in UTF-16
}

// pattern compiles a regular expression; nil where Go can't, where it is too long, or
// where it means something else elsewhere whatever the text is.
func (c *compiler) pattern(expr string) *pattern {
	c.patterns++
	c.expr += len(expr)
	if len(expr) > maxPattern || c.patterns > maxPatterns || c.expr > maxPatBytes || ambiguous(expr) {
		return nil
	}
	parsed, err := syntax.Parse(expr, syntax.Perl)
	if err != nil || weight(parsed) > maxProgram {
		return nil
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil || len(program.Inst) > maxProgram {
		return nil
	}
	re, err := regexp.Compile(expr)
	if err != nil {
		return nil
	}
	p := &pattern{Regexp: re, cost: len(program.Inst)}
	for _, class := range []string{`\s`, `\S`, `\w`, `\W`, `\d`, `\D`, `\b`, `\B`} {
		p.classes = p.classes || strings.Contains(expr, class)
	}
	p.look(parsed)
	return p
}

// ambiguous finds what is read as one thing here and as another elsewhere: a class of
// POSIX's or a list of characters, an empty class or one that begins with a bracket,
// a repetition without a least number or plain characters.
func ambiguous(expr string) bool {
	for _, s := range []string{"[[:", "[]", "[^]", "{,"} {
		if strings.Contains(expr, s) {
			return true
		}
	}
	return false
}

// weight is about how many instructions an expression compiles to, more than
// maxProgram where it is too many.
func weight(re *syntax.Regexp) int {
	sum := 1
	for _, sub := range re.Sub {
		if sum += weight(sub); sum > maxProgram {
			return sum
		}
	}
	if re.Op == syntax.OpLiteral {
		sum += len(re.Rune)
	}
	if re.Op == syntax.OpRepeat {
		sum *= max(re.Min, re.Max, 1)
	}
	return sum
}

func (p *pattern) look(re *syntax.Regexp) {
	switch re.Op {
	case syntax.OpAnyCharNotNL:
		p.dot, p.wide = true, true
	case syntax.OpAnyChar:
		p.wide = true
	case syntax.OpCharClass:
		p.wide = p.wide || len(re.Rune) > 0 && re.Rune[len(re.Rune)-1] > 0xFFFF
	case syntax.OpEndText:
		p.end = p.end || re.Flags&syntax.WasDollar != 0
	}
	p.classes = p.classes || re.Flags&syntax.FoldCase != 0
	for _, sub := range re.Sub {
		p.look(sub)
	}
}

// differs tells whether languages may disagree on the pattern in a text.
func (p *pattern) differs(s string) bool {
	if p.end && strings.HasSuffix(s, "\n") {
		return true
	}
	return strings.ContainsFunc(s, func(r rune) bool {
		return p.classes && (r >= utf8.RuneSelf || r == '\v' || 0x1c <= r && r <= 0x1f) ||
			p.dot && (r == '\r' || r == 0x85 || r == 0x2028 || r == 0x2029) ||
			p.wide && r > 0xFFFF
	})
}
