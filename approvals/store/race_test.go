package store

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/countersign-mcp/countersign/approvals"
)

// together runs f on n goroutines at once.
func together(n int, f func(i int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			f(i)
		})
	}
	close(start)
	wg.Wait()
}

func TestFiftyDecidersOneDecision(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		other := p.another(t)
		r := request(`1`)
		p.park(t, r)
		id := r.Envelope.OperationID
		var won atomic.Int64
		together(50, func(i int) {
			s, person, v := p.Store, "ben", approvals.Approve
			if i%2 == 1 {
				s, person = other, "cleo"
			}
			if i%5 == 0 {
				v = approvals.Deny
			}
			_, err := s.Decide(t.Context(), vote(id, person, v))
			switch {
			case err == nil:
				won.Add(1)
			case errors.Is(err, approvals.AlreadyDecided):
			default:
				t.Errorf("decider %d: %v", i, err)
			}
		})
		if won.Load() != 1 {
			t.Fatalf("%d decisions", won.Load())
		}
		decided := 0
		for _, e := range p.events(t) {
			if e.Kind == "state" {
				decided++
			}
		}
		if decided != 1 {
			t.Fatalf("%d state events", decided)
		}
	})
}

func TestFiftyClaimersOneClaim(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		other := p.another(t, func(o *Options) { o.Owner = "file-b" })
		r := request(`1`)
		tk := p.approved(t, r)
		var won atomic.Int64
		together(50, func(i int) {
			s := p.Store
			if i%2 == 1 {
				s = other
			}
			_, err := s.Claim(t.Context(), tk.ID, tk.Rev, r.Envelope.Digest(), fmt.Sprint("n", i), noPolicy)
			switch {
			case err == nil:
				won.Add(1)
			case errors.Is(err, approvals.AlreadyUsed):
			default:
				t.Errorf("claimer %d: %v", i, err)
			}
		})
		if won.Load() != 1 {
			t.Fatalf("%d claims", won.Load())
		}
	})
}

func TestFiftyTwinsOneCard(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		var fresh atomic.Int64
		ids := sync.Map{}
		together(50, func(i int) {
			tk, isNew, err := p.Park(t.Context(), request(`{"same":true}`))
			if err != nil {
				t.Errorf("park %d: %v", i, err)
				return
			}
			if isNew {
				fresh.Add(1)
			}
			ids.Store(tk.ID, true)
		})
		n := 0
		ids.Range(func(any, any) bool { n++; return true })
		if fresh.Load() != 1 || n != 1 {
			t.Fatalf("%d cards, %d ids", fresh.Load(), n)
		}
	})
}

// Each cap holds under a flood of one actor and of many, over two processes.
func TestAFloodIsCapped(t *testing.T) {
	const most, flood = 7, 200
	loose := approvals.Caps{Parked: 999, NewPerHour: 999, Total: 999}
	one := func(i int) string { return "ana@acme.test" }
	many := func(i int) string { return fmt.Sprint("bot", i%50) }
	for name, tt := range map[string]struct {
		who  func(i int) string
		caps func(c *approvals.Caps)
		why  approvals.Conflict
	}{
		"pending of one": {one, func(c *approvals.Caps) { c.Parked = most }, approvals.TooManyPending},
		"pending of all": {many, func(c *approvals.Caps) { c.Total = most }, approvals.TooManyPendingInAll},
		"new of one":     {one, func(c *approvals.Caps) { c.NewPerHour = most }, approvals.TooManyNew},
		"new of all":     {many, func(c *approvals.Caps) { c.NewInAll = most }, approvals.TooManyNewInAll},
	} {
		t.Run(name, func(t *testing.T) {
			everywhere(t, func(t *testing.T, p *place) {
				other := p.another(t)
				var parked, refused atomic.Int64
				together(flood, func(i int) {
					s := p.Store
					if i%2 == 1 {
						s = other
					}
					_, _, err := s.Park(t.Context(), request(fmt.Sprint(i), func(r *approvals.Park) {
						r.Envelope.Call.Actor.ID, r.Caps = tt.who(i), loose
						tt.caps(&r.Caps)
					}))
					switch {
					case err == nil:
						parked.Add(1)
					case errors.Is(err, tt.why):
						refused.Add(1)
					default:
						t.Error(err)
					}
				})
				if parked.Load() != most || refused.Load() != flood-most {
					t.Fatalf("parked %d, refused %d", parked.Load(), refused.Load())
				}
			})
		})
	}
}

// An approval that is claimed, ended and swept at the same moment ends one way.
func TestClaimEndAndSweepAtOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		for i := range 10 {
			r := request(fmt.Sprint(i))
			tk := p.approved(t, r)
			var claimed, withdrawn atomic.Bool
			together(3, func(i int) {
				switch i {
				case 0:
					_, err := p.Claim(t.Context(), tk.ID, tk.Rev, r.Envelope.Digest(), "n", noPolicy)
					claimed.Store(err == nil)
				case 1:
					_, err := p.End(t.Context(), tk.ID, approvals.Withdrawn, "", "ana@acme.test", "")
					withdrawn.Store(err == nil)
				default:
					if _, err := p.Sweep(t.Context(), 10); err != nil {
						t.Error(err)
					}
				}
			})
			if claimed.Load() == withdrawn.Load() {
				t.Fatalf("claimed %v and withdrawn %v", claimed.Load(), withdrawn.Load())
			}
		}
	})
}
