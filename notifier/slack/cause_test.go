package slack

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Every cause that ends a call without a known result has words on the card. The
// list is read from the source, so a new cause can't be forgotten.
func TestEveryCauseHasWords(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "../../approvals/state.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	said := []string{"undelivered", "resolved", "body_lost", "result_too_big", "result_expired"} // told in other words
	n := 0
	ast.Inspect(f, func(node ast.Node) bool {
		spec, ok := node.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, "Cause") {
			return true
		}
		cause, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		n++
		if !slices.Contains(said, cause) && because(cause) == "" {
			t.Errorf("%s has no words", cause)
		}
		return true
	})
	if n < 10 {
		t.Errorf("only %d causes found", n)
	}
}
