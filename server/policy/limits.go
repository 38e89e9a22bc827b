package policy

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Limit is how often one actor may call what it matches: Count calls in each
// Period in the long run, and Burst of them at once.
type Limit struct {
	Match  string // "*", "tier.NAME" or UPSTREAM/TOOL with `*`
	Count  int
	Period time.Duration
	Burst  int

	line  int
	tool  pattern // when Match is neither "*" nor a tier
	every bool
	tier  string
}

// String is the limit as a policy has it.
func (l Limit) String() string {
	return fmt.Sprintf("%s %d/%s burst %d", l.Match, l.Count, periodNames[l.Period], l.Burst)
}

func (l *Limit) covers(tier, server, tool string) bool {
	return l.every || l.tier != "" && l.tier == tier || l.tier == "" && l.tool.covers(server, tool)
}

var (
	rateForm    = regexp.MustCompile(`^([1-9][0-9]{0,5})/([smhd])$`)
	periods     = map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour}
	periodNames = map[time.Duration]string{time.Second: "s", time.Minute: "m", time.Hour: "h", 24 * time.Hour: "d"}
)

// maxBurst bounds how many calls one moment may see.
const maxBurst = 1_000_000

func (l *loader) limit(n *yaml.Node) Limit {
	m := Limit{line: n.Line}
	l.keys(n, "a limit", map[string]func(*yaml.Node){
		"match": func(n *yaml.Node) { l.matched(n, &m) },
		"per":   func(n *yaml.Node) { l.oneOf(n, "per", "actor") },
		"rate": func(n *yaml.Node) {
			text := l.text(n, "rate")
			parts := rateForm.FindStringSubmatch(text)
			if parts == nil {
				l.fail(n, "rate is a number of calls in a second, minute, hour or day, such as 60/m")
				return
			}
			m.Count, _ = strconv.Atoi(parts[1]) // six digits at most
			m.Period = periods[parts[2]]
		},
		"burst": func(n *yaml.Node) {
			if m.Burst = l.whole(n, "burst", 1); m.Burst > maxBurst {
				l.fail(n, "burst is at most %d", maxBurst)
			}
		},
	}, "on_exceed")
	l.needs(n, "the limit", "match", "per", "rate", "burst")
	return m
}

func (l *loader) matched(n *yaml.Node, m *Limit) {
	m.Match = l.text(n, "match")
	name, isTier := strings.CutPrefix(m.Match, "tier.")
	switch {
	case m.Match == "" || m.Match == "*":
		m.every = m.Match == "*"
	case isTier:
		if m.tier = name; !slices.Contains([]string{"read", "write", "destructive"}, name) {
			l.fail(n, "%s is not a tier; the tiers are read, write and destructive", name)
		}
	default:
		p, err := parsePattern(m.Match)
		if err != nil {
			l.fail(n, "match is *, tier.NAME or a tool; %s: %s", m.Match, err)
		}
		m.tool = p
	}
}

// arrangeLimits warns of limits that nothing can meet.
func (s *Set) arrangeLimits() {
	for _, m := range s.limits {
		if !m.every && !slices.ContainsFunc(s.tools, func(e entry) bool {
			return m.tier != "" && m.tier == e.tier || m.tier == "" && m.tool.overlaps(e.pattern)
		}) {
			s.warns = append(s.warns, fmt.Sprintf("line %d: the limit on %s has no effect, since no such tool is listed", m.line, m.Match))
		}
	}
}

// Limits are the policy's limits on calls, for a Limiter.
func (s *Set) Limits() []Limit { return slices.Clone(s.limits) }
