package store

import (
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/action"
)

func TestOneTurnToAsk(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		ask := func(server, id, change string, rest time.Duration) approvals.Turn {
			t.Helper()
			got, err := p.TurnToAsk(t.Context(), server, approvals.Turn{ID: id, Change: action.Sum(change)}, rest)
			if err != nil {
				t.Fatal(err)
			}
			return got
		}
		for _, tt := range []struct{ server, id, change, holder, of string }{
			{"desk", "op-1", "one", "op-1", "one"},
			{"desk", "op-2", "two", "op-1", "one"},
			{"desk", "op-3", "one", "op-1", "one"},
			{"desk", "op-1", "one", "op-1", "one"},
			{"other", "op-2", "two", "op-2", "two"},
		} {
			got := ask(tt.server, tt.id, tt.change, time.Minute)
			if got.ID != tt.holder || got.Change != action.Sum(tt.of) || got.Left <= 0 || got.Left > time.Minute {
				t.Errorf("%+v: %+v", tt, got)
			}
		}
		if left := p.raw.PTTL(t.Context(), p.k.turn("desk")).Val(); left <= 0 || left > time.Minute {
			t.Errorf("it ends in %s", left)
		}
		// One that is made up, or another upstream's, is nobody's.
		for _, v := range []string{"made up", p.raw.Get(t.Context(), p.k.turn("other")).Val()} {
			p.raw.Set(t.Context(), p.k.turn("desk"), v, time.Minute)
			if got := ask("desk", "op-2", "two", time.Minute); got.ID != "" || !got.Change.IsZero() || got.Left <= 0 {
				t.Errorf("%+v", got)
			}
		}
		p.raw.Del(t.Context(), p.k.turn("desk")) // as when it ends
		if got := ask("desk", "op-2", "two", time.Minute); got.ID != "op-2" {
			t.Errorf("%+v", got)
		}
	})
}

func TestPinsOfSomeTools(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		if err := p.Pin(t.Context(), "desk", nil, pinOf("a", "one", 1), pinOf("b", "one", 1), pinOf("c", "one", 1)); err != nil {
			t.Fatal(err)
		}
		p.raw.HSet(t.Context(), p.k.pins("desk"), "p:b", "garbage", "p:c", "garbage")
		got, err := p.Pins(t.Context(), "desk", "a", "b", "none")
		if err != nil || len(got.Tools) != 1 || got.Tools["a"].Digest != pinOf("a", "one", 1).Digest || len(got.Forged) != 1 || got.Forged[0] != "b" {
			t.Errorf("%+v %v", got, err)
		}
	})
}
