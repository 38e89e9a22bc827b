package pins_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/server/pins"
)

func TestDiffGolden(t *testing.T) {
	long := "Cancels one order for good. It asks nobody, so ask first. " + strings.Repeat("The order stays in the books. ", 3) + "Only operators may call it."
	before := desk(t, cancel,
		`{"name":"look","description":"Looks at one order."}`,
		`{"name":"note","description":"`+long+`","inputSchema":{"type":"object"}}`,
		`{"name":"search","inputSchema":{"anyOf":[{"required":["id"]},{"required":["name"]},{"required":["age"]}]}}`,
		`{"name":"typed","x":{"a":"10","b":1,"c":null}}`,
	)
	after := desk(t,
		`{"name":"cancel_order","title":"Cancel\u202e","description":"Cancels one order.\nIt can be undone.\r\u001b[31m\nIt is quick. ",
		  "inputSchema":{"type":"object","properties":{"id":{"type":"string","enum":["a","b"]},"all/~":{"type":"boolean"}},"required":["id","all/~"]},
		  "annotations":{"readOnlyHint":true},"_meta":{"x":1}}`,
		`{"name":"note","description":"`+strings.Replace(long, "asks nobody", "asks everybody", 1)+`","inputSchema":{"type":"object"}}`,
		`{"name":"search","inputSchema":{"anyOf":[{"required":["id"]},{"required":["age"]}]}}`,
		`{"name":"typed","x":{"a":10,"b":1.0}}`,
		`{"name":"tool added: look\n- old","description":"tool removed: note\n⟨3 lines stay the same⟩"}`,
	)
	after.Command = []string{"npx", "-y", "@acme/desk@latest"}
	after.Package.Version, after.Version = "latest", "2.0.0"
	after.Env, after.AuthPath = []string{"DESK_REGION"}, nil
	after.Capabilities = json.RawMessage(`{"tools":{},"sampling":{}}`)
	after.Identity = action.ServerID(after.Command, after.Dir, after.Env, after.Name)
	c := pins.Diff(before, after)
	golden(t, "diff.txt", []byte(c.Text()))
	for _, r := range c.Text() {
		if r != '\n' && (r < ' ' || r == 0x7f || r == '\u202e') {
			t.Errorf("%U stands in the text as it is", r)
		}
	}
	var cancelled *pins.ToolChange
	for i := range c.Tools {
		if c.Tools[i].Name == "cancel_order" {
			cancelled = &c.Tools[i]
		}
	}
	want := []string{
		"/title", "/description", "/inputSchema/properties/all~1~0", "/inputSchema/properties/id/enum",
		"/inputSchema/properties/limit", "/inputSchema/required", "/annotations/readOnlyHint", "/_meta",
	}
	var got []string
	for _, p := range cancelled.Parts {
		got = append(got, p.Path)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("paths (-want +got):\n%s", diff)
	}
}

// What is hidden in the command is a change all the same.
func TestHiddenIdentityChanges(t *testing.T) {
	start := pins.Start{Command: []string{"desk-mcp", "--token", "CANARY-1"}}
	a := pins.Describe(start, "desk")
	start.Command = []string{"desk-mcp", "--token", "CANARY-2"}
	b := pins.Describe(start, "desk")
	c := pins.Diff(a, b)
	if len(c.Identity) != 1 || c.Identity[0].Path != "/identity" {
		t.Errorf("got %+v", c.Identity)
	}
	if text := fmt.Sprintf("%+v %s", a, c.Text()); strings.Contains(text, "CANARY") {
		t.Errorf("the secret stands in %s", text)
	}
	file := encode(t, map[string]pins.Server{"desk": a})
	if _, err := pins.Parse(file); err != nil {
		t.Errorf("a hidden argument keeps the file from being read: %v", err)
	}
}

// maker makes random JSON out of few words, so that values often nearly agree.
type maker struct{ r *rand.Rand }

func (m maker) word() string {
	words := []string{"a", "b", "name", "type", "", "x/y", "~", "A longer text. It has two sentences. ", "l1\nl2", "\u202e", " ", "é", "\"q\"", "1"}
	return words[m.r.IntN(len(words))]
}

func (m maker) value(depth int) any {
	switch n := m.r.IntN(9); {
	case n < 2 && depth > 0:
		out := map[string]any{}
		for range m.r.IntN(4) {
			out[m.word()] = m.value(depth - 1)
		}
		return out
	case n < 4 && depth > 0:
		out := []any{}
		for range m.r.IntN(4) {
			out = append(out, m.value(depth-1))
		}
		return out
	case n == 4:
		return json.Number([]string{"1", "1.0", "10", "-0", "1e400", "9007199254740993"}[m.r.IntN(6)])
	case n == 5:
		return nil
	case n == 6:
		return m.r.IntN(2) == 0
	}
	return strings.Repeat(m.word(), 1+m.r.IntN(5))
}

func (m maker) tool() map[string]any {
	out := map[string]any{"name": "t"}
	for _, k := range []string{"description", "inputSchema", "annotations", "_meta"} {
		if m.r.IntN(4) > 0 {
			out[k] = m.value(4)
		}
	}
	return out
}

// write writes a value in a random order of members and with random blanks.
func (m maker) write(v any) string {
	blank := strings.Repeat(" ", m.r.IntN(2))
	switch v := v.(type) {
	case map[string]any:
		var parts []string
		for k, e := range v { // in Go's own random order
			parts = append(parts, m.write(k)+":"+blank+m.write(e))
		}
		return "{" + blank + strings.Join(parts, blank+",") + "}"
	case []any:
		var parts []string
		for _, e := range v {
			parts = append(parts, m.write(e))
		}
		return "[" + strings.Join(parts, ","+blank) + blank + "]"
	}
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// change alters one thing somewhere below v, which it returns anew.
func (m maker) change(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		keys := []string{}
		for k, e := range v {
			out[k] = e
			if k != "name" {
				keys = append(keys, k)
			}
		}
		if len(keys) == 0 || m.r.IntN(4) == 0 {
			k := fmt.Sprintf("new%d", m.r.IntN(1000))
			out[k] = m.value(2)
			return out
		}
		k := keys[m.r.IntN(len(keys))]
		if m.r.IntN(4) == 0 {
			delete(out, k)
			return out
		}
		out[k] = m.change(v[k])
		return out
	case []any:
		if len(v) > 0 && m.r.IntN(2) == 0 {
			i := m.r.IntN(len(v))
			out := append([]any{}, v...)
			out[i] = m.change(v[i])
			return out
		}
		return append(append([]any{}, v...), m.value(1))
	case string:
		return v + []string{" ", "x", "\n", "\u200b", "."}[m.r.IntN(5)]
	case json.Number:
		return json.Number(strings.Replace(v.String()+"0", "-00", "-0.0", 1))
	case bool:
		return fmt.Sprint(v)
	}
	return "null"
}

func TestOrderIsNoChange(t *testing.T) {
	m := maker{rand.New(rand.NewPCG(1, 2))}
	for range 2000 {
		v := m.tool()
		a, b := tool(t, m.write(v)), tool(t, m.write(v))
		if a.Digest != b.Digest {
			t.Fatalf("another order of keys is another digest:\n%s\n%s", a.Raw, b.Raw)
		}
		if c := pins.DiffTools([]pins.Tool{a}, []pins.Tool{b}); len(c) > 0 {
			t.Fatalf("another order of keys is a change: %+v", c)
		}
	}
	x, y := tool(t, `{"name":"x"}`), tool(t, `{"name":"y"}`)
	if pins.Manifest([]pins.Tool{x, y}) != pins.Manifest([]pins.Tool{y, x}) {
		t.Error("another order of tools is another manifest")
	}
	if c := pins.DiffTools([]pins.Tool{x, y}, []pins.Tool{y, x}); len(c) > 0 {
		t.Error("another order of tools is a change")
	}
	one := encode(t, map[string]pins.Server{"a": desk(t, `{"name":"x"}`, `{"name":"y"}`)})
	other := encode(t, map[string]pins.Server{"a": desk(t, `{"name":"y"}`, `{"name":"x"}`)})
	if string(one) != string(other) {
		t.Error("another order of tools is another file")
	}
}

// Every change, wherever it is, is another digest, a part that says where, and
// lines that a person can tell apart.
func TestEveryChangeShows(t *testing.T) {
	m := maker{rand.New(rand.NewPCG(3, 4))}
	for range 3000 {
		v := m.tool()
		a, b := tool(t, m.write(v)), tool(t, m.write(m.change(v)))
		if a.Digest == b.Digest {
			t.Fatalf("a change has the same digest:\n%s\n%s", a.Raw, b.Raw)
		}
		if pins.Manifest([]pins.Tool{a}) == pins.Manifest([]pins.Tool{b}) {
			t.Fatal("a change has the same manifest")
		}
		c := pins.Diff(pins.Server{Tools: []pins.Tool{a}}, pins.Server{Tools: []pins.Tool{b}})
		if c.Empty() || len(c.Tools) != 1 || len(c.Tools[0].Parts) == 0 {
			t.Fatalf("a change has no part:\n%s\n%s", a.Raw, b.Raw)
		}
		for _, p := range c.Tools[0].Parts {
			if string(p.Before) == string(p.After) && (p.Before == nil) == (p.After == nil) {
				t.Fatalf("a part that did not change: %+v", p)
			}
			text := pins.Changes{Tools: []pins.ToolChange{{Name: "t", Kind: pins.Changed, Parts: []pins.Part{p}}}}.Text()
			differs := strings.Contains(text, "\n    - ") || strings.Contains(text, "\n    + ") || strings.Contains(text, ", now ")
			if !differs {
				t.Fatalf("nothing to see of %s → %s:\n%s", p.Before, p.After, text)
			}
		}
	}
}

// Texts that differ never look the same, line by line.
func TestTextTellsApart(t *testing.T) {
	long := strings.Repeat("x", 120)
	for _, pair := range [][2]string{
		{long + ". b", long + ".\nb"},
		{long + ". b", long + ".  b"},
		{"a ", "a"},
		{"a\n", "a"},
		{long + " ", long},
		{"⟦U+202E⟧", "\u202e"},
		{long + ". ⟨…⟩ b", long + ". b"},
		{`"` + strings.Repeat("x", 98) + `"`, strings.Repeat("x", 98)},
	} {
		q := func(s string) json.RawMessage {
			b, err := json.Marshal(s)
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
		p := pins.Part{Path: "/description", Before: q(pair[0]), After: q(pair[1])}
		text := pins.Changes{Tools: []pins.ToolChange{{Name: "t", Kind: pins.Changed, Parts: []pins.Part{p}}}}.Text()
		var was, is []string
		for l := range strings.Lines(text) {
			if s, ok := strings.CutPrefix(l, "    - "); ok {
				was = append(was, s)
			}
			if s, ok := strings.CutPrefix(l, "    + "); ok {
				is = append(is, s)
			}
		}
		if strings.Join(was, "") == strings.Join(is, "") {
			t.Errorf("%q and %q look alike:\n%s", pair[0], pair[1], text)
		}
	}
}

// A hostile upstream's texts are compared in time and space that are bounded.
func TestHugeTexts(t *testing.T) {
	lines := func(n int, s string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "%s%d\\n", s, i)
		}
		return b.String()
	}
	a := tool(t, `{"name":"t","description":"`+lines(20_000, "a")+`"}`)
	b := tool(t, `{"name":"t","description":"`+lines(20_000, "b")+strings.Repeat(". ", 40_000)+`"}`)
	c := pins.Diff(pins.Server{Tools: []pins.Tool{a}}, pins.Server{Tools: []pins.Tool{b}})
	text := c.Text()
	if !strings.Contains(text, "- a19999\n") || !strings.Contains(text, "+ b19999\n") {
		t.Error("something is missing from a long text")
	}
}

// The example that the README shows is what comes out.
func TestReadmeExample(t *testing.T) {
	def := func(description, maximum string) string {
		return `{"name":"cancel_order","description":"` + description + `","inputSchema":{"properties":{"limit":{"maximum":` + maximum + `}}}}`
	}
	before := desk(t, def(`Cancels one order.\nIt can't be undone.`, "10"))
	after := desk(t, def(`Cancels one order.\nAlso refunds it.`, "1000"), `{"name":"refund","description":"Refunds an order."}`)
	after.Version = "1.5.0"
	var want strings.Builder
	want.WriteString("```text\norders: changed\n")
	for line := range strings.Lines(pins.Diff(before, after).Text()) {
		want.WriteString("  " + line)
	}
	want.WriteString("```\n")
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(readme), want.String()) {
		t.Errorf("README.md does not have:\n%s", want.String())
	}
}
