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
	if len(l.callers) != 0 {
		t.Error("callers that no limit is on are remembered")
	}
}

// Many callers can't take its memory, nor give one of them more than it may have.
func TestLimiterIsBounded(t *testing.T) {
	l, c := limiter(t, `[{match: "*", per: actor, rate: 1/m, burst: 1}]`)
	l.most = 50
	allowed := 0
	for i := range 500 {
		c.now = c.now.Add(10 * time.Millisecond)
		if l.Allow(fmt.Sprint("caller", i), "read", "desk", "look") == nil {
			allowed++
		}
		if len(l.callers) > l.most {
			t.Fatalf("%d callers are remembered", len(l.callers))
		}
	}
	if allowed != l.most {
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
	if err := l.Allow("one more", "read", "desk", "look"); err != nil || len(l.callers) != 1 {
		t.Errorf("%v, %d callers", err, len(l.callers))
	}
}

func TestLimiterAtOnce(t *testing.T) {
	l, _ := limiter(t, `[{match: "*", per: actor, rate: 1/d, burst: 20}]`)
	var wg sync.WaitGroup
	var allowed atomic.Int64
	for range 8 {
		wg.Go(func() {
			for range 50 {
				if l.Allow("ana", "read", "desk", "look") == nil {
					allowed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if allowed.Load() != 20 {
		t.Errorf("%d calls were allowed", allowed.Load())
	}
}
