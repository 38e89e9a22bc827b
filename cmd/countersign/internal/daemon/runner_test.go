package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
)

// desk is what a runner finds and how often it ran each.
type desk struct {
	mu   sync.Mutex
	ids  []string
	ran  map[string]int
	fail func(ctx context.Context, id string) error
}

func (d *desk) toRun(context.Context) ([]string, error) { return d.ids, nil }

func (d *desk) run(ctx context.Context, id string) error {
	d.mu.Lock()
	d.ran[id]++
	d.mu.Unlock()
	return d.fail(ctx, id)
}

func (d *desk) count(id string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ran[id]
}

func seen() bool { return true }

// However many calls that can't be run stand before it, a call is run in the same
// look.
func TestARunnerPassesTheWholeList(t *testing.T) {
	d := &desk{ran: map[string]int{}, fail: func(context.Context, string) error { return errors.New("the upstream is away") }}
	for i := range 5 * runningMax {
		d.ids = append(d.ids, fmt.Sprint(i))
	}
	r := newRunner(d.toRun, d.run, seen, slog.New(slog.DiscardHandler))
	r.look(t.Context())
	r.runs.Wait()
	for _, id := range d.ids {
		if d.count(id) != 1 {
			t.Fatalf("%s was tried %d times", id, d.count(id))
		}
	}
}

// A run that is under way is not begun again, by a look or by a hint.
func TestARunnerBeginsEachOnce(t *testing.T) {
	release := make(chan struct{})
	d := &desk{ids: []string{"a"}, ran: map[string]int{}, fail: func(context.Context, string) error { <-release; return nil }}
	r := newRunner(d.toRun, d.run, seen, slog.New(slog.DiscardHandler))
	r.look(t.Context())
	r.look(t.Context())
	r.hint(t.Context(), "a")
	close(release)
	r.runs.Wait()
	if d.count("a") != 1 || len(r.slots) != 0 || len(r.inHand) != 0 {
		t.Errorf("begun %d times; %d slots and %d ids are held", d.count("a"), len(r.slots), len(r.inHand))
	}
	r.hint(t.Context(), "a")
	r.runs.Wait()
	if d.count("a") != 2 {
		t.Error("not begun again after its end")
	}
}

// A record that does not verify is told of once while it is found.
func TestABrokenRecordIsToldOnce(t *testing.T) {
	var out bytes.Buffer
	d := &desk{ids: []string{"bad"}, ran: map[string]int{}, fail: func(context.Context, string) error {
		return fmt.Errorf("reading: %w", approvals.Forged)
	}}
	r := newRunner(d.toRun, d.run, seen, slog.New(slog.NewTextHandler(&out, nil)))
	for range 3 {
		r.look(t.Context())
		r.runs.Wait()
	}
	if n := strings.Count(out.String(), "does not verify"); n != 1 {
		t.Errorf("told %d times", n)
	}
	d.ids = nil
	r.look(t.Context())
	if len(r.told) != 0 {
		t.Error("remembered for ever")
	}
}

// A runner with every slot taken ends with its context.
func TestAFullRunnerEnds(t *testing.T) {
	d := &desk{ran: map[string]int{}, fail: func(ctx context.Context, _ string) error { <-ctx.Done(); return ctx.Err() }}
	for i := range runningMax + 5 {
		d.ids = append(d.ids, fmt.Sprint(i))
	}
	r := newRunner(d.toRun, d.run, seen, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { _ = r.loop(ctx); close(ended) }()
	for len(r.slots) < runningMax {
		time.Sleep(time.Millisecond)
	}
	cancel()
	<-ended
}

// Hints that come while the runner ends, and after, begin nothing that outlives
// it: the store is closed then.
func TestNothingOutlivesARunner(t *testing.T) {
	var running sync.WaitGroup
	d := &desk{ran: map[string]int{}, fail: func(ctx context.Context, _ string) error { <-ctx.Done(); return ctx.Err() }}
	for range 50 {
		r := newRunner(d.toRun, d.run, seen, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		running.Go(func() {
			for i := range 20 {
				r.hint(ctx, fmt.Sprint(i))
			}
		})
		ended := make(chan struct{})
		go func() { _ = r.loop(ctx); close(ended) }()
		cancel()
		<-ended
		r.mu.Lock()
		left := len(r.inHand)
		r.mu.Unlock()
		if left != 0 {
			t.Fatalf("%d runs are under way after the end", left)
		}
		r.hint(ctx, "late")
		if d.count("late") != 0 {
			t.Fatal("a late hint began a run")
		}
		running.Wait()
	}
}

func TestBackoff(t *testing.T) {
	for failures, want := range map[int]time.Duration{
		0: time.Second, 1: time.Second, 2: 2 * time.Second, 4: 8 * time.Second, 7: time.Minute, 1000: time.Minute,
	} {
		if got := backoff(failures); got != want {
			t.Errorf("after %d failures: %s, want %s", failures, got, want)
		}
	}
}
