package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/action"
)

func TestAWholeLife(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		ctx := t.Context()
		r := request(`{"order_id": 9007199254740993,  "why":"é"}`)
		r.Rules, r.Run, r.Links = []string{"tier:destructive"}, "on_approve", "approve"
		id := r.Envelope.OperationID
		tk := p.park(t, r)
		if tk.State != approvals.Pending || tk.Rev != 1 || tk.Title != r.Title || tk.View.Text != "shown" ||
			tk.Actor != "ana@acme.test" || tk.Deadline.Sub(tk.CreatedAt).Abs()-15*time.Minute > 2*time.Second ||
			tk.Run != "on_approve" || tk.Links != "approve" || !slices.Equal(tk.Channels, r.Channels) {
			t.Fatalf("the ticket is %+v", tk)
		}
		got := p.load(t, id)
		if !bytes.Equal(got.Envelope.Call.Args, r.Envelope.Call.Args) || got.Envelope.Digest() != r.Envelope.Digest() {
			t.Fatal("the parked bytes are others")
		}
		if _, err := p.Load(ctx, id, action.Actor{ID: "mallory"}); !errors.Is(err, approvals.NotFound) {
			t.Fatalf("another actor's Load: %v", err)
		}

		tk = p.decide(t, vote(id, "ben", approvals.Approve, func(v *approvals.Vote) { v.Reason = "go on" }))
		if tk.State != approvals.Approved || tk.By != "ben" || tk.Reason != "go on" || tk.ClaimBy.IsZero() || tk.Rev != 2 {
			t.Fatalf("after the yes: %+v", tk)
		}
		if err := p.Recount(p.load(t, id)); err != nil {
			t.Fatal(err)
		}
		g := p.claim(t, r, "n1")
		if g.Fence == 0 || g.Ticket.State != approvals.Executing || g.Owner != "file-a" {
			t.Fatalf("the grant is %+v", g)
		}
		if err := p.Renew(ctx, g); err != nil {
			t.Fatal(err)
		}
		if held, err := p.Claims(ctx, "file-a"); err != nil || len(held) != 1 || held[0].Nonce != "n1" {
			t.Fatalf("Claims: %+v, %v", held, err)
		}
		kept := &approvals.Kept{Result: json.RawMessage(`{"content":[]}`), At: time.Now().UTC()}
		tk, err := p.Finish(ctx, g, approvals.Outcome{State: approvals.Succeeded, Kept: kept})
		if err != nil || tk.State != approvals.Succeeded || tk.EndedAt.IsZero() {
			t.Fatalf("Finish: %+v, %v", tk, err)
		}
		if d := cmp.Diff(kept, p.load(t, id).Result); d != "" {
			t.Fatal(d)
		}
		if held, _ := p.Claims(ctx, "file-a"); len(held) != 0 {
			t.Fatal("a settled claim is still held")
		}
		if p.raw.Exists(ctx, p.k.ownedBy("file-a")).Val() != 0 {
			t.Fatal("a settled claim is still on its owner's list")
		}
		evs := p.events(t)
		if d := cmp.Diff([]string{"requested", "vote", "approved", "executing", "succeeded"}, kinds(evs)); d != "" {
			t.Fatal(d)
		}
		if evs[0].Seq != 1 || evs[1].Person != "ben" || evs[1].Route != "ops" || evs[1].Verdict != "approve" || evs[4].Tool != "cancel_order" {
			t.Fatalf("the events are %+v", evs)
		}
	})
}

func TestAttaching(t *testing.T) {
	end := func(to approvals.State) func(*testing.T, *place, approvals.Park) {
		return func(t *testing.T, p *place, r approvals.Park) {
			if to == approvals.Revoked {
				p.decide(t, vote(r.Envelope.OperationID, "ben", approvals.Approve))
			}
			if _, err := p.ends(t, r.Envelope.OperationID, to, "x"); err != nil {
				t.Fatal(err)
			}
		}
	}
	finish := func(to approvals.State) func(*testing.T, *place, approvals.Park) {
		return func(t *testing.T, p *place, r approvals.Park) {
			p.decide(t, vote(r.Envelope.OperationID, "ben", approvals.Approve))
			if _, err := p.Finish(t.Context(), p.claim(t, r, "n"), approvals.Outcome{State: to}); err != nil {
				t.Fatal(err)
			}
		}
	}
	resolve := func(ran bool) func(*testing.T, *place, approvals.Park) {
		return func(t *testing.T, p *place, r approvals.Park) {
			finish(approvals.Unknown)(t, p, r)
			if _, err := p.Resolve(t.Context(), r.Envelope.OperationID, ran, "ben", "looked"); err != nil {
				t.Fatal(err)
			}
		}
	}
	approve := func(t *testing.T, p *place, r approvals.Park) {
		p.decide(t, vote(r.Envelope.OperationID, "ben", approvals.Approve))
	}
	const hour = time.Hour
	for name, c := range map[string]struct {
		bring func(*testing.T, *place, approvals.Park)
		keep  time.Duration // attached until then, a new card at then
		state approvals.State
	}{
		"pending":   {func(*testing.T, *place, approvals.Park) {}, 15*time.Minute + 5*time.Minute, approvals.Pending},
		"approved":  {approve, hour, approvals.Approved},
		"executing": {func(t *testing.T, p *place, r approvals.Park) { approve(t, p, r); p.claim(t, r, "n") }, 1000 * hour, approvals.Executing},
		"succeeded": {finish(approvals.Succeeded), hour, approvals.Succeeded},
		"failed":    {finish(approvals.Failed), hour, approvals.Failed},
		"unknown":   {finish(approvals.Unknown), 1000 * hour, approvals.Unknown},
		"denied": {func(t *testing.T, p *place, r approvals.Park) {
			p.decide(t, vote(r.Envelope.OperationID, "ben", approvals.Deny))
		}, hour, approvals.Denied},
		"not_run":          {finish(approvals.NotRun), 0, ""},
		"withdrawn":        {end(approvals.Withdrawn), 0, ""},
		"void":             {end(approvals.Void), 0, ""},
		"revoked":          {end(approvals.Revoked), 0, ""},
		"resolved ran":     {resolve(true), hour, approvals.Succeeded},
		"resolved not run": {resolve(false), 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := onMini(t)
			start := time.UnixMilli(time.Now().UnixMilli())
			p.at(start)
			r := request(`{"a":1}`)
			p.park(t, r)
			c.bring(t, p, r)
			again := request(` { "a" : 1 } `)
			if c.keep > 0 {
				got, fresh, err := p.Park(t.Context(), again)
				if err != nil || fresh || got.ID != r.Envelope.OperationID || got.State != c.state {
					t.Fatalf("at once: %s fresh %v, %v", got.State, fresh, err)
				}
				// The pending one expires in between and is remembered from then on.
				if name == "pending" {
					p.at(start.Add(15 * time.Minute))
					got, fresh, err = p.Park(t.Context(), again)
					if err != nil || fresh || got.State != approvals.Expired || got.Cause != approvals.CauseUndelivered {
						t.Fatalf("past its deadline: %s fresh %v, %v", got.State, fresh, err)
					}
				}
				p.at(start.Add(c.keep - time.Millisecond))
				if _, fresh, err = p.Park(t.Context(), again); err != nil || fresh {
					t.Fatalf("just before: fresh %v, %v", fresh, err)
				}
			}
			p.at(start.Add(c.keep))
			got, fresh, err := p.Park(t.Context(), again)
			if err != nil {
				t.Fatal(err)
			}
			if forever := c.keep > 2*hour; fresh == forever {
				t.Fatalf("at the end: %s fresh %v", got.State, fresh)
			}
			if fresh && got.ID != again.Envelope.OperationID {
				t.Fatal("the new card has another id")
			}
		})
	}
}

func TestDifferentCallsDoNotAttach(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		p.park(t, request(`{"a":1}`))
		for name, change := range map[string]func(*approvals.Park){
			"arguments": func(r *approvals.Park) { r.Envelope.Call.Args = json.RawMessage(`{"a":2}`) },
			"actor":     func(r *approvals.Park) { r.Envelope.Call.Actor.ID = "bob" },
			"tool":      func(r *approvals.Park) { r.Envelope.Call.Tool = "x" },
			"idem key":  func(r *approvals.Park) { r.Envelope.Call.IdemKey = "2" },
		} {
			if _, fresh, err := p.Park(t.Context(), request(`{"a":1}`, change)); err != nil || !fresh {
				t.Errorf("%s: fresh %v, %v", name, fresh, err)
			}
		}
	})
}

func TestCaps(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		ctx := t.Context()
		capped := func(args string, c approvals.Caps) error {
			_, _, err := p.Park(ctx, request(args, func(r *approvals.Park) { r.Caps = c }))
			return err
		}
		loose := approvals.Caps{Parked: 100, NewPerHour: 100, Total: 100}
		first := request(`1`)
		p.park(t, first)
		if err := capped(`2`, loose); err != nil {
			t.Fatal(err)
		}
		for why, c := range map[approvals.Conflict]approvals.Caps{
			approvals.TooManyPending:      {Parked: 2, NewPerHour: 100, Total: 100},
			approvals.TooManyNew:          {Parked: 100, NewPerHour: 2, Total: 100},
			approvals.TooManyPendingInAll: {Parked: 100, NewPerHour: 100, Total: 2},
			approvals.TooManyNewInAll:     {Parked: 100, NewPerHour: 100, Total: 100, NewInAll: 2},
		} {
			err := capped(`3`, c)
			want(t, err, why)
			var full *approvals.NoRoom
			hourly := why == approvals.TooManyNew || why == approvals.TooManyNewInAll
			if !errors.As(err, &full) || (full.After > 0) != hourly || full.After > time.Hour {
				t.Errorf("%s: %+v", why, full)
			}
			if err := capped(`2`, c); err != nil {
				t.Errorf("attaching takes budget: %v", err)
			}
		}
		// An ended one frees its place, but not the hour's.
		if _, err := p.End(ctx, first.Envelope.OperationID, approvals.Withdrawn, "", "x", ""); err != nil {
			t.Fatal(err)
		}
		if err := capped(`4`, approvals.Caps{Parked: 2, NewPerHour: 3, Total: 2}); err != nil {
			t.Fatal(err)
		}
		want(t, capped(`5`, approvals.Caps{Parked: 100, NewPerHour: 3, Total: 100}), approvals.TooManyNew)
	})
}

// There is room again at the very moment that the refusal named, and not before.
func TestTheHourPasses(t *testing.T) {
	for why, c := range map[approvals.Conflict]approvals.Caps{
		approvals.TooManyNew:      {Parked: 99, NewPerHour: 3, Total: 99},
		approvals.TooManyNewInAll: {Parked: 99, NewPerHour: 99, Total: 99, NewInAll: 3},
	} {
		t.Run(string(why), func(t *testing.T) {
			p := onMini(t)
			start := time.UnixMilli(time.Now().UnixMilli())
			capped := func(r *approvals.Park) { r.Caps = c }
			for i := range 3 {
				p.at(start.Add(time.Duration(i) * time.Minute))
				p.park(t, request(fmt.Sprint(i), capped))
			}
			full := func(left time.Duration, change ...func(*approvals.Park)) {
				t.Helper()
				_, _, err := p.Park(t.Context(), request(fmt.Sprintf("%q", newID()), append([]func(*approvals.Park){capped}, change...)...))
				var no *approvals.NoRoom
				if !errors.As(err, &no) || no.Why != why || no.After != left {
					t.Fatalf("%v (%+v), want %v", err, no, left)
				}
			}
			full(58 * time.Minute)
			// A policy with a smaller number waits for more of them to pass.
			full(59*time.Minute, func(r *approvals.Park) {
				r.Caps.NewPerHour, r.Caps.NewInAll = r.Caps.NewPerHour-1, max(0, r.Caps.NewInAll-1)
			})
			p.at(start.Add(time.Hour - time.Millisecond))
			full(time.Millisecond)
			p.at(start.Add(time.Hour))
			p.park(t, request(`"new"`, capped))
			full(time.Minute)
		})
	}
}

func TestADeniedCallRepeatedMakesOneCard(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		r := request(`{"a":1}`)
		p.park(t, r)
		p.decide(t, vote(r.Envelope.OperationID, "ben", approvals.Deny, func(v *approvals.Vote) { v.Reason = "no" }))
		for range 100 {
			got, fresh, err := p.Park(t.Context(), request(`{"a":1}`))
			if err != nil || fresh || got.State != approvals.Denied || got.Reason != "no" {
				t.Fatalf("%s fresh %v, %v", got.State, fresh, err)
			}
		}
		if n := len(p.events(t)); n != 3 {
			t.Fatalf("%d events, want requested, vote, denied", n)
		}
	})
}

func TestResultsTooBigAreNotKept(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		for name, c := range map[string]struct {
			size int
			kept bool
		}{"just fits": {MaxResult - 100, true}, "too big": {MaxResult, false}} {
			r := request(`"` + name + `"`)
			p.approved(t, r)
			body := json.RawMessage(`"` + strings.Repeat("x", c.size) + `"`)
			tk, err := p.Finish(t.Context(), p.claim(t, r, "n"), approvals.Outcome{State: approvals.Succeeded, Kept: &approvals.Kept{Result: body}})
			if err != nil {
				t.Fatal(err)
			}
			if got := p.load(t, tk.ID).Result != nil; got != c.kept || (tk.Cause == approvals.CauseResultTooBig) == c.kept {
				t.Errorf("%s: kept %v, cause %q", name, got, tk.Cause)
			}
		}
	})
}

func TestAResultIsGoneAfterItsTime(t *testing.T) {
	p := onMini(t)
	start := time.UnixMilli(time.Now().UnixMilli())
	p.at(start)
	r := request(`1`)
	p.approved(t, r)
	if _, err := p.Finish(t.Context(), p.claim(t, r, "n"), approvals.Outcome{State: approvals.Failed, Kept: &approvals.Kept{Error: json.RawMessage(`{}`)}}); err != nil {
		t.Fatal(err)
	}
	id := r.Envelope.OperationID
	p.at(start.Add(time.Hour - time.Millisecond))
	if p.load(t, id).Result == nil {
		t.Fatal("gone too early")
	}
	p.at(start.Add(time.Hour))
	if p.load(t, id).Result != nil {
		t.Fatal("kept too long")
	}
}

func TestListing(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		var ids []string
		for i := range 5 {
			r := request(string(rune('0' + i)))
			p.park(t, r)
			ids = append(ids, r.Envelope.OperationID)
		}
		p.decide(t, vote(ids[1], "ben", approvals.Deny))
		p.decide(t, vote(ids[2], "ben", approvals.Approve))
		list := func(limit int, states ...approvals.State) (out []string) {
			ts, err := p.List(t.Context(), states, limit)
			if err != nil {
				t.Fatal(err)
			}
			for _, tk := range ts {
				out = append(out, tk.ID)
			}
			slices.Sort(out)
			return out
		}
		for _, c := range []struct{ got, want []string }{
			{list(10), ids},
			{list(10, approvals.Pending), []string{ids[0], ids[3], ids[4]}},
			{list(10, approvals.Approved, approvals.Denied), []string{ids[1], ids[2]}},
		} {
			slices.Sort(c.want)
			if d := cmp.Diff(c.want, c.got); d != "" {
				t.Error(d)
			}
		}
		if n := len(list(2)); n != 2 {
			t.Errorf("a limit of 2 gave %d", n)
		}
	})
}
