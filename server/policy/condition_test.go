package policy

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/approvals/action"
)

// fires is what a condition says of a call of desk/a with the given arguments:
// "yes", "no" or "error". The rule denies; so does the error.
func fires(t testing.TB, when string, f Facts) string {
	t.Helper()
	quoted, err := json.Marshal(when)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Parse("p", []byte("version: 2\ntools: {desk/a: write}\nrules: [{id: r, effect: deny, reason: no, when: "+string(quoted)+"}]"))
	if err != nil {
		t.Fatalf("%s: %v", when, err)
	}
	f.Call.Server, f.Call.Tool = "desk", "a"
	e := s.Explain(f)
	v := s.Judge(f)
	v.Hurried = e.Verdict.Hurried // the clock is another each time
	if !reflect.DeepEqual(v, e.Verdict) {
		t.Errorf("%s: judged %+v, explained %+v", when, v, e.Verdict)
	}
	switch o := e.Rules[0].Outcome; {
	case o == Fired && says(e.Verdict) == "deny by r" && e.Verdict.Reasons[0].Text == "no":
		return "yes"
	case o == NotFired && says(e.Verdict) == "allow by tier:write":
		return "no"
	case o == Failed && says(e.Verdict) == "deny by r" && strings.Contains(e.Verdict.Reasons[0].Text, "can't be judged"):
		return "error"
	}
	t.Errorf("%s: %+v", when, e)
	return ""
}

func args(text string) Facts { return Facts{Call: action.Call{Args: json.RawMessage(text)}} }

func TestConditions(t *testing.T) {
	for _, tc := range []struct{ when, args, want string }{
		{`args.n > 1000`, `{"n":1001}`, "yes"},
		{`args.n > 1000`, `{"n":1000}`, "no"},
		{`args.n > 1000`, `{"n":1000.5}`, "yes"},
		{`args.n > 1000.25`, `{"n":1000}`, "no"},
		// What is missing or of another type denies.
		{`args.n > 1000`, `{}`, "error"},
		{`args.n > 1000`, ``, "error"},
		{`args.n > 1000`, `{"n":"5000"}`, "error"},
		{`args.n > 1000`, `{"n":null}`, "error"},
		{`args.n > 1000`, `{"n":[5000]}`, "error"},
		{`args.n > 1000`, `{"n":true}`, "error"},
		{`args.n > 1000`, `{"N":1}`, "error"},
		{`args.a.b > 1`, `{"a":{}}`, "error"},
		{`args.a.b > 1`, `{"a":"b"}`, "error"},
		{`args.a.b > 1`, `{"a":{"b":2}}`, "yes"},
		{`args["a/b"] > 1`, `{"a\/b":2}`, "yes"},
		{`args.l[1] > 1`, `{"l":[1,2]}`, "yes"},
		{`args.l[2] > 1`, `{"l":[1,2]}`, "error"},
		{`args.l[-1] > 1`, `{"l":[1,2]}`, "error"},
		{`!args.to.endsWith("@acme.test")`, `{"to":"x@evil.test"}`, "yes"},
		{`!args.to.endsWith("@acme.test")`, `{"to":["x@evil.test"]}`, "error"},
		{`args.to.startsWith("x")`, `{"to":7}`, "error"},
		{`args.s.matches("^a+$")`, `{"s":"aa"}`, "yes"},
		{`args.s.matches("^a+$")`, `{"s":"aa\n"}`, "no"},
		{`args.s.contains("x")`, `{"s":"\u0078"}`, "yes"},
		{`size(args.s) > 2`, `{"s":"ééé"}`, "yes"},
		{`size(args.s) > 2`, `{"s":"éé"}`, "no"},
		{`args.s == "é\""`, `{"s":"\u00e9\""}`, "yes"},
		// Equality has one type, also within.
		{`args.mode == "force"`, `{"mode":"force"}`, "yes"},
		{`args.mode == "force"`, `{"mode":"soft"}`, "no"},
		{`args.mode == "force"`, `{"mode":["force"]}`, "error"},
		{`args.mode == "force"`, `{"mode":1}`, "error"},
		{`args.mode == "force"`, `{"mode":null}`, "error"},
		{`args.mode != "soft"`, `{"mode":1}`, "error"},
		{`"force" == args.mode`, `{"mode":{}}`, "error"},
		{`args.mode == args.other`, `{"mode":1,"other":"1"}`, "error"},
		{`args.mode == args.other`, `{"mode":1,"other":1.0}`, "yes"},
		{`args.n == 1`, `{"n":1.0}`, "yes"},
		{`args.n == 0.5`, `{"n":5e-1}`, "yes"},
		{`args.flag == true`, `{"flag":true}`, "yes"},
		{`args.flag == true`, `{"flag":"true"}`, "error"},
		{`args.flag == true`, `{"flag":1}`, "error"},
		{`args.x == null`, `{"x":null}`, "yes"},
		{`args.x == null`, `{"x":7}`, "no"},
		{`args.x != null && args.x > 5`, `{"x":7}`, "yes"},
		{`args.x != null && args.x > 5`, `{"x":null}`, "no"},
		{`args.l == ["a", "b"]`, `{"l":["a","b"]}`, "yes"},
		{`args.l == ["a", "b"]`, `{"l":["a","c"]}`, "no"},
		{`args.l == ["a", "b"]`, `{"l":["a"]}`, "no"},
		{`args.l == ["a", "b"]`, `{"l":["a",1]}`, "error"},
		{`args.l == ["a", "b"]`, `{"l":"ab"}`, "error"},
		{`args.m == {"a": 1}`, `{"m":{"a":1}}`, "yes"},
		{`args.m == {"a": 1}`, `{"m":{"a":2}}`, "no"},
		{`args.m == {"a": 1}`, `{"m":{"b":1}}`, "no"},
		{`args.m == {"a": 1}`, `{"m":{"a":"1"}}`, "error"},
		{`args.m == args.o`, `{"m":{"a":[1,{"b":2}]},"o":{"a":[1,{"b":2.0}]}}`, "yes"},
		{`args.m == args.o`, `{"m":{"a":[1,{"b":2}]},"o":{"a":[1,{"b":"2"}]}}`, "error"},
		{`type(args.x) == string`, `{"x":"a"}`, "yes"},
		{`type(args.x) == string`, `{"x":1}`, "no"},
		{`type(args.x) == map`, `{"x":{}}`, "yes"},
		{`type(args.x) == list`, `{"x":[]}`, "yes"},
		{`args.c in ["EUR", "USD"]`, `{"c":"USD"}`, "yes"},
		{`args.c in ["EUR", "USD"]`, `{"c":"GBP"}`, "no"},
		{`args.c in ["EUR", "USD"]`, `{"c":1}`, "error"},
		{`args.c in ["EUR", "USD"]`, `{"c":["EUR"]}`, "error"},
		{`!(args.c in ["EUR", "USD"])`, `{"c":null}`, "error"},
		{`args.c in ["EUR", null]`, `{"c":"GBP"}`, "no"},
		{`args.c in ["EUR", null]`, `{"c":null}`, "yes"},
		{`args.n in [1, 2]`, `{"n":2.0}`, "yes"},
		{`"root" in args.roles`, `{"roles":["a","root"]}`, "yes"},
		{`"root" in args.roles`, `{"roles":["a"]}`, "no"},
		{`"root" in args.roles`, `{"roles":["a",1]}`, "error"},
		{`"root" in args.roles`, `{"roles":[1,"root"]}`, "yes"},
		{`"root" in args.roles`, `{"roles":"root"}`, "error"},
		{`"a" in args`, `{"a":null}`, "yes"},
		{`"b" in args`, `{"a":null}`, "no"},
		// has is for what may be absent; of what can have no members it is an error.
		{`has(args.x)`, `{"x":null}`, "yes"},
		{`has(args.x)`, `{}`, "no"},
		{`!has(args.x) || args.x > 5`, `{}`, "yes"},
		{`has(args.a.b)`, `{"a":{}}`, "no"},
		{`has(args.a.b)`, `{}`, "error"},
		{`has(args.a.b)`, `{"a":"b"}`, "error"},
		{`has(args.a.b)`, `{"a":["b"]}`, "error"},
		// Loops.
		{`args.to.exists(x, !x.endsWith("@acme.test"))`, `{"to":["a@acme.test","b@evil.test"]}`, "yes"},
		{`args.to.exists(x, !x.endsWith("@acme.test"))`, `{"to":["a@acme.test"]}`, "no"},
		{`args.to.exists(x, !x.endsWith("@acme.test"))`, `{"to":["a@acme.test",1]}`, "error"},
		{`args.to.exists(x, !x.endsWith("@acme.test"))`, `{"to":"a@acme.test"}`, "error"},
		{`args.exists(k, k.startsWith("x-"))`, `{"a":1,"x-b":2}`, "yes"},
		{`args.all(k, args[k] != "bad")`, `{"a":"x","b":"bad"}`, "no"},
		{`args.l.map(x, x * 2) == [2, 4]`, `{"l":[1,2]}`, "yes"},
		{`args.l.filter(x, x > 1).size() == 1`, `{"l":[1,2]}`, "yes"},
		{`(args.l + [3]).size() == 3`, `{"l":[1,2]}`, "yes"},
		{`args.l.exists_one(x, x == 1)`, `{"l":[1,2,1]}`, "no"},
		// A part that settles it alone settles it; both ways of asking agree.
		{`args.n > 5 && tier == "read"`, `{"n":"x"}`, "no"},
		{`args.n > 5 || tier == "write"`, `{"n":"x"}`, "yes"},
		{`args.n > 5 && tier == "write"`, `{"n":"x"}`, "error"},
		{`(args.n > 5 ? "a" : "b") == "a"`, `{"n":"x"}`, "error"},
		{`args.n / 0 == 1`, `{"n":1}`, "error"},
		{`args.n + 9223372036854775807 > 0`, `{"n":1}`, "error"},
		{`double(args.n) > 1000.0`, `{"n":"nan"}`, "error"},
		{`int(args.s) > 5`, `{"s":"x"}`, "error"},
		{`args == {"n": 1}`, `{"n":1}`, "yes"},
		{`size(args) == 0`, ``, "yes"},
	} {
		if got := fires(t, tc.when, args(tc.args)); got != tc.want {
			t.Errorf("%s with %s: %s, want %s", tc.when, tc.args, got, tc.want)
		}
	}
}

// A number that a condition would not see as it is written can't be judged.
func TestConditionNumbers(t *testing.T) {
	for literal, want := range map[string]string{
		"9007199254740993":                     `args.n == 9007199254740993 && type(args.n) == int`,
		"9007199254740993.0":                   `args.n == 9007199254740993 && type(args.n) == int`,
		"9223372036854775807":                  `args.n == 9223372036854775807`,
		"-9223372036854775808":                 `args.n == -9223372036854775808`,
		"1e3":                                  `args.n == 1000 && type(args.n) == int`,
		"-0":                                   `args.n == 0 && type(args.n) == int`,
		"-0.0":                                 `args.n == 0`,
		"0.1":                                  `args.n == 0.1 && type(args.n) == double`,
		"1.50":                                 `args.n == 1.5`,
		"1e22":                                 `args.n == 1e22 && type(args.n) == double`,
		"9223372036854775808":                  "error", // 9223372036854775808 is not the shortest decimal of its double
		"9223372036854775807.5":                "error",
		"0.1000000000000000055511151231257827": "error",
		"0.30000000000000004":                  `args.n > 0.3`,
		"0.300000000000000041":                 "error",
		"1e400":                                "error",
		"-1e400":                               "error",
		"1e-400":                               "error",
		"5e-324":                               `args.n > 0`,
		"123456789012345678901234567890":       "error",
		"1.7976931348623157e308":               `args.n > 1`,
	} {
		when, expect := want, "yes"
		if want == "error" {
			when, expect = `args.n != 12345`, "error"
		}
		if got := fires(t, when, args(`{"n":`+literal+`}`)); got != expect {
			t.Errorf("%s with %s: %s", when, literal, got)
		}
		if got := fires(t, `has(args.n)`, args(`{"n":`+literal+`}`)); got != "yes" {
			t.Errorf("%s is there: %s", literal, got)
		}
		if got := fires(t, `args.l == args.l`, args(`{"l":[{"a":`+literal+`}]}`)); want == "error" && got != "error" {
			t.Errorf("%s deep within: %s", literal, got)
		}
	}
}

func TestConditionNames(t *testing.T) {
	f := Facts{
		Call: action.Call{
			Actor:   action.Actor{ID: "ana@acme.test", Roles: []string{"operator", "auditor"}},
			Session: "s1", Workflow: "w1", Args: json.RawMessage(`{}`),
		},
		Evidence: []string{"sha256:1"},
	}
	for when, want := range map[string]string{
		`tool == "a" && server == "desk" && tier == "write"`: "yes",
		`actor.id == "ana@acme.test"`:                        "yes",
		`"operator" in actor.roles`:                          "yes",
		`!("root" in actor.roles)`:                           "yes",
		`actor.roles.exists(r, r.startsWith("aud"))`:         "yes",
		`session == "s1" && workflow == "w1"`:                "yes",
		`evidence == ["sha256:1"]`:                           "yes",
		`size(evidence) == 0`:                                "no",
	} {
		if got := fires(t, when, f); got != want {
			t.Errorf("%s: %s", when, got)
		}
	}
	if got := fires(t, `size(actor.roles) == 0 && actor.id == "" && size(evidence) == 0`, Facts{}); got != "yes" {
		t.Error("an actor without roles:", got)
	}
}

// A rule that would take long is cut, and denies.
func TestExpensiveConditions(t *testing.T) {
	items := "[" + strings.TrimSuffix(strings.Repeat("1,", 2000), ",") + "]"
	long := strings.Repeat("a", 1<<20)
	for name, tc := range map[string]struct{ when, args string }{
		"three loops":       {`args.l.all(a, args.l.all(b, args.l.all(c, a + b + c > 0)))`, `{"l":` + items + `}`},
		"two loops":         {`args.l.all(a, args.l.all(b, a == b))`, `{"l":` + items + `}`},
		"a growing list":    {`args.l.map(a, args.l.map(b, args.l)).size() > 0`, `{"l":` + items + `}`},
		"labels in a loop":  {`args.l.all(a, labels("/m/x/y") == ["unknown"])`, `{"l":` + items + `,"m":{"s":"` + long + `","x":{"y":1}}}`},
		"regexes in a loop": {`args.l.all(a, args.s.matches("(a|b)*c|(a|b)*d") == false)`, `{"l":` + items + `,"s":"` + long + `"}`},
		"texts that grow":   {`args.l.all(a, (args.s + args.s + args.s + args.s).size() > 0)`, `{"l":` + items + `,"s":"` + long + `"}`},
	} {
		start := time.Now()
		if got := fires(t, tc.when, args(tc.args)); got != "error" {
			t.Errorf("%s: %s", name, got)
		}
		t.Logf("%s: %v for two judgements", name, time.Since(start))
	}
	// One that is not counted for a small call is for a large one.
	ones := "[" + strings.TrimSuffix(strings.Repeat("1,", 300_000), ",") + "]"
	if got := fires(t, `args.l.all(a, a > 0)`, args(`{"l":`+ones+`}`)); got != "error" {
		t.Error("a very long list:", got)
	}
	// A loop over a list of ordinary length is not.
	if got := fires(t, `args.l.all(a, a > 0)`, args(`{"l":`+items+`}`)); got != "yes" {
		t.Error("an ordinary loop:", got)
	}
	// A large argument does not hinder a plain rule.
	if got := fires(t, `args.s.contains("b") || args.s.matches("^[b-z]")`, args(`{"s":"`+long+`"}`)); got != "no" {
		t.Error("a large argument:", got)
	}
}

// What is not counted must not be able to cost much.
func TestFreeConditionsAreCheap(t *testing.T) {
	for when, want := range map[string]bool{
		`tier == "write"`:                            true,
		`args.n > 5 && args.s.matches("^a")`:         true,
		`labels("/a").exists(l, l == "x")`:           true,
		`args.l.exists(x, x == 1)`:                   true,
		`args.l.exists(x, args.l.exists(y, x == y))`: false,
	} {
		c, faults := compile(when)
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		if (c.free != nil) != want {
			t.Errorf("%s is free: %v", when, !want)
		}
	}
}
