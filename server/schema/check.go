package schema

import (
	"bytes"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// MaxSteps bounds one check: a step is one schema or member looked at, or a few
// bytes compared.
const MaxSteps = 1_000_000

const (
	maxArgs  = 100_000 // values in the arguments
	argDepth = 128
	maxNest  = 2_000 // schemas within schemas, on the way
	perStep  = 16    // bytes compared in a step
	perRun   = 4     // instructions of a pattern run, each on one byte, in a step
)

// Refusal says which rule of the schema the arguments break, and where. It holds
// nothing of the arguments but the names on the way there.
type Refusal struct {
	Pointer string // RFC 6901, into the arguments; of what is missing, where it would be
	Rule    string // the schema's keyword; "too_complex" where the check was given up
	Want    string // what the rule asks for, where that is short; may be empty
}

func (r *Refusal) Error() string {
	at := r.Pointer
	if at == "" {
		at = "the arguments"
	}
	if r.Want == "" {
		return at + ": " + r.Rule
	}
	return at + ": " + r.Rule + " (" + r.Want + ")"
}

// TooComplex is the rule of a Refusal whose arguments could not be judged within the
// bounds.
const TooComplex = "too_complex"

// Verdict is what a schema says of arguments.
type Verdict struct {
	// Refused is why they don't fit; nil where they do, or where that can't be known.
	Refused *Refusal
	// Gaps are the keywords that the outcome hangs on and that can't be judged, sorted.
	// Without them and without Refused the arguments fit.
	Gaps []string
}

// Check judges arguments: one JSON value, "{}" where a call has none.
func (s *Schema) Check(args []byte) Verdict {
	v, err := decode(args, maxArgs, argDepth)
	if err != nil {
		return Verdict{Refused: &Refusal{Rule: TooComplex}}
	}
	e := &evaluation{left: MaxSteps, gaps: map[string]bool{}}
	outcome := e.node(s.root, &v)
	switch {
	case e.over:
		return Verdict{Refused: &Refusal{Rule: TooComplex}}
	case outcome == no && e.fault == nil: // a rule that says so without its place
		return Verdict{Refused: &Refusal{Rule: "schema"}}
	case outcome == no:
		return Verdict{Refused: e.fault}
	case outcome == maybe:
		return Verdict{Gaps: slices.Sorted(maps.Keys(e.gaps))}
	}
	return Verdict{}
}

// truth is whether a value fits: it does, it does not, or a gap decides.
type truth uint8

const (
	yes truth = iota
	maybe
	no
)

// evaluation is one check under way.
type evaluation struct {
	left  int
	over  bool // the bounds are reached; nothing that follows means anything
	nest  int
	quiet int // within what may fail without the whole failing
	path  []string
	fault *Refusal
	gaps  map[string]bool
	trail []visit // references that are being followed
}

type visit struct {
	n *node
	v *value
}

// spend takes steps; false when there are none left.
func (e *evaluation) spend(steps int) bool {
	if e.left -= steps; e.left < 0 {
		e.over = true
	}
	return !e.over
}

// heard tells whether a broken rule would be recorded. Where it is not, nothing is
// put to words: there may be a million of them.
func (e *evaluation) heard() bool { return e.quiet == 0 && e.fault == nil }

// no records the first broken rule that counts.
func (e *evaluation) no(rule, want string, at ...string) truth {
	if e.heard() {
		e.fault = &Refusal{Pointer: pointer(append(slices.Clone(e.path), at...)), Rule: rule, Want: want}
	}
	return no
}

// longPointer is how long a pointer is told in full.
const longPointer = 300

func pointer(path []string) string {
	var b strings.Builder
	for _, step := range path {
		if b.Len()+len(step) > longPointer {
			return b.String() + "/…"
		}
		b.WriteString("/" + escape(step))
	}
	return b.String()
}

func (e *evaluation) gap(keyword string) truth {
	e.gaps[keyword] = true
	return maybe
}

// aside judges what may fail without the whole failing.
func (e *evaluation) aside(n *node, v *value) truth {
	e.quiet++
	defer func() { e.quiet-- }()
	return e.node(n, v)
}

// kid judges a member or an element.
func (e *evaluation) kid(n *node, v *value, step string) truth {
	e.path = append(e.path, step)
	defer func() { e.path = e.path[:len(e.path)-1] }()
	return e.node(n, v)
}

// node judges a value by all that a schema says: one no is a no, and else one gap
// leaves it open.
func (e *evaluation) node(n *node, v *value) truth {
	if !e.spend(1) {
		return maybe
	}
	if n.never {
		return e.no("false", "nothing is allowed here")
	}
	if e.nest++; e.nest > maxNest {
		e.over = true
	}
	defer func() { e.nest-- }()
	out := yes
	for _, judge := range judges {
		if out = max(out, judge(e, n, v)); out == no || e.over {
			return out
		}
	}
	return out
}

// judges are tried in this order: the plain reasons before those that need more.
var judges []func(*evaluation, *node, *value) truth

func init() { // they judge by nodes themselves
	judges = []func(*evaluation, *node, *value) truth{
		(*evaluation).types, (*evaluation).values, (*evaluation).numbers, (*evaluation).texts,
		(*evaluation).objects, (*evaluation).arrays, (*evaluation).logic, (*evaluation).reference, (*evaluation).unread,
	}
}

func (e *evaluation) unread(n *node, v *value) truth {
	out := yes
	for _, g := range n.gaps {
		if g.of&v.kind != 0 {
			out = e.gap(g.keyword)
		}
	}
	return out
}

// reference follows a reference. One that leads back to itself at the same value
// says nothing.
func (e *evaluation) reference(n *node, v *value) truth {
	if n.ref == nil {
		return yes
	}
	here := visit{n.ref, v}
	if !e.spend(1+len(e.trail)/perStep) || slices.Contains(e.trail, here) {
		return e.gap("$ref")
	}
	e.trail = append(e.trail, here)
	defer func() { e.trail = e.trail[:len(e.trail)-1] }()
	return e.node(n.ref, v)
}

func (e *evaluation) types(n *node, v *value) truth {
	if n.types == 0 {
		return yes
	}
	if n.types&v.kind == 0 || v.kind == number && n.whole && !newDecimal(v.text).whole() {
		if n.null && v.kind == null { // a word of OpenAPI's, which some validators go by
			return e.gap("nullable")
		}
		if !e.heard() {
			return no
		}
		return e.no("type", n.typeNames())
	}
	return yes
}

func (n *node) typeNames() string {
	var names []string
	for _, name := range []string{"array", "boolean", "integer", "null", "number", "object", "string"} {
		if k := typeNames[name]; n.types&k != 0 && (k != number || n.whole == (name == "integer")) {
			names = append(names, name)
		}
	}
	return strings.Join(names, " or ")
}

func (e *evaluation) values(n *node, v *value) truth {
	if n.enums == nil {
		return yes
	}
	if !e.spend(4 + v.size()/perStep) {
		return maybe
	}
	form := v.canon(nil)
	for _, enum := range n.enums {
		if !e.spend(len(enum)) {
			return maybe
		}
		if !slices.ContainsFunc(enum, func(one []byte) bool { return bytes.Equal(one, form) }) {
			return e.no("enum", "")
		}
	}
	return yes
}

func (e *evaluation) numbers(n *node, v *value) truth {
	if v.kind != number || n.min == nil && n.max == nil && n.over == nil && n.under == nil && n.step == nil {
		return yes
	}
	if !e.spend(len(v.text) / perStep) {
		return maybe
	}
	d := newDecimal(v.text)
	switch {
	case n.min != nil && d.compare(*n.min) < 0:
		return e.beyond("minimum", n.min)
	case n.max != nil && d.compare(*n.max) > 0:
		return e.beyond("maximum", n.max)
	case n.over != nil && d.compare(*n.over) <= 0:
		return e.beyond("exclusiveMinimum", n.over)
	case n.under != nil && d.compare(*n.under) >= 0:
		return e.beyond("exclusiveMaximum", n.under)
	case n.step != nil:
		if !e.spend(d.dividing(*n.step)) {
			return maybe
		}
		is, known := d.multiple(*n.step)
		if !known {
			e.over = true
		} else if !is {
			return e.beyond("multipleOf", n.step)
		}
	}
	return yes
}

func (e *evaluation) beyond(rule string, bound *decimal) truth {
	if !e.heard() {
		return no
	}
	return e.no(rule, bound.brief())
}

// brief is a number in few words; empty where it takes many.
func (d decimal) brief() string {
	if len(d.digits) > 20 || d.point > 20 || d.point < -20 {
		return ""
	}
	f, err := strconv.ParseFloat("0."+d.digits+"e"+strconv.FormatInt(d.point, 10), 64)
	if d.whole() { // exactly
		whole := d.digits + strings.Repeat("0", int(d.point)-len(d.digits))
		if whole == "" {
			whole = "0"
		}
		if d.negative {
			whole = "-" + whole
		}
		return whole
	}
	if err != nil {
		return ""
	}
	if d.negative {
		f = -f
	}
	return strconv.FormatFloat(f, 'g', -1, 64)
}

func (e *evaluation) texts(n *node, v *value) truth {
	if v.kind != text {
		return yes
	}
	out := yes
	if n.minLen != nil || n.maxLen != nil {
		if !e.spend(len(v.text) / perStep) {
			return maybe
		}
		if out = e.length(n, v.text); out == no {
			return out
		}
	}
	if n.pattern == nil {
		return out
	}
	switch e.matches(n.pattern, v.text) {
	case no:
		return e.no("pattern", "")
	case maybe:
		return e.gap("pattern")
	}
	return out
}

// length counts characters, as the drafts do. Servers whose language counts UTF-16
// units have up to twice as many: between the two it is not known.
func (e *evaluation) length(n *node, s string) truth {
	least := utf8.RuneCountInString(s)
	most := least
	for _, r := range s {
		if r > 0xFFFF {
			most++
		}
	}
	switch {
	case n.minLen != nil && most < *n.minLen:
		return e.no("minLength", strconv.Itoa(*n.minLen))
	case n.maxLen != nil && least > *n.maxLen:
		return e.no("maxLength", strconv.Itoa(*n.maxLen))
	case n.minLen != nil && least < *n.minLen:
		return e.gap("minLength")
	case n.maxLen != nil && most > *n.maxLen:
		return e.gap("maxLength")
	}
	return yes
}

// matches tries a pattern, where all languages agree on what it means for the text.
func (e *evaluation) matches(p *pattern, s string) truth {
	if !e.spend(1 + (len(s)+1)*p.cost/perRun) {
		return maybe
	}
	if p.differs(s) {
		return maybe
	}
	if p.MatchString(s) {
		return yes
	}
	return no
}

// count judges how many there are.
func (e *evaluation) count(have int, least, most *int, less, more string) truth {
	switch {
	case least != nil && have < *least:
		return e.no(less, strconv.Itoa(*least))
	case most != nil && have > *most:
		return e.no(more, strconv.Itoa(*most))
	}
	return yes
}
