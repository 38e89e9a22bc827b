package policy

import (
	"fmt"
	"strings"
	"testing"
)

func TestPatterns(t *testing.T) {
	s := load(t, `
version: 2
tools:
  gh/*: write
  gh/get_*: read
  gh/get_secret_*: destructive
  gh/*_token: deny
  "*/shell": deny
  g*/ping: read
  gh/get_secret_name: read
  gh/a/b*: destructive
`+defaultRoute, "gh")
	for tool, want := range map[string]string{
		"gh/create":            "allow by tier:write",
		"gh/get_issue":         "allow by tier:read",
		"gh/get_":              "allow by tier:read",
		"gh/get":               "allow by tier:write",
		"gh/get_secret_x":      "review by tier:destructive",
		"gh/get_secret_name":   "allow by tier:read",
		"gh/get_secret_token":  "deny by tool:gh/*_token",
		"gh/shell":             "deny by tool:*/shell",
		"other/shell":          "deny by tool:*/shell",
		"gl/ping":              "allow by tier:read",
		"hh/ping":              "deny by unlisted",
		"gh/GET_issue":         "allow by tier:write",
		"gh/a/bc/d":            "review by tier:destructive",
		"gh/x/shell":           "allow by tier:write", // the tool is x/shell
		"gh//shell":            "deny by unlisted",
		"gh/get_issue/":        "deny by unlisted",
		"gh/" + long(128):      "allow by tier:write",
		"gh/" + long(129):      "deny by unlisted",
		"gh/get_issue\n":       "deny by unlisted",
		"GH/create":            "deny by unlisted",
		"gh/*":                 "deny by unlisted",
		"gh/shell_token":       "deny by tool:gh/*_token",
		"gh/get_secret_name\t": "deny by unlisted",
	} {
		if got := says(judge(s, tool, "{}")); got != want {
			t.Errorf("%q: %s, want %s", tool, got, want)
		}
	}
	twice := judge(load(t, "version: 2\ntools: {gh/*: write, gh/a*: deny, gh/*b: deny}", "gh"), "gh/ab", "{}")
	if says(twice) != "deny by tool:gh/a* tool:gh/*b" && says(twice) != "deny by tool:gh/*b tool:gh/a*" {
		t.Errorf("all that deny are said: %s", says(twice))
	}
}

func long(n int) string { return strings.Repeat("x", n) }

// Shows and Judge are written apart; they must agree on every name.
func TestShowsAgreesWithJudge(t *testing.T) {
	parts := []string{"a", "b", "a*", "*a", "*", "ab", "a*b", "b*"}
	values := []string{"read", "write", "deny", "destructive"}
	names := []string{"a", "b", "ab", "ba", "aab", "abb", "aa"}
	tried := 0
	for i := range 700 {
		var b strings.Builder
		b.WriteString("version: 2\ntiers: {write: deny}\ntools:\n")
		n := i
		for range 3 {
			fmt.Fprintf(&b, "  %q: %s\n", "u/"+parts[n%len(parts)], values[n/8%len(values)])
			n = n/3 + 7*i
		}
		s, err := Parse("p", []byte(b.String()+defaultRoute))
		if err != nil {
			continue // a duplicate or a tie
		}
		tried++
		for _, name := range names {
			denied := judge(s, "u/"+name, "{}").Effect == Deny
			if s.Shows("u", name) == denied {
				t.Fatalf("u/%s: shown %v, denied %v, under\n%s", name, !denied, denied, b.String())
			}
		}
	}
	if tried < 100 {
		t.Fatalf("only %d policies were tried", tried)
	}
}

func TestMeet(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want bool
	}{
		{"a", "a", true},
		{"a", "b", false},
		{"a*", "*a", true},
		{"a*", "b*", false},
		{"a*c", "ab*", true},
		{"*", "x", true},
		{"*", "*", true},
		{"a*b*c", "a*c", true},
		{"get_*", "set_*", false},
		{"*_x", "*_y", false},
		{"a*z", "ab", false},
		{"ab*", "a", false},
		{"*a*", "*b*", true},
	} {
		if meet(tc.a, tc.b) != tc.want || meet(tc.b, tc.a) != tc.want {
			t.Errorf("%s and %s: want %v", tc.a, tc.b, tc.want)
		}
	}
}

// meet against every short name: whether two globs share a name.
func FuzzMeet(f *testing.F) {
	f.Add("a*b", "*ab")
	f.Fuzz(func(t *testing.T, a, b string) {
		ok := func(s string) bool { return len(s) < 6 && strings.Trim(s, "ab*") == "" }
		if !ok(a) || !ok(b) {
			return
		}
		found := false
		for n := range 1 << 11 {
			name := strings.NewReplacer("0", "a", "1", "b").Replace(fmt.Sprintf("%b", n+1)[1:])
			found = found || matches(a, name) && matches(b, name)
		}
		if !found && meet(a, b) && len(a)+len(b) < 10 {
			t.Fatalf("%q and %q are said to meet", a, b)
		}
		if found && !meet(a, b) {
			t.Fatalf("%q and %q meet", a, b)
		}
	})
}
