package policy

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReach(t *testing.T) {
	for when, want := range map[string]struct {
		names []string
		all   bool
	}{
		`tier == "write"`:                            {},
		`args.b > 5 && args["a"] == args.b`:          {names: []string{"a", "b"}},
		`has(args.x.y) && args.x.z.w == 1`:           {names: []string{"x"}},
		`args.l.exists(x, x == args.n)`:              {names: []string{"l", "n"}},
		`labels("/a~1b/c").exists(l, l == "user")`:   {names: []string{"a/b"}},
		`"retrieved" in labels("")`:                  {},
		`["/u", "/v"].exists(p, labels(p) == ["x"])`: {all: true},
		`args == {"a": 1}`:                           {all: true},
		`size(args) > 2 && args.x == 1`:              {names: []string{"x"}, all: true},
		`names(args) == ["a"]`:                       {all: true},
		`args[tool] == 1`:                            {all: true},
		`"x" in args`:                                {all: true},
		`[args].exists(a, a.x == 1)`:                 {all: true},
		`{"args": 1}.args == 1`:                      {},
	} {
		c, faults := compile(when)
		if len(faults) > 0 {
			t.Errorf("%s: %v", when, faults)
			continue
		}
		if diff := cmp.Diff(want.names, c.names); diff != "" || c.all != want.all {
			t.Errorf("%s: all %v, want %v\n%s", when, c.all, want.all, diff)
		}
	}
}

// How much a condition can look at is what counts, wherever it stands in the call.
func TestOnlyWhatIsLookedAtHasToBeSmall(t *testing.T) {
	large := strings.Repeat("x", smallCall)
	for name, tc := range map[string]struct {
		when  string
		facts Facts
		want  bool
	}{
		"another argument":      {`args.a == "x"`, args(`{"a":"x","b":"` + large + `"}`), true},
		"this argument":         {`args.a == "x"`, args(`{"b":"x","a":"` + large + `"}`), false},
		"within this argument":  {`args.a.c == "x"`, args(`{"a":{"c":"x","d":"` + large + `"}}`), false},
		"two together":          {`args.a == args.b`, args(`{"a":"` + large[:smallCall/2] + `","b":"` + large[:smallCall/2] + `"}`), false},
		"labels of another":     {`labels("/a") == ["user"]`, args(`{"a":"x","b":"` + large + `"}`), true},
		"labels of this":        {`labels("/b/c") == ["user"]`, args(`{"a":"x","b":{"c":"` + large + `"}}`), false},
		"any argument":          {`args == {}`, args(`{"a":"x","b":"` + large + `"}`), false},
		"beside the arguments":  {`tier == "write"`, Facts{Evidence: []string{large}}, false},
		"labels that are many":  {`tier == "write"`, Facts{Labels: map[string][]string{"": {large}}}, false},
		"an argument not there": {`has(args.z)`, args(`{"b":"` + large + `"}`), true},
	} {
		c, faults := compile(tc.when)
		if len(faults) > 0 {
			t.Fatal(name, faults)
		}
		j := &judgement{args: object{group: group{raw: tc.facts.Call.Args}}, left: maxSteps}
		j.vars = activation{facts: &tc.facts, args: &j.args, left: &j.left}
		for range 2 {
			if got := j.small(c); got != tc.want {
				t.Errorf("%s: small is %v", name, got)
			}
		}
	}
}
