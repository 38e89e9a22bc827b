package policy

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/countersign-mcp/countersign/approvals/action"
)

const startingDir = "../../deploy/policies"

// starting are the policies that people begin with, by the upstream's name in them.
var starting = map[string]string{"github": "github", "filesystem": "files", "postgres": "postgres"}

// recorded are the names of a real server's tools, as it listed them; the first
// line says which server and version.
func recorded(t *testing.T, name string) (version string, tools []string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "tools", name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	head, rest, _ := strings.Cut(string(b), "\n")
	words := strings.Fields(head) // "# NAME VERSION, …"
	if len(words) < 3 {
		t.Fatalf("%s does not name its server and version", name)
	}
	return strings.TrimSuffix(words[2], ","), strings.Fields(rest)
}

// A starting policy loads without a warning, its cases come out as they say, and
// it says something of every tool of the real server and of no other.
func TestStartingPolicies(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(startingDir, "*.yaml"))
	if err != nil || len(files) != len(starting) {
		t.Fatalf("%v, %v", files, err)
	}
	for name, upstream := range starting {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(startingDir, name+".yaml")
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			s, err := Parse(path, b)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Bind([]string{upstream}); err != nil {
				t.Fatal(err)
			}
			for _, w := range s.Warnings() {
				// A review without an event approves nothing, and the patterns mean
				// an end or a beginning in some of their ways only.
				if !strings.Contains(w, "If that is meant") && !strings.Contains(w, "belong to one of the ways only") {
					t.Errorf("it warns: %q", w)
				}
			}
			for _, r := range s.Test() {
				if len(r.Problems) > 0 {
					t.Errorf("line %d: %s: %q", r.Line, r.Name, r.Problems)
				}
			}
			version, tools := recorded(t, name)
			if head, _, _ := strings.Cut(string(b), "version: 2"); !strings.Contains(head, "("+version) {
				t.Errorf("the head does not name version %s", version)
			}
			for _, tool := range tools {
				if _, listed := s.find(upstream, tool); !listed && !denies(s, upstream, tool) {
					t.Errorf("nothing is said of %s/%s", upstream, tool)
				}
			}
			if extra := s.Unmatched(upstream, tools); extra != nil {
				t.Errorf("the server has no such tools: %q", extra)
			}
			for _, e := range s.denied {
				if _, dead := s.find(upstream, e.pattern.tool); dead {
					t.Errorf("%s is denied and listed", e.pattern.text)
				}
			}
			s.unasked(t, upstream, tools)
		})
	}
}

func denies(s *Set, server, tool string) bool {
	for _, e := range s.denied {
		if e.pattern.covers(server, tool) {
			return true
		}
	}
	return false
}

// unasked fails for a tool that changes something and could run, with some
// arguments, although nobody agreed. The few that may are named here.
func (s *Set) unasked(t *testing.T, upstream string, tools []string) {
	t.Helper()
	harmless := map[string]bool{"create_directory": true}
	for _, tool := range tools {
		e, ok := s.find(upstream, tool)
		if ok && !denies(s, upstream, tool) && e.tier != "read" && e.said.Effect == Allow && !harmless[tool] {
			t.Errorf("%s/%s changes something and runs without a yes", upstream, tool)
		}
	}
	for _, tool := range []string{"delete_everything", "get_secrets", "write"} {
		v := s.Judge(Facts{Call: action.Call{Server: upstream, Tool: tool, Args: json.RawMessage(`{}`)}})
		if v.Effect != Deny {
			t.Errorf("a tool that nobody listed: %+v", v)
		}
	}
}
