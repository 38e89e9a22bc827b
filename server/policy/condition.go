package policy

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/cost"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"
)

// Bounds of a condition. The cost is the language's own measure, about one for
// each step and the same for the same call, so it is what stops an expensive
// rule; the time is for what the measure misses.
const (
	maxCost       = 1_000_000
	maxTime       = 50 * time.Millisecond // of all rules of one call
	maxCondition  = 4096                  // bytes
	maxNodes      = 500
	maxRegexSteps = 10_000

	smallCall = 16 << 10 // bytes of all that a condition can look at
)

// condition is the "when" of a rule.
type condition struct {
	limited cel.Program // counts its cost, and looks at the clock
	free    cel.Program // for small calls; nil unless its cost can't reach the limit for one
	loops   bool        // only a loop looks at the clock
	never   bool        // it is false, whatever the call
	labels  bool        // it asks where values come from
	softens []string    // fields x of has(…x) && …
}

const labelsFunction = "labels"

// vocabulary is what conditions may speak of. Names are declared with their
// types, so a misspelt one is found at the load; only the arguments' types come
// with the call.
var vocabulary = sync.OnceValues(func() (*cel.Env, error) {
	texts := cel.ListType(cel.StringType)
	return cel.NewEnv(
		cel.Variable("args", cel.MapType(cel.StringType, cel.DynType)),
		cel.Variable("tool", cel.StringType),
		cel.Variable("server", cel.StringType),
		cel.Variable("tier", cel.StringType),
		cel.Variable("actor.id", cel.StringType),
		cel.Variable("actor.roles", texts),
		cel.Variable("session", cel.StringType),
		cel.Variable("workflow", cel.StringType),
		cel.Variable("evidence", texts),
		cel.Function(labelsFunction, cel.Overload("labels_string", []*cel.Type{cel.StringType}, texts, cel.LateFunctionBinding())),
		cel.CrossTypeNumericComparisons(true),
		cel.EnableErrorOnBadPresenceTest(true),
		cel.DefaultUTCTimeZone(true),
		cel.ParserExpressionSizeLimit(maxCondition),
		cel.ExpressionNodeLimit(maxNodes),
		cel.RegexProgramSizeLimit(maxRegexSteps),
		cel.ASTValidators(cel.ValidateRegexLiterals(), cel.ValidateDurationLiterals(), cel.ValidateTimestampLiterals()),
	)
})

// fault is what is wrong with a condition, and where in it.
type fault struct {
	line, column int // from 1
	text         string
}

// compile checks a condition and plans it. The names, their types and the result,
// which is true or false, are known before any call.
func compile(text string) (*condition, []fault) {
	env, err := vocabulary()
	if err != nil {
		return nil, []fault{{1, 1, err.Error()}}
	}
	checked, issues := env.Compile(text)
	if issues != nil && issues.Err() != nil {
		var out []fault
		for _, e := range issues.Errors() {
			first, _, _ := strings.Cut(e.Message, "\n")
			out = append(out, fault{max(e.Location.Line(), 1), e.Location.Column() + 1, first})
		}
		return nil, out
	}
	if t := checked.OutputType(); t != cel.BoolType {
		return nil, []fault{{1, 1, "it gives " + typeName(t) + ", not true or false"}}
	}
	c := &condition{}
	if faults := c.inspect(checked.NativeRep()); len(faults) > 0 {
		return nil, faults
	}
	if err := c.plan(env, checked); err != nil {
		return nil, []fault{{1, 1, err.Error()}}
	}
	return c, nil
}

// plan makes the programs. Counting takes longer than most conditions, so one
// whose cost for a small call is known to stay below the limit is not counted.
func (c *condition) plan(env *cel.Env, checked *cel.Ast) (err error) {
	common := []cel.ProgramOption{cel.CustomDecoratorV2(strictly), cel.EvalOptions(cel.OptOptimize)}
	c.limited, err = env.Program(checked, append(common, cel.CostLimit(maxCost), cel.InterruptCheckFrequency(16))...)
	if err != nil {
		return err
	}
	estimate, err := env.EstimateCost(checked, smallSizes{})
	if err != nil || estimate.Max > maxCost {
		return nil
	}
	c.free, err = env.Program(checked, common...)
	return err
}

// smallSizes says how large what a condition looks at can be in a small call.
type smallSizes struct{}

// EstimateSize bounds every value whose size does not follow from the condition.
func (smallSizes) EstimateSize(n cost.AstNode) *cost.SizeEstimate {
	if n.ComputedSize() != nil {
		return nil
	}
	return &cost.SizeEstimate{Max: smallCall}
}

// EstimateCallCost knows what labels costs: it looks through the arguments.
func (smallSizes) EstimateCallCost(function, _ string, _ *cost.AstNode, _ []cost.AstNode) *cost.CallEstimate {
	if function != labelsFunction {
		return nil
	}
	return cost.NewCallEstimate(cost.Estimate{Min: 1, Max: smallCall / 10}, &cost.SizeEstimate{Max: smallCall})
}

func typeName(t *cel.Type) string {
	if t == cel.DynType {
		return "a value of a type that only the call knows (compare it, as in args.flag == true)"
	}
	return t.String()
}

// inspect looks at every part of a checked condition.
func (c *condition) inspect(checked *ast.AST) []fault {
	var faults []fault
	ast.PostOrderVisit(checked.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		switch e.Kind() {
		case ast.ComprehensionKind:
			c.loops = true
		case ast.CallKind:
			call := e.AsCall()
			c.labels = c.labels || call.FunctionName() == labelsFunction
			if p, bad := badPointer(call); bad {
				at := checked.SourceInfo().GetStartLocation(e.ID())
				faults = append(faults, fault{max(at.Line(), 1), at.Column() + 1, fmt.Sprintf("%q is not a JSON pointer such as /to/0", p)})
			}
			c.softens = append(c.softens, softened(call)...)
		}
	}))
	if root := checked.Expr(); root.Kind() == ast.LiteralKind {
		c.never = root.AsLiteral() == types.False
	}
	return faults
}

func badPointer(call ast.CallExpr) (string, bool) {
	if call.FunctionName() != labelsFunction || len(call.Args()) != 1 || call.Args()[0].Kind() != ast.LiteralKind {
		return "", false
	}
	p, ok := call.Args()[0].AsLiteral().(types.String)
	return string(p), ok && !validPointer(string(p))
}

// softened finds has(x) && …: without x it is false, so the rule does not fire.
func softened(call ast.CallExpr) []string {
	if call.FunctionName() != operators.LogicalAnd {
		return nil
	}
	var out []string
	for _, term := range call.Args() {
		if term.Kind() == ast.SelectKind && term.AsSelect().IsTestOnly() {
			out = append(out, term.AsSelect().FieldName())
		}
	}
	return out
}

// Why a condition gave no answer. The evaluator's own words are not told: they
// can hold a value of the call.
var (
	errUnknowable = errors.New("a value that it asks for is missing or has another type")
	errTooLong    = errors.New("it takes too long")
)

// holds evaluates the condition. deadline is asked for only if it could take
// long.
func (c *condition) holds(a *activation, deadline func() context.Context) (bool, error) {
	var out ref.Val
	var err error
	switch {
	case c.free != nil && a.facts.small():
		out, _, err = c.free.Eval(a)
	case c.loops:
		out, _, err = c.limited.ContextEval(deadline(), a)
	default:
		out, _, err = c.limited.Eval(a)
	}
	if err != nil {
		return false, why(err)
	}
	b, ok := out.(types.Bool)
	if !ok {
		return false, errUnknowable
	}
	return bool(b), nil
}

func why(err error) error {
	var cancelled interpreter.EvalCancelledError
	if errors.As(err, &cancelled) || errors.Is(err, interpreter.InterruptError{}) {
		return errTooLong
	}
	return errUnknowable
}

// small tells whether all that conditions can look at is small.
func (f *Facts) small() bool {
	c := &f.Call
	size := len(c.Args) + len(c.Session) + len(c.Workflow) + len(c.Actor.ID)
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
	return size <= smallCall
}
