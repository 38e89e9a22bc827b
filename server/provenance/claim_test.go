package provenance

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/countersign-mcp/countersign/approvals/action"
)

const someArgs = `{"to":"a@b.test","cc":["x",{"y":1}],"a/b":{"~":2,"":3},"n":null,"o":{},"t~1":4}`

func TestClaims(t *testing.T) {
	for raw, want := range map[string]Claim{
		`{"v":1}`:               {},
		`{"v":1,"labels":{}}`:   {Labels: map[string][]string{}},
		`{"v":1,"evidence":[]}`: {},
		`{"v":1,"labels":{"/to":["user"],"/cc/1/y":["retrieved","model"]},"evidence":["ticket 4417"]}`: {
			Labels:   map[string][]string{"/to": {"user"}, "/cc/1/y": {"model", "retrieved"}},
			Evidence: []string{"ticket 4417"},
		},
		`{"labels":{"/a~1b/~0":["system"],"/a~1b/":["unknown"],"/t~01":["model"],"/n":["user"],"/o":["user"],"/cc/0":["user"],"/cc":["user"]},"v":1}`: {
			Labels: map[string][]string{
				"/a~1b/~0": {"system"}, "/a~1b/": {"unknown"}, "/t~01": {"model"},
				"/n": {"user"}, "/o": {"user"}, "/cc/0": {"user"}, "/cc": {"user"},
			},
		},
	} {
		got, err := ParseClaim(json.RawMessage(raw), json.RawMessage(someArgs))
		if err != nil {
			t.Errorf("%s: %v", raw, err)
		} else if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", raw, diff)
		}
	}
}

func TestBadClaims(t *testing.T) {
	label := func(pointer string) string { return fmt.Sprintf(`{"v":1,"labels":{%q:["user"]}}`, pointer) }
	many := func(n int, item func(int) string) string {
		parts := make([]string, n)
		for i := range parts {
			parts[i] = item(i)
		}
		return strings.Join(parts, ",")
	}
	for name, raw := range map[string]string{
		"nothing": ``, "null": `null`, "a list": `[]`, "a string": `"x"`, "cut": `{"v":1`, "more after it": `{"v":1}{}`,
		"no v": `{"labels":{}}`, "v 2": `{"v":2}`, "v 1.0": `{"v":1.0}`, `v "1"`: `{"v":"1"}`, "v true": `{"v":true}`, "v twice": `{"v":1,"v":1}`,
		"V": `{"v":1,"V":1}`, "another member": `{"v":1,"label":{}}`, "Labels": `{"v":1,"Labels":{"/to":["user"]}}`,
		"labels a list": `{"v":1,"labels":[]}`, "labels null": `{"v":1,"labels":null}`, "labels twice": `{"v":1,"labels":{},"labels":{}}`,
		"a pointer twice":               `{"v":1,"labels":{"/to":["user"],"/to":["model"]}}`,
		"a pointer twice, once escaped": `{"v":1,"labels":{"/to":["user"],"/\u0074o":["model"]}}`,
		"the session":                   label(""), "no slash": label("to"), "a fragment": label("#/to"), "absent": label("/from"), "too deep": label("/to/0"),
		"another case": label("/To"), "below null": label("/n/x"), "in an empty object": label("/o/x"), "an empty name": label("/"),
		"past the end": label("/cc/2"), "the end": label("/cc/-"), "a leading zero": label("/cc/00"), "a sign": label("/cc/+1"), "not whole": label("/cc/1.0"),
		"a bare tilde": label("/a~b"), "a tilde at the end": label("/t~"), "~2": label("/t~2"), "the name unescaped": label("/a/b"), "~1 for ~01": label("/t~1"),
		"a name that has an invisible character": label("/to\u200b"),
		"long":                                   label("/" + strings.Repeat("x", maxPointer)),
		"deep":                                   label(strings.Repeat("/x", maxSteps+1)),
		"a label alone":                          `{"v":1,"labels":{"/to":"user"}}`, "no label": `{"v":1,"labels":{"/to":[]}}`, "another label": `{"v":1,"labels":{"/to":["trusted"]}}`,
		"a session's label": `{"v":1,"labels":{"/to":["session:retrieved"]}}`, "USER": `{"v":1,"labels":{"/to":["USER"]}}`, "a label twice": `{"v":1,"labels":{"/to":["user","user"]}}`,
		"a number": `{"v":1,"labels":{"/to":[1]}}`, "nested": `{"v":1,"labels":{"/to":[["user"]]}}`, "null label": `{"v":1,"labels":{"/to":null}}`,
		"evidence a string": `{"v":1,"evidence":"x"}`, "evidence of numbers": `{"v":1,"evidence":[1]}`, "empty evidence": `{"v":1,"evidence":[""]}`,
		"evidence of lines": `{"v":1,"evidence":["a\nb"]}`, "long evidence": `{"v":1,"evidence":["` + strings.Repeat("x", maxEvidenceID+1) + `"]}`,
		"much evidence": `{"v":1,"evidence":[` + many(maxEvidence+1, func(int) string { return `"x"` }) + `]}`,
		"many pointers": `{"v":1,"labels":{` + many(maxPointers+1, func(i int) string { return fmt.Sprintf(`"/cc/%d":["user"]`, i) }) + `}}`,
		"too big":       `{"v":1,"evidence":["` + strings.Repeat(" ", maxClaim) + `"]}`,
	} {
		got, err := ParseClaim(json.RawMessage(raw), json.RawMessage(someArgs))
		var refused *BadClaim
		if !errors.As(err, &refused) {
			t.Errorf("%s: taken as %v (%v)", name, got, err)
			continue
		}
		if len(got.Labels) > 0 || len(got.Evidence) > 0 {
			t.Errorf("%s: refused, and yet %v", name, got)
		}
		for _, secret := range []string{"trusted", "Labels", "/from", "\u200b"} {
			if strings.Contains(err.Error(), secret) {
				t.Errorf("%s: the error repeats the claim: %v", name, err)
			}
		}
	}
	whole := make([]string, maxPointers)
	list := make([]string, maxPointers)
	for i := range whole {
		whole[i], list[i] = fmt.Sprintf(`"/l/%d":["user"]`, i), "0"
	}
	args := json.RawMessage(`{"l":[` + strings.Join(list, ",") + `]}`)
	if c, err := ParseClaim(json.RawMessage(`{"v":1,"labels":{`+strings.Join(whole, ",")+`}}`), args); err != nil || len(c.Labels) != maxPointers {
		t.Errorf("as many as there may be: %v", err)
	}
}

func TestWhatAClaimCountsFor(t *testing.T) {
	c := Claim{
		Labels: map[string][]string{
			"/a": {"user"}, "/b": {"system", "user"}, "/c": {"model"}, "/d": {"retrieved", "user"}, "/e": {"unknown"},
		},
		Evidence: []string{"ticket 1"},
	}
	if diff := cmp.Diff(c, c.As(true)); diff != "" {
		t.Error(diff)
	}
	want := Claim{Labels: map[string][]string{
		"/a": {"unknown"}, "/b": {"unknown"}, "/c": {"model", "unknown"}, "/d": {"retrieved", "unknown"}, "/e": {"unknown"},
	}}
	if diff := cmp.Diff(want, c.As(false)); diff != "" {
		t.Error(diff)
	}
	if got := (Claim{}).As(false); got.Labels != nil {
		t.Error(got)
	}
}

// labelSets draws labels by pointer.
func labelSets(pointers ...string) *rapid.Generator[map[string][]string] {
	lists := rapid.SliceOfNDistinct(rapid.SampledFrom(All()), 1, len(All()), rapid.ID[string])
	return rapid.MapOfN(rapid.SampledFrom(pointers), lists, 0, len(pointers))
}

// No claim of somebody who isn't trusted has a label that raises trust, or takes
// "unknown" off what it labels.
func TestAnUntrustedClaimOnlyAdds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Claim{Labels: labelSets("/a", "/b", "/b/c").Draw(t, "labels"), Evidence: rapid.SliceOf(rapid.String()).Draw(t, "evidence")}
		got := c.As(false)
		if len(got.Evidence) > 0 || len(got.Labels) != len(c.Labels) {
			t.Fatalf("%v became %v", c, got)
		}
		for p, labels := range got.Labels {
			if !slices.Contains(labels, Unknown) || slices.Contains(labels, User) || slices.Contains(labels, System) {
				t.Fatalf("%s: %v", p, labels)
			}
			for _, l := range c.Labels[p] {
				if l != User && l != System && !slices.Contains(labels, l) {
					t.Fatalf("%s lost %s", p, l)
				}
			}
		}
	})
}

// A union has every label of every part, on the pointer it is on, and no other;
// order and repetition are no difference.
func TestUnion(t *testing.T) {
	sets := labelSets("", "/a", "/b")
	rapid.Check(t, func(t *rapid.T) {
		a, b := sets.Draw(t, "a"), sets.Draw(t, "b")
		was, _ := json.Marshal([]any{a, b})
		got := Union(a, b)
		if diff := cmp.Diff(got, Union(b, a, b, nil)); diff != "" {
			t.Fatal(diff)
		}
		for _, p := range []string{"", "/a", "/b"} {
			for _, l := range All() {
				if slices.Contains(got[p], l) != (slices.Contains(a[p], l) || slices.Contains(b[p], l)) {
					t.Fatalf("%q %s: %v from %v and %v", p, l, got, a, b)
				}
			}
			if !slices.IsSorted(got[p]) {
				t.Fatalf("%v", got[p])
			}
		}
		if now, _ := json.Marshal([]any{a, b}); string(now) != string(was) {
			t.Fatalf("%s became %s", was, now)
		}
	})
	if Union() != nil || Union(nil, map[string][]string{}) != nil {
		t.Error("of nothing there is something")
	}
}

func TestWhatAResultCarries(t *testing.T) {
	got := Carried([]string{Retrieved}, map[string][]string{"": {"session:user", Unknown}, "/a": {Model, Retrieved}, "/b": {User}})
	if want := []string{"session:model", "session:retrieved", "session:user"}; !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	if got := Carried(nil, map[string][]string{"": {Unknown}}); got != nil {
		t.Errorf("nothing makes %v", got)
	}
	if got := Names(map[string][]string{"": {"b", "a"}, "/x": {"a"}}); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("names %v", got)
	}
}

// Whatever bytes a claim and arguments are: no panic, and what is taken labels
// values that an independent reader finds.
func FuzzParseClaim(f *testing.F) {
	f.Add(`{"v":1,"labels":{"/to":["user"],"/cc/1/y":["model"]}}`, someArgs)
	f.Add(`{"v":1,"labels":{"/a~1b/~0":["user"]},"evidence":["x"]}`, someArgs)
	f.Add(`{"v":1,"labels":{"":["user"]}}`, `{}`)
	f.Fuzz(func(t *testing.T, raw, args string) {
		if action.Check([]byte(args), action.Limits{}) != nil || action.TypeOf(json.RawMessage(args)) != "object" {
			return
		}
		c, err := ParseClaim(json.RawMessage(raw), json.RawMessage(args))
		if err != nil {
			return
		}
		var doc any
		if err := json.Unmarshal([]byte(args), &doc); err != nil {
			t.Fatal(err)
		}
		for p := range c.Labels {
			if !leads(doc, p) {
				t.Fatalf("%q leads nowhere in %s", p, args)
			}
		}
	})
}

// leads follows a pointer as RFC 6901 says.
func leads(doc any, pointer string) bool {
	for _, step := range strings.Split(pointer, "/")[1:] {
		step = strings.ReplaceAll(strings.ReplaceAll(step, "~1", "/"), "~0", "~")
		switch d := doc.(type) {
		case map[string]any:
			v, ok := d[step]
			if !ok {
				return false
			}
			doc = v
		case []any:
			at := -1
			for i := range d {
				if fmt.Sprint(i) == step {
					at = i
				}
			}
			if at < 0 {
				return false
			}
			doc = d[at]
		default:
			return false
		}
	}
	return true
}
