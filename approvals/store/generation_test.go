package store

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/action"
)

var (
	oldPolicy = action.Sum("policy", []byte("old"))
	newPolicy = action.Sum("policy", []byte("new"))
)

func judgedBy(d action.Digest) func(*approvals.Park) {
	return func(p *approvals.Park) { p.Envelope.Policy = d }
}

func (p *place) publish(t testing.TB, d action.Digest) approvals.Generation {
	t.Helper()
	g, _, err := p.Publish(t.Context(), d, newID())
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestOnlyTheNewestPolicyCounts(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		ctx := t.Context()
		behind := p.another(t)
		if g, err := p.Generation(ctx); err != nil || g.N != 0 {
			t.Fatalf("before the first: %v, %v", g, err)
		}
		p.publish(t, oldPolicy)
		r := request(`1`, judgedBy(oldPolicy))
		tk := p.approved(t, r)
		waits := request(`2`, judgedBy(oldPolicy))
		p.park(t, waits)
		p.publish(t, newPolicy)

		// A process that never heard of generations is told in the step itself.
		for _, s := range []*Store{p.Store, behind} {
			_, _, err := s.Park(ctx, request(`3`, judgedBy(oldPolicy)))
			want(t, err, approvals.Behind)
			_, err = s.Claim(ctx, tk.ID, tk.Rev, r.Envelope.Digest(), newID(), oldPolicy)
			want(t, err, approvals.Behind)
			_, err = s.Void(ctx, tk.ID, "policy", oldPolicy)
			want(t, err, approvals.Behind)
			if got, fresh, err := s.Park(ctx, request(`2`, judgedBy(oldPolicy))); err != nil || fresh || got.ID != waits.Envelope.OperationID {
				t.Fatalf("attaching takes no policy: %s, fresh %v, %v", got.ID, fresh, err)
			}
		}
		wantState(t, p.ticket(t, tk.ID), approvals.Approved)
		// A caller may always take back what it asked for.
		if _, err := behind.End(ctx, waits.Envelope.OperationID, approvals.Withdrawn, "cancelled", "ana@acme.test", ""); err != nil {
			t.Fatal(err)
		}
		if _, err := behind.Claim(ctx, tk.ID, tk.Rev, r.Envelope.Digest(), "n", newPolicy); err != nil {
			t.Fatal(err)
		}
	})
}

// A claim that was won is told as won, whatever was published since.
func TestAWonClaimStaysWon(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		p.publish(t, oldPolicy)
		r := request(`1`, judgedBy(oldPolicy))
		tk := p.approved(t, r)
		claim := func() error {
			_, err := p.Claim(t.Context(), tk.ID, tk.Rev, r.Envelope.Digest(), "n", oldPolicy)
			return err
		}
		if err := claim(); err != nil {
			t.Fatal(err)
		}
		p.publish(t, newPolicy)
		if err := claim(); err != nil {
			t.Errorf("the same claim again: %v", err)
		}
	})
}

func TestPublishing(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		ctx := t.Context()
		first, replaced, err := p.Publish(ctx, oldPolicy, "n1")
		if err != nil || first.N != 1 || replaced != "" || first.Policy != oldPolicy.Hex() || first.At.IsZero() {
			t.Fatalf("the first: %v, %q, %v", first, replaced, err)
		}
		same, replaced, err := p.Publish(ctx, oldPolicy, "n2")
		if err != nil || same != first || replaced != "" {
			t.Fatalf("the same policy: %v, %q, %v", same, replaced, err)
		}
		second, replaced, err := p.Publish(ctx, newPolicy, "n3")
		if err != nil || second.N != 2 || replaced != oldPolicy.Hex() {
			t.Fatalf("another: %v, %q, %v", second, replaced, err)
		}
		// Neither of the first two may come back by a packet that was late.
		for _, nonce := range []string{"n1", "n2"} {
			late, replaced, err := p.Publish(ctx, oldPolicy, nonce)
			if err != nil || late != second || replaced != "" {
				t.Fatalf("%s again: %v, %q, %v", nonce, late, replaced, err)
			}
		}
		if now, err := p.Generation(ctx); err != nil || now != second {
			t.Fatalf("the newest: %v, %v", now, err)
		}
		third := p.publish(t, oldPolicy)
		if third.N != 3 || third.Policy != oldPolicy.Hex() {
			t.Fatalf("an older policy is put back: %v", third)
		}
		if _, _, err := p.Publish(ctx, action.Digest{}, "n"); err == nil {
			t.Error("no policy was published")
		}
	})
}

// A generation that the server lost is missed by whoever knew it: nothing is
// parked until a policy is published again.
func TestALostGenerationIsMissed(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		p.publish(t, oldPolicy)
		p.raw.Del(t.Context(), p.k.generation())
		_, _, err := p.Park(t.Context(), request(`1`, judgedBy(oldPolicy)))
		want(t, err, approvals.Behind)
		if g, err := p.Generation(t.Context()); err != nil || g.N != 0 {
			t.Fatalf("%v, %v", g, err)
		}
		p.publish(t, oldPolicy)
		p.park(t, request(`1`, judgedBy(oldPolicy)))
	})
}

// Fifty publish one of two policies at once: the numbers have no gap, and what is
// parked meanwhile was judged by the policy that was the newest at that step.
func TestFiftyPublishers(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		p.publish(t, oldPolicy)
		var made, parked atomic.Int64
		together(50, func(i int) {
			d := []action.Digest{oldPolicy, newPolicy}[i%2]
			_, replaced, err := p.Publish(t.Context(), d, fmt.Sprint("n", i))
			if err != nil {
				t.Error(err)
			}
			if replaced != "" {
				made.Add(1)
			}
			_, _, err = p.Park(t.Context(), request(fmt.Sprint(i), judgedBy(d), loose))
			if err == nil {
				parked.Add(1)
			} else if !errors.Is(err, approvals.Behind) {
				t.Error(err)
			}
		})
		g, err := p.Generation(t.Context())
		if err != nil || g.N != uint64(made.Load())+1 {
			t.Fatalf("generation %d after %d changes, %v", g.N, made.Load(), err)
		}
		if parked.Load() == 0 {
			t.Error("nobody was the newest")
		}
	})
}

func TestABrokenGenerationIsTold(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		tk := p.approved(t, request(`1`))
		p.raw.Set(t.Context(), p.k.generation(), "x", 0)
		_, _, err := p.Park(t.Context(), request(`2`))
		want(t, err, approvals.StoreUnavailable)
		_, err = p.Void(t.Context(), tk.ID, "policy", noPolicy)
		want(t, err, approvals.StoreUnavailable)
		_, _, err = p.Publish(t.Context(), newPolicy, "n")
		want(t, err, approvals.StoreUnavailable)
		_, err = p.Generation(t.Context())
		want(t, err, approvals.StoreUnavailable)
	})
}

// Whatever reply of a publication is lost, sending it again publishes once; and
// once another has published, not at all.
func TestALostPublication(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		lose := &loser{}
		p.rdb.AddHook(lose)
		policies := []action.Digest{oldPolicy, newPolicy}
		count := uint64(0)
		for _, sent := range []bool{false, true} {
			struck := true
			for n := 1; struck; n++ {
				d, nonce := policies[n%2], newID()
				if now, err := p.Generation(t.Context()); err != nil || now.Policy == d.Hex() {
					p.publish(t, policies[(n+1)%2])
					count++
				}
				lose.arm(n, sent)
				_, _, err := p.Publish(t.Context(), d, nonce)
				struck = lose.disarm()
				if err != nil && !errors.Is(err, approvals.StoreUnavailable) {
					t.Fatalf("command %d: the loss is told as %v", n, err)
				}
				now, _, err := p.Publish(t.Context(), d, nonce)
				count++
				if err != nil || now.Policy != d.Hex() || now.N != count {
					t.Fatalf("command %d, carried out %v: again: generation %d, want %d, %v", n, sent, now.N, count, err)
				}
				other := p.publish(t, policies[(n+1)%2])
				count++
				if late, _, err := p.Publish(t.Context(), d, nonce); err != nil || late != other {
					t.Fatalf("command %d: late: %v, %v", n, late, err)
				}
			}
		}
	})
}
