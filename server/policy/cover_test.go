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
