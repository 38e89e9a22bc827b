package policy

import (
	"slices"
	"strings"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"

	"github.com/countersign-mcp/countersign/approvals/action"
)

// reach is which arguments a condition can look into.
type reach struct {
	names []string // args.NAME, args["NAME"] and labels("/NAME…")
	all   bool     // it may look into any
}

// reachOf finds them in a checked condition. Nothing but the condition has to be
// known: where a name comes with the call, or args stands by itself, it is all.
func reachOf(checked *ast.AST) reach {
	var r reach
	whole := 0 // how often args stands by itself
	ast.PostOrderVisit(checked.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		switch e.Kind() {
		case ast.IdentKind:
			if e.AsIdent() == "args" {
				whole++
			}
		case ast.SelectKind:
			if of := e.AsSelect().Operand(); of.Kind() == ast.IdentKind && of.AsIdent() == "args" {
				whole--
				r.names = append(r.names, e.AsSelect().FieldName())
			}
		case ast.CallKind:
			call := e.AsCall()
			if call.FunctionName() == labelsFunction {
				r.labelled(call.Args()[0])
			} else if name, ok := argument(e); ok && call.FunctionName() == operators.Index {
				whole--
				r.names = append(r.names, name)
			}
		}
	}))
	r.all = r.all || whole > 0
	slices.Sort(r.names)
	r.names = slices.Compact(r.names)
	return r
}

// labelled adds what labels(pointer) looks into.
func (r *reach) labelled(pointer ast.Expr) {
	text, ok := literalText(pointer)
	if !ok {
		r.all = true
		return
	}
	if first, deeper := strings.CutPrefix(text, "/"); deeper {
		first, _, _ = strings.Cut(first, "/")
		r.names = append(r.names, action.UnescapePointer(first))
	}
}

// small tells whether all that the condition can look at is small in this call.
// Another argument, however long, makes it no slower.
func (j *judgement) small(c *condition) bool {
	if j.around == 0 {
		j.around = 1 + j.vars.facts.around()
	}
	size := j.around
	switch {
	case size+len(j.args.raw) <= smallCall:
		return true
	case c.all:
		return false
	}
	for _, name := range c.names {
		raw, _ := j.args.member(name)
		size += len(raw)
	}
	return size <= smallCall
}

// around is the size of what conditions can look at beside the arguments.
func (f *Facts) around() int {
	c := &f.Call
	size := len(c.Session) + len(c.Workflow) + len(c.Actor.ID)
	for _, text := range [][]string{c.Actor.Roles, f.Evidence} {
		for _, s := range text {
			size += len(s) + 1
		}
	}
	for p, labels := range f.Labels {
		size += len(p)
		for _, l := range labels {
			size += len(l) + 1
		}
	}
	return size
}
