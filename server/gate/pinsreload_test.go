package gate

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/approvals/ledger"
	"github.com/countersign-mcp/countersign/server/upstream"
	"github.com/countersign-mcp/countersign/server/upstream/upstreamtest"
)

// A reload puts another upstream in the place of the one whose list was compared,
// while an allowed call is on its way. What the other lists is compared before
// anything is sent to it.
func TestAnAllowedCallMeetsAnotherUpstream(t *testing.T) {
	for name, tt := range map[string]struct {
		tools, refused string
	}{
		"with the same tools": {testTools, ""},
		"with other tools":    {strings.Replace(testTools, "Reads.", "Reads all.", 1), "tool_changed"},
	} {
		t.Run(name, func(t *testing.T) {
			b := onFirstUse(t)
			dir := upstreamtest.NewDir(t, tt.tools)
			other, err := upstream.New(upstream.Config{Name: "desk", Command: dir.Command(), Env: dir.Env(), StopGrace: time.Second}, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { other.Close() })
			b.book.at(ledger.ExecStart, func(ledger.Record) {
				st := b.stateOf(pinPolicy)
				st.Upstreams["desk"] = other
				b.Load(st)
			})
			a := b.do(ana, "echo", `{}`)
			if tt.refused != "" {
				wantRefusal(t, a, codeParams, tt.refused)
			} else if s := read(t, a); s.IsError {
				t.Error(s)
			}
			if ran := len(dir.Calls()); (ran == 1) != (tt.refused == "") || len(b.dir.Calls()) != 0 {
				t.Errorf("ran %v there and %v here", dir.Calls(), b.dir.Calls())
			}
		})
	}
}

// Other pins count from the reload on, for what is listed and for what is called.
func TestAReloadExchangesThePins(t *testing.T) {
	b := onFirstUse(t)
	if s := read(t, b.do(ana, "echo", `{}`)); s.IsError {
		t.Fatal(s)
	}
	b.pinned(Pins{File: b.fileOf(strings.Replace(testTools, "Reads.", "Reads all.", 1))})
	wantRefusal(t, b.do(ana, "echo", `{}`), codeParams, "tool_changed")
	b.pinned(Pins{File: b.fileOf(testTools)})
	if s := read(t, b.do(ana, "echo", `{}`)); s.IsError {
		t.Error(s)
	}
}
