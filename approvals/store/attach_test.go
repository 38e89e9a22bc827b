package store

import (
	"testing"

	"github.com/countersign-mcp/countersign/approvals"
)

// A park that may only attach writes nothing, so the same request may be parked
// after it, and what is there is found also where there is room for nothing more.
func TestAttachOnly(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		one := func(r *approvals.Park) { r.Caps = approvals.Caps{Parked: 1, NewPerHour: 1, Total: 1} }
		r := request(`1`, one)
		only := r
		only.AttachOnly = true
		for range 2 {
			_, _, err := p.Park(t.Context(), only)
			want(t, err, approvals.NotFound)
		}
		if keys := p.raw.Keys(t.Context(), string(p.k)+"a:*").Val(); len(keys) != 0 || len(p.events(t)) != 0 {
			t.Fatalf("it wrote %v", keys)
		}
		tk, fresh, err := p.Park(t.Context(), r)
		if err != nil || !fresh || tk.ID != r.Envelope.OperationID {
			t.Fatalf("parked after it: %s, %t, %v", tk.ID, fresh, err)
		}
		again := request(`1`, one)
		again.AttachOnly = true
		if at, fresh, err := p.Park(t.Context(), again); err != nil || fresh || at.ID != tk.ID {
			t.Errorf("with all caps reached it found %s, %t, %v", at.ID, fresh, err)
		}
		other := request(`2`, one)
		other.AttachOnly = true
		_, _, err = p.Park(t.Context(), other)
		want(t, err, approvals.NotFound)
	})
}
