package daemon

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/action"
)

// onePlace is the store's part in generations, for several processes.
type onePlace struct {
	now    approvals.Generation
	nonces map[string]bool
	down   error
}

func (p *onePlace) Publish(_ context.Context, policy action.Digest, nonce string) (approvals.Generation, string, error) {
	if p.down != nil {
		return approvals.Generation{}, "", p.down
	}
	replaced := ""
	if !p.nonces[nonce] && p.now.Policy != policy.Hex() {
		replaced = p.now.Policy
		p.now = approvals.Generation{N: p.now.N + 1, Policy: policy.Hex(), At: time.Unix(1, 0)}
	}
	p.nonces[nonce] = true
	return p.now, replaced, nil
}

func (p *onePlace) Generation(context.Context) (approvals.Generation, error) { return p.now, p.down }

func process(p *onePlace) (*generations, *kept) {
	log := &kept{}
	g := newGenerations(slog.New(slog.NewTextHandler(log, nil)))
	g.store = p
	return g, log
}

var (
	oneDigest = action.Sum("policy", []byte("one"))
	twoDigest = action.Sum("policy", []byte("two"))
)

// The last one to load wins, and both sides say so, once.
func TestTheLastLoaderWins(t *testing.T) {
	p := &onePlace{nonces: map[string]bool{}}
	a, aLog := process(p)
	b, bLog := process(p)
	look := func(g *generations) {
		t.Helper()
		if err := g.once(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	a.load(t.Context(), oneDigest)
	if n, behind := a.state(); n != 1 || behind || a.ready() != nil {
		t.Fatalf("generation %d, behind %t, %v", n, behind, a.ready())
	}
	b.load(t.Context(), twoDigest)
	for range 3 {
		look(a)
		look(b)
	}
	if _, behind := a.state(); !behind || a.ready() == nil || !strings.Contains(a.ready().Error(), "SIGHUP") {
		t.Errorf("the first: behind %t, %v", behind, a.ready())
	}
	if n := strings.Count(aLog.String(), "another process has loaded another policy since"); n != 1 {
		t.Errorf("the first said it %d times", n)
	}
	if n := strings.Count(bLog.String(), "this process's policy is the newest now"); n != 1 {
		t.Errorf("the second said it %d times", n)
	}
	// Neither goes on to publish by itself; a reload of the old file wins again.
	if p.now.N != 2 {
		t.Fatalf("generation %d", p.now.N)
	}
	a.load(t.Context(), oneDigest)
	look(b)
	if _, behind := b.state(); !behind || p.now.N != 3 {
		t.Errorf("generation %d; the second is behind: %t", p.now.N, behind)
	}
	// The other file, at last.
	b.load(t.Context(), oneDigest)
	if _, behind := b.state(); behind || p.now.N != 3 {
		t.Errorf("generation %d, behind %t", p.now.N, behind)
	}
	if !strings.Contains(bLog.String(), "has the newest policy again") {
		t.Error("the second does not say that it has caught up")
	}
}

// Without the store a policy is loaded all the same, and published when the store
// is back.
func TestPublishedAtTheNextContact(t *testing.T) {
	p := &onePlace{nonces: map[string]bool{}, down: errors.New("down")}
	g, log := process(p)
	g.load(t.Context(), oneDigest)
	if g.ready() == nil || !strings.Contains(log.String(), "could not be published") || len(g.kick) != 1 {
		t.Errorf("%v", g.ready())
	}
	p.down = nil
	if err := g.once(t.Context()); err != nil || g.ready() != nil || p.now.Policy != oneDigest.Hex() {
		t.Errorf("%v, %v", err, g.ready())
	}
}

// A store that lost its memory is told again by who had the newest policy, and by
// nobody else.
func TestAForgottenGenerationIsPublishedAgain(t *testing.T) {
	p := &onePlace{nonces: map[string]bool{}}
	behind, _ := process(p)
	behind.load(t.Context(), oneDigest)
	newest, log := process(p)
	newest.load(t.Context(), twoDigest)
	if err := behind.once(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.now, p.nonces = approvals.Generation{}, map[string]bool{}
	for _, g := range []*generations{behind, behind, newest, behind} {
		if err := g.once(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if p.now.Policy != twoDigest.Hex() || !strings.Contains(log.String(), "has forgotten") {
		t.Errorf("the newest is %s", p.now.Policy)
	}
	// One that went back to an older generation, too.
	p.now = approvals.Generation{N: 0, Policy: oneDigest.Hex()}
	if err := newest.once(t.Context()); err != nil || p.now.Policy != twoDigest.Hex() {
		t.Errorf("%s, %v", p.now.Policy, err)
	}
}

func TestRunLooksWhenItIsKicked(t *testing.T) {
	p := &onePlace{nonces: map[string]bool{}}
	g, _ := process(p)
	g.set(oneDigest)
	ctx, stop := context.WithCancel(t.Context())
	looked := make(chan struct{})
	done := make(chan error, 1)
	go func() {
		done <- g.run(ctx, func() bool {
			select {
			case looked <- struct{}{}:
			default:
			}
			return true
		})
	}()
	g.soon()
	<-looked
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
