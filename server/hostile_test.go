package server

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/countersign-mcp/countersign/approvals/action"
)

// Whoever may send a request may fill its _meta. Taking our own members out must
// not copy the rest once for each of them.
func TestSplitTakesWhatTheRequestTakes(t *testing.T) {
	var own strings.Builder
	for i := range 8 << 10 {
		fmt.Fprintf(&own, `"countersign/%07d":1,`, i)
	}
	f, err := action.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","_meta":{`+own.String()+`"acme/x":2}}}`), action.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	p, bad := split(f)
	runtime.ReadMemStats(&after)
	if bad != nil || string(p.meta) != `{"acme/x":2}` {
		t.Errorf("meta %s, %v", p.meta, bad)
	}
	if got := (after.TotalAlloc - before.TotalAlloc) >> 20; got > 32 {
		t.Errorf("%d KiB of _meta took %d MiB", len(f.Meta)>>10, got)
	}
	if !json.Valid(p.meta) {
		t.Error("not JSON")
	}
}

// A session keeps what its client said of itself, so that is short.
func TestLongHandshakeOpensNoSession(t *testing.T) {
	g := newRig(t)
	body := strings.Replace(initializeOld, `"params":{`, `"params":{"padding":"`+strings.Repeat("x", handshakeMax)+`",`, 1)
	if body == initializeOld {
		t.Fatal("nothing was put in")
	}
	r := g.post(body, nil)
	r.is(t, 200, codeInvalidParams)
	if n := g.srv.sessions.count(); n != 0 || r.head.Get(headSession) != "" {
		t.Errorf("%d sessions", n)
	}
}
