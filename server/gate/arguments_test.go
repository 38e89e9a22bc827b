package gate

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/ledger"
	"github.com/countersign-mcp/countersign/server/pins"
)

// withSchema gives cancel_order and echo an input schema.
func (b *bench) withSchema(schema string) {
	b.dir.SetTools(fmt.Sprintf(`[{"name":"cancel_order","inputSchema":%s},{"name":"echo","inputSchema":%s}]`, schema, schema))
}

const orderSchema = `{"type":"object","properties":{"order":{"type":"string"},"n":{"type":"integer","maximum":9007199254740992}},"required":["order"],"additionalProperties":false}`

// Arguments that the tool's schema refuses are refused before anybody is asked. The
// caller is told where and by which rule, and the ledger that it was so.
func TestArgumentsThatDoNotFitAreNeverParked(t *testing.T) {
	b := newBench(t)
	b.withSchema(orderSchema)
	for _, tc := range []struct{ args, pointer, rule string }{
		{`{"order":7}`, "/order", "type"},
		{`{"n":1}`, "/order", "required"},
		{``, "/order", "required"},
		{`{"order":"1","n":9007199254740993}`, "/n", "maximum"},
		{`{"order":"1","n":1e400}`, "/n", "maximum"},
		{`{"order":"1","canary-5512":"canary-5512"}`, "/canary-5512", "additionalProperties"},
	} {
		a := b.do(ana, "cancel_order", tc.args)
		wantRefusal(t, a, codeParams, "invalid_arguments")
		var data struct{ Pointer, Rule string }
		if err := json.Unmarshal(a.Error.Data, &data); err != nil {
			t.Fatal(err)
		}
		if data.Pointer != tc.pointer || data.Rule != tc.rule || !strings.Contains(a.Error.Message, tc.pointer+": "+tc.rule) {
			t.Errorf("%s: %s, %s", tc.args, a.Error.Data, a.Error.Message)
		}
	}
	b.pendingN(0)
	n := 0
	for _, r := range b.records() {
		if r.Event == ledger.Decision && r.Outcome == ledger.Deny && r.Reason == "invalid_arguments" && r.ToolDigest != "" {
			n++
		}
		if text, _ := json.Marshal(r); strings.Contains(string(text), "canary") || strings.Contains(string(text), "additionalProperties") {
			t.Errorf("the ledger has more than the reason: %s", text)
		}
	}
	if n != 6 {
		t.Errorf("%d refusals are on the ledger", n)
	}

	// What fits is asked for, in any spelling of its numbers.
	_, tk := b.parked(req(ana, "cancel_order", `{"order":"1","n":9007199254740992.0}`))
	if len(tk.View.Warnings) > 0 {
		t.Errorf("warnings: %q", tk.View.Warnings)
	}
	// Of a call that nobody is asked about, the server itself is the judge.
	if s := read(t, b.do(ana, "echo", `{"order":7}`)); s.IsError {
		t.Errorf("an allowed call: %+v", s)
	}
}

// What a schema leaves open is not refused: people are shown that it is open.
func TestASchemaThatCantBeJudgedIsAWarning(t *testing.T) {
	for i, schema := range []string{
		`{"properties":{"order":{"pattern":"^(?=x)"}}}`,
		`{"$ref":"https://schemas.example/order.json"}`,
		`"no schema"`,
	} {
		b := newBench(t)
		b.withSchema(schema)
		_, tk := b.parked(req(ana, "cancel_order", fmt.Sprintf(`{"order":"%d"}`, i)))
		if len(tk.View.Warnings) != 1 || !strings.Contains(tk.View.Warnings[0], "may not fit it") || !tk.View.Complete() {
			t.Errorf("%s: %+v", schema, tk.View)
		}
	}
}

// Arguments made to keep the gate busy are refused like those that don't fit.
func TestArgumentsThatTakeTooLongAreRefused(t *testing.T) {
	b := newBench(t)
	b.withSchema(`{"properties":{"list":{"items":{"anyOf":[` + strings.Repeat(`{"type":"string"},`, 200) + `{"type":"integer"}]}}}}`)
	a := b.do(ana, "cancel_order", `{"list":[`+strings.TrimSuffix(strings.Repeat("1,", 50_000), ",")+`]}`)
	wantRefusal(t, a, codeParams, "invalid_arguments")
	if !strings.Contains(a.Error.Message, "bounds") || !strings.Contains(string(a.Error.Data), "too_complex") {
		t.Errorf("%s %s", a.Error.Message, a.Error.Data)
	}
	b.pendingN(0)
}

// A definition is compiled once, and a changed one anew.
func TestASchemaIsCompiledOnce(t *testing.T) {
	var s schemas
	tool := func(name, schema string) pins.Tool {
		d, err := pins.Define(json.RawMessage(fmt.Sprintf(`{"name":%q,"inputSchema":%s}`, name, schema)))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	first := s.of("desk", tool("a", `{"type":"object"}`))
	if s.of("desk", tool("a", ` {"type" : "object"} `)) != first {
		t.Error("the same definition is compiled again")
	}
	if s.of("other", tool("a", `false`)) == first || s.of("desk", tool("a", `false`)) == first {
		t.Error("another definition has the same schema")
	}
	for i := range 3 * maxSchemas {
		s.of("desk", tool(fmt.Sprint(i), `{}`))
		if len(s.known) > maxSchemas {
			t.Fatalf("%d schemas are kept", len(s.known))
		}
	}
}

// A repeated call of what waits is still joined: it fitted when it was parked.
func TestJoiningUnderASchema(t *testing.T) {
	b := newBench(t, settings(hasty))
	b.withSchema(orderSchema)
	for range 2 {
		r := req(ana, "cancel_order", `{"order":"1"}`)
		r.Client = "hasty"
		if s := read(t, b.Call(t.Context(), r)); s.status() != string(approvals.Pending) {
			t.Fatalf("%+v", s)
		}
	}
	b.pendingN(1)
}
