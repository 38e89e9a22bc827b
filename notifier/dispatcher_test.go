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

// run starts a dispatcher in the bubble; stop ends it and waits.
func run(t *testing.T, b *book, channels notifier.Channels, change func(*notifier.Config)) (stop func()) {
	t.Helper()
	c := notifier.Config{
		Book: view{b, "d1"}, Find: channels.Find, Owner: "d1",
		Lease: 30 * time.Second, Log: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&c)
	}
	c.Book = view{b, c.Owner}
	d, err := notifier.New(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := d.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	return func() { cancel(); <-done }
}

func parked(channels ...string) func(*approvals.Ticket) {
	return func(t *approvals.Ticket) {
		t.State, t.Channels = approvals.Pending, channels
		t.CreatedAt, t.Deadline = time.Now(), time.Now().Add(15*time.Minute)
	}
}

func to(s approvals.State) func(*approvals.Ticket) {
	return func(t *approvals.Ticket) { t.State = s }
}

func always(f notifier.Fail) func(call) (*notifier.Fail, bool) {
	return func(call) (*notifier.Fail, bool) { g := f; return &g, false }
}

func TestPostThenEdit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, slack := newBook(), newBoard(t)
		defer run(t, b, notifier.Channels{"slack": slack}, nil)()
		b.set("a", parked("slack:C1"))
		synctest.Wait()
		if slack.shows("a") != 1 || b.pending() != 0 {
			t.Fatalf("shows %d, %d nudges left", slack.shows("a"), b.pending())
		}
		for _, s := range []approvals.State{approvals.Approved, approvals.Executing, approvals.Succeeded} {
			rev := b.set("a", to(s)).Rev
			synctest.Wait()
			if slack.shows("a") != rev || b.pending() != 0 {
				t.Fatalf("%s: shows %d of %d, %d nudges left", s, slack.shows("a"), rev, b.pending())
			}
		}
		if r := b.ticket("a").Refs; len(r) != 1 || r[0].Channel != "slack:C1" || r[0].Rev != 4 {
			t.Errorf("refs %+v", r)
		}
		if len(b.leases) != 0 {
			t.Error("a lease was kept")
		}
	})
}

// Nothing is told of what ended before anybody was told of it, unless it may
// have run.
func TestEndedBeforeThePost(t *testing.T) {
	for _, s := range approvals.States() {
		synctest.Test(t, func(t *testing.T) {
			b, slack := newBook(), newBoard(t)
			b.set("a", parked("slack:C1"))
			b.set("a", to(s))
			defer run(t, b, notifier.Channels{"slack": slack}, nil)()
			synctest.Wait()
			want := 0
			if s == approvals.Pending || s == approvals.Unknown {
				want = 1
			}
			if n := len(slack.of("a")); n != want || b.pending() != 0 {
				t.Errorf("%s: %d cards, %d nudges left", s, n, b.pending())
			}
		})
	}
}

// A post whose answer was lost is one card in the end, whatever the state is by
// then and whether the same process goes on or another.
func TestLostAnswer(t *testing.T) {
	for _, s := range []approvals.State{approvals.Pending, approvals.Denied, approvals.Succeeded, approvals.Unknown} {
		for _, killed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/killed=%v", s, killed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b, slack := newBook(), newBoard(t)
					lost := func(call) (*notifier.Fail, bool) {
						return &notifier.Fail{Reason: notifier.Unreachable, Maybe: true}, true
					}
					slack.troubled(func(c call) (*notifier.Fail, bool) {
						if c.kind == "post" {
							return lost(c)
						}
						return nil, false
					})
					stop := run(t, b, notifier.Channels{"slack": slack}, nil)
					b.set("a", parked("slack:C1"))
					synctest.Wait()
					if len(slack.of("a")) != 1 || len(b.ticket("a").Refs) != 0 {
						t.Fatal("the scene is not set")
					}
					if killed {
						stop()
						stop = run(t, b, notifier.Channels{"slack": slack}, func(c *notifier.Config) { c.Owner = "d2" })
					}
					if s != approvals.Pending {
						b.set("a", to(s))
					}
					slack.troubled(nil)
					time.Sleep(2 * time.Minute)
					defer stop()
					if got, want := slack.shows("a"), b.ticket("a").Rev; got != want || b.pending() != 0 {
						t.Errorf("shows %d of %d, %d nudges left", got, want, b.pending())
					}
				})
			})
		}
	}
}

// A post that may have happened and did not is not made up for once nobody can
// answer it.
func TestDoubtfulPostThatEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, slack := newBook(), newBoard(t)
		slack.troubled(always(notifier.Fail{Reason: notifier.Unreachable, Maybe: true}))
		defer run(t, b, notifier.Channels{"slack": slack}, nil)()
		b.set("a", parked("slack:C1"))
		synctest.Wait()
		b.set("a", to(approvals.Expired))
		slack.troubled(nil)
		time.Sleep(time.Minute)
		if len(slack.of("a")) != 0 || len(slack.made("find")) == 0 || b.pending() != 0 {
			t.Errorf("%d cards, %d searches, %d nudges", len(slack.of("a")), len(slack.made("find")), b.pending())
		}
	})
}

// Killed between the post and the storing of its reference.
func TestKilledBeforeMark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, slack := newBook(), newBoard(t)
		b.marks = func(owner string, m approvals.Mark) error {
			if owner == "d1" && m.Ref != nil {
				return errDown // d1 never gets to it
			}
			return nil
		}
		stop := run(t, b, notifier.Channels{"slack": slack}, nil)
		b.set("a", parked("slack:C1"))
		synctest.Wait()
		stop()
		defer run(t, b, notifier.Channels{"slack": slack}, func(c *notifier.Config) { c.Owner = "d2" })()
		time.Sleep(2 * time.Minute)
		if slack.shows("a") != 1 || len(b.ticket("a").Refs) != 1 || b.pending() != 0 {
			t.Errorf("shows %d, refs %v, %d nudges left", slack.shows("a"), b.ticket("a").Refs, b.pending())
		}
	})
}

// The same process does not post again either, while the store is away.
func TestStoreDownAfterPost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, slack := newBook(), newBoard(t)
		fails := 5
		b.marks = func(_ string, m approvals.Mark) error {
			if m.Ref != nil && fails > 0 {
				fails--
				return errDown
			}
			return nil
		}
		defer run(t, b, notifier.Channels{"slack": slack}, nil)()
		b.set("a", parked("slack:C1"))
		time.Sleep(5 * time.Minute)
		if len(slack.made("post")) != 1 || slack.shows("a") != 1 || b.pending() != 0 || fails != 0 {
			t.Errorf("%d posts, %d nudges left", len(slack.made("post")), b.pending())
		}
	})
}

func TestStoreDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, slack := newBook(), newBoard(t)
		b.fail(true)
		defer run(t, b, notifier.Channels{"slack": slack}, nil)()
		b.set("a", parked("slack:C1"))
		time.Sleep(time.Minute)
		b.fail(false)
		time.Sleep(time.Minute)
		if slack.shows("a") != 1 || b.pending() != 0 {
			t.Errorf("shows %d, %d nudges left", slack.shows("a"), b.pending())
		}
		if time.Since(b.alive) > 10*time.Second {
			t.Error("no sign of life")
		}
	})
}

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
		slack.troubled(always(notifier.Fail{Reason: notifier.NoChannel, Final: true}))
		defer run(t, b, notifier.Channels{"slack": slack, "ticket:desk": desk}, nil)()
		b.set("a", parked("slack:C1", "ticket:desk", "ticket:none"))
		time.Sleep(time.Hour)
		if len(slack.made("")) != 1 || desk.shows("a") != 1 || b.pending() != 0 {
			t.Fatalf("%d tries, desk shows %d, %d nudges", len(slack.made("")), desk.shows("a"), b.pending())
		}
		reasons := map[string]string{}
		for _, x := range b.ticket("a").Troubles {
			if !x.Final {
				t.Errorf("%+v is not final", x)
			}
			reasons[x.Channel] = x.Reason
		}
		if reasons["slack:C1"] != "channel" || reasons["ticket:none"] != "not_configured" || len(reasons) != 2 {
			t.Errorf("troubles %v", reasons)
		}
		slack.troubled(nil)
		b.set("a", nil) // a first of two votes
		synctest.Wait()
		if slack.shows("a") != 2 || desk.shows("a") != 2 {
			t.Errorf("shows %d and %d", slack.shows("a"), desk.shows("a"))
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
