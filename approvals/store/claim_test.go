package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/action"
)

func TestClaimsThatAreRefused(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		ctx := t.Context()
		n := 0
		for name, c := range map[string]struct {
			bring func(t *testing.T, r approvals.Park) approvals.Ticket
			want  approvals.Conflict
		}{
			"pending": {func(t *testing.T, r approvals.Park) approvals.Ticket { return p.park(t, r) }, approvals.Moved},
			"denied": {func(t *testing.T, r approvals.Park) approvals.Ticket {
				p.park(t, r)
				return p.decide(t, vote(r.Envelope.OperationID, "ben", approvals.Deny))
			}, approvals.AlreadyDecided},
			"revoked": {func(t *testing.T, r approvals.Park) approvals.Ticket {
				p.approved(t, r)
				tk, err := p.End(ctx, r.Envelope.OperationID, approvals.Revoked, "", "ben", "")
				if err != nil {
					t.Fatal(err)
				}
				return tk
			}, approvals.IsRevoked},
			"moved": {func(t *testing.T, r approvals.Park) approvals.Ticket {
				tk := p.approved(t, r)
				tk.Rev--
				return tk
			}, approvals.Moved},
			"used": {func(t *testing.T, r approvals.Park) approvals.Ticket {
				p.approved(t, r)
				return p.claim(t, r, "other").Ticket
			}, approvals.AlreadyUsed},
			"nothing": {func(t *testing.T, r approvals.Park) approvals.Ticket {
				return approvals.Ticket{ID: "no-such"}
			}, approvals.NotFound},
		} {
			n++
			r := request(fmt.Sprint(n), func(r *approvals.Park) { r.Caps.Parked = 100 })
			tk := c.bring(t, r)
			_, err := p.Claim(ctx, tk.ID, tk.Rev, r.Envelope.Digest(), "n", noPolicy)
			if got, _ := approvals.AsConflict(err); got != c.want {
				t.Errorf("%s: %v, want %s", name, err, c.want)
			}
		}
		r := request(`"d"`, func(r *approvals.Park) { r.Caps.Parked = 100 })
		tk := p.approved(t, r)
		for _, d := range []action.Digest{{}, action.Sum("x")} {
			_, err := p.Claim(ctx, tk.ID, tk.Rev, d, "n", noPolicy)
			want(t, err, approvals.WrongDigest)
		}
		nobody := p.another(t, func(o *Options) { o.Owner = "" })
		if _, err := nobody.Claim(ctx, tk.ID, tk.Rev, r.Envelope.Digest(), "n", noPolicy); err == nil {
			t.Error("claimed without an owner")
		}
	})
}

func TestALeaseThatEnds(t *testing.T) {
	p := onMini(t)
	start := time.UnixMilli(time.Now().UnixMilli())
	p.at(start)
	ctx := t.Context()
	r := request(`1`)
	tk := p.approved(t, r)
	g := p.claim(t, r, "n")
	sweep := func(want int) {
		t.Helper()
		if n, err := p.Sweep(ctx, 10); err != nil || n != want {
			t.Fatalf("swept %d, %v", n, err)
		}
	}
	p.at(start.Add(30*time.Second - time.Millisecond))
	sweep(0)
	if err := p.Renew(ctx, g); err != nil {
		t.Fatal(err)
	}
	p.at(start.Add(60*time.Second - 2*time.Millisecond))
	sweep(0)
	p.at(start.Add(60*time.Second - time.Millisecond)) // 30 s after the renewal
	sweep(1)
	got := p.ticket(t, tk.ID)
	if got.State != approvals.Unknown || got.Cause != approvals.CauseOwnerLost {
		t.Fatalf("%s, %s", got.State, got.Cause)
	}
	want(t, p.Renew(ctx, g), approvals.AlreadyUsed)
	_, err := p.Claim(ctx, tk.ID, got.Rev, r.Envelope.Digest(), "n2", noPolicy)
	want(t, err, approvals.AlreadyUsed)
	_, err = p.Claim(ctx, tk.ID, got.Rev, r.Envelope.Digest(), "n", noPolicy)
	want(t, err, approvals.AlreadyUsed)
	// It stays unknown for as long as nobody says otherwise.
	p.at(start.Add(10000 * time.Hour))
	sweep(0)
	wantState(t, p.ticket(t, tk.ID), approvals.Unknown)
	if held, err := p.Claims(ctx, "file-a"); err != nil || len(held) != 1 || held[0].Nonce != "n" {
		t.Fatalf("%v, %v", held, err)
	}
	// Another nonce can't settle it, its own can.
	bad := g
	bad.Nonce = "n2"
	_, err = p.Finish(ctx, bad, approvals.Outcome{State: approvals.Succeeded})
	want(t, err, approvals.AlreadyUsed)
	if _, err := p.Finish(ctx, g, approvals.Outcome{State: approvals.NotRun, Cause: approvals.CauseNeverStarted}); err != nil {
		t.Fatal(err)
	}
	wantState(t, p.ticket(t, tk.ID), approvals.NotRun)
}

func TestFinishingOnlyOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		ctx := t.Context()
		r := request(`1`)
		p.approved(t, r)
		g := p.claim(t, r, "n")
		if _, err := p.Finish(ctx, g, approvals.Outcome{State: approvals.Approved}); err == nil {
			t.Fatal("back to approved")
		}
		if _, err := p.Finish(ctx, g, approvals.Outcome{State: approvals.Succeeded}); err != nil {
			t.Fatal(err)
		}
		for _, s := range []approvals.State{approvals.Failed, approvals.NotRun, approvals.Unknown} {
			tk, err := p.Finish(ctx, g, approvals.Outcome{State: s})
			want(t, err, approvals.AlreadyDecided)
			wantState(t, tk, approvals.Succeeded)
		}
		_, err := p.Resolve(ctx, g.ID, false, "ben", "")
		want(t, err, approvals.AlreadyDecided)
		_, err = p.ends(t, g.ID, approvals.Void, "")
		want(t, err, approvals.AlreadyDecided)
	})
}

func TestAPersonResolvesAnUnknown(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		ctx := t.Context()
		r := request(`1`)
		p.approved(t, r)
		g := p.claim(t, r, "n")
		if _, err := p.Finish(ctx, g, approvals.Outcome{State: approvals.Unknown, Cause: approvals.CauseNoAnswer}); err != nil {
			t.Fatal(err)
		}
		tk, err := p.Resolve(ctx, g.ID, true, "cleo", "seen in the shop")
		if err != nil || tk.State != approvals.Succeeded || tk.Cause != approvals.CauseResolved || tk.By != "cleo" || tk.Reason != "seen in the shop" {
			t.Fatalf("%+v, %v", tk, err)
		}
		_, err = p.Resolve(ctx, g.ID, false, "ben", "no")
		want(t, err, approvals.AlreadyDecided)
		// The owner comes back with the answer: the person's word stands.
		tk, err = p.Finish(ctx, g, approvals.Outcome{State: approvals.Succeeded})
		want(t, err, approvals.AlreadyDecided)
		if tk.Cause != approvals.CauseResolved {
			t.Fatal(tk.Cause)
		}
		if held, _ := p.Claims(ctx, "file-a"); len(held) != 0 {
			t.Fatal("a resolved claim is still held")
		}
	})
}

func TestEndedRecordsAreForgotten(t *testing.T) {
	p := onMini(t)
	start := time.UnixMilli(time.Now().UnixMilli())
	p.at(start)
	ctx := t.Context()
	r := request(`1`)
	p.approved(t, r)
	g := p.claim(t, r, "n")
	if _, err := p.Finish(ctx, g, approvals.Outcome{State: approvals.Succeeded, Kept: &approvals.Kept{Result: []byte(`1`)}}); err != nil {
		t.Fatal(err)
	}
	expired := request(`2`)
	p.park(t, expired)
	lapsed := request(`3`)
	p.approved(t, lapsed)
	p.at(start.Add(24*time.Hour - time.Millisecond))
	if n, err := p.Sweep(ctx, 10); n != 2 || err != nil { // expired and lapsed, found late
		t.Fatalf("swept %d, %v", n, err)
	}
	p.at(start.Add(24 * time.Hour))
	if n, err := p.Sweep(ctx, 10); n != 1 || err != nil {
		t.Fatalf("swept %d, %v", n, err)
	}
	_, err := p.Ticket(ctx, g.ID)
	want(t, err, approvals.NotFound)
	p.at(start.Add(48*time.Hour - time.Millisecond))
	if n, err := p.Sweep(ctx, 10); n != 2 || err != nil {
		t.Fatalf("swept %d, %v", n, err)
	}
	p.mini.FastForward(48 * time.Hour)
	for _, key := range p.raw.Keys(ctx, string(p.k)+"*").Val() {
		switch key {
		case p.k.outbox(), p.k.events(), p.k.eventCount(), p.k.fence():
		default:
			t.Errorf("%s is left", key)
		}
	}
}

func TestEndingWhatTheClockHasEnded(t *testing.T) {
	p := onMini(t)
	p.at(time.UnixMilli(time.Now().UnixMilli()))
	waits, yes := request(`1`), request(`2`)
	pending := p.park(t, waits)
	tk := p.approved(t, yes)
	p.at(pending.Deadline)
	got, err := p.End(t.Context(), pending.ID, approvals.Withdrawn, "", "ana@acme.test", "")
	want(t, err, approvals.IsExpired)
	wantState(t, got, approvals.Expired)
	p.at(tk.ClaimBy)
	got, err = p.End(t.Context(), tk.ID, approvals.Revoked, "", "ben", "")
	want(t, err, approvals.IsLapsed)
	wantState(t, got, approvals.Lapsed)
}
