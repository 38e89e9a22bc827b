package policy

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// What the page shows loads without a warning, and its cases come out as they say.
func TestReadme(t *testing.T) {
	b, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	examples, cases := 0, 0
	for _, m := range regexp.MustCompile("(?s)```yaml\n(version.*?)```").FindAllStringSubmatch(string(b), -1) {
		examples++
		s, err := Parse("README.md", []byte(m[1]))
		if err != nil {
			t.Errorf("%v\n%s", err, m[1])
			continue
		}
		for _, w := range s.Warnings() {
			if strings.Contains(w, "nobody is asked") { // that is what observe is
				continue
			}
			t.Errorf("%s\n%s", w, m[1])
		}
		for _, r := range s.Test() {
			cases++
			if len(r.Problems) > 0 {
				t.Errorf("%s: %s", r.Name, strings.Join(r.Problems, "; "))
			}
		}
	}
	if examples < 3 || cases < 5 {
		t.Errorf("only %d examples and %d cases", examples, cases)
	}
}
