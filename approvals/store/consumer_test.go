package store

import (
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
)

// Every boot reads under a name of its own. Those of processes that are gone are
// forgotten, but not before what they were given is done.
func TestConsumersOfEarlierBootsAreForgotten(t *testing.T) {
	p := onRedis(t, func(o *Options) { o.NudgeIdle = 20 * time.Millisecond })
	p.park(t, request(`{}`))
	take := func(s *Store, consumer string) []approvals.Nudge {
		t.Helper()
		list, err := s.Nudges(t.Context(), consumer, 10, 0)
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	if len(take(p.another(t), "owing")) != 1 { // it dies with what it took
		t.Fatal("nothing was given out")
	}
	take(p.another(t), "idle")
	now := p.another(t)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		taken := take(now, "now")
		known, err := p.raw.XInfoConsumers(t.Context(), p.k.outbox(), nudgeGroup).Result()
		if err != nil {
			t.Fatal(err)
		}
		names := map[string]int64{}
		for _, c := range known {
			names[c.Name] = c.Pending
		}
		if _, there := names["owing"]; !there && names["now"] == 0 && len(taken) == 0 {
			t.Fatal("what a dead consumer owed was dropped with it")
		}
		if len(names) == 1 && names["now"] == 1 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("still known: %v", names)
		}
	}
}
