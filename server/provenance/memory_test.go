package provenance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
)

// memory is a store whose answers a test bends. It keeps what it is given as the
// real one does; package store proves that the real one does.
type memory struct {
	mu     sync.Mutex
	kept   map[key]map[string]bool
	down   bool
	lose   bool // carries out what it is asked, and its reply is lost
	forged bool
	asked  int
	wrote  int
	block  chan struct{} // when set, it answers when the caller gives up
}

func newMemory() *memory { return &memory{kept: map[key]map[string]bool{}} }

func (m *memory) Labels(ctx context.Context, actor, session string) ([]string, error) {
	return m.AddLabels(ctx, actor, session, nil)
}

func (m *memory) AddLabels(ctx context.Context, actor, session string, labels []string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked++
	if m.block != nil {
		m.mu.Unlock()
		<-ctx.Done()
		m.mu.Lock()
		return nil, errors.Join(approvals.StoreUnavailable, ctx.Err())
	}
	if m.down {
		return nil, fmt.Errorf("asking: %w", approvals.StoreUnavailable)
	}
	k := key{actor, session}
	if len(labels) > 0 {
		m.wrote++
		if m.kept[k] == nil {
			m.kept[k] = map[string]bool{}
		}
		for _, l := range labels {
			m.kept[k][l] = true
		}
	}
	out := slices.Sorted(maps.Keys(m.kept[k]))
	switch {
	case m.lose:
		return nil, fmt.Errorf("the reply was lost: %w", approvals.StoreUnavailable)
	case m.forged:
		return out, fmt.Errorf("one does not open: %w", approvals.Forged)
	}
	return out, nil
}

func (m *memory) set(change func(*memory)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(m)
}

// clock is a clock that a test moves.
type clock struct{ t time.Time }

func (c *clock) now() time.Time { return c.t }

func (c *clock) forward(d time.Duration) { c.t = c.t.Add(d) }

func sessionsOn(m *memory) (*Sessions, *clock, *bytes.Buffer) {
	var log bytes.Buffer
	s := NewSessions(m, slog.New(slog.NewTextHandler(&log, nil)))
	c := &clock{time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	s.now = c.now
	return s, c, &log
}

const ana = "ana@acme.test"

func wantLabels(t testing.TB, s *Sessions, session string, want ...string) {
	t.Helper()
	if got := s.Labels(context.Background(), ana, session); !slices.Equal(got, want) {
		t.Fatalf("session %q carries %v, want %v", session, got, want)
	}
}
