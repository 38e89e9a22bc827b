package slacktest

import (
	"math"
	"time"
)

// tooFast counts the call against its limits and returns how many seconds to
// wait if it is over one. A refused call costs nothing. Needs mu.
func (s *Slack) tooFast(name string, m method, in args) int {
	if !s.limited {
		return 0
	}
	type limit struct {
		key string
		n   int
		per time.Duration
	}
	var limits []limit
	if m.tier > 0 {
		limits = append(limits, limit{name, m.tier, time.Minute})
	}
	if name == "chat.postMessage" {
		limits = append(limits, limit{name + " " + in["channel"], 1, time.Second})
	}
	now := s.now()
	for _, l := range limits {
		var young []time.Time
		for _, t := range s.spent[l.key] {
			if now.Sub(t) < l.per {
				young = append(young, t)
			}
		}
		s.spent[l.key] = young
		if len(young) >= l.n {
			left := l.per - now.Sub(young[0])
			return max(1, int(math.Ceil(left.Seconds())))
		}
	}
	for _, l := range limits {
		s.spent[l.key] = append(s.spent[l.key], now)
	}
	return 0
}
