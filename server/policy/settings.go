package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// SettingChange is something beside tools' tiers, rules and routes that has another
// value: who is asked at all, how often, and what they see. Empty is not there.
type SettingChange struct {
	Key string `json:"key"`
	Old string `json:"old"`
	New string `json:"new"`
}

// compareSettings finds them, in the order of their keys.
func compareSettings(before, after *Set) []SettingChange {
	was, is := before.settings(), after.settings()
	keys := maps.Clone(was)
	maps.Copy(keys, is)
	out := []SettingChange{}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if was[key] != is[key] {
			out = append(out, SettingChange{Key: key, Old: was[key], New: is[key]})
		}
	}
	return out
}

// settings are what a policy says beside tiers, rules and routes, as text.
func (s *Set) settings() map[string]string {
	out := map[string]string{}
	set := func(key, value string) {
		if value != "" {
			out[key] = value
		}
	}
	if o := s.observed; len(o.Upstreams) > 0 {
		set("observe", sortedList(o.Upstreams)+" until "+o.Until.UTC().Format(time.RFC3339))
	}
	set("limits", s.limitsText())
	set("provenance.trusted_labelers", sortedList(s.trusted))
	set("redact.keys", sortedList(s.keys))
	for role, who := range s.roles {
		set("roles."+role, sortedList(who))
	}
	for _, e := range s.tools {
		set(e.pattern.text+" title", e.title)
		set(e.pattern.text+" mask", sortedList(e.mask))
		set(e.pattern.text+" produces", sortedList(e.gives))
	}
	return out
}

func (s *Set) limitsText() string {
	var out []string
	for _, l := range s.limits {
		out = append(out, l.String())
	}
	slices.Sort(out)
	for _, n := range []struct {
		what string
		most int
	}{
		{"parked per actor", s.caps.Parked}, {"parked in all", s.caps.Total},
		{"new cards per actor and hour", s.caps.NewPerHour}, {"new cards per hour in all", s.caps.NewInAll},
	} {
		if n.most > 0 {
			out = append(out, fmt.Sprintf("%s %d", n.what, n.most))
		}
	}
	if c := s.closing; c.Denials > 0 {
		out = append(out, fmt.Sprintf("closed for %s after %d denials", c.For, c.Denials))
	}
	return strings.Join(out, ", ")
}

func sortedList(of []string) string {
	return strings.Join(slices.Sorted(slices.Values(of)), ", ")
}
