package policy

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Entries that are for no tool of an upstream are found; what denies in advance,
// and what is for another or for several upstreams, is left alone.
func TestUnmatched(t *testing.T) {
	s, err := Parse("policy.yaml", []byte(`version: 2
tools:
  git/get_*: read
  git/raed_file: read
  git/lsit_*: write
  git/delete_*: deny
  other/thing: read
  "*/look": read
`))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"git/lsit_*", "git/raed_file"}, s.Unmatched("git", []string{"get_file", "read_file", "list_files"})); diff != "" {
		t.Error(diff)
	}
	if got := s.Unmatched("git", []string{"get_file", "raed_file", "lsit_"}); got != nil {
		t.Errorf("%q", got)
	}
}

// Of the tools that are pinned and the entries of the table, those are told that meet
// nothing on the other side.
func TestAgainst(t *testing.T) {
	set, err := Parse("p.yaml", []byte(`version: 2
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

	one, err := Parse("p.yaml", []byte("version: 1\nallow: [look, gone]\ndeny: [drop]\n"))
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
