package policy

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/countersign-mcp/countersign/approvals/action"
)

func TestLabels(t *testing.T) {
	f := Facts{
		Call: action.Call{Args: json.RawMessage(`{"to":"a","cc":["x","y"],"body":{"a":1,"b":{"c":2},"d/e":3},"n":null,"free":"z","empty":[]}`)},
		Labels: map[string][]string{
			"":          {"session:retrieved", "a", "a"},
			"/to":       {"user"},
			"/cc/1":     {"retrieved"},
			"/body/a":   {"model"},
			"/body/b/c": {"user", "model"},
			"/n":        {"user"},
			"/gone":     {"retrieved"},
			"/empty":    {},
		},
	}
	for pointer, want := range map[string]string{
		"":           `["a", "session:retrieved"]`,
		"/to":        `["user"]`,
		"/to/0":      `[]`, // no such value
		"/free":      `["unknown"]`,
		"/n":         `["user"]`,
		"/absent":    `[]`,
		"/gone":      `[]`,
		"/empty":     `["unknown"]`,
		"/cc":        `["retrieved", "unknown"]`,
		"/cc/0":      `["unknown"]`,
		"/cc/1":      `["retrieved"]`,
		"/cc/2":      `[]`,
		"/cc/01":     `[]`,
		"/cc/-":      `[]`,
		"/body":      `["model", "unknown", "user"]`,
		"/body/a":    `["model"]`,
		"/body/b":    `["model", "user"]`, // all of it has a label
		"/body/b/c":  `["model", "user"]`,
		"/body/d~1e": `["unknown"]`,
		"/body/d/e":  `[]`,
		"/":          `[]`,
	} {
		if got := fires(t, fmt.Sprintf("labels(%q) == %s", pointer, want), f); got != "yes" {
			t.Errorf("labels(%q) is not %s: %s", pointer, want, got)
		}
	}
	// What a value is a part of lends it its labels.
	whole := Facts{Call: action.Call{Args: json.RawMessage(`{"body":{"a":{"b":1}}}`)}, Labels: map[string][]string{"/body": {"retrieved"}, "/body/a/b": {"user"}}}
	for pointer, want := range map[string]string{"/body/a/b": `["retrieved", "user"]`, "/body/a": `["retrieved", "user"]`, "/body": `["retrieved", "user"]`} {
		if got := fires(t, fmt.Sprintf("labels(%q) == %s", pointer, want), whole); got != "yes" {
			t.Errorf("labels(%q) is not %s: %s", pointer, want, got)
		}
	}
	if got := fires(t, `labels("/x") == ["unknown"] && labels("") == [] && labels("/y") == []`, args(`{"x":1}`)); got != "yes" {
		t.Error("without labels:", got)
	}
	if got := fires(t, `["/a", "/b"].exists(p, labels(p).exists(l, l == "retrieved"))`, Facts{Call: action.Call{Args: json.RawMessage(`{"b":1}`)}, Labels: map[string][]string{"/b": {"retrieved"}}}); got != "yes" {
		t.Error("labels in a loop:", got)
	}
	// A pointer that is none can't be judged.
	if got := fires(t, `labels(args.p) == []`, args(`{"p":"x"}`)); got != "error" {
		t.Error("a pointer that is none:", got)
	}
}

// Another label never takes one away: the labels of every value grow with those
// that are given.
func TestLabelsNeverShrink(t *testing.T) {
	raw := []byte(`{"a":{"b":[1,{"c":2}],"d":3},"e":4}`)
	pointers := []string{"/a", "/a/b", "/a/b/0", "/a/b/1", "/a/b/1/c", "/a/d", "/e"}
	known := func(m map[string][]string, p string) []string {
		v, _ := (&object{group: group{raw: raw}}).follow(p)
		return slices.DeleteFunc(labelsOf(m, p, v), func(l string) bool { return l == Unknown })
	}
	for i := range 1 << len(pointers) {
		m := map[string][]string{}
		for j, p := range pointers {
			if i>>j&1 == 1 {
				m[p] = []string{fmt.Sprint("l", j)}
			}
		}
		for _, extra := range pointers {
			more := map[string][]string{extra: append([]string{"new"}, m[extra]...)}
			for p, ls := range m {
				if p != extra {
					more[p] = ls
				}
			}
			for _, p := range pointers {
				after := known(more, p)
				for _, l := range known(m, p) {
					if !slices.Contains(after, l) {
						t.Fatalf("%v at %s: %s is gone with %s", m, p, l, extra)
					}
				}
			}
		}
	}
}
