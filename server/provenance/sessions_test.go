package provenance

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestSessionsAreShared(t *testing.T) {
	m := newMemory()
	a, _, _ := sessionsOn(m)
	b, _, _ := sessionsOn(m)
	wantLabels(t, a, "s")
	a.Add(t.Context(), ana, "s", []string{"session:retrieved"})
	b.Add(t.Context(), ana, "s", []string{"session:model"})
	wantLabels(t, a, "s", "session:model", "session:retrieved")
	wantLabels(t, b, "s", "session:model", "session:retrieved")
	wantLabels(t, a, "other")
	if got := a.Labels(t.Context(), "eve@acme.test", "s"); got != nil {
		t.Errorf("another actor's: %v", got)
	}
	if m.wrote != 2 {
		t.Errorf("%d writes for two labels", m.wrote)
	}
}

func TestAStoreThatIsDown(t *testing.T) {
	m := newMemory()
	s, c, log := sessionsOn(m)
	s.Add(t.Context(), ana, "s", []string{"session:model"})
	m.set(func(m *memory) { m.down = true })
	wantLabels(t, s, "s", "session:model", Unknown)
	s.Add(t.Context(), ana, "s", []string{"session:retrieved"})
	wantLabels(t, s, "s", "session:model", "session:retrieved", Unknown)
	wantLabels(t, s, "new", Unknown)
	if s.Pending() != 1 {
		t.Errorf("%d are pending", s.Pending())
	}
	// It is left alone for a moment, so that callers don't wait for it in turn.
	asked := m.asked
	for range 10 {
		wantLabels(t, s, "new", Unknown)
	}
	if m.asked != asked {
		t.Errorf("asked %d times more", m.asked-asked)
	}
	c.forward(pause)
	wantLabels(t, s, "new", Unknown)
	if m.asked != asked+1 {
		t.Errorf("asked %d times after the pause", m.asked-asked)
	}
	if n := strings.Count(log.String(), "level=WARN"); n != 1 {
		t.Errorf("said %d times:\n%s", n, log)
	}
	if err := s.Flush(t.Context()); err == nil || s.Pending() != 1 {
		t.Errorf("flushed into nothing: %v", err)
	}
	m.set(func(m *memory) { m.down = false })
	if err := s.Flush(t.Context()); err != nil || s.Pending() != 0 {
		t.Errorf("Flush: %v, %d pending", err, s.Pending())
	}
	c.forward(settle)
	wantLabels(t, s, "s", "session:model", "session:retrieved")
	wantLabels(t, s, "new")
	fresh, _, _ := sessionsOn(m)
	wantLabels(t, fresh, "s", "session:model", "session:retrieved")
	if !strings.Contains(log.String(), "can be kept again") {
		t.Errorf("its return is not said:\n%s", log)
	}
	if strings.Contains(log.String(), "session:") {
		t.Errorf("labels in the log:\n%s", log)
	}
}

// What is pending is written by the next question, too.
func TestTheNextQuestionWrites(t *testing.T) {
	m := newMemory()
	s, c, _ := sessionsOn(m)
	m.set(func(m *memory) { m.down = true })
	s.Add(t.Context(), ana, "s", []string{"session:retrieved"})
	m.set(func(m *memory) { m.down = false })
	c.forward(pause)
	wantLabels(t, s, "s", "session:retrieved", Unknown)
	c.forward(settle)
	wantLabels(t, s, "s", "session:retrieved")
	fresh, _, _ := sessionsOn(m)
	wantLabels(t, fresh, "s", "session:retrieved")
}

func TestALostReply(t *testing.T) {
	m := newMemory()
	s, c, _ := sessionsOn(m)
	m.set(func(m *memory) { m.lose = true })
	s.Add(t.Context(), ana, "s", []string{"session:retrieved"})
	wantLabels(t, s, "s", "session:retrieved", Unknown)
	m.set(func(m *memory) { m.lose = false })
	c.forward(pause)
	wantLabels(t, s, "s", "session:retrieved", Unknown)
	c.forward(settle)
	wantLabels(t, s, "s", "session:retrieved")
	if s.Pending() != 0 {
		t.Error("still pending")
	}
}

// A caller who leaves loses nothing, and makes nobody believe that the store is
// down.
func TestACallerWhoLeaves(t *testing.T) {
	m := newMemory()
	s, _, log := sessionsOn(m)
	left, cancel := context.WithCancel(t.Context())
	cancel()
	s.Add(left, ana, "s", []string{"session:retrieved"})
	if m.wrote != 1 {
		t.Error("the label was not written")
	}
	m.set(func(m *memory) { m.block = make(chan struct{}) })
	if got := s.Labels(left, ana, "s"); !slices.Equal(got, []string{"session:retrieved", Unknown}) {
		t.Errorf("got %v", got)
	}
	m.set(func(m *memory) { m.block = nil })
	wantLabels(t, s, "s", "session:retrieved") // at once
	if log.Len() > 0 {
		t.Errorf("said: %s", log)
	}
}

// A store that hangs costs one caller its patience, not every one.
func TestAStoreThatHangs(t *testing.T) {
	m := newMemory()
	s, _, _ := sessionsOn(m)
	m.set(func(m *memory) { m.block = make(chan struct{}) })
	wantLabels(t, s, "s", Unknown)
	wantLabels(t, s, "s", Unknown)
	if m.asked != 1 {
		t.Errorf("asked %d times", m.asked)
	}
}

func TestForgedLabelsAreLoudAndUnknown(t *testing.T) {
	m := newMemory()
	s, _, log := sessionsOn(m)
	s.Add(t.Context(), ana, "s", []string{"session:retrieved"})
	m.set(func(m *memory) { m.forged = true })
	for range 3 {
		wantLabels(t, s, "s", "session:retrieved", Unknown)
	}
	if n := strings.Count(log.String(), "level=ERROR"); n != 1 || !strings.Contains(log.String(), "do not verify") {
		t.Errorf("said %d times:\n%s", n, log)
	}
	m.set(func(m *memory) { m.forged = false })
	wantLabels(t, s, "s", "session:retrieved") // the store is asked all the time
	m.set(func(m *memory) { m.forged = true })
	wantLabels(t, s, "s", "session:retrieved", Unknown)
	if n := strings.Count(log.String(), "level=ERROR"); n != 2 {
		t.Errorf("forged once more, and said %d times", n)
	}
	m.set(func(m *memory) { m.kept = map[key]map[string]bool{} })
	wantLabels(t, s, "never seen", Unknown)
}

// What another hand took out of the store is put back.
func TestLabelsThatVanish(t *testing.T) {
	m := newMemory()
	s, _, _ := sessionsOn(m)
	s.Add(t.Context(), ana, "s", []string{"session:retrieved"})
	m.set(func(m *memory) { m.kept = map[key]map[string]bool{} })
	wantLabels(t, s, "s", "session:retrieved")
	fresh, _, _ := sessionsOn(m)
	wantLabels(t, fresh, "s", "session:retrieved")
}

func TestSessionsEnd(t *testing.T) {
	m := newMemory()
	s, c, _ := sessionsOn(m)
	s.Add(t.Context(), ana, "s", []string{"session:retrieved"})
	c.forward(TTL - time.Minute)
	wantLabels(t, s, "s", "session:retrieved")
	c.forward(TTL - time.Minute)
	wantLabels(t, s, "s", "session:retrieved")
	c.forward(TTL + time.Minute)
	m.set(func(m *memory) { m.kept = map[key]map[string]bool{} }) // as the store's own clock does
	wantLabels(t, s, "s")
	// What was never written does not end.
	m.set(func(m *memory) { m.down = true })
	s.Add(t.Context(), ana, "s", []string{"session:model"})
	c.forward(2 * TTL)
	wantLabels(t, s, "s", "session:model", Unknown)
}

// Memory is bounded. What the store has may go; what it hasn't stays, and where
// there is no room left nothing is taken for clean.
func TestNoRoom(t *testing.T) {
	m := newMemory()
	s, c, log := sessionsOn(m)
	s.most = 8
	for i := range 100 {
		s.Add(t.Context(), ana, fmt.Sprint("s", i), []string{"session:retrieved"})
		c.forward(time.Millisecond)
	}
	if n := len(s.known); n > 8 {
		t.Errorf("%d are remembered", n)
	}
	wantLabels(t, s, "s0", "session:retrieved")
	m.set(func(m *memory) { m.down = true })
	wantLabels(t, s, "s1", Unknown)
	for i := range 20 {
		s.Add(t.Context(), ana, fmt.Sprint("n", i), []string{"session:model"})
	}
	if n := len(s.known); n > 8 {
		t.Errorf("%d are remembered", n)
	}
	if n := strings.Count(log.String(), "level=ERROR"); n != 1 {
		t.Errorf("said %d times:\n%s", n, log)
	}
	m.set(func(m *memory) { m.down = false })
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.forward(settle)
	wantLabels(t, s, "n0", "session:model")
	wantLabels(t, s, "n19", Unknown) // it was lost, and nobody can tell it from others
	s.Add(t.Context(), ana, "n19", []string{"session:retrieved"})
	wantLabels(t, s, "n19", "session:retrieved", Unknown) // what it had before is lost still
	c.forward(TTL + time.Minute)
	wantLabels(t, s, "n19", "session:retrieved")
}

// Over any sequence of results, outages, lost replies, forgeries and restarts, on
// two processes: what a session was given it carries, or it is unknown. A process
// that dies while the store is down is the one exception, and not among the steps.
func TestLabelsNeverShrink(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newMemory()
		var procs [2]*Sessions
		var clocks [2]*clock
		start := func(i int) { procs[i], clocks[i], _ = sessionsOn(m) }
		start(0)
		start(1)
		procs[0].most = rapid.IntRange(1, 4).Draw(t, "room")
		given := map[string]map[string]bool{}
		sessions := []string{"", "a", "b", "c", "d", "e"}
		who := rapid.IntRange(0, 1)
		check := func(t *rapid.T) {
			for i, p := range procs {
				for _, s := range sessions {
					got := p.Labels(context.Background(), ana, s)
					if slices.Contains(got, Unknown) {
						continue
					}
					for l := range given[s] {
						// The other process may hold what is not written yet, or have had
						// no room for it.
						other := procs[1-i]
						if !slices.Contains(got, l) && other.Pending() == 0 && !other.lossy(ana) {
							t.Fatalf("process %d says %v of %q, which was given %s", i, got, s, l)
						}
					}
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"": check,
			"result": func(t *rapid.T) {
				s, l := rapid.SampledFrom(sessions).Draw(t, "session"), ofSession(rapid.SampledFrom(All()).Draw(t, "label"))
				procs[who.Draw(t, "process")].Add(context.Background(), ana, s, []string{l})
				if given[s] == nil {
					given[s] = map[string]bool{}
				}
				given[s][l] = true
			},
			"store": func(t *rapid.T) {
				m.set(func(m *memory) {
					m.down, m.lose, m.forged = rapid.Bool().Draw(t, "down"), rapid.Bool().Draw(t, "lose"), rapid.Bool().Draw(t, "forged")
				})
			},
			"time": func(t *rapid.T) {
				for _, c := range clocks {
					c.forward(pause)
				}
			},
			"flush": func(t *rapid.T) { _ = procs[who.Draw(t, "process")].Flush(context.Background()) },
			"restart": func(t *rapid.T) {
				i := who.Draw(t, "process")
				if procs[i].Pending() > 0 || procs[i].lossy(ana) {
					t.Skip("it dies with what it could not write")
				}
				start(i)
			},
			"evict": func(t *rapid.T) {
				m.set(func(m *memory) {
					if !m.down && procs[0].Pending()+procs[1].Pending() == 0 {
						procs[0].most = rapid.IntRange(1, 4).Draw(t, "room")
					}
				})
			},
		})
	})
}

func TestSessionsInManyGoroutines(t *testing.T) {
	m := newMemory()
	s := NewSessions(m, slog.New(slog.DiscardHandler))
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for j := range 50 {
				session := fmt.Sprint("s", (i+j)%5)
				s.Add(t.Context(), ana, session, []string{ofSession(All()[j%5])})
				s.Labels(t.Context(), ana, session)
				if j%10 == 0 {
					_ = s.Flush(t.Context())
				}
			}
		})
	}
	wg.Wait()
	for i := range 5 {
		if got := s.Labels(t.Context(), ana, fmt.Sprint("s", i)); len(got) == 0 || slices.Contains(got, Unknown) {
			t.Errorf("session %d carries %v", i, got)
		}
	}
}
