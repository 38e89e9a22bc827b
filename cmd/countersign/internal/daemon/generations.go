package daemon

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/action"
)

const (
	generationEvery = 2 * time.Second // between looks at the newest generation
	generationTime  = 3 * time.Second // for one look or publication
)

// generations publishes this process's policy and sees whether another process has
// published another one since. The last one that is loaded anywhere wins.
type generations struct {
	store interface {
		Publish(ctx context.Context, policy action.Digest, nonce string) (now approvals.Generation, replaced string, err error)
		Generation(ctx context.Context) (approvals.Generation, error)
	}
	log  *slog.Logger
	kick chan struct{} // has room for one: look now

	// One look or publication at a time.
	step sync.Mutex

	mu     sync.Mutex
	policy action.Digest
	nonce  string // of the publication; the same until it is known to be done
	done   bool   // it is
	number uint64 // of the last generation that was this process's policy
	newest approvals.Generation
	behind bool
}

func newGenerations(log *slog.Logger) *generations {
	return &generations{log: log, kick: make(chan struct{}, 1)}
}

// set takes a policy that is to be published with the next look.
func (g *generations) set(policy action.Digest) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.policy, g.nonce, g.done = policy, rand.Text(), false
}

// load takes a policy and publishes it. Where the store can't be reached that is
// done at the next contact; until then the store takes nothing that was judged by
// it.
func (g *generations) load(ctx context.Context, policy action.Digest) {
	g.step.Lock()
	defer g.step.Unlock()
	g.set(policy)
	if err := g.look(ctx); err != nil {
		g.log.Warn("the policy could not be published to the other processes yet; calls that need a yes are refused until it is", "error", err)
		g.soon()
	}
}

// soon has the loop look at once. It never blocks.
func (g *generations) soon() {
	select {
	case g.kick <- struct{}{}:
	default:
	}
}

// run looks now and then, until ctx ends. ready tells whether the store was seen:
// before, its absence says nothing.
func (g *generations) run(ctx context.Context, ready func() bool) error {
	tick := time.NewTicker(generationEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-g.kick:
		}
		if !ready() {
			continue
		}
		if err := g.once(ctx); err != nil && ctx.Err() == nil {
			g.log.Debug("the newest policy is not known", "error", err)
		}
	}
}

// once is one look of its own.
func (g *generations) once(ctx context.Context) error {
	g.step.Lock()
	defer g.step.Unlock()
	return g.look(ctx)
}

// look publishes what is not published, or reads what is the newest.
func (g *generations) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, generationTime)
	defer cancel()
	g.mu.Lock()
	policy, nonce, done := g.policy, g.nonce, g.done
	g.mu.Unlock()
	if !done {
		now, replaced, err := g.store.Publish(ctx, policy, nonce)
		if err != nil {
			return err
		}
		if replaced != "" && now.Policy == policy.Hex() {
			g.log.Warn("this process's policy is the newest now; processes that have another one refuse calls that need a yes until they are reloaded",
				"generation", now.N, "policy", short(now.Policy), "replaced", short(replaced))
		}
		g.saw(now, true)
		return nil
	}
	now, err := g.store.Generation(ctx)
	if err != nil {
		return err
	}
	if g.lost(now) {
		g.log.Warn("the store has forgotten which policy is the newest; this process's is published again", "policy", short(policy.Hex()))
		g.set(policy)
		return g.look(ctx)
	}
	g.saw(now, false)
	return nil
}

// lost tells whether the store went back behind what it had said: the policy was
// the newest, and now an older number stands there.
func (g *generations) lost(now approvals.Generation) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.behind && now.N < g.number && now.Policy != g.policy.Hex()
}

// saw notes what is the newest, and says aloud what changes by it.
func (g *generations) saw(now approvals.Generation, published bool) {
	g.mu.Lock()
	was, last := g.behind, g.newest
	g.done = g.done || published
	g.newest = now
	g.behind = now.Policy != g.policy.Hex()
	if !g.behind {
		g.number = now.N
	}
	behind, own := g.behind, g.policy.Hex()
	g.mu.Unlock()
	switch {
	case behind && (!was || last != now):
		g.log.Error("another process has loaded another policy since: this one refuses calls that need a yes, and runs nothing that was approved; put the newest policy there and reload this process (SIGHUP)",
			"generation", now.N, "newest", short(now.Policy), "loaded", now.At, "this", short(own))
	case was && !behind:
		g.log.Info("this process has the newest policy again", "generation", now.N, "policy", short(own))
	}
}

// state is for the metrics: the newest generation's number, and whether this
// process has another policy.
func (g *generations) state() (newest uint64, behind bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.newest.N, g.behind
}

// ready says why calls that need a yes are refused; nil when they are not.
func (g *generations) ready() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case !g.done:
		return errors.New("policy: not published yet")
	case g.behind:
		return fmt.Errorf("policy: generation %d is of another policy; put the newest one there and reload this process (SIGHUP)", g.newest.N)
	}
	return nil
}

// short is the part of a digest that people compare.
func short(digest string) string { return digest[:min(12, len(digest))] }
