package policy

import (
	"strings"
	"testing"
)

func TestItems(t *testing.T) {
	accepts(t, "{items: {type: string, pattern: '[a-z.]+@acme[.]test'}, min_items: 1, max_items: 3}",
		[]string{"", `["a@acme.test"]`, `[ "a@acme.test" , "b@acme.test" ]`, `["\u0061@acme.test"]`},
		[]string{
			`[]`, `["a@acme.test","b@evil.test"]`, `["a@acme.test",7]`, `["a@acme.test",null]`, `["a@acme.test",["b@acme.test"]]`, `[["a@acme.test"]]`, `"a@acme.test"`,
			`{"0":"a@acme.test"}`, `null`, `7`, `["a@acme.test","a@acme.test","a@acme.test","a@acme.test"]`, `["a@acme.test",{"x":"a@acme.test"}]`,
		})
	accepts(t, "{type: array, required: true, items: {within: /workspace}}", []string{"[]", `["/workspace/a"]`}, []string{"", "null", `["/workspace/a","/etc/passwd"]`})
	accepts(t, "{items: {min: 0, max: 1.5}}", []string{"[0, 1.50, 15e-1]"}, []string{`[0, 1.50001]`, `["1"]`, "[1e400]"})
	accepts(t, "{items: {one_of: [a, 1]}}", []string{`["a",1.0]`}, []string{`["b"]`, `["1"]`, "[null]"})
	accepts(t, "{items: {hosts: api.acme.test}}", []string{`["https://api.acme.test/x"]`}, []string{`["https://api.acme.test","https://evil.test"]`})
	accepts(t, "{items: {items: {type: integer}, max_items: 2}}", []string{"[]", "[[]]", "[[1,2],[3]]"}, []string{"[1]", "[[1,2,3]]", `[[1],["2"]]`})
	accepts(t, "{min_items: 1}", []string{"[null]"}, []string{"[]", "{}", `"a"`})
	accepts(t, "{items: {type: object}}", []string{"[{}]"}, []string{"[[]]"})
}

func TestItemsAreExplained(t *testing.T) {
	for rule, want := range map[string]string{
		"{items: {max_len: 2}}":              "x: /1 is longer than 2 characters",
		"{items: {type: string}}":            "",
		"{items: {type: number}}":            "x: /0 is not a number",
		"{max_items: 1}":                     "x: has more than 1 items",
		"{min_items: 3}":                     "x: has fewer than 3 items",
		"{items: {items: {type: string}}}":   "x: /0 is not an array",
		"{type: string}":                     "x: is not a string",
		"{items: {pattern: '(.*a.{900}b)'}}": "x: /0 does not have the form that it should",
	} {
		if got := oneRule(t, rule)(`["ab","abc"]`); got != want {
			t.Errorf("%s: %s, want %s", rule, got, want)
		}
	}
	deep := oneRule(t, "{items: {items: {type: integer}}}")
	if got := deep(`[[1],[2,"CANARY"]]`); got != "x: /1/1 is not an integer" {
		t.Error(got)
	}
	// All items together have one measure of what regular expressions may cost.
	long := `["` + strings.Repeat("a", 1000) + `"` + strings.Repeat(`,"`+strings.Repeat("a", 1000)+`"`, 200) + "]"
	if got := oneRule(t, "{items: {pattern: '.*a.{900}b|a*'}}")(long); !strings.Contains(got, "too long") {
		t.Error(got)
	}
}

func TestItemsThatAreRefused(t *testing.T) {
	for rule, says := range map[string]string{
		"{items: {required: true}}":                "always there",
		"{items: {}}":                              "says nothing",
		"{items: string}":                          "mapping",
		"{items: {typ: string}}":                   "typ is not a key of the rule of the items of x",
		"{items: {type: string}, type: string}":    "items is for arrays, and x is of type string",
		"{items: {type: string}, max_len: 3}":      "can't be both",
		"{max_items: 1, min: 3}":                   "can't be both",
		"{max_items: 1, one_of: [a]}":              "under items",
		"{max_items: 1, min_items: 2}":             "no array",
		"{max_items: -1}":                          "max_items",
		"{items: {type: number, max_len: 3}}":      "an item of x is of type number",
		"{items: {items: {one_of: [a, a]}}}":       "twice",
		"{type: object, min_items: 1}":             "min_items is for arrays",
		"{items: {pattern: '('}}":                  "pattern: ",
		"{items: {within: relative}}":              "not an absolute path",
		"{items: {items: {items: {required: no}}}": "",
	} {
		_, err := Parse("p", []byte("version: 2\ntools: {desk/a: {tier: read, args: {x: "+rule+"}}}"))
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", rule, err)
		}
	}
	for _, name := range []string{`"a\u200bb"`, `"a\tb"`} {
		_, err := Parse("p", []byte("version: 2\ntools: {desk/a: {tier: read, args: {"+name+": {type: string}}}}"))
		if err == nil {
			t.Errorf("an argument called %s", name)
		}
	}
	// A variation selector is in no name of a call.
	if _, err := Parse("p", []byte("version: 2\ntools: {desk/a: {tier: read, args: {\"path\ufe0f\": {type: string}}}}")); err == nil || !strings.Contains(err.Error(), "no call") {
		t.Error(err)
	}
}
