package schema

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The JSON Schema project's own test suite, as a module that the MCP SDK needs
// carries it: what must pass passes, what must fail fails, and only where a keyword
// is not understood may it stay open. It never goes wrong.
func TestTheOfficialSuite(t *testing.T) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/google/jsonschema-go").Output()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(strings.TrimSpace(string(out)), "jsonschema", "testdata")
	judged, open := 0, map[string]int{}
	for _, draft := range []string{"draft7", "draft2020-12"} {
		files, _ := filepath.Glob(filepath.Join(dir, draft, "*.json"))
		if len(files) == 0 {
			t.Fatalf("no %s suite in %s", draft, dir)
		}
		for _, f := range files {
			n, o := suite(t, draft, f)
			judged += n
			if o > 0 {
				open[draft+"/"+filepath.Base(f)] = o
			}
		}
	}
	t.Logf("%d judged; open: %v", judged, open)
	for f := range open {
		switch strings.TrimSuffix(filepath.Base(f), ".json") {
		case "ref", "refRemote", "anchor", "dynamicRef", "defs", "definitions", "unevaluatedItems", "unevaluatedProperties", "if-then-else", "not", "infinite-loop-detection",
			"minLength", "maxLength": // of characters that are two units in UTF-16
		default:
			t.Errorf("%s: a keyword that is understood is left open", f)
		}
	}
	if judged < 1500 {
		t.Errorf("only %d tests", judged)
	}
}

func suite(t *testing.T, draft, file string) (judged, open int) {
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var groups []struct {
		Description string
		Schema      json.RawMessage
		Tests       []struct {
			Description string
			Data        json.RawMessage
			Valid       bool
		}
	}
	if err := json.Unmarshal(b, &groups); err != nil {
		t.Fatal(err)
	}
	for _, g := range groups {
		schema := g.Schema
		if draft == "draft7" && schema[0] == '{' && !strings.Contains(string(schema), `"$schema"`) {
			schema = append([]byte(`{"$schema":"http://json-schema.org/draft-07/schema#"`), schema[1:]...)
			if g.Schema[1] != '}' {
				schema = append([]byte(`{"$schema":"http://json-schema.org/draft-07/schema#",`), g.Schema[1:]...)
			}
		}
		s := Compile(schema)
		for _, tt := range g.Tests {
			judged++
			v := s.Check(tt.Data)
			switch {
			case v.Refused == nil && len(v.Gaps) > 0:
				open++
			case (v.Refused == nil) != tt.Valid:
				t.Errorf("%s/%s: %s: %s: valid should be %v: %+v", draft, filepath.Base(file), g.Description, tt.Description, tt.Valid, v.Refused)
			}
		}
	}
	return judged, open
}
