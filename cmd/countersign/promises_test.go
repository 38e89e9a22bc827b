package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// CONTRIBUTING.md says which tests try to break which promise. Each of them must
// exist.
func TestPromisesHaveTheirTests(t *testing.T) {
	const root = "../.."
	text, err := os.ReadFile(filepath.Join(root, "CONTRIBUTING.md"))
	if err != nil {
		t.Fatal(err)
	}
	exist := testsOf(t, root)
	named := regexp.MustCompile("`([a-z0-9]+\\.(?:Test|Fuzz)[A-Za-z0-9_]+)`").FindAllSubmatch(text, -1)
	if len(named) < 40 {
		t.Fatalf("only %d tests are named", len(named))
	}
	for _, m := range named {
		if name := string(m[1]); !exist[name] {
			t.Errorf("CONTRIBUTING.md names %s, and there is no such test", name)
		}
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "| ") && !strings.Contains(line, "`") && !strings.HasPrefix(line, "| promise |") {
			t.Errorf("a promise without a test: %s", line)
		}
	}
	if exist["main.TestThatIsNotThere"] {
		t.Error("every name is believed to exist")
	}
}

// testsOf lists the tests of all packages as PACKAGE.TEST.
func testsOf(t *testing.T, root string) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		pkg := strings.TrimSuffix(f.Name.Name, "_test")
		for _, decl := range f.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil {
				out[pkg+"."+fn.Name.Name] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
