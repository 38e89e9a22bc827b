package policy

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/countersign-mcp/countersign/approvals"
)

// Named is a call that two policies are compared by.
type Named struct {
	Name  string
	Facts Facts
}

// Ruling is what a policy says of a call, in short.
type Ruling struct {
	Effect string   `json:"effect"`
	Tier   string   `json:"tier,omitempty"`
	Routes []string `json:"routes"` // sorted
	By     []string `json:"by"`     // the reasons that carry the effect, sorted
}

// Listing is what a policy says of a tool, whatever the call.
type Listing struct {
	Shown  bool   `json:"shown"`
	Tier   string `json:"tier,omitempty"`
	Effect string `json:"effect"`          // of the table of tools alone
	Route  string `json:"route,omitempty"` // when that is a review
}

// CallChange is a call that comes out differently.
type CallChange struct {
	Name string `json:"name"`
	Tool string `json:"tool"`
	Old  Ruling `json:"old"`
	New  Ruling `json:"new"`
}

// ToolChange is a tool, or a pattern of tools, that is listed differently.
type ToolChange struct {
	Tool string  `json:"tool"`
	Old  Listing `json:"old"`
	New  Listing `json:"new"`
}

// RouteChange is a key of a route that has another value. A route that is not there
// has none.
type RouteChange struct {
	Route string `json:"route"`
	Key   string `json:"key"`
	Old   string `json:"old"`
	New   string `json:"new"`
}

// Difference is what two policies say differently. It is about these calls only: a
// rule that none of them meets is not seen.
type Difference struct {
	Judged int           `json:"judged"` // calls
	Calls  []CallChange  `json:"calls"`
	Tools  []ToolChange  `json:"tools"`
	Routes []RouteChange `json:"routes"`

	Settings []SettingChange `json:"settings"` // everything else that matters
}

// Same tells whether there is none.
func (d *Difference) Same() bool { return len(d.Calls)+len(d.Tools)+len(d.Routes)+len(d.Settings) == 0 }

// Compare judges the cases of both policies, whose roles and labels are taken as
// given, and the calls, whose actors get the roles of each policy. Both policies are
// bound.
func Compare(before, after *Set, calls []Named) Difference {
	d := Difference{Calls: []CallChange{}, Tools: []ToolChange{}, Routes: []RouteChange{}}
	seen := map[string]bool{}
	for _, s := range []*Set{before, after} {
		for _, c := range s.cases {
			if key := c.facts.key(); !seen[key] {
				seen[key] = true
				d.judge(c.name, before.Judge(c.facts), after.Judge(c.facts), &c.facts)
			}
		}
	}
	for _, c := range calls {
		d.judge(c.Name, before.Judge(before.withRoles(c.Facts)), after.Judge(after.withRoles(c.Facts)), &c.Facts)
	}
	d.tools(before, after)
	d.routes(before, after)
	d.Settings = compareSettings(before, after)
	return d
}

// key is the same for cases that are about one call.
func (f *Facts) key() string {
	b, err := json.Marshal([]any{f.Call.Server, f.Call.Tool, f.Call.Args, f.Call.Actor.ID, f.Call.Actor.Roles, f.Call.Session, f.Call.Workflow, f.Labels, f.Evidence})
	if err != nil { // of JSON, texts and lists there is none
		return f.Call.Server + "/" + f.Call.Tool
	}
	return string(b)
}

func (s *Set) withRoles(f Facts) Facts {
	f.Call.Actor.Roles = s.Roles(f.Call.Actor.Roles, f.Call.Actor.ID, nil)
	return f
}

func (d *Difference) judge(name string, before, after Verdict, f *Facts) {
	d.Judged++
	c := CallChange{Name: name, Tool: f.Call.Server + "/" + f.Call.Tool, Old: before.ruling(), New: after.ruling()}
	if !reflect.DeepEqual(c.Old, c.New) {
		d.Calls = append(d.Calls, c)
	}
}

func (v *Verdict) ruling() Ruling {
	r := Ruling{Effect: v.Effect.String(), Tier: v.Tier, Routes: []string{}, By: []string{}}
	for _, route := range v.Routes {
		r.Routes = append(r.Routes, route.Name)
	}
	for _, reason := range v.Reasons {
		if reason.Effect == v.Effect {
			r.By = append(r.By, reason.ID)
		}
	}
	slices.Sort(r.Routes)
	slices.Sort(r.By)
	return r
}

// tools compares what both policies say of every tool that either names. A pattern
// stands for a name that it matches and that nobody writes.
func (d *Difference) tools(before, after *Set) {
	names := map[string]bool{}
	for _, s := range []*Set{before, after} {
		for _, e := range slices.Concat(s.tools, s.denied) {
			names[e.pattern.server+"/"+e.pattern.tool] = true
		}
	}
	for name := range names {
		c := ToolChange{Tool: name, Old: before.listing(name), New: after.listing(name)}
		if c.Old != c.New {
			d.Tools = append(d.Tools, c)
		}
	}
	slices.SortFunc(d.Tools, func(a, b ToolChange) int { return strings.Compare(a.Tool, b.Tool) })
}

func (s *Set) listing(name string) Listing {
	server, tool, _ := strings.Cut(strings.ReplaceAll(name, "*", "0any0"), "/")
	l := Listing{Shown: s.Shows(server, tool), Effect: Deny.String()}
	if slices.ContainsFunc(s.denied, func(d entry) bool { return d.pattern.covers(server, tool) }) {
		return l
	}
	if e, ok := s.find(server, tool); ok {
		l.Tier, l.Effect = e.tier, s.effect(*e).String()
		if s.effect(*e) == Review {
			l.Route = e.route
		}
	}
	return l
}

func (d *Difference) routes(before, after *Set) {
	names := map[string]bool{}
	for _, s := range []*Set{before, after} {
		for name := range s.routes {
			names[name] = true
		}
	}
	for name := range names {
		b, wasThere := before.routes[name]
		a, isThere := after.routes[name]
		if !wasThere || !isThere {
			d.Routes = append(d.Routes, RouteChange{Route: name, Key: "route", Old: presentOr(wasThere), New: presentOr(isThere)})
		}
		was, is := routeKeys(b, wasThere), routeKeys(a, isThere)
		for i, key := range routeKeyNames {
			if was[i] != is[i] {
				d.Routes = append(d.Routes, RouteChange{Route: name, Key: key, Old: was[i], New: is[i]})
			}
		}
	}
	slices.SortStableFunc(d.Routes, func(a, b RouteChange) int { return strings.Compare(a.Route, b.Route) })
}

func presentOr(there bool) string {
	if there {
		return "there"
	}
	return "not there"
}

var routeKeyNames = []string{"approvers", "quorum", "allow_requester", "channels", "timeout", "run", "on_cancel", "links"}

// routeKeys are the values of a route's keys, in the order of routeKeyNames.
func routeKeys(r approvals.Route, there bool) []string {
	if !there {
		return make([]string, len(routeKeyNames))
	}
	approvers := slices.Sorted(slices.Values(r.Approvers))
	return []string{
		strings.Join(approvers, ", "), fmt.Sprint(r.Quorum), fmt.Sprint(r.AllowRequester), strings.Join(r.Channels, ", "),
		r.Timeout.String(), r.Run, r.OnCancel, r.Links,
	}
}

// Servers lists the upstreams that the policy's cases are about, and those that its
// tools name without a star; sorted. Of version 1 there are none.
func (s *Set) Servers() []string {
	names := map[string]bool{}
	for _, e := range slices.Concat(s.tools, s.denied) {
		if validServer(e.pattern.server) {
			names[e.pattern.server] = true
		}
	}
	for _, c := range s.cases {
		names[c.facts.Call.Server] = true
	}
	delete(names, "")
	return slices.Sorted(maps.Keys(names))
}
