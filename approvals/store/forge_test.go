package store

import (
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/action"
)

// Somebody who can write to Redis, and has no key, tries to get a call run. What
// they may reach is a refusal, never a claim.
func TestARedisWriterForgesAnApproval(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		soon := time.Now().Add(time.Hour).UnixMilli()
		copyKey := func(t *testing.T, from, to string) {
			v, err := p.raw.Get(t.Context(), from).Result()
			if err != nil {
				t.Fatal(err)
			}
			p.raw.Set(t.Context(), to, v, 0)
		}
		fields := func(t *testing.T, id string) map[string]string {
			m, err := p.raw.HGetAll(t.Context(), p.k.record(id)).Result()
			if err != nil {
				t.Fatal(err)
			}
			return m
		}
		put := func(t *testing.T, id string, m map[string]string) {
			for k, v := range m {
				p.set(t, id, k, v)
			}
		}
		// Each case has an approved call (by ben) and a pending one of the same
		// actor, and tries to have the pending one claimed.
		for name, forge := range map[string]func(t *testing.T, yes, no string){
			"state alone": func(t *testing.T, _, no string) { p.set(t, no, "st", "approved") },
			"state and deadline": func(t *testing.T, _, no string) {
				p.set(t, no, "st", "approved", "cb", soon)
			},
			"a vote without a MAC": func(t *testing.T, _, no string) {
				c, _ := json.Marshal(approvals.Cast{Requirement: "ops", Person: "ben", Verdict: approvals.Approve, Source: "admin", At: time.UnixMilli(soon - 1), ClaimBy: time.UnixMilli(soon)})
				p.set(t, no, "st", "approved", "cb", soon, "v:1:ben", string(c))
			},
			"another call's vote": func(t *testing.T, yes, no string) {
				from := fields(t, yes)
				p.set(t, no, "st", "approved", "cb", from["cb"], "v:1:ben", from["v:1:ben"])
			},
			"another call's record": func(t *testing.T, yes, no string) { put(t, no, fields(t, yes)) },
			"another call's record and parts": func(t *testing.T, yes, no string) {
				put(t, no, fields(t, yes))
				copyKey(t, p.k.view(yes), p.k.view(no))
				copyKey(t, p.k.envelope(yes), p.k.envelope(no))
			},
			"another call's sealed record": func(t *testing.T, yes, no string) {
				from := fields(t, yes)
				delete(from, "pn")
				put(t, no, from)
				copyKey(t, p.k.view(yes), p.k.view(no))
			},
		} {
			t.Run(name, func(t *testing.T) {
				caps := func(r *approvals.Park) { r.Caps = approvals.Caps{Parked: 999, NewPerHour: 999, Total: 999} }
				yes, no := request(`"yes `+name+`"`, caps), request(`"no `+name+`"`, caps)
				p.approved(t, yes)
				p.park(t, no)
				id := no.Envelope.OperationID
				forge(t, yes.Envelope.OperationID, id)
				for rev := range uint64(4) {
					for _, d := range []action.Digest{no.Envelope.Digest(), yes.Envelope.Digest()} {
						if g, err := p.Claim(t.Context(), id, rev, d, "n", noPolicy); err == nil {
							t.Fatalf("claimed: %+v", g)
						}
					}
				}
				if got, err := p.Load(t.Context(), id, action.Actor{ID: "ana@acme.test"}); err == nil {
					if err := p.Recount(got); !errors.Is(err, approvals.Forged) {
						t.Errorf("Recount: %v", err)
					}
				} else if !errors.Is(err, approvals.Forged) {
					t.Errorf("Load: %v", err)
				}
			})
		}
	})
}

func TestARedisWriterChangesAnApprovedRecord(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		for name, change := range map[string]func(t *testing.T, id string, was map[string]string){
			"extended claim deadline": func(t *testing.T, id string, _ map[string]string) {
				p.set(t, id, "cb", time.Now().Add(100*time.Hour).UnixMilli())
			},
			"extended in the vote": func(t *testing.T, id string, was map[string]string) {
				var c approvals.Cast
				if err := json.Unmarshal([]byte(was["v:1:ben"]), &c); err != nil {
					t.Fatal(err)
				}
				c.ClaimBy = c.ClaimBy.Add(100 * time.Hour)
				b, _ := json.Marshal(c)
				p.set(t, id, "cb", c.ClaimBy.UnixMilli(), "v:1:ben", string(b))
			},
			"vote for another person": func(t *testing.T, id string, was map[string]string) {
				p.set(t, id, "v:1:ben", strings.Replace(was["v:1:ben"], `"person":"ben"`, `"person":"cleo"`, 1))
			},
			// The real yes is enough; the other must not be believed beside it.
			"a vote made up beside the real one": func(t *testing.T, id string, was map[string]string) {
				p.set(t, id, "v:1:cleo", strings.Replace(was["v:1:ben"], `"person":"ben"`, `"person":"cleo"`, 1))
			},
			"a vote for a route that isn't there": func(t *testing.T, id string, was map[string]string) {
				p.set(t, id, "v:2:ben", strings.Replace(was["v:1:ben"], `"requirement":"ops"`, `"requirement":"leads"`, 1))
			},
			"an empty vote":  func(t *testing.T, id string, _ map[string]string) { p.set(t, id, "v:1:ben", "{}") },
			"another digest": func(t *testing.T, id string, _ map[string]string) { p.set(t, id, "b", "x.y") },
			"no votes": func(t *testing.T, id string, _ map[string]string) {
				p.raw.HDel(t.Context(), p.k.record(id), "v:1:ben")
			},
			"a call that is gone": func(t *testing.T, id string, _ map[string]string) { p.raw.Del(t.Context(), p.k.envelope(id)) },
			"a view that is gone": func(t *testing.T, id string, _ map[string]string) { p.raw.Del(t.Context(), p.k.view(id)) },
		} {
			t.Run(name, func(t *testing.T) {
				r := request(`"`+name+`"`, func(r *approvals.Park) { r.Caps = approvals.Caps{Parked: 999, NewPerHour: 999, Total: 999} })
				tk := p.approved(t, r)
				was := p.raw.HGetAll(t.Context(), p.k.record(tk.ID)).Val()
				change(t, tk.ID, was)
				got, err := p.Load(t.Context(), tk.ID, action.Actor{ID: "ana@acme.test"})
				if err == nil {
					err = p.Recount(got)
				}
				want(t, err, approvals.Forged)
				if name == "a call that is gone" {
					return // the gate can't get a digest to claim with
				}
				if _, err := p.Claim(t.Context(), tk.ID, tk.Rev, r.Envelope.Digest(), "n", noPolicy); err == nil {
					t.Fatal("claimed")
				}
				wantNoClaim(t, p, tk.ID)
			})
		}
	})
}

func wantNoClaim(t *testing.T, p *place, id string) {
	t.Helper()
	if st := p.raw.HGet(t.Context(), p.k.record(id), "st").Val(); st == "executing" {
		t.Fatal("the record is executing")
	}
}

// Two real votes where the route wants two people: one of them twice, under two
// names, must not do.
func TestOneVoteIsNotAQuorum(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		r := request(`1`, func(r *approvals.Park) { r.Requirements[0].Quorum = 2 })
		p.park(t, r)
		tk := p.decide(t, vote(r.Envelope.OperationID, "ben", approvals.Approve))
		was := p.raw.HGetAll(t.Context(), p.k.record(tk.ID)).Val()
		p.set(t, tk.ID, "st", "approved", "cb", was["vc"], "v:1:cleo", was["v:1:ben"])
		_, err := p.Claim(t.Context(), tk.ID, tk.Rev, r.Envelope.Digest(), "n", noPolicy)
		want(t, err, approvals.Forged)
	})
}

// A vote that arrives after the sealed deadline is late, whatever the hash says.
func TestAStretchedDeadlineLetsNoVoteIn(t *testing.T) {
	p := onMini(t)
	start := time.UnixMilli(time.Now().UnixMilli())
	p.at(start)
	tk := p.park(t, request(`1`))
	p.set(t, tk.ID, "dl", start.Add(100*time.Hour).UnixMilli())
	p.at(tk.Deadline)
	got, err := p.Decide(t.Context(), vote(tk.ID, "ben", approvals.Approve))
	want(t, err, approvals.IsExpired)
	wantState(t, got, approvals.Expired)
}

// Approvers and quorum are what was sealed: there is no open copy to change, and
// a sealed record of another call, or of an older park, does not fit.
func TestTheRecordOfAnEarlierCallDoesNotFit(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		easy, hard := request(`"easy"`), request(`"hard"`, twoRoutes)
		p.park(t, easy)
		p.park(t, hard)
		from := p.raw.HGetAll(t.Context(), p.k.record(easy.Envelope.OperationID)).Val()
		id := hard.Envelope.OperationID
		p.set(t, id, "f", from["f"])
		_, err := p.Decide(t.Context(), vote(id, "ben", approvals.Approve))
		want(t, err, approvals.Forged)
		p.set(t, id, "b", from["b"])
		_, err = p.Decide(t.Context(), vote(id, "ben", approvals.Approve))
		want(t, err, approvals.Forged)
	})
}

// An index entry that leads to another's approval, or to another call, is found
// out by whoever follows it.
func TestABentIndexIsFoundOut(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		mine := request(`"mine"`)
		other := request(`"other"`, func(r *approvals.Park) { r.Envelope.Call.Actor.ID = "bob" })
		p.park(t, mine)
		p.park(t, other)
		var ix []string
		for _, r := range []approvals.Park{mine, other} {
			ix = append(ix, p.raw.HGet(t.Context(), p.k.record(r.Envelope.OperationID), "ix").Val())
		}
		p.raw.Set(t.Context(), ix[0], other.Envelope.OperationID, 0)
		got, fresh, err := p.Park(t.Context(), request(`"mine"`))
		if fresh || got.ID != "" {
			t.Fatalf("got %q", got.ID)
		}
		want(t, err, approvals.Forged)
	})
}

// What was put back as it was before its claim can be claimed again as far as
// Redis goes: that is the stated limit, and the reason why a process refuses an
// id whose start is in its own ledger. The fence shows it.
func TestARestoredRecordIsALimit(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		r := request(`1`)
		tk := p.approved(t, r)
		was := p.raw.HGetAll(t.Context(), p.k.record(tk.ID)).Val()
		first := p.claim(t, r, "n1")
		p.raw.Del(t.Context(), p.k.record(tk.ID))
		for k, v := range maps.All(was) {
			p.set(t, tk.ID, k, v)
		}
		second, err := p.Claim(t.Context(), tk.ID, tk.Rev, r.Envelope.Digest(), "n2", noPolicy)
		if err != nil || second.Fence <= first.Fence {
			t.Fatalf("fences %d and %d, %v", first.Fence, second.Fence, err)
		}
	})
}

// Two calls parked in the same millisecond have equal requirements: a vote still
// belongs to the one it was given for.
func TestAVoteBelongsToItsCall(t *testing.T) {
	p := onMini(t)
	p.at(time.UnixMilli(time.Now().UnixMilli()))
	yes, no := request(`"yes"`), request(`"no"`)
	tk := p.approved(t, yes)
	other := p.park(t, no)
	if !other.Deadline.Equal(tk.Deadline) {
		t.Fatal("the requirements differ")
	}
	was := p.raw.HGetAll(t.Context(), p.k.record(tk.ID)).Val()
	p.set(t, other.ID, "st", "approved", "cb", was["cb"], "v:1:ben", was["v:1:ben"])
	_, err := p.Claim(t.Context(), other.ID, other.Rev, no.Envelope.Digest(), "n", noPolicy)
	want(t, err, approvals.Forged)
	want(t, p.Recount(p.load(t, other.ID)), approvals.Forged)
}
