package notifier_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/notifier"
)

// Whoever holds the lease sees what another was told while it held it.
func TestNudgeWhileLeased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, slack := newBook(), newBoard(t)
		slack.took = 5 * time.Second
		defer run(t, b, notifier.Channels{"slack": slack}, nil)()
		defer run(t, b, notifier.Channels{"slack": slack}, func(c *notifier.Config) { c.Owner = "d2" })()
		b.set("a", parked("slack:C1"))
		for range 20 {
			time.Sleep(700 * time.Millisecond)
			b.set("a", nil)
		}
		rev := b.set("a", to(approvals.Denied)).Rev
		time.Sleep(time.Minute)
		if slack.shows("a") != rev || b.pending() != 0 {
			t.Errorf("shows %d of %d, %d nudges left", slack.shows("a"), rev, b.pending())
		}
	})
}

// A dead dispatcher's lease and nudges are taken over.
func TestTakeOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, slack := newBook(), newBoard(t)
		b.set("a", parked("slack:C1"))
		b.outbox[0].owner, b.outbox[0].given = "dead", time.Now()
		b.leases["a"] = lease{"dead", time.Now().Add(30 * time.Second)}
		defer run(t, b, notifier.Channels{"slack": slack}, nil)()
		time.Sleep(19 * time.Second)
		if slack.shows("a") != 0 {
			t.Fatal("a lease was broken")
		}
		time.Sleep(40 * time.Second)
		if slack.shows("a") != 1 || b.pending() != 0 {
			t.Errorf("shows %d, %d nudges", slack.shows("a"), b.pending())
		}
	})
}

// Stopping lets the delivery in flight finish and be recorded.
func TestStopFinishes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, slack := newBook(), newBoard(t)
		slack.took = 5 * time.Second
		stop := run(t, b, notifier.Channels{"slack": slack}, nil)
		b.set("a", parked("slack:C1"))
		time.Sleep(time.Second)
		stop()
		if len(b.ticket("a").Refs) != 1 || len(b.leases) != 0 {
			t.Errorf("refs %v, leases %v", b.ticket("a").Refs, b.leases)
		}
	})
}

// A channel that breaks its contract is told apart, and its words go nowhere.
func TestStrangeError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBook()
		var log strings.Builder
		odd := odd{}
		defer run(t, b, notifier.Channels{"slack": odd}, func(c *notifier.Config) {
			c.Log = slog.New(slog.NewTextHandler(&log, nil))
		})()
		b.set("a", parked("slack:C1"))
		synctest.Wait()
		x := b.ticket("a").Troubles
		if len(x) != 1 || x[0].Reason != "internal" || strings.Contains(log.String(), "xoxb") {
			t.Errorf("%+v, log %s", x, &log)
		}
	})
}

type odd struct{}

func (odd) Deliver(context.Context, notifier.Message) (approvals.Ref, error) {
	return approvals.Ref{}, fmt.Errorf("token xoxb-1 was refused")
}

// Two dispatchers, lost answers, refusals, a store that comes and goes and
// processes that are stopped: every approval ends with one card in each channel
// that shows the newest version, and no card ever went back.
func TestChaos(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			var mu sync.Mutex
			roll := func(n int) int { mu.Lock(); defer mu.Unlock(); return r.IntN(n) }
			chance := func(n int) bool { return roll(n) == 0 }
			b, slack, desk := newBook(), newBoard(t), newBoard(t)
			slack.took, desk.took = 300*time.Millisecond, 2*time.Second
			bad := func(call) (*notifier.Fail, bool) {
				switch {
				case chance(4):
					return &notifier.Fail{Reason: notifier.Unreachable, Maybe: true}, true
				case chance(6):
					return &notifier.Fail{Reason: notifier.Unreachable, Maybe: true}, false
				case chance(6):
					return &notifier.Fail{Reason: notifier.RateLimited, After: 3 * time.Second}, false
				}
				return nil, false
			}
			slack.troubled(bad)
			desk.troubled(bad)
			channels := notifier.Channels{"slack": slack, "ticket": desk}
			stops := map[int]func(){}
			start := func(i int) {
				stops[i] = run(t, b, channels, func(c *notifier.Config) { c.Owner = fmt.Sprint("d", i); c.Workers = 3 })
			}
			start(0)
			start(1)
			ids := []string{"a", "b", "c", "d", "e", "f"}
			for _, id := range ids {
				b.set(id, parked("slack:C1", "ticket:jira"))
			}
			next := 2
			for range 60 {
				time.Sleep(time.Duration(100+roll(2000)) * time.Millisecond)
				b.set(ids[roll(len(ids))], nil)
				switch {
				case chance(8):
					b.fail(true)
					time.Sleep(time.Duration(roll(3000)) * time.Millisecond)
					b.fail(false)
				case chance(8):
					for i, stop := range stops {
						stop()
						delete(stops, i)
						start(next)
						next++
						break
					}
				}
			}
			for _, id := range ids {
				b.set(id, to(approvals.Denied))
			}
			slack.troubled(nil)
			desk.troubled(nil)
			time.Sleep(5 * time.Minute)
			for _, id := range ids {
				want := b.ticket(id).Rev
				if s, d := slack.shows(id), desk.shows(id); s != want || d != want {
					t.Errorf("seed %d: %s shows %d and %d of %d; %+v", seed, id, s, d, want, b.ticket(id).Troubles)
				}
			}
			if b.pending() != 0 {
				t.Errorf("seed %d: %d nudges left", seed, b.pending())
			}
			for _, stop := range stops {
				stop()
			}
		})
	}
}
