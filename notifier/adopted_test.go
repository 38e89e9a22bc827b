package notifier_test

import (
	"encoding/json"
	"testing"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/notifier/slacktest"
)

// A second card of an approval, lost sight of and met again: an end edits both,
// also when it was met only after the end; a deleted one is let go.
func TestLoopAdoptedCards(t *testing.T) {
	l := newLoop(t)
	defer l.start("d1", &tap{Store: l.open()})()
	id := l.park()
	first := l.card(id, waiting)
	copyOf := func(m slacktest.Message) string {
		encode := func(v any) string {
			b, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			return string(b)
		}
		return l.fake.Seed(room, slacktest.Seed{Text: m.Text, Blocks: encode(m.Blocks), Metadata: encode(m.Metadata)})
	}
	second, third := copyOf(first), copyOf(first)
	adopt := func(ts string) {
		if err := l.st.Adopt(t.Context(), id, approvals.Ref{Channel: "slack:" + room, ID: room + "/" + ts}); err != nil {
			t.Fatal(err)
		}
	}
	settled := func(ts string) {
		t.Helper()
		l.card(id, func(m slacktest.Message) bool { return m.TS == ts && denied(m) })
	}
	adopt(second)
	l.deny(id)
	settled(first.TS)
	settled(second)
	l.fake.Remove(room, second)
	adopt(third)
	settled(third)
	if n := l.cards(id); n != 2 {
		t.Errorf("%d cards after one was deleted", n)
	}
}
