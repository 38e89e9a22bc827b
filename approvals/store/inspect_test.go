package store

import (
	"errors"
	"strings"
	"testing"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/store/redistest"
)

// A look at the server tells what it is and makes the checks of a start, and
// neither it nor the readings after it leave a key or a consumer group behind.
func TestInspectLeavesNothing(t *testing.T) {
	srv := redistest.Start(t)
	p := own(t, srv)
	seen, err := p.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if seen.Topology != "one node" || !atLeast7(seen.Version) || seen.Eviction != "noeviction" || seen.AOF != "yes" || seen.Fsync == "" || seen.Replicas != "0" {
		t.Errorf("%+v", seen)
	}
	if alive, err := p.NotifierAlive(t.Context()); err != nil || alive {
		t.Errorf("%v, %v", alive, err)
	}
	if list, err := p.List(t.Context(), nil, 10); err != nil || len(list) != 0 {
		t.Errorf("%v, %v", list, err)
	}
	if _, err := p.Pins(t.Context(), "desk"); err != nil {
		t.Error(err)
	}
	if keys := srv.Client().Keys(t.Context(), "*").Val(); len(keys) != 0 {
		t.Errorf("it left %q", keys)
	}
}

// What a start would refuse is refused here.
func TestInspectRefuses(t *testing.T) {
	srv := redistest.Start(t)
	if err := srv.Client().ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err(); err != nil {
		t.Fatal(err)
	}
	var no *Refusal
	if _, err := own(t, srv).Inspect(t.Context()); !errors.As(err, &no) || !strings.Contains(no.Reason, "allkeys-lru") {
		t.Errorf("%v", err)
	}
	srv.Kill()
	if _, err := own(t, srv).Inspect(t.Context()); !errors.Is(err, approvals.StoreUnavailable) || errors.As(err, &no) && no.Reason == "" {
		t.Errorf("%v", err)
	}
}
