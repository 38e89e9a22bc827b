package redact

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/countersign-mcp/countersign/approvals/action"
)

// A caller chooses names and nesting. What a rendering takes must grow with the
// size of the call, not with its square: at 1 MiB the square is memory that no
// machine has.
func TestRenderingTakesWhatTheCallTakes(t *testing.T) {
	const size = 64 << 10
	long := strings.Repeat("n", size)
	var masked, plain strings.Builder
	for i := range size / 16 {
		fmt.Fprintf(&masked, `"token%07d":1,`, i)
		fmt.Fprintf(&plain, `"plain%07d":1,`, i)
	}
	under := func(members string) string {
		return `{"` + long + `":{` + strings.TrimSuffix(members, ",") + `}}`
	}
	for name, args := range map[string]string{
		"masked members below a long name": under(masked.String()),
		"plain members below a long name":  under(plain.String()),
		"a name of very many words":        `{"` + strings.Repeat("a_", size) + `":1}`,
	} {
		t.Run(name, func(t *testing.T) {
			c := action.Call{Tool: "t", Args: json.RawMessage(args)}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, v := Render(c, Rules{Pointers: []string{"/a/b"}}, keyed)
			runtime.ReadMemStats(&after)
			if v.Text == "" {
				t.Fatal("nothing was drawn")
			}
			if got := (after.TotalAlloc - before.TotalAlloc) >> 20; got > 32 && !raceEnabled {
				t.Errorf("a call of %d KiB took %d MiB", len(args)>>10, got)
			}
		})
	}
}

// What stands for masked values is part of the view, and bounded with it.
func TestPointersCountAsText(t *testing.T) {
	long := strings.Repeat("n", 400<<10)
	_, v := Render(action.Call{Tool: "t", Args: json.RawMessage(`{"` + long + `":{"token1":1,"token2":2,"token3":3}}`)}, Rules{}, keyed)
	if v.Complete() || len(v.Masked) != 0 || !strings.Contains(v.Text, "longer than 1 MiB") {
		t.Errorf("complete %v, %d masked, %d bytes of text", v.Complete(), len(v.Masked), len(v.Text))
	}
}

// A pair of a name and its value is also masked where it is the call itself: in
// the title and in the summary, which a phone shows on its lock screen.
func TestTopLevelPairIsMaskedEverywhere(t *testing.T) {
	for _, args := range []string{
		`{"name":"DB_PASSWORD","value":"CANARY"}`,
		`{"value":"CANARY","key":"Authorization"}`,
		`{"header":"X-Api-Key","val":"CANARY","value":"CANARY"}`,
		`{"variable":"API_TOKEN","value":{"raw":"CANARY"}}`,
	} {
		for _, title := range []string{"", "Set {name}{key} to {value}{val}"} {
			got := dump(Render(action.Call{Tool: "set", Args: json.RawMessage(args)}, Rules{Title: title}, keyed))
			if strings.Contains(got, "CANARY") {
				t.Errorf("%s leaked:\n%s", args, got)
			}
		}
	}
}

// The path of a masked value holds names that the caller chose.
func TestPointersAreVisible(t *testing.T) {
	_, v := Render(action.Call{Tool: "t", Args: json.RawMessage(`{"\u00a0⟦U+0041⟧ token":"x"}`)}, Rules{}, keyed)
	if len(v.Masked) != 1 {
		t.Fatalf("%d masked", len(v.Masked))
	}
	if got, want := v.Masked[0].Pointer, "/⟦U+00A0⟧⟦U+27E6⟧U+0041⟦U+27E7⟧ token"; got != want {
		t.Errorf("pointer %s, want %s", got, want)
	}
}

// What is all there can still be out of sight or out of order: that is said.
func TestWarnings(t *testing.T) {
	spaces := strings.Repeat(" ", padSpaces)
	for args, want := range map[string]string{
		`{"cmd":"ls` + spaces + `; rm -rf /"}`:                  "1 long run of spaces pushes what follows out of sight",
		`{"` + spaces + `":"` + spaces + spaces + `x"}`:         "2 long runs of spaces push what follows out of sight",
		`{"to":"\u05d0\u05d1 5 > 1"}`:                           "some letters are written from right to left, so a line can read in another order than it is sent",
		`{"a":"` + spaces[1:] + `\n` + spaces[1:] + `","b":{}}`: "",
		`{"a":{"b":{"c":["d"]}},"name":"Z\u00fcrich \u540d"}`:   "",
	} {
		_, v := Render(action.Call{Tool: "t", Args: json.RawMessage(args)}, Rules{}, keyed)
		if got := strings.Join(v.Warnings, "; "); got != want {
			t.Errorf("%s: %q, want %q", args, got, want)
		}
	}
}
