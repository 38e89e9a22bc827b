package approvals

import (
	"strings"
	"testing"
)

func TestIsSource(t *testing.T) {
	for _, good := range []string{"desk", "jira-2", "0", strings.Repeat("a", 64)} {
		if !IsSource(good) {
			t.Errorf("%q is refused", good)
		}
	}
	for _, bad := range []string{"", "-a", "Desk", "a_b", "a.b", "a b", "a/b", "a:b", "desk\n", "é", strings.Repeat("a", 65)} {
		if IsSource(bad) {
			t.Errorf("%q is taken", bad)
		}
	}
}
