package notifier

import (
	"crypto/rand"
	"encoding/binary"
	"sync"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
)

// Schedule says when a failed delivery is tried again. The n-th try comes after
// a random time between nothing and a ceiling, which doubles from First up to
// the state's limit ("full jitter": after an outage not everybody returns at
// once), and never before the service's own Retry-After.
type Schedule struct {
	First   time.Duration // first ceiling; default 1 s
	Pending time.Duration // limit while people wait for the card; default 30 s
	Settled time.Duration // limit for news of what was decided; default 15 min
	// Mend is how long a pending card waits after a final failure that a person can
	// put right; default 1 min. That of an unknown outcome waits for Settled.
	Mend time.Duration
	// Tries bounds the deliveries of one settled version; default 60, which
	// with the limit's default is about seven hours. A pending card is tried
	// until its deadline, an unknown outcome until somebody resolves it.
	Tries int
	// Jitter draws from (0, d]; nil draws evenly.
	Jitter func(d time.Duration) time.Duration
}

const longestAfter = time.Hour // a Retry-After is believed up to here

func (s *Schedule) fill() {
	if s.First <= 0 {
		s.First = time.Second
	}
	if s.Pending <= 0 {
		s.Pending = 30 * time.Second
	}
	if s.Settled <= 0 {
		s.Settled = 15 * time.Minute
	}
	if s.Mend <= 0 {
		s.Mend = time.Minute
	}
	if s.Tries <= 0 {
		s.Tries = 60
	}
	if s.Jitter == nil {
		s.Jitter = evenly
	}
}

// wait is the time before the next try of a version of t that failed tries
// times.
func (s *Schedule) wait(t approvals.Ticket, tries int, after time.Duration) time.Duration {
	limit := s.Settled
	if t.State == approvals.Pending {
		limit = s.Pending
	}
	ceiling := limit
	if shift := tries - 1; shift < 20 {
		ceiling = min(limit, s.First<<max(shift, 0))
	}
	return min(max(after, 0), longestAfter) + s.Jitter(ceiling)
}

// exhausted tells whether a version of t that failed tries times is given up.
func (s *Schedule) exhausted(t approvals.Ticket, tries int) bool {
	return t.State != approvals.Pending && t.State != approvals.Unknown && tries >= s.Tries
}

// mend is the time after which a final failure is looked at again.
func (s *Schedule) mend(t approvals.Ticket) time.Duration {
	if t.State == approvals.Pending {
		return s.Mend
	}
	return s.Settled
}

// mendable tells whether a person can put right what made a delivery fail for
// good, without the approval changing.
func mendable(r Reason) bool { return r == Auth || r == NoChannel || r == NotConfigured }

func evenly(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	var b [8]byte
	rand.Read(b[:])
	return time.Duration(binary.LittleEndian.Uint64(b[:])%uint64(d)) + 1
}

// gate spaces the deliveries to one place. It is a courtesy of this process; the
// service's own limit is the law.
type gate struct {
	mu   sync.Mutex
	next map[string]time.Time
}

// slot reserves the next free moment at a place. With always unset it takes no
// room while nobody is queued there.
func (g *gate) slot(place string, now time.Time, pace time.Duration, always bool) time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := now
	if n := g.next[place]; n.After(now) {
		at = n
	}
	if always || at.After(now) {
		g.put(place, at.Add(pace))
	}
	return at
}

// close lets nobody through before until.
func (g *gate) close(place string, until time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if until.After(g.next[place]) {
		g.put(place, until)
	}
}

func (g *gate) put(place string, at time.Time) {
	if g.next == nil {
		g.next = map[string]time.Time{}
	}
	g.next[place] = at
}
