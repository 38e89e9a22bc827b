package store

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-mcp/countersign/approvals"
)

func TestANudgeForEveryChange(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		ctx := t.Context()
		r := request(`1`)
		id := r.Envelope.OperationID
		p.park(t, r)
		p.decide(t, vote(id, "ben", approvals.Approve))
		g := p.claim(t, r, "n")
		if _, err := p.Finish(ctx, g, approvals.Outcome{State: approvals.Succeeded}); err != nil {
			t.Fatal(err)
		}
		ns, err := p.Nudges(ctx, "a", 10, 0)
		if err != nil || len(ns) != 4 {
			t.Fatalf("%d nudges, %v", len(ns), err)
		}
		for _, n := range ns {
			if n.ID != id {
				t.Fatalf("a nudge for %q", n.ID)
			}
		}
		if none, err := p.another(t).Nudges(ctx, "b", 10, 0); err != nil || len(none) != 0 {
			t.Fatalf("another consumer got %v, %v", none, err)
		}
		for _, n := range ns {
			for range 2 {
				if err := p.Done(ctx, n); err != nil {
					t.Fatal(err)
				}
			}
		}
		if n := p.raw.XLen(ctx, p.k.outbox()).Val(); n != 0 {
			t.Fatalf("%d entries are left", n)
		}
	})
}

// A notifier that died with nudges in hand: another takes them over.
func TestADeadNotifiersNudgesAreTakenOver(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		ctx := t.Context()
		for i := range 3 {
			p.park(t, request(fmt.Sprint(i)))
		}
		dead, err := p.Nudges(ctx, "dead", 10, 0)
		if err != nil || len(dead) != 3 {
			t.Fatalf("%v, %v", dead, err)
		}
		other := p.another(t)
		var got []approvals.Nudge
		until(t, "all are taken over", func() bool {
			ns, err := other.Nudges(ctx, "alive", 10, 5*time.Millisecond)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, ns...)
			return len(got) >= 3
		})
		if d := cmp.Diff(dead, got); d != "" {
			t.Fatal(d)
		}
	}, func(o *Options) { o.NudgeIdle = 100 * time.Millisecond })
}

func TestNudgesWaitForANewOne(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		out := make(chan []approvals.Nudge)
		go func() {
			ns, err := p.Nudges(t.Context(), "a", 10, 20*time.Second)
			if err != nil {
				t.Error(err)
			}
			out <- ns
		}()
		r := request(`1`)
		p.park(t, r)
		if ns := <-out; len(ns) != 1 || ns[0].ID != r.Envelope.OperationID {
			t.Fatalf("got %v", ns)
		}
	})
}

// An event that is not done is given out again, with its number; done, never.
func TestEventsAreKeptUntilDone(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		ctx := t.Context()
		p.park(t, request(`1`))
		first, _, err := p.Events(ctx, "dies", 10, 0)
		if err != nil || len(first) != 1 {
			t.Fatalf("%v, %v", first, err)
		}
		other := p.another(t)
		var again []approvals.Event
		var ids []string
		until(t, "the event comes again", func() bool {
			if again, ids, err = other.Events(ctx, "lives", 10, 5*time.Millisecond); err != nil {
				t.Fatal(err)
			}
			return len(again) > 0
		})
		if d := cmp.Diff(first, again); d != "" {
			t.Fatal(d)
		}
		if err := other.EventsDone(ctx, ids...); err != nil {
			t.Fatal(err)
		}
		if err := other.Head(ctx, "h1", "file-a 3 abc"); err != nil {
			t.Fatal(err)
		}
		if err := other.Head(ctx, "h1", "file-a 3 abc"); err != nil {
			t.Fatal(err)
		}
		evs, _, err := other.Events(ctx, "lives", 10, 0)
		if err != nil || len(evs) != 1 || evs[0].Kind != "head" || evs[0].Seq != 2 || evs[0].Text != "file-a 3 abc" {
			t.Fatalf("%+v, %v", evs, err)
		}
	}, func(o *Options) { o.NudgeIdle = 50 * time.Millisecond })
}

func TestMarksMoveNothing(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		ctx := t.Context()
		tk := p.park(t, request(`1`))
		left, _ := p.Nudges(ctx, "a", 10, 0)
		if len(left) != 1 {
			t.Fatal(left)
		}
		const ch = "slack:C1"
		mark := func(m approvals.Mark) {
			t.Helper()
			m.Channel = ch
			if err := p.Mark(ctx, tk.ID, m); err != nil {
				t.Fatal(err)
			}
		}
		attempt := func(want string) {
			t.Helper()
			if got, err := p.Attempt(ctx, tk.ID, ch); err != nil || got != want {
				t.Fatalf("the attempt is %q, %v; want %q", got, err, want)
			}
		}
		attempt("")
		mark(approvals.Mark{Attempt: "a1"})
		attempt("a1")
		trouble := approvals.Trouble{Channel: ch, Reason: "timeout", Tries: 2, At: time.Now().UTC().Truncate(time.Second)}
		mark(approvals.Mark{Trouble: &trouble})
		attempt("a1")
		got := p.ticket(t, tk.ID)
		if d := cmp.Diff([]approvals.Trouble{trouble}, got.Troubles); d != "" || got.Delivered() {
			t.Fatal(d)
		}
		ref := approvals.Ref{Channel: ch, ID: "C1/1.2", Rev: 1, URL: "https://x"}
		mark(approvals.Mark{Ref: &ref})
		attempt("")
		got = p.ticket(t, tk.ID)
		if d := cmp.Diff([]approvals.Ref{ref}, got.Refs); d != "" || len(got.Troubles) != 0 {
			t.Fatal(d)
		}
		if got.Rev != tk.Rev {
			t.Error("a mark moved Rev")
		}
		if ns, _ := p.Nudges(ctx, "a", 10, 0); len(ns) != 0 {
			t.Error("a mark made a nudge")
		}
		if evs := p.events(t); len(evs) != 1 {
			t.Error("a mark made an event")
		}
		err := p.Mark(ctx, "no-such", approvals.Mark{Channel: ch, Attempt: "x"})
		want(t, err, approvals.NotFound)
		if p.raw.Exists(ctx, p.k.record("no-such")).Val() != 0 {
			t.Error("a mark made a record")
		}
	})
}

func TestOneNotifierTells(t *testing.T) {
	p := onMini(t)
	start := time.UnixMilli(time.Now().UnixMilli())
	p.at(start)
	ctx := t.Context()
	lease := func(owner string, want bool) {
		t.Helper()
		if ok, err := p.Lease(ctx, "op", owner, 30*time.Second); err != nil || ok != want {
			t.Fatalf("%s: %v, %v", owner, ok, err)
		}
	}
	lease("a", true)
	lease("b", false)
	lease("a", true)
	p.at(start.Add(30*time.Second - time.Millisecond))
	lease("b", false)
	p.at(start.Add(30 * time.Second))
	lease("b", true)
	lease("a", false)
	if err := p.Unlease(ctx, "op", "a"); err != nil {
		t.Fatal(err)
	}
	lease("a", false)
	if err := p.Unlease(ctx, "op", "b"); err != nil {
		t.Fatal(err)
	}
	lease("a", true)
}

func TestANotifierIsAliveForTenSeconds(t *testing.T) {
	p := onMini(t)
	start := time.UnixMilli(time.Now().UnixMilli())
	p.at(start)
	alive := func(want bool) {
		t.Helper()
		if got, err := p.NotifierAlive(t.Context()); err != nil || got != want {
			t.Fatalf("%v, %v", got, err)
		}
	}
	alive(false)
	if err := p.Alive(t.Context()); err != nil {
		t.Fatal(err)
	}
	alive(true)
	p.at(start.Add(10*time.Second - time.Millisecond))
	alive(true)
	p.at(start.Add(10 * time.Second))
	alive(false)
}

// A card that was lost sight of and met again is brought up to date, also when
// nothing else will happen to the approval; two cards don't forget each other.
func TestAdoptedMessages(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		r := request(`{}`)
		tk := p.park(t, r)
		ch := tk.Channels[0]
		drain := func() (n int) {
			list, err := p.Nudges(t.Context(), "n", 100, time.Millisecond)
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range list {
				if err := p.Done(t.Context(), x); err != nil {
					t.Fatal(err)
				}
			}
			return len(list)
		}
		ids := func() (out []string) {
			for _, ref := range p.ticket(t, tk.ID).Refs {
				out = append(out, ref.ID)
			}
			return out
		}
		mark := func(m approvals.Mark) {
			m.Channel = ch
			if err := p.Mark(t.Context(), tk.ID, m); err != nil {
				t.Fatal(err)
			}
		}
		adopt := func(id string) error {
			return p.Adopt(t.Context(), tk.ID, approvals.Ref{Channel: ch, ID: id})
		}
		if _, err := p.End(t.Context(), tk.ID, approvals.Withdrawn, "", "ana", ""); err != nil {
			t.Fatal(err)
		}
		drain()
		if err := adopt("C/1"); err != nil || drain() != 1 {
			t.Fatalf("a lost card of an ended approval makes no nudge: %v", err)
		}
		if err := adopt("C/1"); err != nil || drain() != 0 {
			t.Fatalf("a known card was adopted again: %v", err)
		}
		if err := adopt("C/2"); err != nil || drain() != 1 || !slices.Equal(ids(), []string{"C/1", "C/2"}) {
			t.Fatalf("the second card: %v %v", err, ids())
		}
		mark(approvals.Mark{Ref: &approvals.Ref{Channel: ch, ID: "C/2", Rev: 7}})
		if refs := p.ticket(t, tk.ID).Refs; len(refs) != 2 || refs[0].Rev != 0 || refs[1].Rev != 7 {
			t.Fatalf("an edit of one card touched the other: %+v", refs)
		}
		mark(approvals.Mark{Gone: "C/1"})
		if !slices.Equal(ids(), []string{"C/2"}) {
			t.Fatalf("the deleted card is still there: %v", ids())
		}
		mark(approvals.Mark{Gone: "C/9"})
		if !slices.Equal(ids(), []string{"C/2"}) {
			t.Fatalf("another card went: %v", ids())
		}
		for i := range maxAdopted + 1 {
			if err := adopt(fmt.Sprintf("C/1%d", i)); err != nil && i <= maxAdopted-2 {
				t.Fatal(err)
			}
		}
		if err := adopt("C/99"); !errors.Is(err, approvals.TooMany) {
			t.Fatalf("any number of cards: %v, %v", err, ids())
		}
		if err := p.Adopt(t.Context(), "op-nobody", approvals.Ref{Channel: ch, ID: "C/1"}); !errors.Is(err, approvals.NotFound) {
			t.Fatal(err)
		}
	})
}
