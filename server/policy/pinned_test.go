package policy_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-mcp/countersign/server/policy"
)

func TestAgainst(t *testing.T) {
	set, err := policy.Parse("p.yaml", []byte(`version: 2
tools:
  desk/look: read
  desk/gone: read
  desk/can*: read
  desk/never*: read
  desk/drop: deny
  desk/gone_too: deny
  books/look: read
  "*/ping": read
`))
	if err != nil {
		t.Fatal(err)
	}
	if err := set.Bind([]string{"desk", "books"}); err != nil {
		t.Fatal(err)
	}
	got := set.Against(map[string][]string{"desk": {"look", "cancel", "drop", "refund", "ping", "Look", "l\u200book"}})
	want := []string{
		"desk/Look is pinned and no entry lists it: denied and not shown",
		"desk/l\u200book is pinned and no entry lists it: denied and not shown",
		"desk/refund is pinned and no entry lists it: denied and not shown",
		"line 4: desk/gone is not pinned",
		"line 6: desk/never* covers no pinned tool",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, w := range want[:3] { // what is said to be denied is
		if tool := w[len("desk/") : len(w)-len(" is pinned and no entry lists it: denied and not shown")]; set.Shows("desk", tool) {
			t.Errorf("%s is shown", tool)
		}
	}

	one, err := policy.Parse("p.yaml", []byte("version: 1\nallow: [look, gone]\ndeny: [drop]\n"))
	if err != nil {
		t.Fatal(err)
	}
	if err := one.Bind([]string{"desk"}); err != nil {
		t.Fatal(err)
	}
	if got := one.Against(map[string][]string{"desk": {"look", "drop"}}); len(got) != 1 || got[0] != "line 2: gone is not pinned" {
		t.Errorf("version 1: %q", got)
	}
}
