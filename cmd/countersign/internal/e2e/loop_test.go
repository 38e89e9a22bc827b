package e2e

import (
	"testing"

	"github.com/countersign-mcp/countersign/cmd/countersign/internal/e2e/testservers"
)

func TestApproved(t *testing.T) {
	for name, era := range map[string]testservers.Era{"legacy": testservers.Legacy, "modern": testservers.Modern} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, rigOptions{})
			g := r.start("a", "")
			got := call(g.client(era), testservers.Do{N: 1}, testservers.Extra{})
			card := r.card()
			if n := r.upstream.Ran("do_thing"); n != 0 {
				t.Fatalf("it ran %d times before anybody was asked", n)
			}
			if a := r.click(olgaSlack, card.TS, "approve"); a.Status != 200 || a.Late {
				t.Fatalf("the click: %+v", a)
			}
			if res := await(t, got); res.IsError() {
				t.Errorf("the agent got an error: %s", res.Text())
			}
			if n := r.upstream.Ran("do_thing"); n != 1 {
				t.Errorf("it ran %d times", n)
			}
			r.settled(card.TS, "olga")
			r.verify()
		})
	}
}
