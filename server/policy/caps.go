package policy

import (
	"cmp"
	"regexp"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/countersign-mcp/countersign/approvals"
)

// maxCap bounds a number of pending calls.
const maxCap = 1_000_000

// perHour is the form of a number of new cards.
var perHour = regexp.MustCompile(`^([1-9][0-9]{0,5})/h$`)

// Caps are how much may wait: what the policy says, and otherwise what is given.
func (s *Set) Caps(otherwise approvals.Caps) approvals.Caps {
	return approvals.Caps{
		Parked:     cmp.Or(s.caps.Parked, otherwise.Parked),
		NewPerHour: cmp.Or(s.caps.NewPerHour, otherwise.NewPerHour),
		Total:      cmp.Or(s.caps.Total, otherwise.Total),
		NewInAll:   cmp.Or(s.caps.NewInAll, otherwise.NewInAll),
	}
}

// Closing is how many denials in a row close an actor's way to new approvals, and
// for how long.
func (s *Set) Closing() approvals.Closing {
	if s.closing.Denials == 0 {
		return approvals.DefaultClosing
	}
	return s.closing
}

// limits reads the list: how often calls may be made, how many may wait, and what
// denials do. Each kind but the first stands there once at most.
func (l *loader) limits(n *yaml.Node, s *Set) {
	if n.Kind != yaml.SequenceNode {
		l.fail(n, "limits is a list")
		return
	}
	first := map[string]int{}
	once := func(n *yaml.Node, kind string) {
		if line, dup := first[kind]; dup {
			l.fail(n, "%s stands twice in limits, first on line %d", kind, line)
		}
		first[kind] = n.Line
	}
	for _, c := range n.Content {
		switch {
		case field(c, "parked") != nil:
			once(c, "parked")
			l.parked(c, s)
		case field(c, "new_cards") != nil:
			once(c, "new_cards")
			l.newCards(c, s)
		case field(c, "denials") != nil:
			once(c, "denials")
			l.denials(c, s)
		default:
			s.limits = append(s.limits, l.limit(c))
		}
	}
}

func (l *loader) parked(n *yaml.Node, s *Set) {
	most := func(into *int, what string) func(*yaml.Node) {
		return func(n *yaml.Node) {
			if *into = l.whole(n, what, 1); *into > maxCap {
				l.fail(n, "%s is at most %d", what, maxCap)
			}
		}
	}
	l.apart(n, "parked", most(&s.caps.Parked, "per_actor"), most(&s.caps.Total, "global"))
}

func (l *loader) newCards(n *yaml.Node, s *Set) {
	hourly := func(into *int, what string) func(*yaml.Node) {
		return func(n *yaml.Node) {
			parts := perHour.FindStringSubmatch(l.text(n, what))
			if parts == nil {
				l.fail(n, "%s of new_cards is a number in an hour, such as 60/h", what)
				return
			}
			*into, _ = strconv.Atoi(parts[1]) // six digits at most
		}
	}
	l.apart(n, "new_cards", hourly(&s.caps.NewPerHour, "per_actor"), hourly(&s.caps.NewInAll, "global"))
}

// apart reads {KIND: {per_actor: …, global: …}}, of which one may be missing.
func (l *loader) apart(n *yaml.Node, kind string, perActor, global func(*yaml.Node)) {
	l.keys(n, "the limit "+kind, map[string]func(*yaml.Node){
		kind: func(n *yaml.Node) {
			l.keys(n, kind, map[string]func(*yaml.Node){"per_actor": perActor, "global": global}, "on_exceed")
			if n.Kind == yaml.MappingNode && len(n.Content) == 0 {
				l.fail(n, "%s needs per_actor or global", kind)
			}
		},
	}, "on_exceed")
}

func (l *loader) denials(n *yaml.Node, s *Set) {
	l.keys(n, "the limit denials", map[string]func(*yaml.Node){
		"denials": func(n *yaml.Node) {
			if s.closing.Denials = l.whole(n, "denials", 1); s.closing.Denials > maxCap {
				l.fail(n, "denials is at most %d", maxCap)
			}
		},
		"close": func(n *yaml.Node) {
			s.closing.For = l.duration(n, "close")
			if s.closing.For < time.Second || s.closing.For > approvals.LongestClosing {
				l.fail(n, "close is from 1s to 24h")
			}
		},
	})
	l.needs(n, "the limit denials", "denials", "close")
}
