package store

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
)

// closing makes denials of a card count: three in a row close for ten minutes.
func closing(r *approvals.Park) {
	r.Closing = approvals.Closing{Denials: 3, For: 10 * time.Minute}
	r.Caps = approvals.Caps{Parked: 999, NewPerHour: 999, Total: 999}
}

// denied parks a call and has somebody say no.
func (p *place) denied(t testing.TB, args, person string, change ...func(*approvals.Park)) approvals.Ticket {
	t.Helper()
	r := request(args, append([]func(*approvals.Park){closing}, change...)...)
	p.park(t, r)
	got := p.decide(t, vote(r.Envelope.OperationID, person, approvals.Deny))
	wantState(t, got, approvals.Denied)
	return got
}

// open tells whether a new card is made for the actor; it takes it back at once.
func (p *place) open(t testing.TB, change ...func(*approvals.Park)) error {
	t.Helper()
	r := request(fmt.Sprintf("%q", newID()), append([]func(*approvals.Park){closing}, change...)...)
	got, fresh, err := p.Park(t.Context(), r)
	if err != nil {
		return err
	}
	if !fresh {
		t.Fatal("it is another's card")
	}
	if _, err := p.End(t.Context(), got.ID, approvals.Withdrawn, "", "ana@acme.test", ""); err != nil {
		t.Fatal(err)
	}
	return nil
}

func (p *place) isOpen(t testing.TB, change ...func(*approvals.Park)) {
	t.Helper()
	if err := p.open(t, change...); err != nil {
		t.Fatal(err)
	}
}

// closings are the events that say that an actor's way was closed.
func closings(evs []approvals.Event) (out []approvals.Event) {
	for _, e := range evs {
		if e.Kind == "review_closed" {
			out = append(out, e)
		}
	}
	return out
}

func TestDenialsInARowCloseTheWay(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		waits := request(`"waits"`, closing)
		p.park(t, waits)
		yes := p.approved(t, request(`"approved"`, closing))
		p.denied(t, `1`, "ben")
		p.denied(t, `2`, "cleo")
		p.isOpen(t)
		before := time.Now()
		last := p.denied(t, `3`, "ben")

		err := p.open(t)
		want(t, err, approvals.ReviewClosed)
		var no *approvals.NoRoom
		if !errors.As(err, &no) || no.After <= 9*time.Minute || no.After > 10*time.Minute {
			t.Errorf("it doesn't say for how long: %+v", no)
		}
		evs := closings(p.events(t))
		if len(evs) != 1 || evs[0].ID != last.ID || evs[0].Actor != "ana@acme.test" || evs[0].Person != "ben" || evs[0].Row != 3 ||
			evs[0].Until.Sub(before) < 9*time.Minute || evs[0].Until.Sub(before) > 11*time.Minute {
			t.Errorf("the events of the closing: %+v", evs)
		}

		// What is there already goes on.
		again := request(`"waits"`, closing)
		if got, fresh, err := p.Park(t.Context(), again); err != nil || fresh || got.ID != waits.Envelope.OperationID {
			t.Errorf("joining what waits: fresh %v, %v", fresh, err)
		}
		again = request(`3`, closing)
		if got, fresh, err := p.Park(t.Context(), again); err != nil || fresh || got.State != approvals.Denied {
			t.Errorf("a denial that is handed out again: fresh %v, %v", fresh, err)
		}
		r := request(`"approved"`, closing)
		r.Envelope.OperationID = yes.ID
		p.claim(t, r, "n")
		// The same park again, its reply having been lost, is no new card.
		if _, fresh, err := p.Park(t.Context(), waits); err != nil || !fresh {
			t.Errorf("the park sent again: fresh %v, %v", fresh, err)
		}
		nobody := func(r *approvals.Park) { r.AttachOnly = true }
		want(t, p.open(t, nobody), approvals.NotFound)

		// Another actor's way is open, and so is one that no denials close.
		p.isOpen(t, func(r *approvals.Park) { r.Envelope.Call.Actor.ID = "bot" })
		p.isOpen(t, func(r *approvals.Park) { r.Closing = approvals.Closing{} })
	})
}

func TestTheClosingEnds(t *testing.T) {
	p := onMini(t)
	start := time.UnixMilli(time.Now().UnixMilli())
	p.at(start)
	for i := range 3 {
		p.denied(t, fmt.Sprint(i), "ben")
	}
	p.at(start.Add(10*time.Minute - time.Millisecond))
	err := p.open(t)
	var no *approvals.NoRoom
	if !errors.As(err, &no) || no.Why != approvals.ReviewClosed || no.After != time.Millisecond {
		t.Fatal(err)
	}
	p.at(start.Add(10 * time.Minute))
	p.isOpen(t)

	// The row goes on: one more no closes again, a yes ends it.
	p.denied(t, `"again"`, "ben")
	want(t, p.open(t), approvals.ReviewClosed)
	p.at(start.Add(20 * time.Minute))
	p.approved(t, request(`"yes"`, closing))
	for i := range 2 {
		p.denied(t, fmt.Sprint("1", i), "ben")
	}
	p.isOpen(t)
	// A row that nobody added to for a day is forgotten.
	p.mini.FastForward(25 * time.Hour)
	p.at(start.Add(26 * time.Hour))
	for i := range 2 {
		p.denied(t, fmt.Sprint("2", i), "ben")
	}
	p.isOpen(t)
	p.denied(t, `"third"`, "ben")
	want(t, p.open(t), approvals.ReviewClosed)
}

// A yes to a card that waited since before the closing ends the row, and the
// closing stays as long as was said.
func TestAYesDoesNotCutTheClosingShort(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		waits := request(`"waits"`, closing)
		p.park(t, waits)
		for i := range 3 {
			p.denied(t, fmt.Sprint(i), "ben")
		}
		p.decide(t, vote(waits.Envelope.OperationID, "cleo", approvals.Approve))
		want(t, p.open(t), approvals.ReviewClosed)
		if row := p.raw.HExists(t.Context(), p.k.denials("ana@acme.test"), "row").Val(); row {
			t.Error("the row goes on after a yes")
		}
	})
}

// A card of a policy that closes for less does not shorten what another has closed.
func TestAShorterClosingDoesNotCutALongerOneShort(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		short := request(`"short"`, closing, func(r *approvals.Park) { r.Closing.For = time.Second })
		p.park(t, short)
		for i := range 3 {
			p.denied(t, fmt.Sprint(i), "ben")
		}
		p.decide(t, vote(short.Envelope.OperationID, "ben", approvals.Deny))
		err := p.open(t)
		var no *approvals.NoRoom
		if !errors.As(err, &no) || no.After < 9*time.Minute {
			t.Errorf("%v, %+v", err, no)
		}
	})
}

// Only a vote that makes a card denied counts, and only a card that is approved
// ends the row.
func TestWhatIsNoDenial(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		row := func(n string) {
			t.Helper()
			if got := p.raw.HGet(t.Context(), p.k.denials("ana@acme.test"), "row").Val(); got != n {
				t.Fatalf("the row is %q, want %q", got, n)
			}
		}
		first := p.denied(t, `"first"`, "ben")
		row("1")

		// One card is one denial, whoever else says no to it and however often.
		v := vote(first.ID, "ben", approvals.Deny)
		for range 2 {
			_, err := p.Decide(t.Context(), v)
			want(t, err, approvals.AlreadyDecided)
		}
		_, err := p.Decide(t.Context(), vote(first.ID, "cleo", approvals.Deny))
		want(t, err, approvals.AlreadyDecided)
		row("1")

		// Several routes, and somebody who said yes before: still one.
		r := request(`"routes"`, closing, twoRoutes)
		p.park(t, r)
		p.decide(t, vote(r.Envelope.OperationID, "cleo", approvals.Approve))
		row("1") // no quorum yet, so no yes either
		p.decide(t, vote(r.Envelope.OperationID, "cleo", approvals.Deny))
		row("2")

		// Neither counts nor ends the row.
		for _, to := range []approvals.State{approvals.Withdrawn, approvals.Void} {
			gone := request(fmt.Sprintf("%q", to), closing)
			p.park(t, gone)
			if _, err := p.ends(t, gone.Envelope.OperationID, to, "ana@acme.test"); err != nil {
				t.Fatal(err)
			}
		}
		r = request(`"refused"`, closing)
		p.park(t, r)
		_, err = p.Decide(t.Context(), vote(r.Envelope.OperationID, "mallory", approvals.Deny))
		want(t, err, approvals.NotEligible)
		_, err = p.Decide(t.Context(), vote(r.Envelope.OperationID, "ben", approvals.Deny, func(v *approvals.Vote) { v.Refused = approvals.NotEligible }))
		want(t, err, approvals.NotEligible)
		row("2")
		for range 3 { // a remembered no, given again
			if got, fresh, err := p.Park(t.Context(), request(`"first"`, closing)); err != nil || fresh || got.State != approvals.Denied {
				t.Fatal(fresh, err)
			}
		}
		row("2")

		// A card whose policy counts nothing.
		r = request(`"uncounted"`)
		p.park(t, r)
		p.decide(t, vote(r.Envelope.OperationID, "ben", approvals.Deny))
		row("2")
	})
}

func TestExpiryIsNoDenial(t *testing.T) {
	p := onMini(t)
	start := time.UnixMilli(time.Now().UnixMilli())
	p.at(start)
	for i := range 2 {
		p.denied(t, fmt.Sprint(i), "ben")
	}
	r := request(`"late"`, closing)
	p.park(t, r)
	p.at(start.Add(time.Hour))
	_, err := p.Decide(t.Context(), vote(r.Envelope.OperationID, "ben", approvals.Deny))
	want(t, err, approvals.IsExpired)
	p.isOpen(t)
	p.denied(t, `"third"`, "ben")
	want(t, p.open(t), approvals.ReviewClosed)
}

// Two people who say no to each of many cards at once, from two processes: each
// card counts once, and the way is closed by exactly the last of a row.
func TestDenialsAtOnceCountOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		other := p.another(t)
		const cards = 12
		ids := make([]string, cards)
		for i := range ids {
			ids[i] = p.park(t, request(fmt.Sprint(i), closing)).ID
		}
		var won atomic.Int64
		together(4*cards, func(i int) {
			s, person := p.Store, "ben"
			if i%2 == 1 {
				s, person = other, "cleo"
			}
			if _, err := s.Decide(t.Context(), vote(ids[i/4], person, approvals.Deny)); err == nil {
				won.Add(1)
			} else if !errors.Is(err, approvals.AlreadyDecided) {
				t.Error(err)
			}
		})
		if row := p.raw.HGet(t.Context(), p.k.denials("ana@acme.test"), "row").Val(); won.Load() != cards || row != fmt.Sprint(cards) {
			t.Errorf("%d decisions of %d cards, and a row of %s", won.Load(), cards, row)
		}
		evs := closings(p.events(t))
		if len(evs) != cards-2 {
			t.Fatalf("%d closings", len(evs))
		}
		for i, e := range evs {
			if e.Row != i+3 {
				t.Errorf("closing %d says a row of %d", i, e.Row)
			}
		}
	})
}

// New cards and the denial that closes, at once: after the closing's event there is
// no card more.
func TestNoCardAfterTheClosing(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		for i := range 2 {
			p.denied(t, fmt.Sprint("d", i), "ben")
		}
		last := p.park(t, request(`"last"`, closing))
		together(40, func(i int) {
			if i == 20 {
				p.decide(t, vote(last.ID, "ben", approvals.Deny))
				return
			}
			_, _, err := p.Park(t.Context(), request(fmt.Sprint(i), closing))
			if err != nil && !errors.Is(err, approvals.ReviewClosed) {
				t.Error(err)
			}
		})
		closed := false
		for _, e := range p.events(t) {
			closed = closed || e.Kind == "review_closed"
			if closed && e.Kind == "requested" {
				t.Fatal("a card was made after the closing")
			}
		}
		if !closed {
			t.Fatal("nothing was closed")
		}
	})
}

// Whichever reply is lost on the way, or never asked for: one denial, once.
func TestALostDenialCountsOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		h := &loser{}
		s := p.another(t, func(o *Options) { o.Hooks = append(o.Hooks, h) })
		made := 0
		for _, sent := range []bool{true, false} {
			for n := 1; ; n++ {
				r := request(fmt.Sprint(sent, n), closing)
				r.Closing.Denials = 999
				p.park(t, r)
				v := vote(r.Envelope.OperationID, "ben", approvals.Deny)
				h.arm(n, sent)
				_, err := s.Decide(t.Context(), v)
				struck := h.disarm()
				if err != nil && !errors.Is(err, approvals.StoreUnavailable) {
					t.Fatal(err)
				}
				for range 2 {
					if _, err := s.Decide(t.Context(), v); err != nil {
						t.Fatal(err)
					}
				}
				made++
				if row := p.raw.HGet(t.Context(), p.k.denials("ana@acme.test"), "row").Val(); row != fmt.Sprint(made) {
					t.Fatalf("after %d denials, the reply of command %d lost (carried out: %v), the row is %s", made, n, sent, row)
				}
				if !struck {
					break
				}
			}
		}
		if made < 5 {
			t.Fatalf("only %d replies were lost", made)
		}
	})
}

// What another hand put in the place of the count is refused, and nothing is
// written.
func TestABrokenCountOfDenials(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		key := p.k.denials("ana@acme.test")
		r := request(`1`, closing)
		p.park(t, r)
		for _, fields := range [][]any{{"row", "many"}, {"until", "-1"}, {"until", "99999999999999999999"}} {
			p.raw.Del(t.Context(), key)
			p.raw.HSet(t.Context(), key, fields...)
			_, err := p.Decide(t.Context(), vote(r.Envelope.OperationID, "ben", approvals.Deny))
			want(t, err, approvals.StoreUnavailable)
			wantState(t, p.ticket(t, r.Envelope.OperationID), approvals.Pending)
		}
		_, _, err := p.Park(t.Context(), request(`2`, closing))
		want(t, err, approvals.StoreUnavailable)
	})
}

func TestAClosingThatMakesNoSense(t *testing.T) {
	p := onMini(t)
	for _, c := range []approvals.Closing{{Denials: -1}, {Denials: 1}, {Denials: 1, For: 25 * time.Hour}} {
		if _, _, err := p.Park(t.Context(), request(`1`, func(r *approvals.Park) { r.Closing = c })); err == nil {
			t.Errorf("%+v was taken", c)
		}
	}
}
