package notifier_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/notifier"
)

// Slack is down: tried until the call ends, and the caller can see it.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, slack := newBook(), newBoard(t)
		slack.troubled(always(notifier.Fail{Reason: notifier.Unreachable}))
		defer run(t, b, notifier.Channels{"slack": slack}, nil)()
		b.set("a", parked("slack:C1"))
		time.Sleep(14 * time.Minute)
		x := b.ticket("a").Troubles
		if len(x) != 1 || x[0].Reason != string(notifier.Unreachable) || x[0].Final || x[0].Tries < 20 || x[0].Tries > 200 {
			t.Fatalf("troubles %+v", x)
		}
		if b.pending() != 1 {
			t.Fatal("the nudge was lost")
		}
		slack.troubled(nil)
		time.Sleep(31 * time.Second)
		if slack.shows("a") != 1 || b.pending() != 0 || len(b.ticket("a").Troubles) != 0 {
			t.Errorf("shows %d, %d nudges, troubles %v", slack.shows("a"), b.pending(), b.ticket("a").Troubles)
		}
	})
}

// Definite failures need no lookup before the next try; a try of another process
// in between does.
func TestLookupOnlyInDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, slack := newBook(), newBoard(t)
		slack.troubled(always(notifier.Fail{Reason: notifier.Unreachable}))
		stop := run(t, b, notifier.Channels{"slack": slack}, nil)
		b.set("a", parked("slack:C1"))
		time.Sleep(time.Minute)
		for _, c := range slack.made("post") {
			if c.Attempt != "" {
				t.Fatal("a refused post is looked up")
			}
		}
		stop()
		before := len(slack.made("post"))
		defer run(t, b, notifier.Channels{"slack": slack}, func(c *notifier.Config) { c.Owner = "d2" })()
		time.Sleep(2 * time.Minute)
		after := slack.made("post")[before:]
		if len(after) == 0 || after[0].Attempt == "" || after[0].Since().IsZero() {
			t.Fatalf("another process trusts an attempt that is not its own: %+v", after)
		}
	})
}

// A Retry-After is kept to by all approvals of the channel, and by the next
// process.
func TestRateLimitStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, slack := newBook(), newBoard(t)
		slack.pace = time.Second
		var mu sync.Mutex
		last, refused := time.Time{}, 0
		slack.troubled(func(c call) (*notifier.Fail, bool) {
			mu.Lock()
			defer mu.Unlock()
			if gap := time.Since(last); gap < time.Second {
				refused++
				return &notifier.Fail{Reason: notifier.RateLimited, After: time.Second - gap}, false
			}
			last = time.Now()
			return nil, false
		})
		defer run(t, b, notifier.Channels{"slack": slack}, nil)()
		for i := range 100 {
			b.set(fmt.Sprint("a", i), parked("slack:C1"))
		}
		time.Sleep(110 * time.Second)
		for i := range 100 {
			if id := fmt.Sprint("a", i); slack.shows(id) != 1 {
				t.Errorf("%s shows %d", id, slack.shows(id))
			}
		}
		if refused != 0 || b.pending() != 0 {
			t.Errorf("%d refused, %d nudges left", refused, b.pending())
		}
	})
}

func TestRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, slack := newBook(), newBoard(t)
		slack.troubled(always(notifier.Fail{Reason: notifier.RateLimited, After: 2 * time.Minute}))
		stop := run(t, b, notifier.Channels{"slack": slack}, nil)
		b.set("a", parked("slack:C1"))
		synctest.Wait()
		stop()
		defer run(t, b, notifier.Channels{"slack": slack}, func(c *notifier.Config) { c.Owner = "d2" })()
		b.set("a", nil) // news do not make it knock earlier
		time.Sleep(119 * time.Second)
		if n := len(slack.made("")); n != 1 {
			t.Fatalf("%d calls within Retry-After", n)
		}
		slack.troubled(nil)
		time.Sleep(5 * time.Second)
		if slack.shows("a") != 2 {
			t.Errorf("shows %d", slack.shows("a"))
		}
	})
}

// A final failure is not tried again until the approval changes, and does not
// hold up the other channels.
func TestFinal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, slack, desk := newBook(), newBoard(t), newBoard(t)
		slack.troubled(always(notifier.Fail{Reason: notifier.Payload, Final: true}))
		defer run(t, b, notifier.Channels{"slack": slack, "ticket:desk": desk}, nil)()
		b.set("a", parked("slack:C1", "ticket:desk"))
		time.Sleep(time.Hour)
		if len(slack.made("")) != 1 || desk.shows("a") != 1 || b.pending() != 0 {
			t.Fatalf("%d tries, desk shows %d, %d nudges", len(slack.made("")), desk.shows("a"), b.pending())
		}
		if x := b.ticket("a").Troubles; len(x) != 1 || !x[0].Final || x[0].Reason != "payload" {
			t.Errorf("troubles %+v", x)
		}
		slack.troubled(nil)
		b.set("a", nil) // a first of two votes
		synctest.Wait()
		if slack.shows("a") != 2 || desk.shows("a") != 2 {
			t.Errorf("shows %d and %d", slack.shows("a"), desk.shows("a"))
		}
	})
}

// A card that people wait for is not lost to what a person can put right: a bot
// that is not in the channel yet, a token that is replaced at a restart, a channel
// that the next configuration knows.
func TestMended(t *testing.T) {
	for _, reason := range []notifier.Reason{notifier.NoChannel, notifier.Auth, notifier.NotConfigured} {
		synctest.Test(t, func(t *testing.T) {
			b, slack, desk := newBook(), newBoard(t), newBoard(t)
			known := notifier.Channels{"slack": slack, "ticket:desk": desk}
			if reason == notifier.NotConfigured {
				delete(known, "slack")
			} else {
				slack.troubled(always(notifier.Fail{Reason: reason, Final: true}))
			}
			stop := run(t, b, known, nil)
			b.set("a", parked("slack:C1", "ticket:desk"))
			time.Sleep(10*time.Minute + time.Second)
			if n := len(slack.made("")); n > 11 || desk.shows("a") != 1 {
				t.Fatalf("%s: %d tries in ten minutes, desk shows %d", reason, n, desk.shows("a"))
			}
			if x := b.ticket("a").Troubles; len(x) != 1 || !x[0].Final || x[0].Reason != string(reason) {
				t.Errorf("troubles %+v", x)
			}
			stop() // as for a new token
			slack.troubled(nil)
			defer run(t, b, notifier.Channels{"slack": slack, "ticket:desk": desk}, func(c *notifier.Config) { c.Owner = "d2" })()
			time.Sleep(3 * time.Minute)
			if slack.shows("a") != 1 || b.pending() != 0 {
				t.Errorf("%s: shows %d, %d nudges", reason, slack.shows("a"), b.pending())
			}
		})
	}
}

// What was decided is not told for ever where nobody can be told.
func TestFinalNewsAreGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, slack := newBook(), newBoard(t)
		defer run(t, b, notifier.Channels{"slack": slack}, nil)()
		b.set("a", parked("slack:C1"))
		synctest.Wait()
		slack.troubled(always(notifier.Fail{Reason: notifier.NoChannel, Final: true}))
		b.set("a", to(approvals.Denied))
		time.Sleep(time.Hour)
		if n := len(slack.made("")); n != 2 || b.pending() != 0 {
			t.Errorf("%d calls, %d nudges", n, b.pending())
		}
	})
}

// News of a decision are tried for hours, then given up, once for each version;
// an unknown outcome is never given up.
func TestSettledSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, slack := newBook(), newBoard(t)
		defer run(t, b, notifier.Channels{"slack": slack}, nil)()
		b.set("a", parked("slack:C1"))
		b.set("b", parked("slack:C1"))
		synctest.Wait()
		slack.troubled(always(notifier.Fail{Reason: notifier.Unreachable}))
		b.set("a", to(approvals.Denied))
		b.set("b", to(approvals.Unknown))
		time.Sleep(2 * time.Hour)
		if x := b.ticket("a").Troubles; len(x) != 1 || x[0].Final || b.pending() != 2 {
			t.Fatalf("after two hours: %+v, %d nudges", x, b.pending())
		}
		time.Sleep(48 * time.Hour)
		if x := b.ticket("a").Troubles; len(x) != 1 || !x[0].Final || x[0].Reason != "gave_up" {
			t.Fatalf("after two days: %+v", x)
		}
		if x := b.ticket("b").Troubles; len(x) != 1 || x[0].Final || b.pending() != 1 {
			t.Fatalf("the unknown outcome: %+v, %d nudges", x, b.pending())
		}
		slack.troubled(nil)
		time.Sleep(16 * time.Minute)
		if slack.shows("b") != 2 || b.pending() != 0 {
			t.Errorf("b shows %d, %d nudges", slack.shows("b"), b.pending())
		}
	})
}

// A deleted card is replaced while people can act on it, and left alone after.
func TestDeletedCard(t *testing.T) {
	for s, want := range map[approvals.State]int{
		approvals.Pending: 1, approvals.Unknown: 1, approvals.Denied: 0, approvals.Succeeded: 0,
	} {
		synctest.Test(t, func(t *testing.T) {
			b, slack := newBook(), newBoard(t)
			defer run(t, b, notifier.Channels{"slack": slack}, nil)()
			b.set("a", parked("slack:C1"))
			synctest.Wait()
			slack.remove("a")
			b.set("a", to(s))
			time.Sleep(time.Minute)
			if n := len(slack.of("a")); n != want || b.pending() != 0 {
				t.Errorf("%s: %d cards, %d nudges", s, n, b.pending())
			}
			if n := len(slack.made("post")); n != 1+want {
				t.Errorf("%s: %d posts", s, n)
			}
		})
	}
}
