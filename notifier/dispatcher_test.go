package notifier_test

import (
	"context"
	"fmt"
	"log/slog"
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

// A service shows a post only some time after it took it. A post that was lost
// on the way is made up for once that time has passed: looking for it does not
// begin the time again.
func TestLookingEnds(t *testing.T) {
	const shows = 3 * time.Second
	synctest.Test(t, func(t *testing.T) {
		b, slack := newBook(), newBoard(t)
		slack.troubled(func(c call) (*notifier.Fail, bool) {
			if c.Attempt == "" {
				return &notifier.Fail{Reason: notifier.Unreachable, Maybe: true}, false
			}
			if left := shows - time.Since(c.Latest()); left > 0 {
				return &notifier.Fail{Reason: notifier.Unreachable, After: left, Maybe: true, Unsent: true}, false
			}
			return nil, false
		})
		defer run(t, b, notifier.Channels{"slack": slack}, func(c *notifier.Config) {
			next := 2 * time.Second
			c.Schedule.Jitter = func(time.Duration) time.Duration { defer func() { next = time.Second / 2 }(); return next }
		})()
		b.set("a", parked("slack:C1"))
		time.Sleep(2 * shows)
		if n := len(slack.of("a")); n != 1 {
			t.Errorf("%d cards after %d looks", n, len(slack.made("post"))-1)
		}
	})
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
