package store

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-mcp/countersign/approvals"
)

func inGroup(name string, age time.Duration) func(*approvals.Vote) {
	return func(v *approvals.Vote) {
		v.Memberships = approvals.Memberships{Groups: []string{name}, AsOf: time.Now().Add(-age)}
	}
}

func TestWhoMayDecide(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		for name, c := range map[string]struct {
			person  string
			verdict approvals.Verdict
			change  func(*approvals.Vote)
			route   func(*approvals.Park)
			want    approvals.Conflict
			state   approvals.State
		}{
			"on the route":            {person: "ben", verdict: approvals.Approve, state: approvals.Approved},
			"on the route, no":        {person: "ben", verdict: approvals.Deny, state: approvals.Denied},
			"a stranger":              {person: "eve", verdict: approvals.Approve, want: approvals.NotEligible, state: approvals.Pending},
			"a stranger's no":         {person: "eve", verdict: approvals.Deny, want: approvals.NotEligible, state: approvals.Pending},
			"nobody":                  {person: "", verdict: approvals.Approve, want: approvals.NotEligible, state: approvals.Pending},
			"the requester":           {person: "ana", verdict: approvals.Approve, want: approvals.SelfApproval, state: approvals.Pending},
			"the requester's no":      {person: "ana", verdict: approvals.Deny, state: approvals.Denied},
			"in the group":            {person: "gus", verdict: approvals.Approve, change: inGroup("group:ops", 59*time.Second), state: approvals.Approved},
			"in the group, long ago":  {person: "gus", verdict: approvals.Approve, change: inGroup("group:ops", 61*time.Second), want: approvals.NotEligible, state: approvals.Pending},
			"in another group":        {person: "gus", verdict: approvals.Approve, change: inGroup("group:dev", 0), want: approvals.NotEligible, state: approvals.Pending},
			"the requester, in group": {person: "ana", verdict: approvals.Approve, change: inGroup("group:ops", 0), want: approvals.SelfApproval, state: approvals.Pending},
			"another digest":          {person: "ben", verdict: approvals.Approve, change: func(v *approvals.Vote) { v.Bound = "x" }, want: approvals.WrongDigest, state: approvals.Pending},
			"a callback without one":  {person: "ben", verdict: approvals.Approve, change: func(v *approvals.Vote) { v.Source = "callback:jira" }, want: approvals.WrongDigest, state: approvals.Pending},
			"a link's yes":            {person: "ben", verdict: approvals.Approve, change: func(v *approvals.Vote) { v.Link = true }, want: approvals.NotEligible, state: approvals.Pending},
			"a link's no":             {person: "ben", verdict: approvals.Deny, change: func(v *approvals.Vote) { v.Link = true }, state: approvals.Denied},
			"a link's yes, by the route": {person: "ben", verdict: approvals.Approve, change: func(v *approvals.Vote) { v.Link = true },
				route: func(r *approvals.Park) { r.Links = "approve" }, state: approvals.Approved},
			"nobody on the route": {person: "ben", verdict: approvals.Approve,
				route: func(r *approvals.Park) { r.Requirements[0].Approvers = nil }, want: approvals.NotEligible, state: approvals.Pending},
			"self-approval allowed": {person: "ana", verdict: approvals.Approve,
				route: func(r *approvals.Park) { r.Requirements[0].AllowRequester = true }, state: approvals.Approved},
			"refused by the sender's side": {person: "ben", verdict: approvals.Approve,
				change: func(v *approvals.Vote) { v.Refused = approvals.NotEligible }, want: approvals.NotEligible, state: approvals.Pending},
		} {
			t.Run(name, func(t *testing.T) {
				r := request(`"` + name + `"`)
				r.Caps = approvals.Caps{Parked: 1000, NewPerHour: 1000, Total: 1000}
				if c.route != nil {
					c.route(&r)
				}
				before := p.park(t, r)
				v := vote(r.Envelope.OperationID, c.person, c.verdict)
				if c.change != nil {
					c.change(&v)
				}
				p.events(t)
				got, err := p.Decide(t.Context(), v)
				if conflict, _ := approvals.AsConflict(err); conflict != c.want || (c.want == "" && err != nil) {
					t.Fatalf("got %v, want %q", err, c.want)
				}
				wantState(t, got, c.state)
				evs := p.events(t)
				if c.want == "" {
					return
				}
				if got.Rev != before.Rev || len(got.Votes) != 0 {
					t.Error("a refused vote changed the record")
				}
				if len(evs) != 1 || evs[0].Kind != "vote_refused" || evs[0].Refused != string(c.want) || evs[0].Person != c.person {
					t.Errorf("the events are %+v", evs)
				}
				if _, err := p.Decide(t.Context(), v); !errors.Is(err, c.want) {
					t.Errorf("the same again: %v", err)
				}
				if evs := p.events(t); len(evs) != 0 {
					t.Error("the same refused vote is recorded twice")
				}
			})
		}
	})
}

func TestQuorumCountsPeopleOnEveryRoute(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		r := request(`1`, twoRoutes)
		id := r.Envelope.OperationID
		tk := p.park(t, r)
		if left := tk.Deadline.Sub(tk.CreatedAt); left > 5*time.Minute+2*time.Second {
			t.Fatalf("the later deadline rules: %v", left)
		}
		// Cleo is on both routes: one yes, counted once in each.
		wantState(t, p.decide(t, vote(id, "cleo", approvals.Approve)), approvals.Pending)
		_, err := p.Decide(t.Context(), vote(id, "cleo", approvals.Approve))
		want(t, err, approvals.AlreadyVoted)
		_, err = p.Decide(t.Context(), vote(id, "ana", approvals.Approve))
		want(t, err, approvals.SelfApproval)
		wantState(t, p.decide(t, vote(id, "dan", approvals.Approve)), approvals.Pending) // security has two now, ops one
		tk = p.decide(t, vote(id, "ben", approvals.Approve))
		wantState(t, tk, approvals.Approved)
		if len(tk.Votes) != 4 {
			t.Fatalf("%d votes are stored, want cleo twice, dan, ben", len(tk.Votes))
		}
		if err := p.Recount(p.load(t, id)); err != nil {
			t.Fatal(err)
		}
		p.claim(t, r, "n")
	})
}

func TestANoEndsItAlsoAfterAYes(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		for _, person := range []string{"cleo", "ben", "ana", "dan"} {
			r := request(`"`+person+`"`, twoRoutes)
			p.park(t, r)
			p.decide(t, vote(r.Envelope.OperationID, "cleo", approvals.Approve))
			tk := p.decide(t, vote(r.Envelope.OperationID, person, approvals.Deny))
			wantState(t, tk, approvals.Denied)
			if tk.By != person {
				t.Errorf("by %q", tk.By)
			}
			_, err := p.Decide(t.Context(), vote(r.Envelope.OperationID, "ben", approvals.Approve))
			want(t, err, approvals.AlreadyDecided)
		}
	})
}

func TestTheSameVoteTwice(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		r := request(`1`)
		p.park(t, r)
		v := vote(r.Envelope.OperationID, "ben", approvals.Approve)
		first := p.decide(t, v)
		if again := p.decide(t, v); again.Rev != first.Rev {
			t.Error("the second one changed something")
		}
		// The nonce belongs to that vote: it can't carry another answer.
		v.Verdict = approvals.Deny
		if _, err := p.Decide(t.Context(), v); err == nil {
			t.Fatal("the nonce of a yes was taken for a no")
		}
		v.Verdict, v.Person = approvals.Approve, "cleo"
		if _, err := p.Decide(t.Context(), v); err == nil {
			t.Fatal("the nonce of ben's vote was taken for cleo's")
		}
		if d := cmp.Diff([]string{"requested", "vote", "approved"}, kinds(p.events(t))[:3]); d != "" {
			t.Error(d)
		}
	})
}

func TestLateVotesAreToldTheTruth(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		for to, c := range map[approvals.State]approvals.Conflict{
			approvals.Withdrawn: approvals.IsWithdrawn, approvals.Void: approvals.IsVoid,
		} {
			r := request(`"` + string(to) + `"`)
			p.park(t, r)
			if _, err := p.ends(t, r.Envelope.OperationID, to, "x"); err != nil {
				t.Fatal(err)
			}
			tk, err := p.Decide(t.Context(), vote(r.Envelope.OperationID, "ben", approvals.Approve))
			want(t, err, c)
			wantState(t, tk, to)
		}
		_, err := p.Decide(t.Context(), vote("no-such", "ben", approvals.Approve))
		want(t, err, approvals.NotFound)
	})
}

// Expiry is the store's clock alone: at the deadline's own millisecond a yes is
// too late, one before it counts.
func TestExpiryToTheMillisecond(t *testing.T) {
	for _, c := range []struct {
		off     time.Duration
		decided bool
	}{{-time.Millisecond, true}, {0, false}, {time.Millisecond, false}} {
		t.Run("decide "+c.off.String(), func(t *testing.T) {
			p := onMini(t)
			start := time.UnixMilli(time.Now().UnixMilli())
			p.at(start)
			r := request(`1`)
			tk := p.park(t, r)
			p.at(tk.Deadline.Add(c.off))
			got, err := p.Decide(t.Context(), vote(tk.ID, "ben", approvals.Approve))
			if c.decided {
				if err != nil {
					t.Fatal(err)
				}
				wantState(t, got, approvals.Approved)
				return
			}
			want(t, err, approvals.IsExpired)
			wantState(t, got, approvals.Expired)
		})
		t.Run("claim "+c.off.String(), func(t *testing.T) {
			p := onMini(t)
			p.at(time.UnixMilli(time.Now().UnixMilli()))
			r := request(`1`)
			tk := p.approved(t, r)
			p.at(tk.ClaimBy.Add(c.off))
			_, err := p.Claim(t.Context(), tk.ID, tk.Rev, r.Envelope.Digest(), "n", noPolicy)
			if c.decided {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			want(t, err, approvals.IsLapsed)
			wantState(t, p.ticket(t, tk.ID), approvals.Lapsed)
		})
		t.Run("sweep "+c.off.String(), func(t *testing.T) {
			p := onMini(t)
			p.at(time.UnixMilli(time.Now().UnixMilli()))
			r := request(`1`)
			tk := p.park(t, r)
			p.at(tk.Deadline.Add(c.off))
			n, err := p.Sweep(t.Context(), 10)
			if err != nil || (n == 0) != c.decided {
				t.Fatalf("swept %d, %v", n, err)
			}
		})
	}
}

func TestUndeliveredIsToldApart(t *testing.T) {
	p := onMini(t)
	p.at(time.UnixMilli(time.Now().UnixMilli()))
	told, untold := request(`1`), request(`2`)
	tk := p.park(t, told)
	p.park(t, untold)
	err := p.Mark(t.Context(), tk.ID, approvals.Mark{Channel: "slack:C1", Ref: &approvals.Ref{Channel: "slack:C1", ID: "C1/1"}})
	if err != nil {
		t.Fatal(err)
	}
	p.at(tk.Deadline.Add(time.Second))
	if n, err := p.Sweep(t.Context(), 10); n != 2 || err != nil {
		t.Fatalf("swept %d, %v", n, err)
	}
	if c := p.ticket(t, tk.ID).Cause; c != "" {
		t.Errorf("told: cause %q", c)
	}
	if c := p.ticket(t, untold.Envelope.OperationID).Cause; c != approvals.CauseUndelivered {
		t.Errorf("untold: cause %q", c)
	}
	if n, _ := p.Sweep(t.Context(), 10); n != 0 {
		t.Errorf("swept %d again", n)
	}
}

// The scripts refuse a client whose reading of the clock is old, so that a
// deadline can't be made long before it is written.
func TestAnOldClockReadingIsRefused(t *testing.T) {
	p := onMini(t)
	start := time.UnixMilli(time.Now().UnixMilli())
	p.at(start)
	r := request(`1`)
	f := fixed{ID: r.Envelope.OperationID, Requirements: r.Requirements}
	macs := []string{"m"}
	jump := &onceBefore{script: p.sc.park, do: func() { p.at(start.Add(3 * time.Second)) }}
	p.rdb.AddHook(jump)
	rep, err := p.parkOnce(t.Context(), r, f, macs, []byte("v"), []byte("c"))
	if err != nil || rep.code != "skew" {
		t.Fatalf("park: %v, %v", rep, err)
	}
	p.at(start)
	p.park(t, r)
	jump = &onceBefore{script: p.sc.decide, do: func() { p.at(start.Add(3 * time.Second)) }}
	p.rdb.AddHook(jump)
	tk := p.decide(t, vote(r.Envelope.OperationID, "ben", approvals.Approve))
	if got := tk.ClaimBy.Sub(start); got != 3*time.Second+time.Hour {
		t.Fatalf("the claim deadline is %v after the first reading", got)
	}
	if !jump.done {
		t.Fatal("the clock was never moved")
	}
}

func TestBadVotesAreErrors(t *testing.T) {
	p := onMini(t)
	for name, v := range map[string]approvals.Vote{
		"no id":      {Nonce: "n", Source: "admin"},
		"no nonce":   {ID: "x", Source: "admin"},
		"no source":  {ID: "x", Nonce: "n"},
		"no verdict": {ID: "x", Nonce: "n", Source: "admin", Verdict: 7},
	} {
		if _, err := p.Decide(t.Context(), v); err == nil || strings.Contains(err.Error(), "not_found") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
