package testservers

import (
	"encoding/json"
	"log/slog"
	"testing"

	"github.com/countersign-mcp/countersign/server/upstream"
)

// The gate's own client gets from the judge what its users will see.
func TestTheGatesClientSpeaksWithTheJudge(t *testing.T) {
	for _, era := range []Era{Legacy, Modern} {
		t.Run(string(era), func(t *testing.T) {
			u := NewUpstream(t)
			up, err := upstream.New(upstream.Config{Name: "things", Command: u.Command(), Env: u.Env(era == Modern), Version: "test"},
				slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { up.Close() })
			if err := up.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := up.Info().Protocol; got != string(era) {
				t.Errorf("protocol %s, want %s", got, era)
			}
			var steps int
			raw, err := up.Do(t.Context(), upstream.Request{Method: "tools/call",
				Params:   json.RawMessage(`{"name":"do_thing","arguments":` + string(Do{Odd: true, Progress: 2}.Args()) + `}`),
				Progress: func(json.RawMessage) { steps++ }})
			if err != nil || string(raw) != OddResult || steps != 2 {
				t.Errorf("%d steps, result %s, %v", steps, raw, err)
			}
			if u.Ran("do_thing") != 1 {
				t.Errorf("ran %d times", u.Ran("do_thing"))
			}
		})
	}
}
