package policy

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// Calls that are made so that a rule does not see what it is for. Each condition
// is one that somebody would write to deny the call; none may come out as "no".
func TestConditionsDoNotFailOpen(t *testing.T) {
	for _, tc := range []struct{ when, args string }{
		// What is no number is neither more nor less than one.
		{`double(args.n) > 1000.0`, `{"n":"nan"}`},
		{`double(args.n) > 1000.0`, `{"n":"-NaN"}`},
		{`!(double(args.n) <= 1000.0)`, `{"n":"NaN"}`},
		{`double(args.a) / double(args.b) > 1.0`, `{"a":0,"b":0}`},
		{`double(args.n) == 0.0`, `{"n":"NaN"}`},
		{`double(args.n) in [0.0, 1.0]`, `{"n":"NaN"}`},
		{`[double(args.n)] == [0.0]`, `{"n":"NaN"}`},
		{`{"n": double(args.n)} == {"n": 0.0}`, `{"n":"NaN"}`},
		// No number is rounded before it is compared.
		{`args.n > 9007199254740992.0`, `{"n":9007199254740993}`},
		{`args.n != 9007199254740992.0`, `{"n":9007199254740993}`},
		{`args.n > 1e17`, `{"n":100000000000000001}`},
		{`args.n < -1e17`, `{"n":-100000000000000001}`},
		{`args.n > 1000`, `{"n":1000.0000000000000001}`},
		{`args.n > 1000`, `{"n":1e400}`},
		{`args.n < 1`, `{"n":-1e400}`},
		{`args.n > 1000`, `{"n":"１００１"}`},
		// An object for a list, and the other way round.
		{`args.to.exists(x, !x.endsWith("@acme.test"))`, `{"to":{"a@acme.test":"b@evil.test"}}`},
		{`args.to.exists(x, !x.endsWith("@acme.test"))`, `{"to":{}}`},
		{`!args.to.all(x, x.endsWith("@acme.test"))`, `{"to":{"a@acme.test":"b@evil.test"}}`},
		{`args.to.filter(x, !x.endsWith("@acme.test")).size() > 0`, `{"to":{}}`},
		{`args.to.map(x, x.endsWith("@evil.test")).exists(x, x)`, `{"to":{}}`},
		{`args.m.to.exists(x, x == "b")`, `{"m":{"to":{"a":"b"}}}`},
		{`args["to"].exists(x, x == "b")`, `{"to":{"a":"b"}}`},
		{`args.m.exists(l, l.exists(x, x == "b"))`, `{"m":[{"a":"b"}]}`},
		{`(args.a ? args.to : args.cc).exists(x, x == "b")`, `{"a":true,"to":{"a":"b"}}`},
		{`args.to.exists_one(x, x == "b")`, `{"to":{"a":"b"}}`},
		{`!("approved" in args.tags)`, `{"tags":{"approved":0}}`},
		{`!(args.tag in args.tags)`, `{"tag":"a","tags":{"a":0}}`},
		{`!("a" in args.m.tags)`, `{"m":{"tags":{"a":0}}}`},
		{`args.l[0] == "x"`, `{"l":{"0":"y"}}`},
		// A type for another.
		{`args.mode == "force"`, `{"mode":["force"]}`},
		{`args.mode == "force"`, `{"mode":{"0":"force"}}`},
		{`args.flag == true`, `{"flag":"true"}`},
		{`args.flag == true`, `{"flag":1}`},
		{`args.flag && tier == "write"`, `{"flag":"yes"}`},
		{`!args.safe`, `{"safe":"no"}`},
		{`args.n > 5`, `{"n":"6"}`},
		{`args.a > args.b`, `{"a":"6","b":5}`},
		{`args.s.contains("x")`, `{"s":["x"]}`},
		{`args.s.matches("x")`, `{"s":["x"]}`},
		{`args.s.startsWith("x")`, `{"s":null}`},
		{`timestamp(args.t) > timestamp("2026-01-01T00:00:00Z")`, `{"t":"2027"}`},
		{`duration(args.d) > duration("1h")`, `{"d":"2 hours"}`},
		// Nothing where something should be.
		{`args.mode == "force"`, `{}`},
		{`args.mode == "force"`, `{"mode":null}`},
		{`args.mode in ["force"]`, `{}`},
		{`has(args.m.force)`, `{}`},
		{`has(args.m.force)`, `{"m":null}`},
		{`has(args.m.force)`, `{"m":[]}`},
		// A name that some decoders take for the one that is asked for.
		{`has(args.force)`, `{"Force":true}`},
		{`has(args.force) && args.force == true`, `{"FORCE":true}`},
		{`"force" in args`, `{"fOrce":true}`},
		{`has(args.force)`, `{"ｆorce":true}`},
		{`has(args.path)`, `{"pa\u0074H":1}`},
		{`has(args.skip)`, `{"ſkip":1}`},
		{`has(args.key)`, `{"\u212aey":1}`},
		{`has(args.m.force)`, `{"m":{"Force":true}}`},
		{`"é" in args`, `{"e\u0301":1}`},
		{`labels("/to").exists(l, l == "retrieved")`, `{"To":"x"}`},
		{`labels("/m/to").exists(l, l == "retrieved")`, `{"m":{"To":"x"}}`},
	} {
		if got := fires(t, tc.when, args(tc.args)); got == "no" {
			t.Errorf("%s does not see %s", tc.when, tc.args)
		}
	}
	many := `{"Force":true` + strings.Repeat(`,"x%d":1`, 100) + `}`
	n := make([]any, 100)
	for i := range n {
		n[i] = i
	}
	if got := fires(t, `has(args.force)`, args(fmt.Sprintf(many, n...))); got != "error" {
		t.Error("another spelling among many members:", got)
	}
}

// What stands beside those has to go on as it did.
func TestConditionsStillAnswer(t *testing.T) {
	for _, tc := range []struct{ when, args, want string }{
		{`args.exists(k, k.startsWith("x-"))`, `{"x-a":1}`, "yes"},
		{`names(args.headers).exists(k, k == "x")`, `{"headers":{"x":1}}`, "yes"},
		{`names(args.headers).exists(k, k == "x")`, `{"headers":{"y":1}}`, "no"},
		{`names(args.headers).exists(k, k == "x")`, `{"headers":["x"]}`, "error"},
		{`names(args.headers).exists(k, k == "x")`, `{"headers":"x"}`, "error"},
		{`"x" in names(args.headers)`, `{"headers":{"x":1}}`, "yes"},
		{`"x" in names(args)`, `{"x":1}`, "yes"},
		{`size(names(args)) == 2`, `{"a":1,"b":2}`, "yes"},
		{`args.l.exists(m, m.n > 1)`, `{"l":[{"n":2}]}`, "yes"},
		{`args.l.map(x, x + 1).exists(x, x == 2)`, `{"l":[1]}`, "yes"},
		{`["/a", "/b"].exists(p, labels(p).exists(l, l == "unknown"))`, `{"b":1}`, "yes"},
		{`{"a": 1}.exists(k, k == "a")`, `{}`, "yes"},
		{`"a" in {"a": 1}`, `{}`, "yes"},
		{`args.t < timestamp("2026-01-01T00:00:00Z")`, `{"t":"2025"}`, "error"},
		{`timestamp(args.t) < timestamp("2026-01-01T00:00:00Z")`, `{"t":"2025-01-01T00:00:00Z"}`, "yes"},
		{`duration(args.d) >= duration("1h")`, `{"d":"60m"}`, "yes"},
		{`args.a < args.b`, `{"a":"a","b":"b"}`, "yes"},
		{`args.a <= args.b`, `{"a":2,"b":2.0}`, "yes"},
		{`args.a >= args.b`, `{"a":2.5,"b":2}`, "yes"},
		{`args.a < 18446744073709551615u`, `{"a":9223372036854775807}`, "yes"},
		{`uint(args.a) > 9223372036854775807`, `{"a":"9223372036854775808"}`, "yes"},
		{`double(args.a) > 9223372036854775807`, `{"a":"9223372036854775808"}`, "yes"},
		{`double(args.a) < 18446744073709551615u`, `{"a":"18446744073709551616"}`, "no"},
		{`double(args.a) > 1`, `{"a":"inf"}`, "yes"},
		{`double(args.a) < -9223372036854775807`, `{"a":"-inf"}`, "yes"},
		{`args.s.matches("^[a-z]{1,500}$")`, `{"s":"abc"}`, "yes"},
		{`matches(args.s, "b")`, `{"s":"abc"}`, "yes"},
		{`has(args.force)`, `{"enforce":1}`, "no"},
	} {
		if got := fires(t, tc.when, args(tc.args)); got != tc.want {
			t.Errorf("%s with %s: %s, want %s", tc.when, tc.args, got, tc.want)
		}
	}
}

// What can't be meant is refused when the policy is loaded.
func TestConditionsThatAreRefused(t *testing.T) {
	for when, says := range map[string]string{
		`args.l.exists(actor, actor.id == "ana")`: "can't be called actor",
		`args.l.exists(args, args == "x")`:        "can't be called args",
		`args.l.all(tool, tool == "x")`:           "can't be called tool",
		`args.s.matches(args.p)`:                  "stands in quotes",
		`args.s.matches("^" + actor.id + "$")`:    "stands in quotes",
		`args.s.matches("(a{1000}){11}")`:         "repeat",
		`args.s.matches("((a{100}){100}){2}")`:    "repeat",
		`args.s.matches("(a")`:                    "closing",
		`"abc".exists(x, x == "a")`:               "",
		`@list(args.l) == []`:                     "",
		`@steps == 1`:                             "",
	} {
		_, faults := compile(when)
		if len(faults) == 0 || !strings.Contains(faults[0].text, says) {
			t.Errorf("%s: %v", when, faults)
		}
	}
}

// A caller can't make a regular expression take long, neither in a condition nor
// on an argument, and the same call is always judged alike.
func TestRegularExpressionsAreBounded(t *testing.T) {
	long := strings.Repeat("a", 1<<20)
	items := `["` + strings.Repeat("a", 1000) + `"` + strings.Repeat(`,"`+strings.Repeat("a", 1000)+`"`, 1000) + `]`
	start := time.Now()
	for when, call := range map[string]string{
		`args.s.matches("(.*a.{900}b)")`:                 `{"s":"` + long + `"}`,
		`args.s.matches("a.{900}b")`:                     `{"s":"` + long[:1<<15] + `"}`,
		`args.l.exists(x, x.matches(".*a.{900}b"))`:      `{"l":` + items + `}`,
		`args.l.exists(x, args.s.matches(".*a.{900}b"))`: `{"l":` + items + `,"s":"` + long[:4000] + `"}`,
		`args.s.matches("a.{300}b") || args.s.matches("a.{300}c") || args.s.matches("a.{300}d") || args.s.matches("a.{300}e")`: `{"s":"` + long[:1<<14] + `"}`,
	} {
		if got := fires(t, when, args(call)); got != "error" {
			t.Errorf("%s: %s", when, got)
		}
	}
	s := load(t, "version: 2\ntools: {desk/a: {tier: write, args: {s: {pattern: '.*a.{900}b'}}}}")
	v := judge(s, "desk/a", `{"s":"`+long+`"}`)
	if says(v) != "deny by args:/s" || !strings.Contains(v.Reasons[0].Text, "too long") {
		t.Errorf("%+v", v)
	}
	t.Logf("all of it took %v", time.Since(start))
	// What is plain goes on for long texts.
	if got := fires(t, `args.s.matches("(?i)password")`, args(`{"s":"`+long+`"}`)); got != "no" {
		t.Error("a plain expression on a long text:", got)
	}
}

// A rule on an argument is not passed by the argument under another spelling.
func TestArgumentsInAnotherSpelling(t *testing.T) {
	s := load(t, "version: 2\ntools: {desk/a: {tier: write, args: {path: {within: /workspace}}}}")
	for call, want := range map[string]string{
		`{}`:                             "allow by tier:write",
		`{"path":"/workspace/a"}`:        "allow by tier:write",
		`{"paths":"/etc"}`:               "allow by tier:write",
		`{"Path":"/etc/passwd"}`:         "deny by args:/path",
		`{"PATH":"/workspace/a"}`:        "deny by args:/path",
		`{"p\u0041th":"/etc/passwd"}`:    "deny by args:/path",
		`{"\uff50ath":"/etc/passwd"}`:    "deny by args:/path",
		`{"x":1,"pat\uff28":"/etc"}`:     "deny by args:/path",
		`{"x":{"Path":"/etc/passwd"}}`:   "allow by tier:write",
		`{"path":"/etc/passwd","x":[1]}`: "deny by args:/path",
	} {
		v := judge(s, "desk/a", call)
		if got := says(v); got != want {
			t.Errorf("%s: %s, want %s", call, got, want)
		}
	}
	one := load(t, `{"version": 1, "allow": ["a"], "arg_rules": {"a": {"path": {"max_len": 3}}}}`, "desk")
	if got := says(judge(one, "desk/a", `{"Path":"abc"}`)); got != "deny by args:/path" {
		t.Error(got)
	}
}

// An actor does not get a group's role by a name of its own.
func TestNoActorPassesForAGroup(t *testing.T) {
	s := load(t, "version: 2\ntools: {desk/a: read}\nroles: {operator: [group:ops, ana@acme.test]}")
	if got := s.Roles(nil, "group:ops", nil); len(got) > 0 {
		t.Error(got)
	}
	if got := s.Roles(nil, "bo", []string{"ana@acme.test"}); len(got) > 0 {
		t.Error("a group called as an actor:", got)
	}
	if got := s.Roles(nil, "bo", []string{"group:ops"}); len(got) != 1 {
		t.Error(got)
	}
}

// A file means to a program what a person sees in it.
func TestFilesThatReadDifferently(t *testing.T) {
	const head = "version: 2\ntools: {desk/a: read}\n"
	for text, says := range map[string]string{
		"# \u202e comment\n":                "U+202E",
		"# zero\u200bwidth\n":               "U+200B",
		"# x\rroles: {operator: [ana]}\n":   "U+000D",
		"# x\u2028roles: {operator: [a]}\n": "U+2028",
		"# x\u0085roles: {operator: [a]}\n": "U+0085",
		"# \ufeff\n":                        "U+FEFF",
		"# \x1b[2K\n":                       "U+001B",
		"# \xff\n":                          "UTF-8",
	} {
		if _, err := Parse("p", []byte(head+text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, text := range []string{"\ufeff" + head, strings.ReplaceAll(head, "\n", "\r\n"), head + "# ein Kommentar mit Umlauten: ä ⚠️ 日本\n", "{\n\t\"version\": 2,\n\t\"tools\": {\"desk/a\":\t\"read\"}\r\n}"} {
		if _, err := Parse("p", []byte(text)); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// No file takes long to load, however it is made: what is too much is refused for
// that, and what is not loads.
func TestLoadingIsBounded(t *testing.T) {
	var b strings.Builder
	list := func(format string, n int) string {
		b.Reset()
		for i := range n {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	for name, tc := range map[string]struct{ text, says string }{
		"one_of":       {"version: 2\ntools: {desk/a: {tier: read, args: {x: {one_of: [" + list("%d, ", 100_000) + "x]}}}}", ""},
		"approvers":    {"version: 2\nroutes: {default: {channels: [slack:C0A], approvers: [" + list("a%d, ", 100_000) + "x]}}", ""},
		"tools":        {"version: 2\ntools:\n" + list("  desk/x%05d*: read\n", 900) + list("  desk/y%05d: read\n", 4000), ""},
		"more tools":   {"version: 2\ntools:\n" + list("  desk/%05d: read\n", 50_000), "at most 5000 tools"},
		"more stars":   {"version: 2\ntools:\n" + list("  desk/*%05d*: read\n", 5000), "at most 1000 tools with a *"},
		"ties":         {"version: 2\ntools:\n" + list("  desk/*%05d*: read\n", 900), "can match one"},
		"rules":        {"version: 2\ntools: {desk/a: read}\nrules:\n" + list("  - {id: r%d, effect: deny, reason: x}\n", 20_000), "at most 1000 rules"},
		"long rules":   {"version: 2\ntools:\n" + list("  desk/*a*b*%05d: read\n", 1000) + "rules:\n" + list("  - {id: r%d, tools: [desk/*a*b*c*d], effect: deny, reason: x}\n", 1000), ""},
		"patterns":     {"version: 2\ntools: {desk/a: {tier: read, args: {" + list("x%d: {pattern: '(a{1000}){500}'}, ", 10_000) + "}}}", "repeat count"},
		"nested":       {"version: 2\nredact: " + strings.Repeat("[", 500_000), "max depth"},
		"nested JSON":  {`{"version": 2, "cases": ` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + "}", "a case is a mapping"},
		"conditions":   {"version: 2\ntools: {desk/a: read}\nrules: [{id: r, effect: deny, reason: x, when: '" + strings.Repeat("(", 4000) + "'}]", "recursion limit"},
		"conditions 2": {"version: 2\ntools: {desk/a: read}\nrules: [{id: r, effect: deny, reason: x, when: '" + strings.Repeat("!", 4000) + "true'}]", ""},
	} {
		start := time.Now()
		_, err := Parse("p", []byte(tc.text))
		t.Logf("%s: %v, %d bytes: %.60s", name, time.Since(start), len(tc.text), strings.ReplaceAll(fmt.Sprint(err), "\n", " | "))
		if tc.says == "" && err != nil || tc.says != "" && (err == nil || !strings.Contains(err.Error(), tc.says)) {
			t.Errorf("%s: %.200v, want %q", name, err, tc.says)
		}
	}
}
