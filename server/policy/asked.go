package policy

import (
	"slices"
	"strings"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
)

// asked are the labels that a condition looks for: where each is looked for.
type asked []ask

type ask struct{ label, of string }

// Where a label is looked for.
const (
	ofSession  = "session"  // labels("")
	ofArgument = "argument" // labels("/x")
	ofEither   = "either"   // the pointer comes with the call
)

// known are the labels that an argument can have; a session's are the same after
// "session:", and unknown.
var known = []string{"user", "system", "retrieved", "model", Unknown}

const sessionPrefix = "session:"

// labelsAsked tells whether an expression is labels(…), and of what.
func labelsAsked(e ast.Expr) (of string, ok bool) {
	if e.Kind() != ast.CallKind || e.AsCall().FunctionName() != labelsFunction {
		return "", false
	}
	switch pointer, literal := literalText(e.AsCall().Args()[0]); {
	case !literal:
		return ofEither, true
	case pointer == "":
		return ofSession, true
	}
	return ofArgument, true
}

// in looks at "retrieved" in labels(…).
func (a *asked) in(call ast.CallExpr) {
	if call.FunctionName() != operators.In {
		return
	}
	if of, ok := labelsAsked(call.Args()[1]); ok {
		a.add(call.Args()[0], of)
	}
}

// loop looks at labels(…).exists(l, l == "retrieved") and
// labels(…).exists(l, l in ["retrieved"]).
func (a *asked) loop(loop ast.ComprehensionExpr) {
	of, ok := labelsAsked(loop.IterRange())
	if !ok {
		return
	}
	ast.PostOrderVisit(loop.LoopStep(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.CallKind {
			return
		}
		call := e.AsCall()
		switch call.FunctionName() {
		case operators.Equals, operators.NotEquals, operators.In:
		default:
			return
		}
		for i, side := range call.Args() {
			if side.Kind() == ast.IdentKind && side.AsIdent() == loop.IterVar() {
				a.add(call.Args()[1-i], of)
			}
		}
	}))
}

// add adds a literal, or each of a list of them.
func (a *asked) add(e ast.Expr, of string) {
	if e.Kind() == ast.ListKind {
		for _, element := range e.AsList().Elements() {
			a.add(element, of)
		}
		return
	}
	if label, ok := literalText(e); ok && !slices.Contains(*a, ask{label, of}) {
		*a = append(*a, ask{label, of})
	}
}

// strange are the labels that what is looked at never has, each with why.
func (a asked) strange() (found []string) {
	for _, q := range a {
		bare, session := strings.CutPrefix(q.label, sessionPrefix)
		switch {
		case !slices.Contains(known, bare):
			found = append(found, q.label+", which nothing has; the labels are "+strings.Join(known, ", "))
		case q.of == ofArgument && session:
			found = append(found, q.label+`, which no argument has; a session's are in labels("")`)
		case q.of == ofSession && !session && bare != Unknown:
			found = append(found, q.label+", which no session has; write "+sessionPrefix+bare)
		}
	}
	return found
}

// trusts is a label whose absence the condition takes for an answer, although
// nobody may be able to say what the session carries. Empty when there is none.
func (a asked) trusts() string {
	session := func(label string) bool {
		return slices.Contains(a, ask{label, ofSession}) || slices.Contains(a, ask{label, ofEither})
	}
	for _, l := range producible {
		if session(sessionPrefix+l) && !session(Unknown) {
			return sessionPrefix + l
		}
	}
	return ""
}
