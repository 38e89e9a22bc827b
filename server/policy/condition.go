package policy

import (
	"errors"
	"strings"
	"sync"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/cost"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"
)

// Bounds of a condition. The cost is the language's own measure, about one for
// each step and the same for the same call, so it is what stops an expensive
// rule; the time is for what the measure misses.
const (
	maxCost      = 1_000_000
	maxTime      = 50 * time.Millisecond // of all rules of one call
	maxCondition = 4096                  // bytes
	maxNodes     = 500

	smallCall = 16 << 10 // bytes of what a condition can look at in a call that it is not counted for
)

// condition is the "when" of a rule.
type condition struct {
	limited cel.Program // counts its cost, and looks at the clock
	free    cel.Program // for small calls; nil unless its cost can't reach the limit for one
	loops   bool        // only a loop looks at the clock
	labels  bool        // it asks where values come from
	reach
	doubts
}

const (
	labelsFunction = "labels"
	namesFunction  = "names"
	listFunction   = "@list" // nobody can write it
)

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
		cel.Function(namesFunction, cel.Overload("names_map", []*cel.Type{cel.MapType(cel.StringType, cel.DynType)}, texts, cel.UnaryBinding(names))),
		cel.Function(listFunction, cel.Overload("list_list", []*cel.Type{cel.ListType(cel.DynType)}, cel.ListType(cel.DynType), cel.UnaryBinding(onlyList))),
		cel.CrossTypeNumericComparisons(true),
		cel.EnableErrorOnBadPresenceTest(true),
		cel.DefaultUTCTimeZone(true),
		cel.ParserExpressionSizeLimit(maxCondition),
		cel.ExpressionNodeLimit(maxNodes),
		cel.ASTValidators(cel.ValidateDurationLiterals(), cel.ValidateTimestampLiterals()),
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
	checked, issues := env.Parse(text)
	if issues == nil || issues.Err() == nil {
		loopOverLists(checked.NativeRep())
		checked, issues = env.Check(checked)
	}
	if issues != nil && issues.Err() != nil {
		return nil, faultsOf(issues)
	}
	if t := checked.OutputType(); t != cel.BoolType {
		return nil, []fault{{1, 1, "it gives " + typeName(t) + ", not true or false"}}
	}
	c, p := &condition{}, &planner{anyGroup: map[int64]bool{}}
	if faults := c.inspect(checked.NativeRep(), p); len(faults) > 0 {
		return nil, faults
	}
	if err := c.plan(env, checked, p); err != nil {
		return nil, []fault{{1, 1, err.Error()}}
	}
	return c, nil
}

func faultsOf(issues *cel.Issues) []fault {
	var out []fault
	for _, e := range issues.Errors() {
		first, _, _ := strings.Cut(e.Message, "\n")
		first = strings.ReplaceAll(first, listFunction, "a loop")
		out = append(out, fault{max(e.Location.Line(), 1), e.Location.Column() + 1, first})
	}
	return out
}

// plan makes the programs. Counting takes longer than most conditions, so one
// whose cost for a small call is known to stay below the limit is not counted.
func (c *condition) plan(env *cel.Env, checked *cel.Ast, p *planner) (err error) {
	common := []cel.ProgramOption{cel.CustomDecoratorV2(p.strictly), cel.EvalOptions(cel.OptOptimize)}
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

// EstimateCallCost knows what our own functions cost: they look through the
// arguments.
func (smallSizes) EstimateCallCost(function, _ string, _ *cost.AstNode, _ []cost.AstNode) *cost.CallEstimate {
	switch function {
	case labelsFunction, namesFunction, listFunction:
		return cost.NewCallEstimate(cost.Estimate{Min: 1, Max: smallCall / 10}, &cost.SizeEstimate{Max: smallCall})
	}
	return nil
}

func typeName(t *cel.Type) string {
	if t == cel.DynType {
		return "a value of a type that only the call knows (compare it, as in args.flag == true)"
	}
	return t.String()
}

// Why a condition gave no answer. The evaluator's own words are not told: they
// can hold a value of the call.
var (
	errUnknowable = errors.New("a value that it asks for is missing or has another type")
	errTooLong    = errors.New("it takes too long")
	errOtherName  = errors.New("a name that it asks for is there in another spelling")
)

// holds evaluates the condition.
func (c *condition) holds(j *judgement) (bool, error) {
	var out ref.Val
	var err error
	switch {
	case c.free != nil && j.small(c):
		out, _, err = c.free.Eval(&j.vars)
	case c.loops:
		out, _, err = c.limited.ContextEval(j.deadline(), &j.vars)
	default:
		out, _, err = c.limited.Eval(&j.vars)
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
	if errors.As(err, &cancelled) || errors.Is(err, interpreter.InterruptError{}) || errors.Is(err, errForm) {
		return errTooLong
	}
	if errors.Is(err, errAlias) {
		return errOtherName
	}
	return errUnknowable
}
