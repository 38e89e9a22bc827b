package redact

import (
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"github.com/countersign-mcp/countersign/approvals/action"
)

// rendered is what rendering a call with a schema allocates.
func rendered(t *testing.T, args, schema string) (mb uint64) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	Render(action.Call{Server: "s", Tool: "t", Args: json.RawMessage(args)}, Rules{Schema: json.RawMessage(schema)},
		func([]byte) string { return "k.digest" })
	runtime.ReadMemStats(&after)
	return (after.TotalAlloc - before.TotalAlloc) >> 20
}

// A schema is a stranger's: no pattern of it is made before it is known to be small,
// and no more are made than are used.
func TestPatternsOfSchemasAreWeighed(t *testing.T) {
	heavy := `{"patternProperties": {"` + strings.Repeat("a{0,1000}", 300) + `": {}}}`
	if mb := rendered(t, `{"password": "hunter2hunter2"}`, heavy); mb > 20 {
		t.Errorf("one heavy pattern took %d MB", mb)
	}
	var many []string
	for i := range 3000 {
		many = append(many, `"`+strings.Repeat("[a-z]{9}", 20)+strings.Repeat("b", i%50)+string(rune('a'+i%26))+strings.Repeat("c", i/50)+`": {}`)
	}
	if mb := rendered(t, `{"password": "hunter2hunter2"}`, `{"patternProperties": {`+strings.Join(many, ",")+`}}`); mb > 60 {
		t.Errorf("many patterns took %d MB", mb)
	}
}

// Nor do they run for long: many names by many patterns.
func TestPatternsOfSchemasRunOutOfTime(t *testing.T) {
	d := readSchema(json.RawMessage(`{"patternProperties": {"` + strings.Repeat("[ab]?", 90) + `c": {}}}`))
	if len(d.root.patterns) != 1 {
		t.Fatal("the pattern is not read")
	}
	name := strings.Repeat("a", 1000) + "c"
	n := 0
	for len(d.step(d.start(), name, false)) > 0 {
		if n++; n > 1000 {
			t.Fatal("it goes on")
		}
	}
	if n == 0 {
		t.Error("the first is not declared")
	}
}
