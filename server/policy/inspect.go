package policy

import (
	"fmt"
	"slices"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"

	"github.com/countersign-mcp/countersign/approvals/action"
)

// words are the names that a condition begins with. A loop's variable may have
// none of them: x.exists(actor, actor.id == "ana") would not ask who calls.
var words = []string{"args", "tool", "server", "tier", "actor", "session", "workflow", "evidence", labelsFunction, namesFunction}

// loopOverLists makes every loop over a part of the call one over a list. It
// changes a condition that was parsed and not yet checked.
func loopOverLists(parsed *ast.AST) {
	factory := ast.NewExprFactory()
	next := ast.MaxID(parsed)
	ast.PostOrderVisit(parsed.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.ComprehensionKind {
			return
		}
		over := e.AsComprehension().IterRange()
		if !ofCall(over) {
			return
		}
		next++
		inner := factory.CopyExpr(over)
		at, located := parsed.SourceInfo().GetOffsetRange(over.ID())
		over.SetKindCase(factory.NewCall(over.ID(), listFunction, inner))
		inner.RenumberIDs(func(id int64) int64 {
			if id == over.ID() {
				return next
			}
			return id
		})
		if located {
			parsed.SourceInfo().SetOffsetRange(next, at)
		}
	}))
}

// ofCall tells whether an expression may be an object within the call's
// arguments: all but args itself, what we know to be a list, and literals.
func ofCall(e ast.Expr) bool {
	switch e.Kind() {
	case ast.IdentKind:
		return !slices.Contains(words, e.AsIdent())
	case ast.SelectKind:
		for e.Kind() == ast.SelectKind {
			e = e.AsSelect().Operand()
		}
		return e.Kind() != ast.IdentKind || e.AsIdent() == "args" || !slices.Contains(words, e.AsIdent())
	case ast.CallKind:
		return e.AsCall().FunctionName() != labelsFunction && e.AsCall().FunctionName() != namesFunction
	}
	return false
}

func literalText(e ast.Expr) (string, bool) {
	if e.Kind() != ast.LiteralKind {
		return "", false
	}
	s, ok := e.AsLiteral().(types.String)
	return string(s), ok
}

// inspect looks at every part of a checked condition.
func (c *condition) inspect(checked *ast.AST, p *planner) []fault {
	var faults []fault
	fail := func(e ast.Expr, format string, args ...any) {
		at := checked.SourceInfo().GetStartLocation(e.ID())
		faults = append(faults, fault{max(at.Line(), 1), max(at.Column(), 0) + 1, fmt.Sprintf(format, args...)})
	}
	ast.PostOrderVisit(checked.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		switch e.Kind() {
		case ast.ComprehensionKind:
			c.loops = true
			if name := e.AsComprehension().IterVar(); slices.Contains(words, name) {
				fail(e, "a loop's variable can't be called %s, which has a meaning already", name)
			}
		case ast.CallKind:
			inspectCall(e, fail)
			call := e.AsCall()
			c.labels = c.labels || call.FunctionName() == labelsFunction
			if call.FunctionName() == operators.In && checked.GetType(call.Args()[1].ID()).Kind() == types.DynKind {
				p.anyGroup[e.ID()] = true
			}
		}
	}))
	c.reach, c.doubts = reachOf(checked), doubtsOf(checked)
	return faults
}

func inspectCall(e ast.Expr, fail func(e ast.Expr, format string, args ...any)) {
	call := e.AsCall()
	switch call.FunctionName() {
	case labelsFunction:
		if p, ok := literalText(call.Args()[0]); ok && !action.IsPointer(p) {
			fail(e, "%q is not a JSON pointer such as /to/0", p)
		}
	case overloads.Matches:
		expression := call.Args()[len(call.Args())-1]
		text, ok := literalText(expression)
		if !ok {
			fail(e, "the regular expression of matches stands in quotes; one that comes with the call could be anything")
			return
		}
		if _, wrong := newForm(text, false); wrong != "" {
			fail(e, "matches: %s", wrong)
		}
	}
}
