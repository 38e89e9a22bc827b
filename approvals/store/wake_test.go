package store

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/store/redistest"
)

// running starts the wake-up reader and waits until it is subscribed.
func running(t *testing.T, s *Store) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
	})
	until(t, "subscribed", func() bool { return s.subscribers(t) > 0 })
}

// subscribers counts the subscriptions of the wake channel, on every node.
func (s *Store) subscribers(t *testing.T) (n int64) {
	count := func(ctx context.Context, c redis.UniversalClient) error {
		m, err := c.PubSubNumSub(ctx, s.k.wakeChannel()).Result()
		n += m[s.k.wakeChannel()]
		return err
	}
	var err error
	if c, ok := s.rdb.(*redis.ClusterClient); ok {
		err = c.ForEachMaster(t.Context(), func(ctx context.Context, c *redis.Client) error { return count(ctx, c) })
	} else {
		err = count(t.Context(), s.rdb)
	}
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// waiting starts a Wait and returns when it is registered and has read.
func waiting(t *testing.T, s *Store, id string, rev uint64) <-chan approvals.Ticket {
	t.Helper()
	out := make(chan approvals.Ticket, 1)
	read := &afterRead{seen: make(chan struct{})}
	s.rdb.AddHook(read)
	go func() {
		tk, err := s.Wait(within(t, 30*time.Second), id, rev)
		if err != nil {
			t.Errorf("Wait: %v", err)
		}
		out <- tk
	}()
	<-read.seen
	return out
}

func TestADecisionWakesAWaiterAtOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		waiter := p.another(t)
		running(t, waiter)
		tk := p.park(t, request(`1`))
		out := waiting(t, waiter, tk.ID, tk.Rev)
		began := time.Now()
		p.decide(t, vote(tk.ID, "ben", approvals.Approve))
		got := <-out
		wantState(t, got, approvals.Approved)
		if took := time.Since(began); took > 4*time.Second { // the slow re-read comes after 5 s at the earliest
			t.Fatalf("woken after %v", took)
		}
	})
}

func TestWaitEndsByItsContextOnly(t *testing.T) {
	p := onMini(t)
	tk := p.park(t, request(`1`))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		got, err := p.Wait(ctx, tk.ID, tk.Rev)
		if got.ID != tk.ID {
			err = fmt.Errorf("the ticket as last read is missing: %w", err)
		}
		done <- err
	}()
	// A server that is away does not end it either.
	p.mini.SetError("LOADING the server is away")
	p.wake.hint(tk.ID)
	p.mini.SetError("")
	if err := p.Mark(t.Context(), tk.ID, approvals.Mark{Channel: "slack:C1", Attempt: "a"}); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-done:
		t.Fatalf("ended early: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if _, err := p.Wait(t.Context(), "no-such", 0); !errors.Is(err, approvals.NotFound) {
		t.Fatal(err)
	}
	if got, err := p.Wait(t.Context(), tk.ID, 0); err != nil || got.Rev != 1 {
		t.Fatalf("what is newer already: %v", err)
	}
}

// Without the reader a Wait looks by itself.
func TestWaitWithoutTheReader(t *testing.T) {
	p := onMini(t)
	tk := p.park(t, request(`1`))
	out := waiting(t, p.Store, tk.ID, tk.Rev)
	p.decide(t, vote(tk.ID, "ben", approvals.Deny))
	wantState(t, <-out, approvals.Denied)
}

// A decision between the registration and the read, or between the read and the
// wait, must not be missed: 200 approvals are decided while they are waited for.
func TestNoWakeIsLost(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		waiter := p.another(t)
		running(t, waiter)
		caps := func(r *approvals.Park) { r.Caps = approvals.Caps{Parked: 999, NewPerHour: 999, Total: 999} }
		var wg sync.WaitGroup
		began := time.Now()
		for i := range 200 {
			tk := p.park(t, request(fmt.Sprint(i), caps))
			wg.Go(func() {
				if got, err := waiter.Wait(within(t, 20*time.Second), tk.ID, tk.Rev); err != nil || got.State != approvals.Approved {
					t.Errorf("%s, %v", got.State, err)
				}
			})
			wg.Go(func() {
				if _, err := p.Decide(t.Context(), vote(tk.ID, "ben", approvals.Approve)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := len(waiter.wake.ids()); n != 0 {
			t.Errorf("%d waiters are left", n)
		}
		t.Logf("200 waits in %v", time.Since(began).Round(time.Millisecond))
	})
}

// The subscription freezes while every other connection works: go-redis never
// notices. The missed heartbeats do, the connection is made again, and what was
// missed is read.
func TestAFrozenSubscription(t *testing.T) {
	srv := redistest.Start(t)
	px, err := newProxy(func() (net.Conn, error) { return net.Dial("unix", srv.Addr) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(px.stop)
	direct := &place{Store: nil, raw: srv.Client(), opt: options(srv.URL(), false)}
	direct.Store = openStore(t, direct.opt)
	waiter := direct.another(t, func(o *Options) { o.URL = "redis://" + px.Addr().String() })
	tk := direct.park(t, request(`1`))
	running(t, waiter)
	out := waiting(t, waiter, tk.ID, tk.Rev)
	// Only the subscription is to freeze: the others are closed by the server and
	// come back new.
	px.freeze()
	for line := range strings.SplitSeq(direct.raw.ClientList(t.Context()).Val(), "\n") {
		if strings.Contains(line, " sub=0 ") && !strings.Contains(line, "cmd=client") {
			id, _, _ := strings.Cut(strings.TrimPrefix(line, "id="), " ")
			direct.raw.ClientKillByFilter(t.Context(), "ID", id)
		}
	}
	px.thawClosed()
	began := time.Now()
	direct.decide(t, vote(tk.ID, "ben", approvals.Approve))
	wantState(t, <-out, approvals.Approved)
	took := time.Since(began)
	// The connection is new: the next decision comes by hint again.
	next := direct.park(t, request(`2`))
	// The server still counts the frozen one.
	until(t, "subscribed again", func() bool { return direct.subscribers(t) >= 2 })
	out = waiting(t, waiter, next.ID, next.Rev)
	began = time.Now()
	direct.decide(t, vote(next.ID, "ben", approvals.Approve))
	<-out
	t.Logf("frozen: woken after %v; on the new connection after %v", took.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	if again := time.Since(began); again > 4*time.Second {
		t.Fatalf("hints don't come on the new connection: %v", again)
	}
}

func TestOneReaderAProcess(t *testing.T) {
	p := onMini(t)
	running(t, p.Store)
	if err := p.Run(t.Context()); err == nil || errors.Is(err, context.Canceled) {
		t.Fatalf("a second Run: %v", err)
	}
}

// While the subscription was away a hint was lost. The new subscription is the
// sign to read again, long before the slow look at everything.
func TestANewSubscriptionReadsAgain(t *testing.T) {
	srv := redistest.Start(t)
	p := own(t, srv)
	waiter := p.another(t)
	running(t, waiter)
	tk := p.park(t, request(`1`))
	out := waiting(t, waiter, tk.ID, tk.Rev)
	p.set(t, tk.ID, "rev", tk.Rev+1) // a change without its hint
	began := time.Now()
	if err := p.raw.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Err(); err != nil {
		t.Fatal(err)
	}
	<-out
	if took := time.Since(began); took > 4*time.Second {
		t.Fatalf("woken after %v", took)
	}
}
