package policy

import (
	"math"
	"slices"
	"sync"
	"time"
)

// maxCallers bounds what a Limiter remembers.
const maxCallers = 10_000

// sweepEvery is how often at most a full memory is searched for who can be
// forgotten.
const sweepEvery = time.Second

// Limiter enforces limits within one process. Many goroutines may use it at
// once.
type Limiter struct {
	limits []Limit
	names  []string // of the limits, for the memory
	book   *book
}

// book is what is remembered of callers. The limiters of policies that followed
// each other share one.
type book struct {
	now  func() time.Time
	most int

	mu      sync.Mutex
	callers map[string]map[string]*bucket // by actor and limit
	swept   time.Time
}

// NewLimiter makes a limiter for which nobody has called yet. now is time.Now but
// in tests.
func NewLimiter(limits []Limit, now func() time.Time) *Limiter {
	return newLimiter(limits, &book{now: now, most: maxCallers, callers: map[string]map[string]*bucket{}})
}

func newLimiter(limits []Limit, b *book) *Limiter {
	l := &Limiter{book: b}
	for _, m := range limits {
		if name := m.String(); !slices.Contains(l.names, name) { // said twice it is still one
			l.limits, l.names = append(l.limits, m), append(l.names, name)
		}
	}
	return l
}

// Next is the limiter of the policy that follows. What was counted for a limit that
// stands in both, in the same words, stays counted: a reload is no fresh start. A
// limit that is new or has changed begins anew.
func (l *Limiter) Next(limits []Limit) *Limiter {
	next := newLimiter(limits, l.book)
	l.book.mu.Lock()
	defer l.book.mu.Unlock()
	for actor, buckets := range l.book.callers {
		for name := range buckets {
			if !slices.Contains(next.names, name) {
				delete(buckets, name)
			}
		}
		if len(buckets) == 0 {
			delete(l.book.callers, actor)
		}
	}
	return next
}

// Exceeded says which limit a call would exceed, and when the same call fits
// again if there is no other until then.
type Exceeded struct {
	Limit Limit         // its Match is empty when there are too many callers to count for
	After time.Duration // more than 0
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
	l.book.mu.Lock()
	defer l.book.mu.Unlock()
	now := l.book.now()
	buckets, ok := l.buckets(actor, now)
	if !ok {
		return &Exceeded{After: sweepEvery}
	}
	var over *Exceeded
	for i := range l.limits {
		if !l.limits[i].covers(tier, server, tool) {
			continue
		}
		if after := buckets[l.names[i]].wait(now); after > 0 && (over == nil || after > over.After) {
			over = &Exceeded{Limit: l.limits[i], After: after}
		}
	}
	if over != nil {
		return over
	}
	for i := range l.limits {
		if l.limits[i].covers(tier, server, tool) {
			buckets[l.names[i]].add(now, -1)
		}
	}
	return nil
}

// Uncount takes back what Allow counted for a call that came to nothing: it did not
// run and nobody was asked. It is for a call that Allow let through, and at most
// once.
func (l *Limiter) Uncount(actor, tier, server, tool string) {
	if l == nil {
		return
	}
	l.book.mu.Lock()
	defer l.book.mu.Unlock()
	now := l.book.now()
	for i := range l.limits {
		if b := l.book.callers[actor][l.names[i]]; b != nil && l.limits[i].covers(tier, server, tool) {
			b.add(now, 1)
		}
	}
}

// Covers tells whether a call of the tool is limited at all. A nil Limiter limits
// nothing.
func (l *Limiter) Covers(tier, server, tool string) bool {
	return l != nil && slices.ContainsFunc(l.limits, func(m Limit) bool { return m.covers(tier, server, tool) })
}

// buckets are an actor's, one for each limit. False when there is no room for
// another actor: one that is forgotten before its buckets are full again could call
// more than it may.
func (l *Limiter) buckets(actor string, now time.Time) (map[string]*bucket, bool) {
	b := l.book.callers[actor]
	if b == nil {
		if !l.book.room(now) {
			return nil, false
		}
		b = make(map[string]*bucket, len(l.limits))
		l.book.callers[actor] = b
	}
	for i, m := range l.limits {
		if b[l.names[i]] == nil {
			b[l.names[i]] = &bucket{calls: float64(m.Burst), burst: float64(m.Burst), rate: float64(m.Count) / m.Period.Seconds(), at: now}
		}
	}
	return b, true
}

// room tells whether another actor can be remembered, and forgets those whose
// buckets are as a new one's.
func (b *book) room(now time.Time) bool {
	if len(b.callers) >= b.most && now.Sub(b.swept) >= sweepEvery {
		b.swept = now
		for actor, buckets := range b.callers {
			if full(buckets, now) {
				delete(b.callers, actor)
			}
		}
	}
	return len(b.callers) < b.most
}

func full(buckets map[string]*bucket, now time.Time) bool {
	for _, b := range buckets {
		if b.has(now) < b.burst {
			return false
		}
	}
	return true
}

// bucket is how many calls fit: it fills at a rate, up to its burst, and each call
// takes one. The library's limiter can't take back a call whose time has come.
type bucket struct {
	calls float64 // at the moment at
	at    time.Time
	rate  float64 // calls a second
	burst float64
}

func (b *bucket) has(now time.Time) float64 {
	return min(b.burst, b.calls+max(0, now.Sub(b.at).Seconds())*b.rate)
}

// add changes how many calls fit. A clock that goes back gives nothing, then or when
// it goes on again.
func (b *bucket) add(now time.Time, n float64) {
	b.calls = b.has(now) + n
	if now.After(b.at) {
		b.at = now
	}
}

// wait is how long until a call fits; 0 when one does.
func (b *bucket) wait(now time.Time) time.Duration {
	missing := 1 - b.has(now)
	if missing <= 0 {
		return 0
	}
	return max(1, time.Duration(math.Ceil(missing/b.rate*float64(time.Second))))
}
