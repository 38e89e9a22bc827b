package schema

// keyword is how one keyword is read: in which drafts, of which kinds of value it
// speaks, and what it adds to a node. False: its value has not the form it should.
type keyword struct {
	since, until draft // until 0: to this day
	of           kind
	read         func(p *place, v *value) bool
}

var typeNames = map[string]kind{
	"null": null, "boolean": boolean, "number": number, "integer": number,
	"string": text, "array": array, "object": object,
}

// keywords are all that say anything about a value.
var keywords map[string]keyword

func init() { // they compile schemas themselves
	keywords = map[string]keyword{
		"$ref":     {of: anything, read: (*place).ref},
		"type":     {of: anything, read: readType},
		"enum":     {of: anything, read: readEnum},
		"nullable": {of: null, read: func(p *place, v *value) bool { p.n.null = v.truth(); return true }},
		"const":    {of: anything, read: func(p *place, v *value) bool { p.n.oneOf([]value{*v}); return true }},

		"minimum":          bound(func(n *node) **decimal { return &n.min }),
		"maximum":          bound(func(n *node) **decimal { return &n.max }),
		"exclusiveMinimum": bound(func(n *node) **decimal { return &n.over }),
		"exclusiveMaximum": bound(func(n *node) **decimal { return &n.under }),
		"multipleOf": {of: number, read: func(p *place, v *value) bool {
			d := newDecimal(v.text)
			p.n.step = &d
			if v.kind != number || d.sign() <= 0 {
				p.n.step = nil
			}
			return p.n.step != nil
		}},

		"minLength": count(text, func(n *node) **int { return &n.minLen }),
		"maxLength": count(text, func(n *node) **int { return &n.maxLen }),
		"pattern": {of: text, read: func(p *place, v *value) bool {
			if v.kind == text {
				p.n.pattern = p.c.pattern(v.text)
			}
			return p.n.pattern != nil
		}},

		"prefixItems":      {since: draft2020, of: array, read: list(func(n *node) *[]*node { return &n.prefix })},
		"items":            {of: array, read: readItems},
		"additionalItems":  {until: draft2019, of: array, read: readAdditionalItems},
		"contains":         {of: array, read: one(func(n *node) **node { return &n.contains })},
		"minContains":      since(draft2019, count(array, func(n *node) **int { return &n.minContains })),
		"maxContains":      since(draft2019, count(array, func(n *node) **int { return &n.maxContains })),
		"minItems":         count(array, func(n *node) **int { return &n.minItems }),
		"maxItems":         count(array, func(n *node) **int { return &n.maxItems }),
		"uniqueItems":      {of: array, read: func(p *place, v *value) bool { p.n.unique = v.truth(); return v.kind == boolean }},
		"unevaluatedItems": {since: draft2019, of: array, read: readUnevaluatedItems},

		"properties":            {of: object, read: readProperties},
		"patternProperties":     {of: object, read: readPatterns},
		"additionalProperties":  {of: object, read: one(func(n *node) **node { return &n.more })},
		"propertyNames":         {of: object, read: one(func(n *node) **node { return &n.names })},
		"minProperties":         count(object, func(n *node) **int { return &n.minProps }),
		"maxProperties":         count(object, func(n *node) **int { return &n.maxProps }),
		"required":              {of: object, read: func(p *place, v *value) (ok bool) { p.n.required, ok = texts(v); return ok }},
		"dependencies":          {until: draft7, of: object, read: readDependencies(true, true)},
		"dependentRequired":     {since: draft2019, of: object, read: readDependencies(true, false)},
		"dependentSchemas":      {since: draft2019, of: object, read: readDependencies(false, true)},
		"unevaluatedProperties": {since: draft2019, of: object, read: readUnevaluatedProperties},

		"allOf": {of: anything, read: list(func(n *node) *[]*node { return &n.all })},
		"anyOf": {of: anything, read: list(func(n *node) *[]*node { return &n.any })},
		"oneOf": {of: anything, read: list(func(n *node) *[]*node { return &n.one })},
		"not":   {of: anything, read: one(func(n *node) **node { return &n.not })},
		"if":    {since: draft7, of: anything, read: one(func(n *node) **node { return &n.cond })},
		"then":  {since: draft7, of: anything, read: one(func(n *node) **node { return &n.then })},
		"else":  {since: draft7, of: anything, read: one(func(n *node) **node { return &n.otherwise })},

		"$dynamicRef":   {since: draft2020, of: anything, read: never},
		"$recursiveRef": {since: draft2019, until: draft2019, of: anything, read: never},
	}
}

func never(*place, *value) bool { return false }

func since(d draft, k keyword) keyword {
	k.since = d
	return k
}

// one reads a keyword whose value is a schema.
func one(of func(*node) **node) func(*place, *value) bool {
	return func(p *place, v *value) bool {
		*of(p.n) = p.sub(v)
		return true
	}
}

// list reads a keyword whose value is a list of schemas.
func list(of func(*node) *[]*node) func(*place, *value) bool {
	return func(p *place, v *value) (ok bool) {
		*of(p.n), ok = p.subs(v)
		return ok && len(v.kids) > 0
	}
}

func bound(of func(*node) **decimal) keyword {
	return keyword{of: number, read: func(p *place, v *value) bool {
		if v.kind == number {
			d := newDecimal(v.text)
			*of(p.n) = &d
		}
		return v.kind == number
	}}
}

func count(k kind, of func(*node) **int) keyword {
	return keyword{of: k, read: func(p *place, v *value) bool {
		if v.kind != number {
			return false
		}
		n, ok := newDecimal(v.text).count()
		if ok {
			*of(p.n) = &n
		}
		return ok
	}}
}

func texts(v *value) ([]string, bool) {
	if v.kind != array {
		return nil, false
	}
	var out []string
	for i := range v.kids {
		if v.kids[i].kind != text {
			return nil, false
		}
		out = append(out, v.kids[i].text)
	}
	return out, true
}

func readType(p *place, v *value) bool {
	names := []value{*v}
	if v.kind == array {
		names = v.kids
	}
	var types kind
	whole, all := false, false
	for i := range names {
		k, known := typeNames[names[i].text]
		if !known || names[i].kind != text {
			return false
		}
		types |= k
		whole = whole || names[i].text == "integer"
		all = all || names[i].text == "number"
	}
	p.n.types, p.n.whole = types, whole && !all
	return types != 0
}

// oneOf lets a value be one of some.
func (n *node) oneOf(values []value) {
	forms := make([][]byte, len(values))
	for i := range values {
		forms[i] = values[i].canon(nil)
	}
	n.enums = append(n.enums, forms)
}

func readEnum(p *place, v *value) bool {
	if v.kind != array {
		return false
	}
	p.n.oneOf(v.kids)
	return true
}

func readItems(p *place, v *value) (ok bool) {
	if v.kind != array {
		p.n.items = p.sub(v)
		return true
	}
	if p.c.draft >= draft2020 {
		return false
	}
	p.n.prefix, ok = p.subs(v)
	return ok
}

// readAdditionalItems reads what stood for the rest before items did. Without a list
// beside it, it says nothing.
func readAdditionalItems(p *place, v *value) bool {
	if items := p.v.member("items"); items != nil && items.kind == array {
		p.n.items = p.sub(v)
	}
	return true
}

// spreads tells whether other schemas speak of the same value, so that what is
// evaluated can't be told from here.
func (p *place) spreads() bool {
	for _, name := range []string{"$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "not", "if", "dependentSchemas"} {
		if p.v.member(name) != nil {
			return true
		}
	}
	return false
}

func readUnevaluatedItems(p *place, v *value) bool {
	if p.spreads() || p.v.member("contains") != nil {
		return false
	}
	if p.v.member("additionalItems") == nil && (p.v.member("items") == nil || p.c.draft < draft2020 && p.v.member("items").kind == array) {
		p.n.items = p.sub(v)
	}
	return true
}

func readUnevaluatedProperties(p *place, v *value) bool {
	if p.spreads() {
		return false
	}
	if p.v.member("additionalProperties") == nil {
		p.n.more = p.sub(v)
	}
	return true
}

func readProperties(p *place, v *value) bool {
	if v.kind != object {
		return false
	}
	p.n.props = make(map[string]*node, len(v.names))
	for i, name := range v.names {
		p.n.props[name] = p.sub(&v.kids[i])
	}
	return true
}

func readPatterns(p *place, v *value) bool {
	if v.kind != object {
		p.n.lost = true
		return false
	}
	for i, expr := range v.names {
		re := p.c.pattern(expr)
		if re == nil {
			p.n.lost = true
			continue
		}
		p.n.patterns = append(p.n.patterns, patterned{re, p.sub(&v.kids[i])})
	}
	return !p.n.lost
}

func readDependencies(names, schemas bool) func(*place, *value) bool {
	return func(p *place, v *value) bool {
		if v.kind != object {
			return false
		}
		good := true
		for i, name := range v.names {
			kid := &v.kids[i]
			switch {
			case names && kid.kind == array:
				required, ok := texts(kid)
				good = good && ok
				p.n.needs = append(p.n.needs, dependency{name: name, required: required})
			case schemas:
				p.n.needs = append(p.n.needs, dependency{name: name, node: p.sub(kid)})
			default:
				good = false
			}
		}
		return good
	}
}

// fill notes what is required and has a default beside it. By the drafts a default
// says nothing; servers that fill it in first, as some do, take a call without it.
func (p *place) fill() {
	props := p.v.member("properties")
	if props == nil {
		return
	}
	for _, name := range p.n.required {
		if prop := props.member(name); prop != nil && prop.member("default") != nil {
			if p.n.filled == nil {
				p.n.filled = map[string]bool{}
			}
			p.n.filled[name] = true
		}
	}
}
