package schema

import "strconv"

func (e *evaluation) objects(n *node, v *value) truth {
	if v.kind != object {
		return yes
	}
	out := e.count(len(v.kids), n.minProps, n.maxProps, "minProperties", "maxProperties")
	if out == no {
		return no
	}
	for _, name := range n.required {
		if !e.spend(1) {
			return maybe
		}
		switch {
		case v.member(name) != nil:
		case n.filled[name]:
			out = max(out, e.gap("default"))
		default:
			return e.no("required", "", name)
		}
	}
	for _, d := range n.needs {
		if out = max(out, e.dependency(d, v)); out == no || e.over {
			return out
		}
	}
	if n.props == nil && n.patterns == nil && n.more == nil && n.names == nil {
		return out
	}
	for i, name := range v.names {
		if out = max(out, e.member(n, name, &v.kids[i])); out == no || e.over {
			return out
		}
	}
	return out
}

func (e *evaluation) dependency(d dependency, v *value) truth {
	if !e.spend(1 + len(d.required)) {
		return maybe
	}
	if v.member(d.name) == nil {
		return yes
	}
	for _, name := range d.required {
		if v.member(name) == nil {
			return e.no("dependentRequired", "", name)
		}
	}
	if d.node == nil {
		return yes
	}
	return e.node(d.node, v)
}

// member judges one member by every schema that speaks of it: its name's own, those
// of the patterns, and the one of the rest where there was none.
func (e *evaluation) member(n *node, name string, v *value) truth {
	out := yes
	if !e.spend(1) {
		return maybe
	}
	if n.names != nil {
		if r := e.aside(n.names, &value{kind: text, text: name}); r == no {
			return e.no("propertyNames", "", name)
		} else if r == maybe {
			out = maybe
		}
	}
	own, known := n.props[name]
	if known {
		out = max(out, e.kid(own, v, name))
	}
	unsure := n.lost
	for _, p := range n.patterns {
		if out == no || e.over {
			return out
		}
		switch e.matches(p.pattern, name) {
		case yes:
			known = true
			out = max(out, e.kid(p.node, v, name))
		case maybe:
			unsure = true
			if e.asideKid(p.node, v, name) != yes {
				out = max(out, e.gap("patternProperties"))
			}
		}
	}
	switch {
	case out == no || known || n.more == nil:
		return out
	case unsure: // it may be one that a pattern speaks of
		if e.asideKid(n.more, v, name) != yes {
			out = max(out, e.gap("patternProperties"))
		}
		return out
	case n.more.never:
		return e.no("additionalProperties", "", name)
	}
	return max(out, e.kid(n.more, v, name))
}

func (e *evaluation) asideKid(n *node, v *value, name string) truth {
	e.quiet++
	defer func() { e.quiet-- }()
	return e.kid(n, v, name)
}

func (e *evaluation) arrays(n *node, v *value) truth {
	if v.kind != array {
		return yes
	}
	out := e.count(len(v.kids), n.minItems, n.maxItems, "minItems", "maxItems")
	if out == no {
		return no
	}
	if n.prefix != nil || n.items != nil {
		for i := range v.kids {
			at := n.items
			if i < len(n.prefix) {
				at = n.prefix[i]
			}
			if at == nil {
				break
			}
			if out = max(out, e.kid(at, &v.kids[i], strconv.Itoa(i))); out == no || e.over {
				return out
			}
		}
	}
	if n.unique {
		if out = max(out, e.unique(v)); out == no || e.over {
			return out
		}
	}
	if n.contains != nil {
		out = max(out, e.contained(n, v))
	}
	return out
}

func (e *evaluation) unique(v *value) truth {
	seen := make(map[string]bool, len(v.kids))
	for i := range v.kids {
		if !e.spend(1 + v.kids[i].size()/perStep) {
			return maybe
		}
		form := string(v.kids[i].canon(nil))
		if seen[form] {
			return e.no("uniqueItems", "", strconv.Itoa(i))
		}
		seen[form] = true
	}
	return yes
}

// contained counts the elements that fit, and those that may.
func (e *evaluation) contained(n *node, v *value) truth {
	sure, perhaps := 0, 0
	for i := range v.kids {
		switch e.aside(n.contains, &v.kids[i]) {
		case yes:
			sure++
		case maybe:
			perhaps++
		}
		if e.over {
			return maybe
		}
	}
	least := 1
	if n.minContains != nil {
		least = *n.minContains
	}
	switch {
	case sure+perhaps < least:
		return e.no("contains", "")
	case n.maxContains != nil && sure > *n.maxContains:
		return e.no("maxContains", "")
	case sure < least || n.maxContains != nil && sure+perhaps > *n.maxContains:
		return maybe
	}
	return yes
}

func (e *evaluation) logic(n *node, v *value) truth {
	out := yes
	for _, s := range n.all {
		if out = max(out, e.node(s, v)); out == no || e.over {
			return out
		}
	}
	if n.any != nil {
		out = max(out, e.some(n.any, v))
	}
	if n.one != nil && out != no {
		out = max(out, e.exactlyOne(n.one, v))
	}
	if n.not != nil && out != no {
		switch e.aside(n.not, v) {
		case yes:
			return e.no("not", "")
		case maybe:
			out = maybe
		}
	}
	if n.cond != nil && out != no {
		out = max(out, e.condition(n, v))
	}
	return out
}

func (e *evaluation) some(of []*node, v *value) truth {
	best := no
	for _, s := range of {
		if best = min(best, e.aside(s, v)); best == yes || e.over {
			return best
		}
	}
	if best == no {
		return e.no("anyOf", "")
	}
	return best
}

func (e *evaluation) exactlyOne(of []*node, v *value) truth {
	sure, perhaps := 0, 0
	for _, s := range of {
		switch e.aside(s, v) {
		case yes:
			sure++
		case maybe:
			perhaps++
		}
		if e.over {
			return maybe
		}
	}
	switch {
	case sure > 1 || sure+perhaps == 0:
		return e.no("oneOf", "")
	case perhaps > 0:
		return maybe
	}
	return yes
}

// condition judges by then or else. Where the condition is open, only what both
// refuse is refused.
func (e *evaluation) condition(n *node, v *value) truth {
	branch := func(s *node, quietly bool) truth {
		switch {
		case s == nil:
			return yes
		case quietly:
			return e.aside(s, v)
		}
		return e.node(s, v)
	}
	switch e.aside(n.cond, v) {
	case yes:
		return branch(n.then, false)
	case no:
		return branch(n.otherwise, false)
	}
	a, b := branch(n.then, true), branch(n.otherwise, true)
	switch {
	case a == no && b == no:
		return e.no("if", "")
	case a == yes && b == yes:
		return yes
	}
	return maybe
}
