package redact

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/countersign-mcp/countersign/approvals/action"
)

// One row a way to make a text be read as another.
func TestLookalikes(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{"one Cyrillic letter", "p\u0430ypal.com", "p⟦U+0430⟧ypal.com"},
		{"one Latin letter", "\u0440\u0430ура\u0443l", "⟦U+0440⟧⟦U+0430⟧⟦U+0443⟧⟦U+0440⟧⟦U+0430⟧⟦U+0443⟧l"},
		{"nothing but look-alikes", "to \u0441\u043e\u0441\u043e.com", "to ⟦U+0441⟧⟦U+043E⟧⟦U+0441⟧⟦U+043E⟧.com"},
		{"Greek capitals", "DROP \u03a4\u0391\u0392\u039a\u0395", "DROP ⟦U+03A4⟧⟦U+0391⟧⟦U+0392⟧⟦U+039A⟧⟦U+0395⟧"},
		{"not a twin, but near", "\u0433m -\u0433f /", "⟦U+0433⟧m -⟦U+0433⟧f /"},
		{"Cherokee", "\u13a0dmin", "⟦U+13A0⟧dmin"},
		{"Canadian syllabics", "\u1455ash", "⟦U+1455⟧ash"},
		{"Armenian", "g\u0585\u0585gle", "g⟦U+0585⟧⟦U+0585⟧gle"},
		{"mathematical", "\U0001d42b\U0001d426 -rf", "⟦U+1D42B⟧⟦U+1D426⟧ -rf"},
		{"full width", "\uff52\uff4d", "⟦U+FF52⟧⟦U+FF4D⟧"},
		{"Roman numeral", "\u217cs", "⟦U+217C⟧s"},
		{"Kelvin", "\u212aey", "⟦U+212A⟧ey"},
		{"long s", "re\u017fet", "re⟦U+017F⟧et"},
		{"fraction slash", "github.com\u2044evil", "github.com⟦U+2044⟧evil"},
		{"division slash", "a\u2215b", "a⟦U+2215⟧b"},
		{"Greek question mark", "x\u037e rm", "x⟦U+037E⟧ rm"},
		{"one dot leader", "a\u2024com", "a⟦U+2024⟧com"},
		{"small at", "a\ufe6bb", "a⟦U+FE6B⟧b"},
		{"colon letter", "C\ua789x", "C⟦U+A789⟧x"},
		{"click for a bar", "a \u01c0 sh", "a ⟦U+01C0⟧ sh"},
		{"script a", "\u0251dmin", "⟦U+0251⟧dmin"},
		{"Bengali digit", "1\u09ea0 EUR", "1⟦U+09EA⟧0 EUR"},
		{"brackets like ours", "\u301amasked\u301b", "⟦U+301A⟧masked⟦U+301B⟧"},
		{"struck out", "r\u0336m\u0336", "r⟦U+0336⟧m⟦U+0336⟧"},
		{"slashed", "=\u0338", "=⟦U+0338⟧"},
		{"enclosed", "a\u20dd", "a⟦U+20DD⟧"},
		{"a mark on nothing", "\u0301x", "⟦U+0301⟧x"},
		{"a mark on a bracket", "(\u0323)", "(⟦U+0323⟧)"},
		{"a mark on our code", "\u200b\u0301", "⟦U+200B⟧⟦U+0301⟧"},
		{"a note without a head", "a\U0001d159b", "a⟦U+1D159⟧b"},
		{"tags", "a\U000e0072\U000e006d", "a⟦U+E0072⟧⟦U+E006D⟧"},

		{"Russian", "сосо и жизнь, оса", "сосо и жизнь, оса"},
		{"Russian with Latin words", "SQL-запрос на server-е, 3D-модель", "SQL-запрос на server-е, 3D-модель"},
		{"Greek", "Καλημέρα, ο κόσμος", "Καλημέρα, ο κόσμος"},
		{"units", "10 kΩ, Δt = 5 µs, λ/2, 20 °C", "10 kΩ, Δt = 5 µs, λ/2, 20 °C"},
		{"Japanese", "「はい（ＯＫ）」！：10％。", "「はい（ＯＫ）」！：10％。"},
		{"Chinese with Latin", "用SQL查询，谢谢。", "用SQL查询，谢谢。"},
		{"Hindi", "नमस्ते दुनिया", "नमस्ते दुनिया"},
		{"Vietnamese", "Tiếng Việt", "Tiếng Việt"},
		{"decomposed", "e\u0301\u0302", "e\u0301\u0302"},
		{"Arabic", "مرحبا ٢٠٢٦", "مرحبا ٢٠٢٦"},
		{"Thai", "ใช้SQLได้", "ใช้SQLได้"},
		{"signs", "x² ½ ™ № … – “q” ① 😀 →", "x² ½ ™ № … – “q” ① 😀 →"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			want := tc.want
			if got := Visible(tc.in); got != want {
				t.Errorf("%s, want %s", got, want)
			}
			for _, shape := range []string{`{"s":%s}`, `{"l":[{"x":%s}]}`, `{"a":{%s:1}}`} {
				raw := json.RawMessage(fmt.Sprintf(shape, quote(tc.in)))
				if action.Check(raw, action.Limits{}) != nil {
					continue // such a name gets nowhere
				}
				title, v := Render(action.Call{Tool: "t", Args: raw}, Rules{Title: "{s}{l}{a}"}, keyed)
				coded := want != tc.in
				if !strings.Contains(v.Text, want) || !strings.Contains(title, want) || coded != strings.Contains(strings.Join(v.Warnings, ";"), "shown by code") {
					t.Errorf("%s: title %s, warnings %q, %s", shape, title, v.Warnings, v.Text)
				}
			}
		})
	}
}

// Nothing is cut, and what is pushed out of sight is announced.
func TestFloods(t *testing.T) {
	const danger = "; rm -rf /"
	for name, tc := range map[string]struct{ flood, warn string }{
		"spaces":        {strings.Repeat(" ", 200), "1 long run of spaces pushes"},
		"tabs":          {strings.Repeat("\t", 200), "1 long run of spaces pushes"},
		"lines":         {strings.Repeat("\n", 200), "1 run of empty lines pushes"},
		"blank lines":   {strings.Repeat(" \r\n\t", 200), "1 run of empty lines pushes"},
		"dots":          {strings.Repeat(".", 5000), "1 long run of one character pushes"},
		"dashes, twice": {strings.Repeat("-", 500) + "x" + strings.Repeat("=", 500), "2 long runs of one character push"},
		"no-breaks":     {strings.Repeat("\u00a0", 200), "200 characters that can't be seen or trusted are shown by code: ⟦U+00A0⟧"},
		"combining":     {"e" + strings.Repeat("\u0301", 200), "197 characters that can't be seen or trusted are shown by code: ⟦U+0301⟧"},
		"tags":          {strings.Repeat("\U000e0041", 200), "200 characters"},
		"selectors":     {strings.Repeat("\ufe0f\U000e0100", 100), "200 characters"},
		"words":         {strings.Repeat("all is well. ", 20_000), ""},
		"code":          {"\n\n\nfunc f() {\n\t\t\treturn\n}\n" + strings.Repeat("=", 80) + "\n\n", ""},
	} {
		v := view(t, map[string]string{"cmd": "ls" + tc.flood + danger, "last": "end"}, nil)
		if !v.Complete() || !strings.Contains(v.Text, danger) || !strings.Contains(v.Text, `"last": "end"`) {
			t.Errorf("%s: complete %v, the end of it is missing", name, v.Complete())
		}
		if got := strings.Join(v.Warnings, "; "); tc.warn == "" && got != "" || !strings.Contains(got, tc.warn) {
			t.Errorf("%s: %q, want %q", name, got, tc.warn)
		}
	}
}
