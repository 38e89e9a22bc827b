package store

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-mcp/countersign/approvals"
)

func byItself(r *approvals.Park) { r.Run = "on_approve"; loose(r) }

func loose(r *approvals.Park) { r.Caps = approvals.Caps{Parked: 1e6, NewPerHour: 1e6, Total: 1e6} }

func (p *place) toRun(t *testing.T) []string {
	t.Helper()
	ids, err := p.Store.ToRun(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// What runs by itself is found among any number of others, from its approval to
// its claim or its other end and no longer.
func TestWhatRunsByItselfIsFoundWhileItIsApproved(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		one := request(`"one"`, byItself)
		p.park(t, one)
		if ids := p.toRun(t); len(ids) != 0 {
			t.Fatalf("found before anybody agreed: %v", ids)
		}
		p.decide(t, vote(one.Envelope.OperationID, "ben", approvals.Approve))
		for i := range 210 {
			p.approved(t, request(fmt.Sprint(i), loose))
		}
		want := []string{one.Envelope.OperationID}
		if d := cmp.Diff(want, p.toRun(t)); d != "" {
			t.Fatal(d)
		}
		// One that does not open keeps its place and hides nothing.
		bad := request(`"bad"`, byItself)
		p.approved(t, bad)
		p.set(t, bad.Envelope.OperationID, "f", "not sealed by us")
		if ids := p.toRun(t); !slices.Contains(ids, want[0]) || len(ids) != 2 {
			t.Fatalf("beside a broken record: %v", ids)
		}
		g := p.claim(t, one, "n")
		if ids := p.toRun(t); slices.Contains(ids, g.ID) {
			t.Fatal("a claimed one is found")
		}
		gone := request(`"gone"`, byItself)
		p.approved(t, gone)
		if _, err := p.End(t.Context(), gone.Envelope.OperationID, approvals.Revoked, "", "ben", ""); err != nil {
			t.Fatal(err)
		}
		if ids := p.toRun(t); slices.Contains(ids, gone.Envelope.OperationID) {
			t.Fatal("a revoked one is found")
		}
	})
}

func TestWhatRunsByItselfIsForgottenWhenItLapses(t *testing.T) {
	p := onMini(t)
	start := time.UnixMilli(time.Now().UnixMilli())
	p.at(start)
	late, soon := request(`"late"`, byItself), request(`"soon"`, byItself)
	p.approved(t, soon)
	p.at(start.Add(time.Minute))
	p.approved(t, late)
	want := []string{soon.Envelope.OperationID, late.Envelope.OperationID}
	if d := cmp.Diff(want, p.toRun(t)); d != "" {
		t.Fatal(d)
	}
	// Also a record that does not open lapses, and leaves its place.
	p.set(t, soon.Envelope.OperationID, "f", "not sealed by us")
	p.at(start.Add(2 * time.Hour))
	if _, err := p.Sweep(t.Context(), 100); err != nil {
		t.Fatal(err)
	}
	if ids := p.toRun(t); len(ids) != 0 {
		t.Fatalf("lapsed and found: %v", ids)
	}
}
