package provenance

import (
	"fmt"
	"testing"
	"time"
)

// While the store was away another process may have learned something. That the
// store answers again does not yet mean that it is there.
func TestAnOutageEndsForAllBeforeAnythingIsClean(t *testing.T) {
	m := newMemory()
	a, _, _ := sessionsOn(m)
	b, c, _ := sessionsOn(m)
	wantLabels(t, b, "s")
	m.set(func(m *memory) { m.down = true })
	a.Add(t.Context(), ana, "s", []string{"session:retrieved"})
	wantLabels(t, b, "s", Unknown)
	m.set(func(m *memory) { m.down = false })
	c.forward(pause)
	wantLabels(t, b, "s", Unknown) // the store answers, and a has not written
	c.forward(FlushEvery)
	wantLabels(t, b, "s", Unknown)
	if err := a.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.forward(settle)
	wantLabels(t, b, "s", "session:retrieved")
	wantLabels(t, b, "t")
}

// An actor that opens sessions without end while the store is away takes nobody
// else's room, and makes nobody else's sessions unknown once the store is back.
func TestOneActorTakesNotAllRoom(t *testing.T) {
	m := newMemory()
	s, c, _ := sessionsOn(m)
	s.most = 40
	m.set(func(m *memory) { m.down = true })
	const eve = "eve@acme.test"
	for i := range 1000 {
		s.Add(t.Context(), eve, fmt.Sprint("e", i), []string{"session:model"})
		if i == 500 {
			s.Add(t.Context(), ana, "s", []string{"session:retrieved"})
		}
	}
	m.set(func(m *memory) { m.down = false })
	if err := s.Flush(t.Context()); err != nil || s.Pending() != 0 || len(s.pending) != 0 {
		t.Fatalf("%v, %d pending, of %d actors", err, s.Pending(), len(s.pending))
	}
	c.forward(settle)
	wantLabels(t, s, "s", "session:retrieved")
	wantLabels(t, s, "other")
	if got := s.Labels(t.Context(), eve, "e999"); len(got) != 1 || got[0] != Unknown {
		t.Errorf("what had no room is taken for %v", got)
	}
	c.forward(TTL + time.Minute)
	if got := s.Labels(t.Context(), eve, "e999"); got != nil {
		t.Errorf("a day later it is %v", got)
	}
}

// That many actors lose labels is bounded as well; then nobody is taken for clean.
func TestTooManyActorsWhoseLabelsAreLost(t *testing.T) {
	m := newMemory()
	s, c, _ := sessionsOn(m)
	s.most = 4
	m.set(func(m *memory) { m.down = true })
	for i := range 30 {
		s.Add(t.Context(), fmt.Sprint("a", i), "s", []string{"session:model"})
	}
	if len(s.lost) > s.most || len(s.known) > s.most {
		t.Errorf("%d lost, %d known", len(s.lost), len(s.known))
	}
	m.set(func(m *memory) { m.down = false })
	wantLabels(t, s, "s", Unknown) // the store answers again
	c.forward(settle)
	wantLabels(t, s, "s", Unknown)
	c.forward(TTL)
	wantLabels(t, s, "s")
}
