package policy

import (
	"errors"

	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"
)

var (
	errTypes = errors.New("values of different types are compared")
	errOrder = errors.New("a value that is no number is compared")
	errNames = errors.New("an object stands where a list should")
	errForm  = errors.New("a text is too long for a regular expression")
)

// planner gives some parts of a condition a stricter meaning than the language
// does.
type planner struct {
	anyGroup map[int64]bool // calls of in, whose right side has a type that only the call knows
}

// strictly replaces comparisons. In the language ["force"] == "force" is false, so
// a rule on args.mode == "force" would let the list pass; NaN is neither more nor
// less than anything; and a whole number is rounded before it is compared with a
// double. Here a comparison that has no answer is an error, and an error denies.
// null may be compared with anything where the policy's author wrote it.
func (p *planner) strictly(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	call, ok := i.(interpreter.InterpretableCall)
	if !ok {
		return i, nil
	}
	args := call.Args()
	c := &comparison{id: call.ID(), function: call.Function(), overload: call.OverloadID()}
	switch c.function {
	case operators.Equals, operators.NotEquals:
		c.nulls = isNull(args[0]) || isNull(args[1])
	case operators.In:
		_, c.nulls = args[1].(interpreter.InterpretableConst)
		c.listed = p.anyGroup[c.id]
	case operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals:
	case overloads.Matches:
		text, ok := args[1].(interpreter.InterpretableConst)
		if !ok {
			return i, nil // inspect has refused it
		}
		expression, _ := text.Value().(types.String)
		form, wrong := newForm(string(expression), false)
		if wrong != "" {
			return nil, errors.New(wrong)
		}
		c.form = &form
	default:
		return i, nil
	}
	c.left, c.right = args[0], args[1]
	return c, nil
}

func isNull(i interpreter.InterpretableV2) bool {
	c, ok := i.(interpreter.InterpretableConst)
	return ok && c.Value() == types.NullValue
}

// comparison stands for a call of ==, !=, in, <, <=, >, >= or matches. It is not an
// InterpretableCall, so the planner does not put one of its own in its place.
type comparison struct {
	id                 int64
	function, overload string
	left, right        interpreter.InterpretableV2
	nulls              bool  // null equals null and nothing else, without an error
	listed             bool  // of in: the right side has to be a list
	form               *form // of matches
}

// ID is the expression's.
func (c *comparison) ID() int64 { return c.id }

// Function names the operator, for the measure of cost.
func (c *comparison) Function() string { return c.function }

// OverloadID names the operator's form, for the measure of cost.
func (c *comparison) OverloadID() string { return c.overload }

// Eval compares.
func (c *comparison) Eval(vars interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(vars, c.Exec)
}

// Exec compares.
func (c *comparison) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	l := c.left.Exec(frame)
	if types.IsUnknownOrError(l) {
		return l
	}
	r := c.right.Exec(frame)
	if types.IsUnknownOrError(r) {
		return r
	}
	var out ref.Val
	if c.form != nil {
		out = c.found(frame, l)
	} else {
		out = c.compare(l, r)
	}
	if costs := frame.CostTracker(); costs != nil {
		costs.EvalBinary(frame, c.id, c, l, r, out)
	}
	return out
}

func (c *comparison) compare(l, r ref.Val) ref.Val {
	switch c.function {
	case operators.Equals:
		return alike(l, r, c.nulls)
	case operators.NotEquals:
		out := alike(l, r, c.nulls)
		if equal, ok := out.(types.Bool); ok {
			return !equal
		}
		return out
	case operators.In:
		if _, object := r.(traits.Mapper); object && c.listed {
			return types.WrapErr(errNames)
		}
		return among(l, r, c.nulls)
	}
	order, err := compared(l, r)
	if err != nil {
		return types.WrapErr(err)
	}
	switch c.function {
	case operators.Less:
		return types.Bool(order < 0)
	case operators.LessEquals:
		return types.Bool(order <= 0)
	case operators.Greater:
		return types.Bool(order > 0)
	}
	return types.Bool(order >= 0)
}

// found looks for a regular expression in a text.
func (c *comparison) found(vars interpreter.Activation, v ref.Val) ref.Val {
	text, ok := v.(types.String)
	if !ok {
		return types.WrapErr(errTypes)
	}
	left, _ := vars.ResolveName(stepsVariable)
	budget, ok := left.(*steps)
	if !ok {
		return types.WrapErr(errForm)
	}
	is, ok := c.form.match(string(text), budget)
	if !ok {
		return types.WrapErr(errForm)
	}
	return types.Bool(is)
}

// alike is same, but that null may be compared where nulls says so.
func alike(l, r ref.Val, nulls bool) ref.Val {
	if nulls && (l == types.NullValue || r == types.NullValue) {
		return types.Bool(l == r)
	}
	return same(l, r)
}

// same compares two values of one type, or two numbers. Anything else is an
// error, also deep within.
func same(l, r ref.Val) ref.Val {
	switch {
	case types.IsUnknownOrError(l):
		return l
	case types.IsUnknownOrError(r):
		return r
	case numeric(l) && numeric(r):
		order, err := numbersCompared(l, r)
		if err != nil {
			return types.WrapErr(err)
		}
		return types.Bool(order == 0)
	case l.Type() != r.Type():
		return types.WrapErr(errTypes)
	}
	switch a := l.(type) {
	case traits.Mapper:
		return sameMaps(a, r.(traits.Mapper))
	case traits.Lister:
		return sameLists(a, r.(traits.Lister))
	}
	return types.Equal(l, r)
}

func sameLists(a, b traits.Lister) ref.Val {
	size, _ := a.Size().(types.Int)
	if other, _ := b.Size().(types.Int); size != other {
		return types.False
	}
	out := ref.Val(types.True)
	for i := types.Int(0); i < size && !types.IsUnknownOrError(out); i++ {
		out = both(out, same(a.Get(i), b.Get(i)))
	}
	return out
}

func sameMaps(a, b traits.Mapper) ref.Val {
	size, _ := a.Size().(types.Int)
	if other, _ := b.Size().(types.Int); size != other {
		return types.False
	}
	out := ref.Val(types.True)
	for it := a.Iterator(); it.HasNext() == types.True && !types.IsUnknownOrError(out); {
		key := it.Next()
		other, found := b.Find(key)
		switch {
		case found:
			out = both(out, same(a.Get(key), other))
		case other != nil:
			return other
		default:
			out = both(out, types.False)
		}
	}
	return out
}

// both is true when a and b are, and an error when b is one.
func both(a, b ref.Val) ref.Val {
	if types.IsUnknownOrError(b) || a == types.True {
		return b
	}
	return a
}

// among tells whether v is an element of a list or a key of a map. An element of
// another type makes that unknowable, unless v is found.
func among(v, group ref.Val, nulls bool) ref.Val {
	switch g := group.(type) {
	case traits.Lister:
		size, _ := g.Size().(types.Int)
		out := ref.Val(types.False)
		for i := types.Int(0); i < size; i++ {
			element := g.Get(i)
			eq := alike(v, element, nulls && element == types.NullValue)
			if eq == types.True {
				return eq
			}
			if types.IsUnknownOrError(eq) {
				out = eq
			}
		}
		return out
	case traits.Mapper:
		found, known := g.Find(v)
		if !known && found != nil {
			return found
		}
		return types.Bool(known)
	}
	return types.WrapErr(errTypes)
}
