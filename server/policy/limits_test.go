package policy

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/countersign-mcp/countersign/approvals"
)

type clock struct{ now time.Time }

func (c *clock) time() time.Time { return c.now }

func limiter(t *testing.T, limits string) (*Limiter, *clock) {
	t.Helper()
	s := load(t, "version: 2\ntools: {desk/look: read, desk/cancel: destructive, pay/transfer: write}\nlimits: "+limits+defaultRoute, "desk", "pay")
	if w := s.Warnings(); len(w) > 0 {
		t.Fatal(w)
	}
	c := &clock{time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	return NewLimiter(s.Limits(), c.time), c
}

func TestLimits(t *testing.T) {
	s := file(t, "testdata/sample.v2.yaml")
	want := []Limit{
		{Match: "*", Count: 60, Period: time.Minute, Burst: 20},
		{Match: "tier.destructive", Count: 6, Period: time.Minute, Burst: 2},
	}
	if d := cmp.Diff(want, s.Limits(), cmpopts.IgnoreUnexported(Limit{})); d != "" {
		t.Errorf("limits (-want +got):\n%s", d)
	}
	if got := s.Limits()[1].String(); got != "tier.destructive 6/m burst 2" {
		t.Error(got)
	}
}

func TestLimiter(t *testing.T) {
	l, c := limiter(t, `[{match: "*", per: actor, rate: 60/m, burst: 3}, {match: tier.destructive, per: actor, rate: 6/m, burst: 1}, {match: pay/*, per: actor, rate: 1/h, burst: 1}]`)
	look := func(actor string) error { return l.Allow(actor, "read", "desk", "look") }
	cancel := func(actor string) error { return l.Allow(actor, "destructive", "desk", "cancel") }
	over := func(err error, match string, after time.Duration) {
		t.Helper()
		var e *Exceeded
		if !errors.As(err, &e) || e.Limit.Match != match || e.After < after-time.Millisecond || e.After > after+time.Millisecond {
			t.Fatalf("%v, want over %s for %v", err, match, after)
		}
	}
	fits := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	fits(cancel("ana"))
	over(cancel("ana"), "tier.destructive", 10*time.Second)
	fits(look("ana")) // the refused call counted for nothing
	fits(look("ana"))
	over(look("ana"), "*", time.Second)
	fits(look("bo")) // each actor has its own
	c.now = c.now.Add(999 * time.Millisecond)
	over(look("ana"), "*", time.Millisecond)
	c.now = c.now.Add(time.Millisecond)
	fits(look("ana"))
	over(cancel("ana"), "tier.destructive", 9*time.Second) // the longest wait of all that are full
	fits(l.Allow("cy", "write", "pay", "transfer"))
	over(l.Allow("cy", "write", "pay", "transfer"), "pay/*", time.Hour)
	fits(look("cy"))
	// A clock that goes back gives nothing.
	c.now = c.now.Add(-time.Hour)
	over(l.Allow("cy", "write", "pay", "transfer"), "pay/*", time.Hour)
}

func TestLimiterWithoutLimits(t *testing.T) {
	var none *Limiter
	if err := errors.Join(none.Allow("a", "read", "desk", "look"), NewLimiter(nil, time.Now).Allow("a", "read", "desk", "look")); err != nil {
		t.Error(err)
	}
	l, _ := limiter(t, `[{match: tier.destructive, per: actor, rate: 1/d, burst: 1}]`)
	for i := range 100 {
		if err := l.Allow(fmt.Sprint(i), "read", "desk", "look"); err != nil {
			t.Fatal(err)
		}
	}
	if len(l.book.callers) != 0 {
		t.Error("callers that no limit is on are remembered")
	}
}

// Many callers can't take its memory, nor give one of them more than it may have.
func TestLimiterIsBounded(t *testing.T) {
	l, c := limiter(t, `[{match: "*", per: actor, rate: 1/m, burst: 1}]`)
	l.book.most = 50
	allowed := 0
	for i := range 500 {
		c.now = c.now.Add(10 * time.Millisecond)
		if l.Allow(fmt.Sprint("caller", i), "read", "desk", "look") == nil {
			allowed++
		}
		if len(l.book.callers) > l.book.most {
			t.Fatalf("%d callers are remembered", len(l.book.callers))
		}
	}
	if allowed != l.book.most {
		t.Errorf("%d calls were allowed", allowed)
	}
	var e *Exceeded
	if err := l.Allow("one more", "read", "desk", "look"); !errors.As(err, &e) || e.Limit.Match != "" || e.After <= 0 {
		t.Error(err)
	}
	if err := l.Allow("caller0", "read", "desk", "look"); !errors.As(err, &e) || e.Limit.Match != "*" {
		t.Error("a caller was forgotten too early:", err)
	}
	c.now = c.now.Add(2 * time.Minute)
	if err := l.Allow("one more", "read", "desk", "look"); err != nil || len(l.book.callers) != 1 {
		t.Errorf("%v, %d callers", err, len(l.book.callers))
	}
}

// Calls at once, some of them taken back, under policies that follow each other: never
// one more than fits.
func TestLimiterAtOnce(t *testing.T) {
	l, _ := limiter(t, `[{match: "*", per: actor, rate: 1/d, burst: 20}]`)
	var wg sync.WaitGroup
	var allowed atomic.Int64
	for range 8 {
		wg.Go(func() {
			mine := l
			for i := range 50 {
				if i%10 == 5 {
					mine = mine.Next(l.limits)
				}
				if mine.Allow("ana", "read", "desk", "look") != nil {
					continue
				}
				if i%3 == 0 {
					mine.Uncount("ana", "read", "desk", "look")
					continue
				}
				allowed.Add(1)
			}
		})
	}
	wg.Wait()
	for l.Allow("ana", "read", "desk", "look") == nil {
		allowed.Add(1)
	}
	if allowed.Load() != 20 {
		t.Errorf("%d calls were allowed", allowed.Load())
	}
}

// Whatever the rate, a call fits at the moment that the refusal named and at none
// before, and over any time no more get through than burst and rate allow.
func TestLimiterIsExact(t *testing.T) {
	for _, tt := range []struct {
		rate   string
		count  int
		period time.Duration
		burst  int
	}{
		{"7/m", 7, time.Minute, 3}, {"1/d", 1, 24 * time.Hour, 2}, {"999999/s", 999999, time.Second, 1},
		{"11/h", 11, time.Hour, 5}, {"3/s", 3, time.Second, 1000},
	} {
		t.Run(tt.rate, func(t *testing.T) {
			l, c := limiter(t, fmt.Sprintf(`[{match: "*", per: actor, rate: %s, burst: %d}]`, tt.rate, tt.burst))
			start, passed := c.now, 0
			for range 2000 {
				err := l.Allow("ana", "read", "desk", "look")
				if err == nil {
					passed++
					continue
				}
				var e *Exceeded
				if !errors.As(err, &e) || e.After <= 0 {
					t.Fatal(err)
				}
				soon := tt.period / time.Duration(tt.count) / 1000 // a little before it is still over
				if soon > 0 && e.After > soon {
					c.now = c.now.Add(-soon)
					c.now = c.now.Add(e.After)
					if l.Allow("ana", "read", "desk", "look") == nil {
						t.Fatal("it fits before its time")
					}
					c.now = c.now.Add(soon)
				} else {
					c.now = c.now.Add(e.After)
				}
				if err := l.Allow("ana", "read", "desk", "look"); err != nil {
					t.Fatalf("told to come at this moment, and refused: %v", err)
				}
				passed++
			}
			most := float64(tt.burst) + float64(tt.count)*float64(c.now.Sub(start))/float64(tt.period)
			if float64(passed) > most+1e-3*float64(passed) {
				t.Errorf("%d calls, where at most %f fit", passed, most)
			}
		})
	}
}

// A clock that goes back and on again gives nothing twice.
func TestLimiterAndAClockThatTurnsBack(t *testing.T) {
	l, c := limiter(t, `[{match: "*", per: actor, rate: 1/m, burst: 5}]`)
	start, passed := c.now, 0
	for i := range 100 {
		c.now = start
		if i%2 == 0 {
			c.now = start.Add(time.Minute)
		}
		if l.Allow("ana", "read", "desk", "look") == nil {
			passed++
		}
	}
	if passed > 6 {
		t.Errorf("%d calls in a minute", passed)
	}
}

func TestLimiterTakesBack(t *testing.T) {
	l, c := limiter(t, `[{match: "*", per: actor, rate: 1/h, burst: 2}, {match: tier.destructive, per: actor, rate: 1/h, burst: 1}]`)
	cancel := func() error { return l.Allow("ana", "destructive", "desk", "cancel") }
	for range 100 {
		if err := cancel(); err != nil {
			t.Fatal(err)
		}
		l.Uncount("ana", "destructive", "desk", "cancel")
	}
	// Taking back gives no more than the burst, however often and to whom.
	for range 10 {
		l.Uncount("ana", "destructive", "desk", "cancel")
		l.Uncount("nobody", "destructive", "desk", "cancel")
		c.now = c.now.Add(time.Hour)
	}
	if err := cancel(); err != nil {
		t.Fatal(err)
	}
	if cancel() == nil {
		t.Error("a second destructive call")
	}
	if err := l.Allow("ana", "read", "desk", "look"); err != nil {
		t.Error(err)
	}
	if l.Allow("ana", "read", "desk", "look") == nil {
		t.Error("a third call")
	}
	if len(l.book.callers) != 1 {
		t.Error("somebody who never called is remembered")
	}
	var none *Limiter
	none.Uncount("ana", "read", "desk", "look")
}

// A limit that the next policy still has, in the same words, goes on counting. One
// that is new or has changed begins anew, and what is gone is not remembered.
func TestLimiterOfTheNextPolicy(t *testing.T) {
	l, _ := limiter(t, `[{match: "*", per: actor, rate: 1/h, burst: 3}, {match: desk/look, per: actor, rate: 1/h, burst: 1}]`)
	look := func(l *Limiter, actor string) bool { return l.Allow(actor, "read", "desk", "look") == nil }
	if !look(l, "ana") || look(l, "ana") {
		t.Fatal("the burst of 1")
	}
	other, _ := limiter(t, `[{match: "*", per: actor, rate: 1/h, burst: 3}]`)
	next := l.Next(append(other.limits, other.limits...))
	left := 0
	for look(next, "ana") {
		left++
	}
	if left != 2 {
		t.Errorf("%d calls were left of three less one; a limit that stands twice counts once", left)
	}
	if look(l, "ana") {
		t.Error("a call that came in under the policy before counts apart")
	}
	wider, _ := limiter(t, `[{match: "*", per: actor, rate: 1/h, burst: 4}]`)
	if next = next.Next(wider.limits); !look(next, "ana") {
		t.Error("a limit that changed goes on counting")
	}
	if next = next.Next(nil); len(next.book.callers) != 0 {
		t.Error("callers that no limit is on are remembered")
	}
}

func TestCapsOfAPolicy(t *testing.T) {
	given := approvals.Caps{Parked: 20, NewPerHour: 60, Total: 10000}
	for text, want := range map[string]approvals.Caps{
		`[]`:                         given,
		`[{parked: {per_actor: 5}}]`: {Parked: 5, NewPerHour: 60, Total: 10000},
		`[{parked: {per_actor: 5, global: 500}}, {new_cards: {per_actor: 6/h, global: 600/h}}]`: {Parked: 5, NewPerHour: 6, Total: 500, NewInAll: 600},
		`[{new_cards: {global: 1/h}}, {match: "*", per: actor, rate: 1/s, burst: 1}]`:           {Parked: 20, NewPerHour: 60, Total: 10000, NewInAll: 1},
	} {
		s := load(t, "version: 2\ntools: {desk/look: read}\nlimits: "+text+defaultRoute, "desk")
		if d := cmp.Diff(want, s.Caps(given)); d != "" {
			t.Errorf("%s (-want +got):\n%s", text, d)
		}
		if s.Closing() != approvals.DefaultClosing {
			t.Errorf("%s: %+v", text, s.Closing())
		}
	}
	s := load(t, "version: 2\ntools: {desk/look: read}\nlimits: [{denials: 3, close: 1h}]"+defaultRoute, "desk")
	if s.Closing() != (approvals.Closing{Denials: 3, For: time.Hour}) || s.Caps(given) != given || len(s.Limits()) != 0 {
		t.Errorf("%+v, %+v", s.Closing(), s.Caps(given))
	}
	if old := load(t, `{"version": 1, "allow": ["a"]}`, "desk"); old.Closing() != approvals.DefaultClosing || old.Caps(given) != given {
		t.Error("a policy of version 1 has limits of its own")
	}
}
