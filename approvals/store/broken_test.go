package store

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/countersign-mcp/countersign/approvals"
)

// The counters of a namespace are looked at before anything is written: a step
// that can't be counted leaves the record as it was.
func TestACounterThatIsNoneStopsAStepBeforeItsFirstWrite(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		for name, spoil := range map[string]func(id string){
			"number of the last event": func(string) { p.raw.Set(t.Context(), p.k.eventCount(), "many", 0) },
			"number of claims":         func(string) { p.raw.Set(t.Context(), p.k.fence(), "many", 0) },
			"version":                  func(id string) { p.set(t, id, "rev", "many") },
			"version beyond counting":  func(id string) { p.set(t, id, "rev", "9223372036854775807") },
		} {
			t.Run(name, func(t *testing.T) {
				p.raw.Del(t.Context(), p.k.eventCount(), p.k.fence())
				r := request(`"`+name+`"`, loose)
				tk := p.approved(t, r)
				spoil(tk.ID)
				before := p.raw.HGetAll(t.Context(), p.k.record(tk.ID)).Val()
				owned := p.raw.SCard(t.Context(), p.k.ownedBy("file-a")).Val()
				for step, do := range map[string]func() error{
					"claim": func() error {
						_, err := p.Claim(t.Context(), tk.ID, 2, r.Envelope.Digest(), "n", noPolicy)
						return err
					},
					"end": func() error {
						if name == "number of claims" {
							return approvals.StoreUnavailable // it counts none
						}
						_, err := p.End(t.Context(), tk.ID, approvals.Revoked, "", "ben", "")
						return err
					},
				} {
					if err := do(); !errors.Is(err, approvals.StoreUnavailable) {
						t.Errorf("%s: %v", step, err)
					}
				}
				if d := cmp.Diff(before, p.raw.HGetAll(t.Context(), p.k.record(tk.ID)).Val()); d != "" {
					t.Error("written before the count failed: ", d)
				}
				if n := p.raw.SCard(t.Context(), p.k.ownedBy("file-a")).Val(); n != owned {
					t.Error("the claim is on its owner's list")
				}
			})
		}
	})
}

// A record that can't be ticked stands before the others once, not at every sweep.
func TestABrokenRecordDoesNotStarveTheSweep(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, p *place, id string){
		"another type": func(t *testing.T, p *place, id string) {
			p.raw.Del(t.Context(), p.k.record(id))
			p.raw.Set(t.Context(), p.k.record(id), "x", 0)
		},
		"a version that is none": func(t *testing.T, p *place, id string) { p.set(t, id, "rev", "x") },
		"an error in the script": func(t *testing.T, p *place, id string) {
			p.set(t, id, "st", "denied", "ed", "1")
			p.raw.Del(t.Context(), p.raw.HGet(t.Context(), p.k.record(id), "ix").Val())
			p.raw.SAdd(t.Context(), p.raw.HGet(t.Context(), p.k.record(id), "ix").Val(), "x")
		},
	} {
		t.Run(name, func(t *testing.T) {
			everywhere(t, func(t *testing.T, p *place) {
				late := func(id string, ms float64) {
					p.raw.ZAdd(t.Context(), p.k.due(), redis.Z{Score: ms, Member: id})
				}
				var bad []string
				for i := range 3 {
					tk := p.park(t, request(fmt.Sprint(i), loose))
					spoil(t, p, tk.ID)
					late(tk.ID, 1)
					bad = append(bad, tk.ID)
				}
				good := p.park(t, request(`"good"`, loose))
				p.set(t, good.ID, "dl", "2")
				late(good.ID, 2)
				for range 2 { // each handles no more than are broken
					if _, err := p.Sweep(t.Context(), 3); err != nil {
						t.Fatal(err)
					}
				}
				wantState(t, p.ticket(t, good.ID), approvals.Expired)
				for _, id := range bad {
					if at, err := p.raw.ZScore(t.Context(), p.k.due(), id).Result(); err != nil || at < 10 {
						t.Errorf("the next look at a broken record is at %v, %v", at, err)
					}
				}
			})
		})
	}
}

// A record that somebody deleted frees its place on the cap of its actor.
func TestADeletedRecordDoesNotCountForEver(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		two := func(r *approvals.Park) { r.Caps = approvals.Caps{Parked: 2, NewPerHour: 100, Total: 100} }
		gone := p.park(t, request(`1`, two))
		p.park(t, request(`2`, two))
		_, _, err := p.Park(t.Context(), request(`3`, two))
		want(t, err, approvals.TooManyPending)
		p.raw.Del(t.Context(), p.k.record(gone.ID))
		p.park(t, request(`3`, two))
		_, _, err = p.Park(t.Context(), request(`4`, two))
		want(t, err, approvals.TooManyPending)
	})
}

// Somebody who clicks for ever is on record twenty times, and counted.
func TestRefusalsOfOnePersonAreCapped(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		tk := p.park(t, request(`1`))
		p.events(t)
		refused := func(person string) {
			_, err := p.Decide(t.Context(), vote(tk.ID, person, approvals.Approve))
			want(t, err, approvals.NotEligible)
		}
		for range 2*refusalsKept + 5 {
			refused("eve")
		}
		refused("mallory")
		n := map[string]int{}
		for _, e := range p.events(t) {
			n[e.Person]++
		}
		if d := cmp.Diff(map[string]int{"eve": refusalsKept, "mallory": 1}, n); d != "" {
			t.Error(d)
		}
		if c := p.raw.HGet(t.Context(), p.k.refused(tk.ID), "c:eve").Val(); c != fmt.Sprint(2*refusalsKept+5) {
			t.Errorf("counted %s", c)
		}
		if l := p.raw.HLen(t.Context(), p.k.refused(tk.ID)).Val(); l != refusalsKept+1+2 {
			t.Errorf("%d fields are kept", l)
		}
	})
}
