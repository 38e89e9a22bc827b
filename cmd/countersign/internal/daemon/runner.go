package daemon

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
)

const (
	runnerEvery = 5 * time.Second
	runningMax  = 64 // runs at once that no caller waits for
)

// runner runs approved calls that are to run without being collected. The clerk
// tells of each one at once; the runner's own looks find those whose teller died.
type runner struct {
	toRun func(ctx context.Context) ([]string, error)
	// run runs one approval; one that is not of this kind or not approved any more
	// is left alone.
	run   func(ctx context.Context, id string) error
	ready func() bool // the store was reached once; before that silence is normal
	log   *slog.Logger

	slots chan struct{} // one for each run under way

	mu     sync.Mutex
	runs   sync.WaitGroup // grows under mu only, and not once ended
	ended  bool           // the loop ends: nothing more is begun
	inHand map[string]bool
	told   map[string]bool // that do not verify, and were logged
}

func newRunner(toRun func(context.Context) ([]string, error), run func(context.Context, string) error, ready func() bool, log *slog.Logger) *runner {
	return &runner{
		toRun: toRun, run: run, ready: ready, log: log,
		slots: make(chan struct{}, runningMax), inHand: map[string]bool{}, told: map[string]bool{},
	}
}

// loop looks until ctx ends, then waits for what was begun. Hints may come
// meanwhile and later; they begin nothing any more.
func (r *runner) loop(ctx context.Context) error {
	for ctx.Err() == nil {
		r.look(ctx)
		rest(ctx, runnerEvery)
	}
	r.mu.Lock()
	r.ended = true
	r.mu.Unlock()
	r.runs.Wait()
	return nil
}

// look begins everything that waits to be run. Where more waits than may run at
// once, it waits too: a call that can't be run must not hide those behind it.
func (r *runner) look(ctx context.Context) {
	ids, err := r.toRun(ctx)
	if err != nil {
		if r.ready() && ctx.Err() == nil {
			r.log.Warn("approved calls are not looked for", "error", err)
		}
		return
	}
	r.forgetAllBut(ids)
	for _, id := range ids {
		select {
		case r.slots <- struct{}{}:
			r.begin(ctx, id)
		case <-ctx.Done():
			return
		}
	}
}

// hint runs an approval that was just approved, if there is room; the next look
// finds it otherwise.
func (r *runner) hint(ctx context.Context, id string) {
	select {
	case r.slots <- struct{}{}:
		r.begin(ctx, id)
	default:
	}
}

// begin starts a run beside the others and gives the slot back at its end.
func (r *runner) begin(ctx context.Context, id string) {
	if !r.take(id) {
		<-r.slots
		return
	}
	go func() {
		defer r.runs.Done()
		defer func() { <-r.slots }()
		defer r.leave(id)
		if err := r.run(ctx, id); errors.Is(err, approvals.Forged) && r.first(id) {
			r.log.Error("an approved call is not run: its record does not verify", "approval", id, "error", err)
		}
	}()
}

func (r *runner) take(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended || r.inHand[id] {
		return false
	}
	r.inHand[id] = true
	r.runs.Add(1)
	return true
}

func (r *runner) leave(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.inHand, id)
}

// first tells whether this approval was not told of yet.
func (r *runner) first(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.told[id] {
		return false
	}
	r.told[id] = true
	return true
}

// forgetAllBut keeps what was told of no longer than it is found.
func (r *runner) forgetAllBut(ids []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	still := make(map[string]bool, len(r.told))
	for _, id := range ids {
		if r.told[id] {
			still[id] = true
		}
	}
	r.told = still
}
