package policy

import (
	"strings"
	"testing"
	"time"
)

const observedPolicy = `version: 2
tools: {github/get_*: read, files/write_file: destructive}
routes: {default: {channels: [slack:C0A], approvers: [ana]}}
observe: {upstreams: [github], until: %s}
`

func observing(t *testing.T, until string) (*Set, error) {
	t.Helper()
	return Parse("policy.yaml", []byte(strings.ReplaceAll(observedPolicy, "%s", until)))
}

// Nobody is asked on the upstreams that are named, up to the moment and not at it.
func TestObserves(t *testing.T) {
	for until, at := range map[string]time.Time{
		"2026-12-31":                  time.Date(2026, 12, 31, 0, 0, 0, 0, time.UTC),
		`"2026-12-31"`:                time.Date(2026, 12, 31, 0, 0, 0, 0, time.UTC),
		"2026-12-31T18:00:00+01:00":   time.Date(2026, 12, 31, 17, 0, 0, 0, time.UTC),
		`"2026-12-31T18:00:00.5Z"`:    time.Date(2026, 12, 31, 18, 0, 0, 5e8, time.UTC),
		`"2028-02-29"`:                time.Date(2028, 2, 29, 0, 0, 0, 0, time.UTC),
		`"2026-12-31T00:30:00-11:00"`: time.Date(2026, 12, 31, 11, 30, 0, 0, time.UTC),
	} {
		s, err := observing(t, until)
		if err != nil {
			t.Errorf("%s: %v", until, err)
			continue
		}
		for off, want := range map[time.Duration]bool{-time.Nanosecond: true, 0: false, time.Nanosecond: false, -1000 * time.Hour: true} {
			if got := s.Observes("github", at.Add(off)); got != want {
				t.Errorf("%s, %s after: %v", until, off, got)
			}
			if s.Observes("files", at.Add(off)) || s.Observes("", at.Add(off)) || s.Observes("GitHub", at.Add(off)) {
				t.Errorf("%s: another upstream is observed", until)
			}
		}
		if got := s.Observation(); !got.Until.Equal(at) || len(got.Upstreams) != 1 {
			t.Errorf("%s: %+v", until, got)
		}
	}
	var none *Set
	if none.Observes("github", time.Time{}) || new(Set).Observes("github", time.Time{}) {
		t.Error("without a policy something is observed")
	}
}

// A date that can be read in two ways, or not at all, is an error with its line.
func TestObserveIsStrict(t *testing.T) {
	for _, until := range []string{
		"tomorrow", "2026-12-31T18:00:00", "2026-12-31 18:00:00", "31.12.2026", "2026-02-29", "2026-13-01", "true", "1798675200", `""`, "[]", "null", "2026-12-31T18:00:00+1",
	} {
		if _, err := observing(t, until); err == nil || !strings.Contains(err.Error(), "policy.yaml:4: observe.until is a day") {
			t.Errorf("%s: %v", until, err)
		}
	}
	for text, says := range map[string]string{
		"observe: true":                                            "observe is a mapping",
		"observe: {upstreams: [github]}":                           "observe has no until",
		"observe: {until: 2026-12-31}":                             "observe has no upstreams",
		"observe: {upstreams: [], until: 2026-12-31}":              "observe.upstreams is empty",
		"observe: {upstreams: github, until: 2026-12-31}":          "observe.upstreams is a list",
		"observe: {upstreams: ['*'], until: 2026-12-31}":           `"*" is not an upstream's name`,
		"observe: {upstreams: [github/x], until: 2026-12-31}":      `"github/x" is not an upstream's name`,
		"observe: {upstreams: [a, a], until: 2026-12-31}":          "a stands twice",
		"observe: {upstreams: [a], until: 2026-12-31, tools: [b]}": "tools is not a key of observe",
	} {
		if _, err := Parse("policy.yaml", []byte("version: 2\ntools: {github/a: read}\n"+text+"\n")); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestObserveBindsToKnownUpstreams(t *testing.T) {
	s, err := observing(t, "2026-12-31")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Bind([]string{"files", "git"}); err == nil || !strings.Contains(err.Error(), "line 4: observe lists github, which is no configured upstream") {
		t.Errorf("%v", err)
	}
	if err := s.Bind([]string{"files", "github"}); err != nil {
		t.Error(err)
	}
}

// Whoever loads or checks the policy is told, before the date and after it.
func TestObserveIsSaid(t *testing.T) {
	s, err := observing(t, "2026-12-31")
	if err != nil {
		t.Fatal(err)
	}
	o := s.Observation()
	for off, says := range map[time.Duration]string{
		-1: "line 4: until 2026-12-31T00:00:00Z nobody is asked about calls of github",
		0:  "line 4: observe ended at 2026-12-31T00:00:00Z and has no effect",
	} {
		if got := o.warning(o.Until.Add(off)); !strings.Contains(got, says) {
			t.Errorf("%d: %q", off, got)
		}
	}
	if got := new(Set).Warnings(); got != nil {
		t.Errorf("nothing is observed, and yet: %q", got)
	}
	for until, says := range map[string]string{"2001-01-01": "has no effect", "2999-01-01": "nobody is asked"} {
		s, err := observing(t, until)
		if err != nil {
			t.Fatal(err)
		}
		if w := s.Warnings(); len(w) != 1 || !strings.Contains(w[0], says) {
			t.Errorf("%s: %q", until, w)
		}
	}
}
