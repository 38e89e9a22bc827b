package policy

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestArgs(t *testing.T) {
	s := load(t, `
version: 2
tools:
  desk/pay:
    tier: write
    args:
      to: {type: string, required: true, min_len: 2, max_len: 3}
      note: {max_len: 2}
      amount: {type: number}
      count: {type: integer}
      flag: {type: boolean}
      list: {type: array}
      map: {type: object}
      any: {required: true}
      a/b~c: {type: string}
`)
	base := map[string]string{"to": `"ab"`, "any": "1"}
	for _, tc := range []struct{ name, value, want string }{
		{"to", `"ab"`, "allow by tier:write"},
		{"to", `"abc"`, "allow by tier:write"},
		{"to", `"a"`, "deny by args:/to"},
		{"to", `"abcd"`, "deny by args:/to"},
		{"to", `"\u00e9\ud83d\ude00"`, "allow by tier:write"},
		{"to", "", "deny by args:/to"},
		{"to", "null", "deny by args:/to"},
		{"to", "12", "deny by args:/to"},
		{"to", `["ab"]`, "deny by args:/to"},
		{"note", "", "allow by tier:write"},
		{"note", `"xx"`, "allow by tier:write"},
		{"note", `"xxx"`, "deny by args:/note"},
		{"note", "1", "deny by args:/note"},
		{"note", "null", "deny by args:/note"},
		{"amount", "1e400", "allow by tier:write"},
		{"amount", "-0.5", "allow by tier:write"},
		{"amount", `"5"`, "deny by args:/amount"},
		{"amount", `null`, "deny by args:/amount"},
		{"count", "7", "allow by tier:write"},
		{"count", "1.0", "allow by tier:write"},
		{"count", "1e3", "allow by tier:write"},
		{"count", "1.5e1", "allow by tier:write"},
		{"count", "100e-2", "allow by tier:write"},
		{"count", "0.000e-999999999999999999999", "allow by tier:write"},
		{"count", "1e99999999999999999999", "allow by tier:write"},
		{"count", "1e-99999999999999999999", "deny by args:/count"},
		{"count", "1.5", "deny by args:/count"},
		{"count", "10e-2", "deny by args:/count"},
		{"count", "9007199254740992.5", "deny by args:/count"},
		{"count", `"7"`, "deny by args:/count"},
		{"flag", "true", "allow by tier:write"},
		{"flag", `"true"`, "deny by args:/flag"},
		{"flag", "0", "deny by args:/flag"},
		{"list", "[]", "allow by tier:write"},
		{"list", "{}", "deny by args:/list"},
		{"map", "{}", "allow by tier:write"},
		{"map", "[]", "deny by args:/map"},
		{"any", "", "deny by args:/any"},
		{"any", "null", "deny by args:/any"},
		{"any", "false", "allow by tier:write"},
		{"a/b~c", "1", "deny by args:/a~1b~0c"},
	} {
		args := map[string]json.RawMessage{}
		for k, v := range base {
			args[k] = json.RawMessage(v)
		}
		delete(args, tc.name)
		if tc.value != "" {
			args[tc.name] = json.RawMessage(tc.value)
		}
		b, err := json.Marshal(args)
		if err != nil {
			t.Fatal(err)
		}
		v := judge(s, "desk/pay", string(b))
		if got := says(v); got != tc.want {
			t.Errorf("%s=%s: %s, want %s", tc.name, tc.value, got, tc.want)
		}
		for _, r := range v.Reasons {
			if tc.value != "" && len(tc.value) > 3 && strings.Contains(r.Text, strings.Trim(tc.value, `"`)) {
				t.Errorf("the reason tells the value: %s", r.Text)
			}
		}
	}
	if got := says(judge(s, "desk/pay", `{"to":"a","note":7,"any":1}`)); got != "deny by args:/to args:/note" {
		t.Errorf("every failed rule is said: %s", got)
	}
}
