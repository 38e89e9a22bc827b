package policy

import (
	"slices"
	"strings"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
)

// doubts are what a condition may say and its author probably does not mean.
type doubts struct {
	softens []string // fields without which the rule does not fire
	sizes   []string // arguments whose size or order is asked for, whatever their type
	halves  []string // regular expressions such as ^a|b$
	paths   []string // arguments that are compared with the beginning of a path
	urls    []string // and of a URL
	asked   asked
}

func doubtsOf(checked *ast.AST) doubts {
	var d doubts
	d.absence(checked.Expr(), false)
	ast.PostOrderVisit(checked.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		switch e.Kind() {
		case ast.CallKind:
			d.call(e.AsCall(), checked)
			d.asked.in(e.AsCall())
		case ast.ComprehensionKind:
			d.asked.loop(e.AsComprehension())
		}
	}))
	for _, list := range []*[]string{&d.softens, &d.sizes, &d.halves, &d.paths, &d.urls} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return d
}

// absence finds has(x) && … in all its forms: without x that part is false, so the
// rule does not fire by it. not tells whether e stands under an odd number of !.
func (d *doubts) absence(e ast.Expr, not bool) {
	if e.Kind() != ast.CallKind {
		return
	}
	call := e.AsCall()
	switch call.FunctionName() {
	case operators.LogicalNot:
		d.absence(call.Args()[0], !not)
	case operators.LogicalAnd, operators.LogicalOr:
		for _, part := range call.Args() {
			// A part that by itself makes the whole false.
			if name, there, ok := presence(part); ok && (call.FunctionName() == operators.LogicalAnd) == !not && there == !not {
				d.softens = append(d.softens, name)
			}
			d.absence(part, not)
		}
	case operators.Conditional:
		// has(x) ? … : false says outright what becomes of a call without x.
		d.absence(call.Args()[1], not)
		d.absence(call.Args()[2], not)
	}
}

// presence tells whether an expression is has(…x), "x" in args, or the contrary of
// one.
func presence(e ast.Expr) (name string, there, ok bool) {
	there = true
	for e.Kind() == ast.CallKind && e.AsCall().FunctionName() == operators.LogicalNot {
		e, there = e.AsCall().Args()[0], !there
	}
	switch {
	case e.Kind() == ast.SelectKind && e.AsSelect().IsTestOnly():
		return dotted(e), there, true
	case e.Kind() == ast.CallKind && e.AsCall().FunctionName() == operators.In:
		name, literal := literalText(e.AsCall().Args()[0])
		group := e.AsCall().Args()[1]
		return name, there, literal && group.Kind() == ast.IdentKind && group.AsIdent() == "args"
	}
	return "", there, false
}

// dotted is how a field is written, without the args. that it begins with.
func dotted(e ast.Expr) string {
	out := e.AsSelect().FieldName()
	for e = e.AsSelect().Operand(); e.Kind() == ast.SelectKind; e = e.AsSelect().Operand() {
		out = e.AsSelect().FieldName() + "." + out
	}
	if e.Kind() == ast.IdentKind && e.AsIdent() == "args" {
		return out
	}
	return "…" + out
}

// argument is the name of an argument that an expression selects.
func argument(e ast.Expr) (string, bool) {
	switch e.Kind() {
	case ast.SelectKind:
		of := e.AsSelect().Operand()
		return e.AsSelect().FieldName(), !e.AsSelect().IsTestOnly() && of.Kind() == ast.IdentKind && of.AsIdent() == "args"
	case ast.CallKind:
		call := e.AsCall()
		if call.FunctionName() != operators.Index || call.Args()[0].Kind() != ast.IdentKind || call.Args()[0].AsIdent() != "args" {
			return "", false
		}
		return literalText(call.Args()[1])
	}
	return "", false
}

func (d *doubts) call(call ast.CallExpr, checked *ast.AST) {
	args := call.Args()
	if call.IsMemberFunction() {
		args = append([]ast.Expr{call.Target()}, args...)
	}
	switch call.FunctionName() {
	case overloads.Size:
		if name, ok := argument(args[0]); ok {
			d.sizes = append(d.sizes, name)
		}
	case operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals:
		// With a literal on one side the other has to be of its type.
		for _, side := range args {
			if checked.GetType(side.ID()).Kind() != types.DynKind {
				return
			}
		}
		for _, side := range args {
			if name, ok := argument(side); ok {
				d.sizes = append(d.sizes, name)
			}
		}
	case overloads.Matches:
		if text, ok := literalText(args[1]); ok && halfBound(text) {
			d.halves = append(d.halves, text)
		}
	case overloads.StartsWith:
		name, ok := argument(args[0])
		begin, literal := literalText(args[1])
		switch {
		case !ok || !literal:
		case strings.HasPrefix(begin, "/"):
			d.paths = append(d.paths, name)
		case strings.Contains(begin, "://"):
			d.urls = append(d.urls, name)
		}
	}
}
