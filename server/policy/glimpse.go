package policy

import (
	"strings"

	"cel.dev/cel-go/common/functions"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"
)

// glimpse is what is known of a call before there is one: which tool of which
// upstream it is for, at most. All else is unknown.
type glimpse struct {
	server, tool, tier string // empty where it is unknown
	left               steps
}

// sight is what a condition says of all the calls of a glimpse.
type sight int

const (
	depends  sight = iota // on the call
	never                 // it is false
	always                // it is true
	unjudged              // it can't be judged, which denies
)

// sees judges a condition by what is known.
func (c *condition) sees(g glimpse) sight {
	g.left = maxSteps
	out, _, err := c.limited.Eval(&g)
	switch {
	case err != nil:
		return unjudged
	case out == types.False:
		return never
	case out == types.True:
		return always
	}
	return depends
}

// ResolveName gives a variable its value.
func (g *glimpse) ResolveName(name string) (any, bool) {
	known := ""
	switch name {
	case stepsVariable:
		return &g.left, true
	case "server":
		known = g.server
	case "tool":
		known = g.tool
	case "tier":
		known = g.tier
	}
	if known == "" {
		return types.NewUnknown(1, nil), true
	}
	return types.String(known), true
}

// Parent says that there is nothing behind.
func (g *glimpse) Parent() interpreter.Activation { return nil }

// ResolveFunction makes labels unknown.
func (g *glimpse) ResolveFunction(name string) (functions.LateBoundOp, bool) {
	return func(string, ...ref.Val) ref.Val { return types.NewUnknown(1, nil) }, name == labelsFunction
}

// glimpseOf is what is known where a rule's pattern and a tool's meet; a nil pattern
// is that of a rule for all tools.
func glimpseOf(e *entry, p *pattern) glimpse {
	literal := func(of, or string) string {
		switch {
		case !strings.Contains(of, "*"):
			return of
		case !strings.Contains(or, "*"):
			return or
		}
		return ""
	}
	if p == nil {
		p = &e.pattern
	}
	return glimpse{server: literal(e.pattern.server, p.server), tool: literal(e.pattern.tool, p.tool), tier: e.tier}
}
