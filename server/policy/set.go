package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"cel.dev/cel-go/common/types/ref"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/action"
)

// DefaultRoute is the route of a reviewed tool that names none.
const DefaultRoute = "default"

// Set is one policy. Make it with Parse.
type Set struct {
	version int
	id      string
	digest  action.Digest
	tiers   map[string]Effect
	denied  []entry // every entry that denies
	tools   []entry // the others, most literal characters first
	rules   []rule  // in the file's order
	limits  []Limit
	caps    approvals.Caps    // zero where the policy says nothing
	closing approvals.Closing // the same
	cases   []testCase
	routes  map[string]approvals.Route
	roles   map[string][]string // role → actors and groups
	keys    []string            // redact.keys
	trusted []string            // actors whose word on provenance counts
	warns   []string

	observed Observation
}

// entry is one line of the table of tools.
type entry struct {
	pattern pattern
	deny    bool
	tier    string // empty in version 1
	route   string
	title   string
	mask    []string
	args    []argRule
	gives   []string // labels of what it returns
	line    int
	said    Reason  // what the entry itself says of a call
	seen    ref.Val // the tier, for conditions
}

// Bind ties the policy to the configured upstreams; call it once, before the
// first use. The names of a version-1 policy mean the only upstream's tools: with
// none or several it does not bind. Neither does one that observes an upstream
// which isn't there.
func (s *Set) Bind(upstreams []string) error {
	if s.version == 1 {
		if len(upstreams) != 1 {
			return fmt.Errorf("a policy of version 1 names tools without their upstream, so it needs exactly one; %d are configured", len(upstreams))
		}
		for i := range s.denied {
			s.denied[i].pattern.server = upstreams[0]
		}
		for i := range s.tools {
			s.tools[i].pattern.server = upstreams[0]
		}
		return nil
	}
	if err := s.bindObserve(upstreams); err != nil {
		return err
	}
	for _, e := range slices.Concat(s.denied, s.tools) {
		if !slices.ContainsFunc(upstreams, e.pattern.coversServer) {
			s.warns = append(s.warns, fmt.Sprintf("line %d: %s is for no configured upstream", e.line, e.pattern.text))
		}
	}
	s.warns = append(s.warns, s.shadowed(upstreams)...)
	return nil
}

// Warnings are what is allowed but probably not meant, for whoever checks a
// policy.
func (s *Set) Warnings() []string {
	out := slices.Clone(s.warns)
	if w := s.observed.warning(time.Now()); w != "" {
		out = append(out, w)
	}
	return out
}

// Version is 1 or 2.
func (s *Set) Version() int { return s.version }

// ID is the file's policy_id, a label for people.
func (s *Set) ID() string { return s.id }

// Digest identifies the policy by the exact bytes of its file.
func (s *Set) Digest() action.Digest { return s.digest }

// Reviews tells whether any call could need a person's yes.
func (s *Set) Reviews() bool {
	return slices.ContainsFunc(s.tools, func(e entry) bool { return s.effect(e) == Review }) ||
		slices.ContainsFunc(s.rules, func(r rule) bool { return r.fired.Effect == Review })
}

// Routes lists all routes by name.
func (s *Set) Routes() []approvals.Route {
	out := make([]approvals.Route, 0, len(s.routes))
	for _, name := range slices.Sorted(maps.Keys(s.routes)) {
		out = append(out, s.routes[name])
	}
	return out
}

// Roles is the union of an actor's own roles (from its token) and those that the
// policy gives to the actor or to one of the groups ("group:ops") of the person
// behind it; sorted.
func (s *Set) Roles(own []string, actor string, groups []string) []string {
	set := map[string]bool{}
	for _, r := range own {
		set[r] = true
	}
	for role, members := range s.roles {
		for _, m := range members {
			// No actor passes for a group by its name.
			group := strings.HasPrefix(m, "group:")
			if !group && m == actor || group && slices.Contains(groups, m) {
				set[role] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// Rules says how a call of the tool is shown.
func (s *Set) Rules(server, tool string) Display {
	d := Display{Keys: slices.Clone(s.keys)}
	if e, ok := s.find(server, tool); ok {
		d.Title, d.Pointers = e.title, slices.Clone(e.mask)
	}
	return d
}

// find is the entry that decides on a tool, where none denies it.
func (s *Set) find(server, tool string) (*entry, bool) {
	for i := range s.tools {
		if s.tools[i].pattern.covers(server, tool) {
			return &s.tools[i], true
		}
	}
	return nil, false
}

func (s *Set) effect(e entry) Effect {
	if e.tier == "" {
		return Allow // version 1: listed is allowed
	}
	return s.tiers[e.tier]
}

// Shows tells whether a tool may be listed: some call of it can run or be asked
// for. It shares no step with Judge but the comparison of one pattern.
func (s *Set) Shows(server, tool string) bool {
	if s == nil || !validServer(server) || !validTool(tool) {
		return false
	}
	shown, literals := false, -1
	for _, list := range [][]entry{s.tools, s.denied} {
		for _, e := range list {
			switch {
			case !e.pattern.covers(server, tool):
			case e.deny:
				return false
			case e.pattern.literals > literals:
				literals = e.pattern.literals
				shown = e.tier == "" || s.tiers[e.tier] != Deny
			}
		}
	}
	return shown && !slices.ContainsFunc(s.rules, func(r rule) bool { return r.bars(server, tool) })
}
