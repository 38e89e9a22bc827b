package gate

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/ledger"
	"github.com/countersign-mcp/countersign/server/pins"
)

// inventing is testTools with n more tools.
func inventing(prefix string, n int) string {
	var w strings.Builder
	for i := range n {
		fmt.Fprintf(&w, `,{"name":"%s-%d"}`, prefix, i)
	}
	return strings.TrimSuffix(strings.TrimSpace(testTools), "]") + w.String() + "]"
}

// An upstream that makes up names without end has so many pinned, and no more; what
// was pinned before goes on.
func TestWhatIsSeenFirstIsPinnedUpToABound(t *testing.T) {
	b := onFirstUse(t)
	pinned := func() int {
		t.Helper()
		b.eventually("the pins are written", func() bool { b.idle(); return len(b.board.unsavedOf("desk")) == 0 })
		got, err := b.store.Pins(t.Context(), "desk")
		if err != nil {
			t.Fatal(err)
		}
		return len(got.Tools)
	}
	b.change(inventing("one", mostFirst/2))
	if got := pinned(); got <= mostFirst/2 || got >= mostFirst {
		t.Fatalf("%d are pinned", got)
	}
	for _, prefix := range []string{"two", "three", "four"} {
		b.change(inventing(prefix, mostFirst/2))
		if got := pinned(); got != mostFirst {
			t.Errorf("%d are pinned", got)
		}
	}
	b.dir.SetTools(strings.TrimSuffix(inventing("four", 0), "]") + `,{"name":"missing_tool"}]`)
	b.reread()
	wantRefusal(t, b.do(ana, "missing_tool", `{}`), codeParams, "tool_not_pinned")
	if s := read(t, b.do(ana, "echo", `{}`)); s.IsError {
		t.Error(s)
	}
	b.idle()
	told := 0
	for _, r := range b.records() {
		if r.Event == ledger.ManifestChanged && r.Reason == changeFull {
			told++
		}
	}
	if told != 1 || len(b.own(approvals.Pending)) != 0 {
		t.Errorf("told %d times, asked for: %v", told, b.own(approvals.Pending))
	}
	// Another process counts what is in the store.
	r := b.replica().pinned(Pins{FirstUse: true})
	wantRefusal(t, r.do(ana, "missing_tool", `{}`), codeParams, "tool_not_pinned")
}

func TestTheBytesOfFirstSightsAreBounded(t *testing.T) {
	have := approvals.Pins{Tools: map[string]approvals.Pin{"big": {Tool: "big", Definition: make(json.RawMessage, mostFirstBytes-40)}}}
	c := &catalogue{server: "desk"}
	for _, raw := range []string{`{"name":"fits"}`, `{"name":"too_long","description":"More than what is left."}`} {
		d, err := pins.Define(json.RawMessage(raw))
		if err != nil {
			t.Fatal(err)
		}
		c.defs = append(c.defs, d)
	}
	held, unseen := Pins{FirstUse: true}.examined(c, have)
	if len(unseen) != 1 || unseen[0].Name != "fits" || !held["too_long"].full {
		t.Errorf("%v %v", held, unseen)
	}
}

func TestRecordsOfChangesAreBounded(t *testing.T) {
	w, now, wrote, last := &watchman{}, time.Now(), 0, 0
	for range 3 * mostNoted {
		ok, l := w.room(now)
		if ok {
			wrote++
		}
		if l {
			last++
		}
	}
	if wrote != mostNoted || last != 1 {
		t.Errorf("%d records and %d times the last", wrote, last)
	}
	if ok, _ := w.room(now.Add(time.Hour)); !ok {
		t.Error("no room an hour later")
	}
}
