package main

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/countersign-mcp/countersign/"

// arrows says what each package of the project may import: of the project, and
// of the four libraries that shape it. Other libraries are a package's own
// business. Tests of a package are free, except that nothing but tests may
// import the test-only packages.
var arrows = map[string][]string{
	"approvals":        {"approvals/action"},
	"approvals/action": {"jsontext"},
	"approvals/keys":   {},
	"approvals/fault":  {},
	"approvals/ledger": {},
	"approvals/store":  {"approvals", "approvals/action", "approvals/keys", "approvals/fault", "redis"},

	"server/policy":     {"approvals", "approvals/action"},
	"server/pins":       {"approvals", "approvals/action", "server/redact", "jsontext"},
	"server/redact":     {"approvals", "approvals/action", "jsontext"},
	"server/provenance": {"approvals", "approvals/action"},
	"server/schema":     {"jsontext"},
	"server/upstream":   {"approvals/action", "approvals/fault", "sdk"},
	"server/gate": {
		"server/pins", "server/policy", "server/provenance", "server/redact", "server/schema", "server/upstream",
		"approvals", "approvals/action", "approvals/ledger", "approvals/keys", "approvals/fault",
	},
	"server": {"server/gate", "approvals", "approvals/action", "approvals/keys", "sdk"},

	"notifier":       {"approvals", "approvals/fault"},
	"notifier/slack": {"notifier", "approvals", "approvals/action", "approvals/keys"},
	"notifier/link":  {"notifier", "approvals", "approvals/action", "approvals/keys"},

	"webhook":      {"approvals", "approvals/action", "approvals/keys", "approvals/fault", "webhook/page", "echo", "jsontext"},
	"webhook/page": {"approvals"},
}

// testOnly packages are never linked into the binary.
var testOnly = []string{
	"notifier/slacktest", "notifier/notifiertest", "server/upstream/upstreamtest", "approvals/store/redistest", "cmd/countersign/internal/e2e", "cmd/countersign/internal/e2e/testservers",
}

var libraries = map[string]string{
	"github.com/redis/go-redis/":                  "redis",
	"github.com/modelcontextprotocol/go-sdk/":     "sdk",
	"github.com/labstack/echo/":                   "echo",
	"github.com/go-json-experiment/json/jsontext": "jsontext",
	"github.com/go-json-experiment/json":          "json",
	"github.com/alicebob/miniredis/":              "miniredis",
}

type listed struct {
	ImportPath string
	Imports    []string
}

func TestArrows(t *testing.T) {
	for _, p := range packages(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		if strings.HasPrefix(name, "cmd/") || slices.Contains(testOnly, name) || name == "deploy" {
			continue
		}
		allowed, known := arrows[name]
		if !known {
			t.Errorf("%s is not in the table: say what it may import", name)
			continue
		}
		for _, bad := range forbidden(p.Imports, allowed) {
			t.Errorf("%s imports %s", name, bad)
		}
	}
}

// The rule must bite: a planted import is found.
func TestArrowsBite(t *testing.T) {
	got := forbidden([]string{"fmt", module + "webhook", "github.com/redis/go-redis/v9", module + "approvals"}, []string{"approvals"})
	if want := []string{"webhook", "redis"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Only the daemon knows the store; only server/upstream is an MCP client.
func TestNarrowDoors(t *testing.T) {
	for _, p := range packages(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		for _, imp := range p.Imports {
			imp = strings.TrimPrefix(imp, module)
			if slices.Contains(testOnly, imp) && !slices.Contains(testOnly, name) {
				t.Errorf("%s links the test-only package %s", name, imp)
			}
			if imp == "approvals/store" && name != "cmd/countersign/internal/daemon" && !slices.Contains(testOnly, name) {
				t.Errorf("%s imports the store; only the daemon may", name)
			}
			if imp == "os/exec" && !slices.Contains([]string{"server/upstream", "cmd/countersign/internal/demo"}, name) && !slices.Contains(testOnly, name) {
				t.Errorf("%s starts processes; only server/upstream may", name)
			}
		}
	}
}

func forbidden(imports, allowed []string) []string {
	var out []string
	for _, imp := range imports {
		name := short(imp)
		if name != "" && !slices.Contains(allowed, name) {
			out = append(out, name)
		}
	}
	return out
}

// short names an import of the table; "" for one that is free.
func short(imp string) string {
	if rest, ok := strings.CutPrefix(imp, module); ok {
		return rest
	}
	for prefix, name := range libraries {
		if strings.HasPrefix(imp, prefix) {
			if strings.HasPrefix(imp, "github.com/go-json-experiment/json/jsontext") {
				return "jsontext"
			}
			return name
		}
	}
	return ""
}

func packages(t *testing.T) []listed {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports", module+"...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []listed
	dec := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	if len(all) < 5 {
		t.Fatalf("only %d packages listed", len(all))
	}
	return all
}
