package policy

import (
	"strings"
	"testing"
)

// warned are the warnings of a policy, each on a line.
func warned(t *testing.T, text string, upstreams ...string) string {
	t.Helper()
	s, err := Parse("p", []byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if len(upstreams) > 0 {
		if err := s.Bind(upstreams); err != nil {
			t.Fatal(err)
		}
	}
	return strings.Join(s.Warnings(), "\n")
}

const warnHead = `version: 2
tools:
  desk/look: read
  desk/pay: {tier: write, args: {note: {type: string}, force: {type: boolean}}}
  desk/cancel: destructive
routes: {default: {channels: [slack:C0A], approvers: [ana]}}
rules:
  - {id: r, effect: deny, reason: x, `

func TestRulesThatCannotFire(t *testing.T) {
	const false_ = "line 8: the rule r can't fire, since its condition is false for every tool that it covers"
	for tail, want := range map[string]string{
		`when: 'tier == "write"'`: "",
		`when: 'tier == "wirte"'`: false_,
		`when: 'tier == "destructive" && args.n > 5', tools: [desk/pay]`:     false_,
		`when: 'tier != "read" && args.n > 5', tools: [desk/look]`:           false_,
		`when: 'tool == "pay" || tool == "look"'`:                            "",
		`when: 'tool == "desk/pay"'`:                                         false_,
		`when: 'server == "dsk"'`:                                            false_,
		`when: 'server == "desk" && tool.startsWith("p")'`:                   "",
		`when: 'tool in ["x", "y"]'`:                                         false_,
		`when: '1 > 2'`:                                                      false_,
		`when: 'false && args.x == 1'`:                                       false_,
		`when: 'args.x == 1 && false'`:                                       false_,
		`when: 'args.x == 1 && !(tier in ["read", "write", "destructive"])'`: false_,
		`when: 'args.l.exists(x, x == tier) && tier == "none"'`:              false_,
		`when: 'labels("/x").exists(l, l == "user") && server != "desk"'`:    false_,
		`when: 'args.x == 1'`:                                                "",
		`when: 'true'`:                                                       "",
		`when: '!("operator" in actor.roles)'`:                               "",
		`when: 'labels("/x").exists(l, l == "retrieved")'`:                   "",
		`when: '["/a"].exists(p, labels(p).exists(l, l == "model"))'`:        "",
		`when: 'args.s.matches("^a")'`:                                       "",
		`when: 'dyn("x") == 5'`:                                              "line 8: the rule r denies every call, since its condition can't be judged",
		`when: 'tool.matches("^pa") && args.x == 1'`:                         "",
		`when: 'tool.matches("^q") && args.x == 1'`:                          false_,
		`when: 'names(args.x).exists(n, n == "a") && 1 == 2'`:                false_,
	} {
		if got := warned(t, warnHead+tail+"}\n"); got != want {
			t.Errorf("%s\n got %s\nwant %s", tail, got, want)
		}
	}
	// Of a pattern nothing is known but what it says.
	const stars = "version: 2\ntools: {\"*/get_all_*\": read, desk/*: write}\nrules: [{id: r, effect: deny, reason: x, tools: [desk/*], when: '"
	for when, want := range map[string]string{
		`tool == "get_x"`:                      "",
		`server == "pay"`:                      "the rule r can't fire",
		`server == "desk" && tier == "read"`:   "",
		`tier == "destructive" && tool == "x"`: "the rule r can't fire",
	} {
		if got := warned(t, stars+when+"'}]"); (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %s", when, got)
		}
	}
}

func TestConditionsThatLetPass(t *testing.T) {
	const soft = "lets a call without "
	for when, want := range map[string]string{
		// has(…) that makes a rule pass over calls, in all its forms.
		`has(args.x) && args.x > 5`:                     soft + "x pass",
		`tier == "write" && args.y == 1 && has(args.x)`: soft + "x pass",
		`has(args.x) && args.x > 5 || actor.id == "x"`:  soft + "x pass",
		`!(!has(args.x) || args.x <= 5)`:                soft + "x pass",
		`has(args.x) ? args.x > 5 : false`:              "",
		`!has(args.x) ? false : args.x > 5`:             "",
		`"x" in args && args.x > 5`:                     soft + "x pass",
		`has(args.m.x) && args.m.x > 5`:                 soft + "m.x pass",
		`!!has(args.x) && args.x > 5`:                   soft + "x pass",
		`!has(args.x) || args.x > 5`:                    "",
		`!(has(args.x) && args.x <= 5)`:                 "",
		`has(args.x) ? args.x > 5 : true`:               "",
		`has(args.x)`:                                   "",
		`!has(args.x)`:                                  "",
		`!has(args.x) && args.y == 1`:                   "",
		`has(args.force) && args.force == true`:         soft + "force pass", // not all tools of the rule declare it
		`"x" in actor.roles && args.x > 5`:              "",
		// What a string, an array and an object all have.
		`size(args.note) > 500`:        "measures args.note, which desk/cancel does not give a type",
		`args.note.size() > 500`:       "measures args.note",
		`size(args["note"]) > 500`:     "measures args.note",
		`args.a > args.b`:              "measures args.a",
		`args.a > 5`:                   "",
		`size(actor.roles) > 5`:        "",
		`size("x") > 5 || args.a == 1`: "",
		// A beginning that says less than it seems.
		`!args.path.startsWith("/workspace/")`:      "/a/../b gets past",
		`!args.url.startsWith("https://acme.test")`: "a longer host",
		`args.name.startsWith("x-")`:                "",
		`tool.startsWith("/")|| args.a == 1`:        "",
		// Anchors of one way alone.
		`args.s.matches("^a|b$")`:           "put the ways in parentheses",
		`args.s.matches("^a$|^b$")`:         "",
		`args.s.matches("^(a|b)$")`:         "",
		`args.s.matches("(?i)a|b")`:         "",
		`args.s.matches("(?i)^foo|bar")`:    "",
		`args.s.matches("(?i)^foo|x|bar$")`: "put the ways in parentheses",
		`args.s.matches("limit$|^explain")`: "",
		// Labels that nothing has.
		`labels("/x").exists(l, l == "retreived")`:       "the label retreived, which nothing has",
		`labels("/x").exists(l, l in ["user", "modle"])`: "the label modle, which nothing has",
		`"retreived" in labels("/x")`:                    "the label retreived, which nothing has",
		`"retrieved" in labels("/x")`:                    "",
		`args.x in ["retreived"]`:                        "",
		`["/x", ""].exists(p, "model" in labels(p))`:     "",
		// Labels that what is looked at never has.
		`"retrieved" in labels("")`:         "the label retrieved, which no session has; write session:retrieved",
		`"unknown" in labels("")`:           "",
		`"session:model" in labels("/x")`:   `the label session:model, which no argument has`,
		`labels("").exists(l, l == "user")`: "which no session has; write session:user",
		// What a session carries can be unknown.
		`labels("").exists(l, l == "session:retrieved")`:                      "asks for session:retrieved and not for unknown: while Redis",
		`"session:model" in labels("")`:                                       "asks for session:model and not for unknown",
		`labels("").exists(l, l in ["session:retrieved", "unknown"])`:         "",
		`"session:model" in labels("") || "unknown" in labels("")`:            "",
		`"session:model" in labels("") || "unknown" in labels("/x")`:          "and not for unknown",
		`["", "/x"].exists(p, labels(p).exists(l, l == "session:retrieved"))`: "and not for unknown",
		`labels("/x").exists(l, "modell" != l)`:                               "the label modell",
		`labels("/x").exists(l, l == "user" || l == "me")`:                    "the label me",
	} {
		tail := "when: '" + when + "'}\n"
		got := warned(t, warnHead+tail)
		if (want == "") != (got == "") || !strings.Contains(got, want) || strings.Contains(got, "\n") && want != "measures args.a" {
			t.Errorf("%s\n got %s\nwant %s", when, got, want)
		}
	}
	// Where every tool of the rule declares the argument, it is meant.
	for _, when := range []string{`has(args.force) && args.force == true`, `size(args.note) > 500`} {
		if got := warned(t, warnHead+"tools: [desk/pay], when: '"+when+"'}\n"); got != "" {
			t.Errorf("%s: %s", when, got)
		}
	}
	if got := warned(t, warnHead+"tools: [desk/pay], when: 'tier == \"write\" && size(args.note) > 500'}\n"); got != "" {
		t.Error(got)
	}
}

func TestEntriesThatNothingReaches(t *testing.T) {
	const routes = "routes: {default: {channels: [slack:C0A], approvers: [ana]}}\n"
	for text, want := range map[string]string{
		"desk/*: write, desk/wipe: deny":                    "",
		"desk/wipe: destructive, desk/w*: deny":             "line 2: desk/wipe is never reached, since desk/w* (line 2) denies all of it",
		"desk/w*: destructive, desk/wipe: deny":             "",
		"desk/get_*: read, desk/*: deny":                    "line 2: desk/get_* is never reached, since desk/* (line 2) denies all of it",
		"desk/get_*_x: read, desk/get*: deny":               "line 2: desk/get_*_x is never reached, since desk/get* (line 2) denies all of it",
		`desk/shell: write, "*/shell": deny`:                "line 2: desk/shell is never reached, since */shell (line 2) denies all of it",
		`"*/shell": write, desk/shell: deny`:                "",
		`"*/ping": read, desk/ping: write, "*/pin*": write`: "line 2: */pin* is for no configured upstream",
	} {
		got := warned(t, "version: 2\ntools: {"+text+"}\n"+routes)
		if strings.Contains(want, "configured") {
			want = ""
		}
		if got != want {
			t.Errorf("%s\n got %s\nwant %s", text, got, want)
		}
	}
	const any = "version: 2\ntools: {\"*/ping\": read, desk/ping: write}\n"
	if got := warned(t, any, "desk"); got != "line 2: */ping is never reached, since for every configured upstream a longer entry decides" {
		t.Error(got)
	}
	if got := warned(t, any, "desk", "notes"); got != "" {
		t.Error(got)
	}
	// A rule for what can't be reached can't fire either.
	if got := warned(t, "version: 2\ntools: {desk/wipe: write, desk/w*: deny}\nrules: [{id: r, effect: deny, reason: x, tools: [desk/wipe]}]"); !strings.Contains(got, "can't fire, since no tool that it covers is listed") {
		t.Error(got)
	}
	if got := warned(t, "version: 2\ntools: {desk/a: read}\nroutes: {finance: {channels: [slack:C0A], approvers: [ana]}, definitions: {channels: [slack:C0A], approvers: [ana]}}"); got != "the route finance is used by no tool and no rule" {
		t.Error(got)
	}
	for text, want := range map[string]string{
		`{"version": 1, "allow": ["a", "b"], "deny": ["c"]}`:                        "",
		`{"version": 1, "allow": ["a"], "deny": ["a"]}`:                             "line 1: a is never reached, since deny lists it too (line 1)",
		`{"version": 1, "allow": ["a", "a"]}`:                                       "line 1: a stands twice in allow",
		`{"version": 1, "allow": ["a"], "arg_rules": {"b": {"x": {"max_len": 3}}}}`: "line 1: arg_rules of b have no effect, since allow does not list it",
	} {
		if got := warned(t, text); got != want {
			t.Errorf("%s\n got %s\nwant %s", text, got, want)
		}
	}
}

func TestForgottenTools(t *testing.T) {
	const head = "version: 2\ntools: {pay/send: write, pay/refund: write, desk/note: {tier: write, args: {x: {type: string}}}, desk/look: read, desk/cancel: destructive}\nroutes: {default: {channels: [slack:C0A], approvers: [ana]}}\n"
	for rules, want := range map[string]string{
		"": "",
		"{id: r, effect: deny, reason: x, when: 'args.n > 5'}":                            "",
		"{id: r, effect: deny, reason: x, tools: [pay/send], when: 'args.n > 5'}":         "line 2: no rule looks at pay/refund, though rules look at other write tools, which run without a yes too",
		"{id: r, effect: deny, reason: x, tools: [pay/*], when: 'args.n > 5'}":            "",
		"{id: r, effect: deny, reason: x, tools: [desk/look], when: 'args.n > 5'}":        "",
		"{id: r, effect: deny, reason: x, when: 'tier == \"write\" && tool == \"send\"'}": "line 2: no rule looks at pay/refund, though rules look at other write tools, which run without a yes too",
	} {
		if got := warned(t, head+"rules: ["+rules+"]\n"); got != want {
			t.Errorf("%s\n got %s\nwant %s", rules, got, want)
		}
	}
	if got := warned(t, head+"tiers: {write: review}\nrules: [{id: r, effect: deny, reason: x, tools: [pay/send], when: 'args.n > 5'}]\n"); got != "" {
		t.Error("tools that somebody is asked about:", got)
	}
}
