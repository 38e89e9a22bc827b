package policy

import (
	"encoding/json"
	"math/big"
	"strings"
	"testing"

	"github.com/countersign-mcp/countersign/approvals/action"
)

func TestDecimal(t *testing.T) {
	// In order, and each line the writings of one value.
	order := [][]string{
		{"-1e400", "-10e399"},
		{"-9007199254740993"},
		{"-9007199254740992.5"},
		{"-2", "-2.0", "-20e-1"},
		{"-1e-400"},
		{"0", "-0", "0.0", "0e99999999999999999999", "-0.000e-5"},
		{"1e-99999999999999999999"},
		{"1e-400", "0.1e-399"},
		{"0.01", "1e-2", "0.010", "10e-3", "1E-02"},
		{"0.0100000000000000000000000000001"},
		{"1", "1.0", "10e-1", "0.1e1", "1e0", "1e+0"},
		{"1.5", "15e-1"},
		{"50000", "5e4", "5E+4", "50000.00"},
		{"50000.0000000000000000000000001"},
		{"9007199254740992"},
		{"9007199254740993", "9007199254740993.0"},
		{"1e22", "10000000000000000000000"},
		{"1e400", "0.001e403"},
		{"1e99999999999999999999"},
	}
	sign := func(n int) int { return min(1, max(-1, n)) }
	for i, left := range order {
		for j, right := range order {
			for _, a := range left {
				for _, b := range right {
					if got := sign(newDecimal(a).compare(newDecimal(b))); got != sign(i-j) {
						t.Errorf("%s compared with %s: %d", a, b, got)
					}
				}
			}
		}
	}
}

// Against exact arithmetic of another make.
func FuzzDecimal(f *testing.F) {
	f.Add("1.50", "15e-1")
	f.Add("-0", "0e7")
	f.Add("123456789012345678901234567890", "1e29")
	f.Fuzz(func(t *testing.T, a, b string) {
		for _, s := range []string{a, b} {
			if i := strings.IndexAny(s, "eE"); !numberForm.MatchString(s) || i >= 0 && len(s)-i > 5 || len(s) > 200 {
				return
			}
		}
		x, _ := new(big.Rat).SetString(a)
		y, _ := new(big.Rat).SetString(b)
		d, e := newDecimal(a), newDecimal(b)
		if got, want := d.compare(e), x.Cmp(y); (got > 0) != (want > 0) || (got < 0) != (want < 0) {
			t.Fatalf("%s and %s: %d, want %d", a, b, got, want)
		}
		if d.integral() != x.IsInt() {
			t.Fatalf("%s is whole: %v", a, d.integral())
		}
		if n, ok := d.int64(); ok != (x.IsInt() && x.Num().IsInt64()) || ok && n != x.Num().Int64() {
			t.Fatalf("%s is %d %v", a, n, ok)
		}
	})
}

// oneRule judges a value of the argument x by a rule on it.
func oneRule(t *testing.T, rule string) func(value string) string {
	t.Helper()
	s := load(t, "version: 2\ntools: {desk/a: {tier: read, args: {x: "+rule+"}}}")
	return func(value string) string {
		args := `{"x":` + value + `}`
		if value == "" {
			args = `{}`
		}
		v := judge(s, "desk/a", args)
		if v.Effect == Allow {
			return ""
		}
		if v.Reasons[0].ID != "args:/x" || v.Effect != Deny {
			t.Errorf("%s: %+v", value, v)
		}
		return v.Reasons[0].Text
	}
}

func accepts(t *testing.T, rule string, good, bad []string) {
	t.Helper()
	judge := oneRule(t, rule)
	for _, v := range good {
		if why := judge(v); why != "" {
			t.Errorf("%s denies %s: %s", rule, v, why)
		}
	}
	for _, v := range bad {
		why := judge(v)
		if why == "" {
			t.Errorf("%s lets %s pass", rule, v)
		}
		if text := strings.Trim(v, `"`); len(text) > 8 && strings.Contains(why, text) {
			t.Errorf("the reason tells the value: %s", why)
		}
	}
}

func TestMinMax(t *testing.T) {
	accepts(t, "{min: 0.01, max: 50000}",
		[]string{"", "0.01", "1e-2", "50000", "5e4", "50000.000", "7"},
		[]string{"0.00999999999999999999999999", "50000.00000000000000000001", "0", "-1", "1e400", "-1e400", "1e-400", "5e99999999999999999999", `"5"`, "null", "[5]", "true", "{}"})
	accepts(t, "{type: integer, max: 9007199254740992}",
		[]string{"9007199254740992", "-1e400", "1e3"},
		[]string{"9007199254740993", "9007199254740992.5", "1.5"})
	accepts(t, "{min: -2, required: true}", []string{"-2", "0"}, []string{"", "-2.0000001", "null"})
}

func TestPattern(t *testing.T) {
	accepts(t, "{pattern: '[a-z]+'}",
		[]string{"", `"abc"`, `"\u0061"`},
		[]string{`""`, `"abc\n"`, `"\nabc"`, `"abc def"`, `"ABC"`, `"abc\u0000"`, "7", "null", `["abc"]`})
	accepts(t, "{pattern: 'a|bc'}", []string{`"a"`, `"bc"`}, []string{`"ac"`, `"abc"`, `"ab"`, `"xbc"`})
	accepts(t, "{pattern: '(?m)^a$'}", []string{`"a"`}, []string{`"a\nb"`, `"b\na"`})
	accepts(t, "{pattern: '(?i)yes'}", []string{`"YES"`}, []string{`"yes!"`})
	accepts(t, "{pattern: ''''}", []string{`"'"`}, []string{`""`})
}

func TestOneOf(t *testing.T) {
	accepts(t, `{one_of: [EUR, "1", 2, 0.50, true]}`,
		[]string{"", `"EUR"`, `"\u0045UR"`, `"1"`, "2", "2.0", "20e-1", "0.5", "true"},
		[]string{`"eur"`, `"EUR "`, "1", `"2"`, `"0.50"`, "0.51", `"true"`, "false", "null", `["EUR"]`, "{}"})
	accepts(t, `{type: integer, one_of: [1, 2]}`, []string{"1"}, []string{"3", "1.5"})
}

func TestWithin(t *testing.T) {
	accepts(t, "{within: /workspace}",
		[]string{"", `"/workspace"`, `"/workspace/a"`, `"/workspace/a/b.txt"`, `"/workspace/...a"`, `"/workspace/é"`, `"/workspace/100%"`, `"/workspace/a b"`},
		[]string{
			`"/workspace2/a"`, `"/workspace/../etc/passwd"`, `"/workspace/..\\etc"`, `"/workspace/a/.."`, `"/workspace/./a"`, `"/workspace//a"`, `"/workspace/"`,
			`"workspace/a"`, `"./workspace/a"`, `""`, `"~/a"`, `"/"`, `"/etc/passwd"`, `"//workspace/a"`, `"file:///workspace/a"`,
			`"/workspace/%2e%2e/etc"`, `"/workspace/%2E./etc"`, `"/workspace/%2fetc"`, `"/workspace/%5c..%5cetc"`, `"/workspace/%252e%252e/etc"`, `"/workspace/a%00.txt"`,
			`"/workspace/a\u0000.txt"`, `"/workspace/a\nb"`, `"/workspace/..."`, `"/workspace/.. /etc"`, `"/workspace/. ./etc"`, `"/workspace/.\u200d./etc"`, `"/workspace/\uff0e\uff0e/etc"`, `"/workspace/\u2024./etc"`, `"/workspace\uff0f..\uff0fetc"`,
			`"/workspace/%c0%ae%c0%ae/etc"`, `"/workspace/%C0%AF"`, `"/workspace/%e0%80%ae"`, `"/workspace/\uff05"`, `"/workspace/a\u202eb"`, `"/workspace/\ufe68"`,
			`"/Workspace/a"`, `"\\workspace\\a"`, `"C:\\workspace"`, `" /workspace/a"`,
			"7", "null", `["/workspace/a"]`, `{"path":"/workspace/a"}`,
		})
	accepts(t, "{within: [/srv/a, /srv/b]}", []string{`"/srv/a/x"`, `"/srv/b"`}, []string{`"/srv/c"`, `"/srv"`, `"/srv/ab"`})
	accepts(t, "{within: /}", []string{`"/"`, `"/etc"`}, []string{`"etc"`, `"/../etc"`})
}

func TestHosts(t *testing.T) {
	accepts(t, "{hosts: [api.acme.test, '*.cdn.acme.test', 'local.acme.test:8443']}",
		[]string{
			"", `"https://api.acme.test"`, `"https://api.acme.test/"`, `"http://api.acme.test/a?b=c@d#e"`, `"HTTPS://API.acme.TEST/x"`, `"https://api.acme.test:443/x"`,
			`"http://api.acme.test:80"`, `"wss://api.acme.test/x"`, `"https://a.cdn.acme.test/"`, `"https://a.b.cdn.acme.test"`, `"https://local.acme.test:8443/x"`,
			`"https://api.acme.test?q=1"`, `"https://api.acme.test/@x"`,
		},
		[]string{
			`"https://evil.test"`, `"https://api.acme.test.evil.test"`, `"https://evil.test/api.acme.test"`, `"https://evil.test#api.acme.test"`, `"https://xapi.acme.test"`,
			`"https://api.acme.test@evil.test"`, `"https://user:pw@api.acme.test"`, `"https://api.acme.test:443@evil.test"`, `"https://api.acme.test\\@evil.test"`,
			`"https://evil.test\\api.acme.test"`, `"https:\\\\api.acme.test"`, `"https:/api.acme.test"`, `"https:api.acme.test"`, `"https:///api.acme.test"`, `"//api.acme.test"`,
			`"api.acme.test"`, `"file://api.acme.test/etc/passwd"`, `"gopher://api.acme.test"`, `"javascript://api.acme.test/%0aalert(1)"`, `"ftp://api.acme.test"`,
			`"https://api.acme.test:8443"`, `"http://api.acme.test:443"`, `"https://api.acme.test:"`, `"https://api.acme.test:0443"`, `"https://local.acme.test/"`,
			`"https://api.acme.test."`, `"https://api.acme.te%73t"`, `"https://[::1]"`, `"https://169.254.169.254"`, `"https://0x7f.1"`, `"https://аpi.acme.test"`,
			`" https://api.acme.test"`, `"https://api.acme.test "`, `"ht\ntps://api.acme.test"`, `"https://api.acme.test\t.evil.test"`, `"https://api.acme.test\u0000.evil.test"`,
			`"https://api.acme.test#@evil.test"`, `"https://api.acme.test?@evil.test"`, `"https://cdn.acme.test"`, `"https://.cdn.acme.test"`, `"https://a..cdn.acme.test"`, `"https://a..b.cdn.acme.test"`, `"https://api.acme.test\uff0f@evil.test"`, `"https://api.acme.test;@evil.test"`, `"https://api。acme.test"`, `"http\u017f://api.acme.test"`,
			`"https://api.acme.test,evil.test"`, `"https://api.acme.test%2f@evil.test"`, `"view-source:https://api.acme.test"`, `"jar:https://api.acme.test!/"`, `"https://api.acme.test:443:80"`, `"https://[::ffff:1.2.3.4]"`,
			`""`, "7", "null", `["https://api.acme.test"]`, `{"url":"https://api.acme.test"}`,
		})
	accepts(t, "{hosts: 127.0.0.1}", []string{`"http://127.0.0.1/x"`}, []string{`"http://127.0.0.10"`, `"http://2130706433"`})
}

// Each check that objects is told once for its argument; all arguments that fail
// are told.
func TestAllArgumentsAreTold(t *testing.T) {
	s := load(t, "version: 2\ntools: {desk/a: {tier: read, args: {x: {type: string, pattern: a, max_len: 1}, y: {min: 1}, z: {one_of: [a]}}}}")
	if got := says(judge(s, "desk/a", `{"x":"bbb","y":0,"z":"b"}`)); got != "deny by args:/x args:/y args:/z" {
		t.Error(got)
	}
}

// split must cut JSON where the strict reader cuts it.
func FuzzSplit(f *testing.F) {
	for _, s := range []string{
		`{"a":1}`, `{}`, `[]`, ` { "a\"b" : [ 1 , {"c":"}"} ] , "" : "\\" } `, `[1,"]",[[]],{"a":[]},null]`, `{"é":true,"\u0061":1e5}`, `7`, `"x"`,
		`{"a":{"b":"\\\""},"c":"[{"}`, "[\n1\t,\r2 ]", `{`, `[1`, `{"a"}`, `{"a":}`, `{,}`, `{"a":1,,}`, `]`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		parts, ok := split(nil, b) // never fails
		var object map[string]json.RawMessage
		var array []json.RawMessage
		switch {
		case action.Check(b, action.Limits{}) != nil:
			return
		case json.Unmarshal(b, &array) == nil && array != nil:
			if !ok || len(parts) != len(array) {
				t.Fatalf("%q: %d parts (%v), want %d", b, len(parts), ok, len(array))
			}
			for i := range array {
				if string(parts[i].value) != string(array[i]) || parts[i].name != nil {
					t.Fatalf("%q: part %d is %q, want %q", b, i, parts[i].value, array[i])
				}
			}
		case json.Unmarshal(b, &object) == nil && object != nil:
			if !ok || len(parts) != len(object) {
				t.Fatalf("%q: %d parts (%v), want %d", b, len(parts), ok, len(object))
			}
			for _, p := range parts {
				if v, there := object[string(p.name)]; !there || p.name == nil || string(v) != string(p.value) {
					t.Fatalf("%q: %q is %q, want %q", b, p.name, p.value, v)
				}
			}
		case ok:
			t.Fatalf("%q has %d parts", b, len(parts))
		}
	})
}
