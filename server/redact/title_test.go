package redact

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/countersign-mcp/countersign/approvals/action"
)

func TestTitleCuts(t *testing.T) {
	title := func(value string) string {
		b, err := json.Marshal(map[string]any{"v": value})
		if err != nil {
			t.Fatal(err)
		}
		got, _ := Render(action.Call{Args: b}, Rules{Title: "{v}"}, keyed)
		return got
	}
	for _, tc := range []struct{ in, want string }{
		{strings.Repeat("x", 80), strings.Repeat("x", 80)},
		{strings.Repeat("x", 81), strings.Repeat("x", 79) + "…"},
		{strings.Repeat("é", 80), `"` + strings.Repeat("é", 80) + `"`},
		{strings.Repeat("é", 500), `"` + strings.Repeat("é", 79) + `"…`},
		{strings.Repeat("x", 75) + "\u202ey", `"` + strings.Repeat("x", 75) + `"…`},
		{strings.Repeat("x", 79) + `"y`, `"` + strings.Repeat("x", 79) + `"…`},
		{"", `""`},
	} {
		if got := title(tc.in); got != tc.want {
			t.Errorf("%q, want %q", got, tc.want)
		}
	}
}

// What a stranger wrote can't be taken for what we say: it is one plain word, or
// it stands in quotes that it can't close.
func TestTitleQuotesWhatIsNoWord(t *testing.T) {
	for value, want := range map[string]string{
		"4417":                    "4417",
		"ana.o_1@acme.test/x#7:+": "ana.o_1@acme.test/x#7:+",
		"1 (test, no effect)":     `"1 (test, no effect)"`,
		"1, approved: yes":        `"1, approved: yes"`,
		`1" (test)`:               `"1\" (test)"`,
		`1\`:                      `"1\\"`,
		`1\" x`:                   `"1\\\" x"`,
		"a\nb":                    `"a⟦U+000A⟧b"`,
		"abc…":                    `"abc…"`,
		"Zürich":                  `"Zürich"`,
		" ":                       `" "`,
	} {
		b, err := json.Marshal(map[string]string{"order_id": value})
		if err != nil {
			t.Fatal(err)
		}
		title, _ := Render(action.Call{Args: b}, Rules{Title: "Cancel {order_id} (for good)"}, keyed)
		_, v := Render(action.Call{Args: b}, Rules{}, keyed)
		if title != "Cancel "+want+" (for good)" || v.Summary != "order_id: "+want {
			t.Errorf("%q: %q, %q", value, title, v.Summary)
		}
		if strings.Contains(value, "\n") {
			continue // such a name is refused where the message is read
		}
		if b, err = json.Marshal(map[string]int{value: 1}); err != nil {
			t.Fatal(err)
		}
		if _, v := Render(action.Call{Args: b}, Rules{}, keyed); v.Summary != want+": 1" {
			t.Errorf("the name %q: %q", value, v.Summary)
		}
	}
}
