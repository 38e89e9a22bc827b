package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// DefinitionsRoute is asked about changed definitions of tools, so no tool or rule
// needs to name it.
const DefinitionsRoute = "definitions"

// warner finds what is allowed in a policy and probably not meant. What it says
// has a use each time: something that somebody wrote has no effect, or lets more
// pass than it seems to.
type warner struct {
	set     *Set
	reached []entry // the entries that some call can reach
	out     []string
}

func (s *Set) warn() {
	w := &warner{set: s}
	w.entries()
	used := map[string]bool{DefaultRoute: true, DefinitionsRoute: true}
	covered := map[string]bool{} // the entries that a rule looks at
	for i := range s.rules {
		w.rule(&s.rules[i], covered)
		used[s.rules[i].route] = true
	}
	w.forgotten(covered)
	for _, e := range s.tools {
		used[e.route] = true
	}
	for _, name := range slices.Sorted(maps.Keys(s.routes)) {
		if !used[name] {
			w.out = append(w.out, fmt.Sprintf("the route %s is used by no tool and no rule", name))
		}
	}
	s.warns = append(s.warns, w.out...)
}

func (w *warner) say(line int, format string, args ...any) {
	w.out = append(w.out, fmt.Sprintf("line %d: ", line)+fmt.Sprintf(format, args...))
}

// entries tells which entries of the table a matching deny leaves nothing of.
func (w *warner) entries() {
	for _, e := range w.set.tools {
		i := slices.IndexFunc(w.set.denied, func(d entry) bool { return d.pattern.includes(e.pattern) })
		if i < 0 {
			w.reached = append(w.reached, e)
			continue
		}
		d := w.set.denied[i]
		w.say(e.line, "%s is never reached, since %s (line %d) denies all of it", e.pattern.text, d.pattern.text, d.line)
	}
}

// maxGlimpses bounds how many tools a rule is tried with.
const maxGlimpses = 500

// rule looks at one rule, and notes the entries that it looks at.
func (w *warner) rule(r *rule, covered map[string]bool) {
	var met []*entry
	seen := map[sight]int{}
	tried := map[glimpse]sight{}
	for i := range w.reached {
		e := &w.reached[i]
		for _, p := range r.patterns() {
			if p != nil && !e.pattern.overlaps(*p) {
				continue
			}
			g := glimpseOf(e, p)
			s, known := tried[g]
			if !known && r.when != nil && len(tried) < maxGlimpses {
				s = r.when.sees(g)
				tried[g] = s
			}
			seen[s]++
			if s != never {
				met = append(met, e)
				covered[e.pattern.text] = true
			}
		}
	}
	switch {
	case len(seen) == 0:
		w.say(r.line, "the rule %s can't fire, since no tool that it covers is listed", r.id)
		return
	case len(met) == 0:
		w.say(r.line, "the rule %s can't fire, since its condition is false for every tool that it covers", r.id)
		return
	case len(seen) == 1 && seen[unjudged] > 0:
		w.say(r.line, "the rule %s denies every call, since its condition can't be judged", r.id)
	}
	for i := range r.tools {
		p := &r.tools[i]
		if !slices.ContainsFunc(w.reached, func(e entry) bool { return e.pattern.overlaps(*p) }) {
			w.say(p.line, "the rule %s names %s, and no such tool is listed", r.id, p.text)
		}
	}
	if r.when != nil {
		w.condition(r, met)
	}
}

// patterns are what the rule covers; one nil for everything.
func (r *rule) patterns() []*pattern {
	if len(r.tools) == 0 {
		return []*pattern{nil}
	}
	out := make([]*pattern, len(r.tools))
	for i := range r.tools {
		out[i] = &r.tools[i]
	}
	return out
}

// condition says what a condition lets pass. met are the tools that it is for.
func (w *warner) condition(r *rule, met []*entry) {
	without := func(name string, says func(a *argRule) bool) string {
		for _, e := range met {
			if !slices.ContainsFunc(e.args, func(a argRule) bool { return a.name == name && says(&a) }) {
				return e.pattern.text
			}
		}
		return ""
	}
	for _, name := range r.when.softens {
		// Who gives the argument a rule of its own has thought of it.
		if without(name, func(*argRule) bool { return true }) != "" {
			w.say(r.line, "the rule %s lets a call without %s pass, because of has(…) && …; without has(…) such a call is denied. If that is meant, write has(…) ? … : false or give it a rule under args", r.id, name)
		}
	}
	for _, name := range r.when.sizes {
		if tool := without(name, func(a *argRule) bool { return a.kind != "" }); tool != "" {
			w.say(r.line, "the rule %s measures args.%s, which %s does not give a type: of a string it sees characters, of an array items, of an object members", r.id, name, tool)
		}
	}
	for _, name := range r.when.paths {
		w.say(r.line, "the rule %s looks at how args.%s begins, which /a/../b gets past; within under args does not let it", r.id, name)
	}
	for _, name := range r.when.urls {
		w.say(r.line, "the rule %s looks at how args.%s begins, which a longer host or a user before it gets past; hosts under args does not let them", r.id, name)
	}
	for _, text := range r.when.halves {
		w.say(r.line, "the rule %s looks for %q, where ^ and $ belong to one of the ways only; put the ways in parentheses", r.id, text)
	}
	for _, what := range r.when.asked.strange() {
		w.say(r.line, "the rule %s asks for the label %s", r.id, what)
	}
	if label := r.when.asked.trusts(); label != "" {
		w.say(r.line, "the rule %s asks for %s and not for unknown: while Redis can't be reached it does not fire", r.id, label)
	}
}

// forgotten tells of tools that change something, run without a yes, and are
// looked at by no rule, where others of their tier are.
func (w *warner) forgotten(covered map[string]bool) {
	for _, tier := range []string{"write", "destructive"} {
		var names []string
		line, others := 0, false
		for _, e := range w.reached {
			switch {
			case e.tier != tier || w.set.effect(e) != Allow:
			case covered[e.pattern.text]:
				others = true
			case len(e.args) == 0:
				names = append(names, e.pattern.text)
				if line == 0 || e.line < line {
					line = e.line
				}
			}
		}
		if !others || len(names) == 0 {
			continue
		}
		slices.Sort(names)
		more := ""
		if extra := len(names) - 5; extra > 0 {
			names, more = names[:5], fmt.Sprintf(" and %d more", extra)
		}
		w.say(line, "no rule looks at %s%s, though rules look at other %s tools, which run without a yes too", strings.Join(names, ", "), more, tier)
	}
}

// includes tells whether p matches every name that o matches.
func (p pattern) includes(o pattern) bool {
	// A star of o stands for anything, so only a star of p can take it in.
	return matches(p.server, o.server) && matches(p.tool, o.tool)
}

// shadowed tells of entries for any upstream that longer ones leave nothing of, now
// that it is known which upstreams there are.
func (s *Set) shadowed(upstreams []string) []string {
	var out []string
	for _, e := range s.tools {
		if !strings.Contains(e.pattern.server, "*") {
			continue
		}
		reached, covers := false, false
		for _, u := range upstreams {
			if e.pattern.coversServer(u) {
				covers = true
				reached = reached || !slices.ContainsFunc(s.tools, func(o entry) bool {
					return o.pattern.literals > e.pattern.literals && o.pattern.coversServer(u) && matches(o.pattern.tool, e.pattern.tool)
				})
			}
		}
		if covers && !reached {
			out = append(out, fmt.Sprintf("line %d: %s is never reached, since for every configured upstream a longer entry decides", e.line, e.pattern.text))
		}
	}
	return out
}
