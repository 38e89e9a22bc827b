package policy

import (
	"cel.dev/cel-go/common/functions"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"
)

// activation is what the conditions see in one judgement. What none asks for is
// not converted.
type activation struct {
	facts           *Facts
	tier            ref.Val
	args            *object
	roles, evidence ref.Val
	labels          functions.LateBoundOp
	left            *steps
}

// ResolveName gives a variable its value.
func (a *activation) ResolveName(name string) (any, bool) {
	c := &a.facts.Call
	switch name {
	case "args":
		return a.args, true
	case "tier":
		return a.tier, true
	case "tool":
		return types.String(c.Tool), true
	case "server":
		return types.String(c.Server), true
	case "actor.id":
		return types.String(c.Actor.ID), true
	case "actor.roles":
		if a.roles == nil {
			a.roles = types.NewStringList(types.DefaultTypeAdapter, c.Actor.Roles)
		}
		return a.roles, true
	case "session":
		return types.String(c.Session), true
	case "workflow":
		return types.String(c.Workflow), true
	case "evidence":
		if a.evidence == nil {
			a.evidence = types.NewStringList(types.DefaultTypeAdapter, a.facts.Evidence)
		}
		return a.evidence, true
	case stepsVariable:
		return a.left, true
	}
	return nil, false
}

// Parent says that there is nothing behind.
func (a *activation) Parent() interpreter.Activation { return nil }

// ResolveFunction gives labels its meaning in this judgement.
func (a *activation) ResolveFunction(name string) (functions.LateBoundOp, bool) {
	if name != labelsFunction {
		return nil, false
	}
	if a.labels == nil {
		a.labels = func(_ string, args ...ref.Val) ref.Val {
			if p, ok := args[0].(types.String); ok {
				return a.labelled(string(p))
			}
			return types.WrapErr(errTypes)
		}
	}
	return a.labels, true
}
