package policy

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"
	"golang.org/x/time/rate"
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

func (l *loader) limits(n *yaml.Node) []Limit {
	if n.Kind != yaml.SequenceNode {
		l.fail(n, "limits is a list")
		return nil
	}
	var out []Limit
	for _, c := range n.Content {
		out = append(out, l.limit(c))
	}
	return out
}

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
	}, "parked", "on_exceed")
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

// maxCallers bounds what a Limiter remembers.
const maxCallers = 10_000

// Limiter enforces limits within one process. Many goroutines may use it at
// once.
type Limiter struct {
	limits []Limit
	now    func() time.Time
	most   int

	mu      sync.Mutex
	callers map[string][]*rate.Limiter // by actor, one bucket for each limit
	swept   time.Time
}

// NewLimiter makes a limiter whose buckets are full. now is time.Now but in
// tests.
func NewLimiter(limits []Limit, now func() time.Time) *Limiter {
	return &Limiter{limits: slices.Clone(limits), now: now, most: maxCallers, callers: map[string][]*rate.Limiter{}}
}

// Exceeded says which limit a call would exceed, and when the same call fits
// again if there is no other until then.
type Exceeded struct {
	Limit Limit // its Match is empty when there are too many callers to count for
	After time.Duration
}

func (e *Exceeded) Error() string {
	if e.Limit.Match == "" {
		return "too many callers to count the calls of"
	}
	return "the limit of " + e.Limit.String() + " is reached"
}

// Allow counts a call of server/tool. It is an *Exceeded when the call is over a
// limit; such a call counts for none. Every limit that matches has to have room.
func (l *Limiter) Allow(actor, tier, server, tool string) error {
	if !l.Covers(tier, server, tool) {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	buckets, ok := l.buckets(actor, now)
	if !ok {
		return &Exceeded{After: sweepEvery}
	}
	var over *Exceeded
	for i := range l.limits {
		if !l.limits[i].covers(tier, server, tool) {
			continue
		}
		if missing := 1 - buckets[i].TokensAt(now); missing > 0 {
			after := time.Duration(missing / float64(buckets[i].Limit()) * float64(time.Second))
			if over == nil || after > over.After {
				over = &Exceeded{Limit: l.limits[i], After: after}
			}
		}
	}
	if over != nil {
		return over
	}
	for i := range l.limits {
		if l.limits[i].covers(tier, server, tool) {
			buckets[i].AllowN(now, 1)
		}
	}
	return nil
}

// Covers tells whether a call of the tool is limited at all. A nil Limiter limits
// nothing.
func (l *Limiter) Covers(tier, server, tool string) bool {
	return l != nil && slices.ContainsFunc(l.limits, func(m Limit) bool { return m.covers(tier, server, tool) })
}

// sweepEvery is how often at most a full memory is searched for who can be
// forgotten.
const sweepEvery = time.Second

// buckets are an actor's. False when there is no room for another actor: one that
// is forgotten before its buckets are full again could call more than it may.
func (l *Limiter) buckets(actor string, now time.Time) ([]*rate.Limiter, bool) {
	if b, ok := l.callers[actor]; ok {
		return b, true
	}
	if len(l.callers) >= l.most && now.Sub(l.swept) >= sweepEvery {
		l.swept = now
		for name, b := range l.callers {
			if full(b, now) {
				delete(l.callers, name)
			}
		}
	}
	if len(l.callers) >= l.most {
		return nil, false
	}
	b := make([]*rate.Limiter, len(l.limits))
	for i, m := range l.limits {
		b[i] = rate.NewLimiter(rate.Limit(float64(m.Count)/m.Period.Seconds()), m.Burst)
	}
	l.callers[actor] = b
	return b, true
}

// full tells whether an actor's buckets are as those of a new one.
func full(buckets []*rate.Limiter, now time.Time) bool {
	for _, b := range buckets {
		if b.TokensAt(now) < float64(b.Burst()) {
			return false
		}
	}
	return true
}
