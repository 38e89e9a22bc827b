package webhook

import (
	"container/list"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// The limits of the link pages. A person needs a handful of requests; whoever
// guesses tokens needs very many.
const (
	perIP       = rate.Limit(2) // tokens a second that lead nowhere
	ipBurst     = 60
	perView     = rate.Limit(2) // requests a second of one link that leads somewhere
	viewBurst   = 60
	perLink     = rate.Limit(10.0 / 60) // answers a second
	linkBurst   = 10
	limiterKeys = 10_000
)

// limiter is a token bucket a key, for the keys seen last. It is safe for
// concurrent use and holds a bounded number of keys.
type limiter struct {
	limit rate.Limit
	burst int
	max   int
	now   func() time.Time

	mu   sync.Mutex
	keys map[string]*list.Element
	seen list.List // front is the newest
}

type bucket struct {
	key string
	l   *rate.Limiter
}

func newLimiter(limit rate.Limit, burst, max int, now func() time.Time) *limiter {
	return &limiter{limit: limit, burst: burst, max: max, now: now, keys: map[string]*list.Element{}}
}

func (l *limiter) allow(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	el, ok := l.keys[key]
	if ok {
		l.seen.MoveToFront(el)
	} else {
		if l.seen.Len() >= l.max {
			last := l.seen.Back()
			delete(l.keys, last.Value.(*bucket).key)
			l.seen.Remove(last)
		}
		el = l.seen.PushFront(&bucket{key: key, l: rate.NewLimiter(l.limit, l.burst)})
		l.keys[key] = el
	}
	return el.Value.(*bucket).l.AllowN(l.now(), 1)
}

// ipKey is an address as the limiter counts it: a whole /64 of IPv6 is one
// client.
func ipKey(ip string) string {
	a, err := netip.ParseAddr(ip)
	if err != nil {
		return ip
	}
	a = a.Unmap().WithZone("")
	if a.Is6() {
		if p, err := a.Prefix(64); err == nil {
			return p.String()
		}
	}
	return a.String()
}
