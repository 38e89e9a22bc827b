package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"
)

// Every command's help is a committed text, so that a change of a flag is seen
// by whoever reviews it. A new command without a text fails, and so does a text
// without its command. UPDATE=1 writes them.
func TestHelp(t *testing.T) {
	parser, err := kong.New(&cli{}, kong.Name("countersign"))
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]bool{}
	walkCommands(parser.Model.Node, nil, func(n *kong.Node, path []string) {
		name := strings.Join(append([]string{"countersign"}, path...), "_") + ".txt"
		texts[name] = true
		t.Run(strings.Join(path, " "), func(t *testing.T) {
			explained(t, n)
			compareHelp(t, filepath.Join("testdata", "help", name), path)
		})
	})
	files, err := os.ReadDir(filepath.Join("testdata", "help"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !texts[f.Name()] {
			t.Errorf("%s is the help of no command", f.Name())
		}
	}
}

func walkCommands(n *kong.Node, path []string, visit func(*kong.Node, []string)) {
	visit(n, path)
	for _, c := range n.Children {
		walkCommands(c, append(slices.Clip(path), c.Name), visit)
	}
}

// explained fails for whatever would stand in the help without a sentence.
func explained(t *testing.T, n *kong.Node) {
	t.Helper()
	sentence := func(what, help string) {
		if !strings.HasSuffix(help, ".") {
			t.Errorf("%s is not explained by a sentence: %q", what, help)
		}
	}
	if n.Type != kong.ApplicationNode { // the program's own is given to the parser
		sentence("the command", n.Help)
	}
	for _, f := range n.Flags {
		if f.Name != "help" {
			sentence("--"+f.Name, f.Help)
		}
	}
	for _, p := range n.Positional {
		sentence(p.Name, p.Help)
	}
}

func compareHelp(t *testing.T, file string, path []string) {
	t.Helper()
	var out, errs strings.Builder
	code := run(t.Context(), append(slices.Clip(path), "--help"), terminal{in: strings.NewReader(""), out: &out, err: &errs})
	if code != exitOK || errs.Len() > 0 {
		t.Fatalf("exit %d, stderr %q", code, errs.String())
	}
	for line := range strings.Lines(out.String()) {
		if len(strings.TrimRight(line, "\n")) > 80 {
			t.Errorf("wider than a terminal: %s", line)
		}
	}
	if os.Getenv("UPDATE") == "1" {
		if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; write it with UPDATE=1 and read it", err)
	}
	if diff := cmp.Diff(string(want), out.String()); diff != "" {
		t.Errorf("%s differs (-want +got):\n%s", file, diff)
	}
}
