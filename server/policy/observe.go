package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Observation says on which upstreams nobody is asked yet: a call that would need
// a person's yes there runs, and the ledger says who would have been asked. What
// is denied stays denied.
type Observation struct {
	Upstreams []string // as the file lists them; empty where nothing is observed
	Until     time.Time
	line      int
}

// Observation is what the file says, whether or not its time is over.
func (s *Set) Observation() Observation {
	o := s.observed
	o.Upstreams = slices.Clone(o.Upstreams)
	return o
}

// Observes tells whether a call on this upstream that needs a yes runs without
// one at this moment. It ends by itself: at the very moment that the file names,
// everything is asked for.
func (s *Set) Observes(server string, now time.Time) bool {
	return s != nil && now.Before(s.observed.Until) && slices.Contains(s.observed.Upstreams, server)
}

// warning is what whoever starts or checks this policy has to know; "" when
// nothing is observed.
func (o Observation) warning(now time.Time) string {
	switch {
	case len(o.Upstreams) == 0:
		return ""
	case now.Before(o.Until):
		return fmt.Sprintf("line %d: until %s nobody is asked about calls of %s: what needs a yes runs without one, and is on the ledger as observed",
			o.line, o.Until.UTC().Format(time.RFC3339), strings.Join(o.Upstreams, ", "))
	}
	return fmt.Sprintf("line %d: observe ended at %s and has no effect; take it out", o.line, o.Until.UTC().Format(time.RFC3339))
}

// bindObserve refuses a name that no upstream has: a slip of the pen there would
// leave an upstream asking, or, worse, be read as another.
func (s *Set) bindObserve(upstreams []string) error {
	for _, name := range s.observed.Upstreams {
		if !slices.Contains(upstreams, name) {
			return fmt.Errorf("line %d: observe lists %s, which is no configured upstream", s.observed.line, name)
		}
	}
	return nil
}

func (l *loader) observe(n *yaml.Node) Observation {
	o := Observation{line: n.Line}
	l.keys(n, "observe", map[string]func(*yaml.Node){
		"upstreams": func(n *yaml.Node) {
			o.Upstreams = l.list(n, "observe.upstreams")
			for i, name := range o.Upstreams {
				if !validServer(name) {
					l.fail(n.Content[i], "%q is not an upstream's name, which has a-z, 0-9 and - only; every upstream is named", name)
				}
			}
			if n.Kind == yaml.SequenceNode && len(n.Content) == 0 {
				l.fail(n, "observe.upstreams is empty; name one, or take observe out")
			}
		},
		"until": func(n *yaml.Node) { o.Until = l.moment(n, "observe.until") },
	})
	l.needs(n, "observe", "upstreams", "until")
	return o
}

// moment reads a day, which begins at midnight UTC, or a time that says its zone.
// YAML takes both for timestamps of its own; how they are written counts here.
func (l *loader) moment(n *yaml.Node, what string) time.Time {
	if n.Kind == yaml.ScalarNode && (n.ShortTag() == "!!timestamp" || n.ShortTag() == "!!str") {
		for _, form := range []string{time.DateOnly, time.RFC3339} {
			if t, err := time.Parse(form, n.Value); err == nil {
				return t
			}
		}
	}
	l.fail(n, "%s is a day such as 2026-12-31 (it ends as that day begins in UTC) or a time with its zone such as 2026-12-31T18:00:00+01:00", what)
	return time.Time{}
}
