package daemon

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"
)

// Whatever a drain takes of its time, what comes after it has some left.
func TestADrainDoesNotUseUpTheStop(t *testing.T) {
	end := time.Now().Add(300 * time.Millisecond)
	ctx, cancel := context.WithDeadline(t.Context(), end)
	defer cancel()
	var order []string
	d := &Daemon{}
	d.onStop("the ledger", func(ctx context.Context) error {
		order = append(order, "the ledger")
		if got, _ := ctx.Deadline(); ctx.Err() != nil || !got.Equal(end) {
			t.Errorf("the rest ends at %s, want %s; %v", got, end, ctx.Err())
		}
		return nil
	})
	for _, name := range []string{"the gate", "the edge"} {
		d.onDrain(name, func(ctx context.Context) error {
			order = append(order, name)
			<-ctx.Done() // somebody does not go
			return context.Cause(ctx)
		})
	}
	err := d.Stop(ctx)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "the edge") || !strings.Contains(err.Error(), "the gate") {
		t.Errorf("told as %v", err)
	}
	if got := strings.Join(order, ", "); got != "the edge, the gate, the ledger" {
		t.Errorf("in the order %s", got)
	}
}

// Upstreams that each need their grace are stopped side by side.
func TestTogether(t *testing.T) {
	bad := errors.New("stuck")
	var all sync.WaitGroup
	all.Add(3)
	meet := func(err error) func() error {
		return func() error { all.Done(); all.Wait(); return err } // ends only when all have begun
	}
	if err := together([]func() error{meet(nil), meet(bad), meet(nil)}); !errors.Is(err, bad) {
		t.Errorf("told as %v", err)
	}
}
