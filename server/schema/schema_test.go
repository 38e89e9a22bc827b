package schema

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestArguments(t *testing.T) {
	order := `{"type":"object","properties":{
		"id":{"type":"string","pattern":"^o-[0-9]+$","minLength":3,"maxLength":8},
		"amount":{"type":"number","minimum":0.01,"maximum":50000},
		"count":{"type":"integer","exclusiveMinimum":0,"exclusiveMaximum":10,"multipleOf":3},
		"currency":{"enum":["EUR","USD"]},
		"tags":{"type":"array","items":{"$ref":"#/$defs/tag"},"maxItems":3,"uniqueItems":true},
		"to":{"oneOf":[{"type":"string"},{"type":"object","required":["iban"]}]},
		"note":{"anyOf":[{"type":"string"},{"type":"null"}]}
	},"required":["id"],"additionalProperties":false,"$defs":{"tag":{"type":"string","not":{"const":"x"}}}}`
	for _, tt := range []struct{ schema, args, at, rule, want string }{
		{order, `{"id":"o-1"}`, "", "", ""},
		{order, `{}`, "/id", "required", ""},
		{order, `{"id":7}`, "/id", "type", "string"},
		{order, `{"id":"x-1"}`, "/id", "pattern", ""},
		{order, `{"id":"o-"}`, "/id", "minLength", "3"},
		{order, `{"id":"o-1234567"}`, "/id", "maxLength", "8"},
		{order, `{"id":"o-1","amount":0}`, "/amount", "minimum", "0.01"},
		{order, `{"id":"o-1","amount":50000.000000000000000000001}`, "/amount", "maximum", "50000"},
		{order, `{"id":"o-1","amount":50000.0}`, "", "", ""},
		{order, `{"id":"o-1","amount":1e400}`, "/amount", "maximum", "50000"},
		{order, `{"id":"o-1","count":3.0}`, "", "", ""},
		{order, `{"id":"o-1","count":3.5}`, "/count", "type", "integer"},
		{order, `{"id":"o-1","count":0}`, "/count", "exclusiveMinimum", "0"},
		{order, `{"id":"o-1","count":10}`, "/count", "exclusiveMaximum", "10"},
		{order, `{"id":"o-1","count":4}`, "/count", "multipleOf", "3"},
		{order, `{"id":"o-1","currency":"GBP"}`, "/currency", "enum", ""},
		{order, `{"id":"o-1","tags":["a","b",3]}`, "/tags/2", "type", "string"},
		{order, `{"id":"o-1","tags":["a","x"]}`, "/tags/1", "not", ""},
		{order, `{"id":"o-1","tags":["a","b","a"]}`, "/tags/2", "uniqueItems", ""},
		{order, `{"id":"o-1","tags":["a","b","c","d"]}`, "/tags", "maxItems", "3"},
		{order, `{"id":"o-1","to":{}}`, "/to", "oneOf", ""},
		{order, `{"id":"o-1","to":{"iban":"x"}}`, "", "", ""},
		{order, `{"id":"o-1","note":null}`, "", "", ""},
		{order, `{"id":"o-1","note":1}`, "/note", "anyOf", ""},
		{order, `{"id":"o-1","a/b~c":1}`, "/a~1b~0c", "additionalProperties", ""},
		{order, `[]`, "", "type", "object"},
		// Numbers that a float would mangle.
		{`{"properties":{"n":{"enum":[9007199254740993]}}}`, `{"n":9007199254740993}`, "", "", ""},
		{`{"properties":{"n":{"enum":[9007199254740993]}}}`, `{"n":9007199254740992}`, "/n", "enum", ""},
		{`{"properties":{"n":{"maximum":9007199254740992}}}`, `{"n":9007199254740993}`, "/n", "maximum", "9007199254740992"},
		{`{"properties":{"n":{"const":1e400}}}`, `{"n":10e399}`, "", "", ""},
		{`{"properties":{"n":{"const":1e400}}}`, `{"n":1e401}`, "/n", "enum", ""},
		{`{"properties":{"n":{"const":0}}}`, `{"n":1e-400}`, "/n", "enum", ""},
		{`{"properties":{"n":{"const":0}}}`, `{"n":-0.0}`, "", "", ""},
		{`{"properties":{"n":{"type":"integer"}}}`, `{"n":1e400}`, "", "", ""},
		{`{"properties":{"n":{"type":"integer"}}}`, `{"n":1e-400}`, "/n", "type", "integer"},
		{`{"properties":{"n":{"multipleOf":0.01}}}`, `{"n":1e999999999999}`, "", "", ""},
		{`{"properties":{"n":{"multipleOf":0.01}}}`, `{"n":19.99}`, "", "", ""},
		{`{"properties":{"n":{"multipleOf":0.01}}}`, `{"n":19.999}`, "/n", "multipleOf", "0.01"},
		{`{"properties":{"n":{"multipleOf":7}}}`, `{"n":1e999999999999}`, "/n", "multipleOf", "7"},
		{`{"properties":{"n":{"minimum":-9223372036854775808}}}`, `{"n":-9223372036854775809}`, "/n", "minimum", "-9223372036854775808"},
		// A string is no number, and no number a string.
		{`{"properties":{"n":{"type":"string"}}}`, `{"n":12}`, "/n", "type", "string"},
		{`{"properties":{"n":{"type":"number"}}}`, `{"n":"12"}`, "/n", "type", "number"},
		{`{"properties":{"n":{"type":["integer","null"]}}}`, `{"n":true}`, "/n", "type", "integer or null"},
		// Drafts.
		{`{"$schema":"http://json-schema.org/draft-07/schema#","properties":{"a":{"items":[{"type":"string"}],"additionalItems":false}}}`, `{"a":["x",1]}`, "/a/1", "false", "nothing is allowed here"},
		{`{"$schema":"http://json-schema.org/draft-07/schema#","dependencies":{"a":["b"]}}`, `{"a":1}`, "/b", "dependentRequired", ""},
		{`{"$schema":"http://json-schema.org/draft-07/schema#","definitions":{"s":{"type":"string"}},"properties":{"a":{"$ref":"#/definitions/s","maxLength":1}}}`, `{"a":"xx"}`, "", "", ""},
		{`{"$defs":{"s":{"type":"string"}},"properties":{"a":{"$ref":"#/$defs/s","maxLength":1}}}`, `{"a":"xx"}`, "/a", "maxLength", "1"},
		{`{"prefixItems":[{"type":"string"}],"items":{"type":"integer"}}`, `["x","y"]`, "/1", "type", "integer"},
		{`{"if":{"required":["a"]},"then":{"required":["b"]},"else":{"required":["c"]}}`, `{"a":1}`, "/b", "required", ""},
		{`{"if":{"required":["a"]},"then":{"required":["b"]},"else":{"required":["c"]}}`, `{}`, "/c", "required", ""},
		{`{"properties":{"a":{}},"unevaluatedProperties":false}`, `{"b":1}`, "/b", "additionalProperties", ""},
		{`{"enum":[{"a":1}],"const":{"a":1.0},"allOf":[{"required":["a"]}]}`, `{"a":1}`, "", "", ""},
		{`{"enum":[1,2],"const":3,"allOf":[true]}`, `2`, "", "enum", ""},
		{`{"patternProperties":{"^x-":{"type":"string"}},"additionalProperties":{"type":"integer"}}`, `{"x-a":1}`, "/x-a", "type", "string"},
		{`{"propertyNames":{"maxLength":2}}`, `{"abc":1}`, "/abc", "propertyNames", ""},
		{`{"contains":{"type":"string"},"minContains":2,"maxContains":3}`, `["a",1]`, "", "contains", ""},
		{`false`, `{}`, "", "false", "nothing is allowed here"},
		{`true`, `{}`, "", "", ""},
		{``, `{"any":"thing"}`, "", "", ""},
		// What says nothing.
		{`{"format":"email","x-note":1,"nullable":true,"default":5,"examples":[1]}`, `"no mail"`, "", "", ""},
		// Recursion.
		{`{"$defs":{"t":{"type":"object","properties":{"kids":{"type":"array","items":{"$ref":"#/$defs/t"}}},"required":["n"]}},"$ref":"#/$defs/t"}`, `{"n":1,"kids":[{"n":2,"kids":[{}]}]}`, "/kids/0/kids/0/n", "required", ""},
	} {
		v := Compile([]byte(tt.schema)).Check([]byte(tt.args))
		var got Refusal
		if v.Refused != nil {
			got = *v.Refused
		}
		if got != (Refusal{tt.at, tt.rule, tt.want}) || len(v.Gaps) > 0 {
			t.Errorf("%s\n%s: %+v, %v", tt.schema, tt.args, got, v.Gaps)
		}
	}
}

// What can't be judged leaves open what hangs on it, and nothing else.
func TestGaps(t *testing.T) {
	for _, tt := range []struct{ schema, args, rule, gaps string }{
		{`{"properties":{"a":{"pattern":"^(?=x)"}}}`, `{"a":"y"}`, "", "pattern"},
		{`{"properties":{"a":{"pattern":"^(?=x)"}}}`, `{"a":7}`, "", ""},
		{`{"properties":{"a":{"pattern":"^(?=x)"}}}`, `{}`, "", ""},
		{`{"properties":{"a":{"pattern":"^(?=x)","type":"integer"}}}`, `{"a":"y"}`, "type", ""},
		{`{"properties":{"a":{"not":{"pattern":"^(?=x)"}}}}`, `{"a":"y"}`, "", "pattern"},
		{`{"anyOf":[{"pattern":"^(?=x)"},{"type":"string"}]}`, `"y"`, "", ""},
		{`{"oneOf":[{"pattern":"^(?=x)"},{"type":"string"}]}`, `"y"`, "", "pattern"},
		{`{"oneOf":[{"pattern":"^(?=x)"},{"type":"string"},{"maxLength":4}]}`, `"y"`, "oneOf", ""},
		{`{"if":{"pattern":"^(?=x)"},"then":{"maxLength":2},"else":{"maxLength":3}}`, `"yyyy"`, "if", ""},
		{`{"if":{"pattern":"^(?=x)"},"then":{"maxLength":2},"else":{"maxLength":3}}`, `"yyy"`, "", "pattern"},
		{`{"if":{"pattern":"^(?=x)"},"then":{"maxLength":2},"else":{"maxLength":3}}`, `"y"`, "", ""},
		{`{"contains":{"pattern":"^(?=x)"}}`, `["y"]`, "", "pattern"},
		{`{"contains":{"pattern":"^(?=x)"}}`, `[]`, "contains", ""},
		{`{"patternProperties":{"^(?=x)":{"type":"string"}},"additionalProperties":false}`, `{"x":1}`, "", "patternProperties"},
		{`{"pattern":"^\\s+$"}`, `"\u00a0"`, "", "pattern"},
		{`{"pattern":"^\\s+$"}`, `"x"`, "pattern", ""},
		{`{"pattern":"^\\s+$","allOf":[{"maxLength":0}]}`, `"\u00a0"`, "maxLength", ""},
		{`{"$ref":"https://evil.example/schema.json"}`, `{}`, "", "$ref"},
		{`{"$ref":"file:///etc/passwd"}`, `{}`, "", "$ref"},
		{`{"$ref":"other.json#/a"}`, `{}`, "", "$ref"},
		{`{"$ref":"#/$defs/none"}`, `{}`, "", "$ref"},
		{`{"$ref":"#anchor"}`, `{}`, "", "$ref"},
		{`{"$ref":"#/$defs/a/$defs/b","$defs":{"a":{"$id":"http://x/","$defs":{"b":{"type":"string"}}}}}`, `{}`, "", "$ref"},
		{`{"properties":{"a":{"$id":"http://x/","$defs":{"s":{"type":"string"}},"properties":{"b":{"$ref":"#/$defs/s"}}}},"$defs":{"s":{"type":"integer"}}}`, `{"a":{"b":"x"}}`, "", "$ref"},
		{`{"$ref":"#"}`, `{}`, "", "$ref"},
		{`{"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"}`, `{}`, "", "$ref"},
		{`{"$dynamicRef":"#x"}`, `{}`, "", "$dynamicRef"},
		{`{"$schema":"http://json-schema.org/draft-04/schema#","type":"string"}`, `{}`, "", "$schema"},
		{`{"$schema":"http://json-schema.org/draft-04/schema#"}`, `{}`, "", "$schema"},
		{`{"allOf":[{"properties":{"a":{}}}],"unevaluatedProperties":false}`, `{"b":1}`, "", "unevaluatedProperties"},
		{`{"items":[{"type":"string"}]}`, `[1]`, "", "items"},
		{`{"items":[{"type":"string"}]}`, `{}`, "", ""},
		{`{"minimum":"5"}`, `3`, "", "minimum"},
		{`{"minLength":-1}`, `"x"`, "", "minLength"},
		{`{"multipleOf":0}`, `3`, "", "multipleOf"},
		{`{"required":true}`, `{}`, "", "required"},
		{`{"type":"any"}`, `{}`, "", "type"},
		{`{"type":[]}`, `{}`, "", "type"},
		{`{"allOf":[]}`, `{}`, "", "allOf"},
		{`{"properties":{"a":5}}`, `{"a":1}`, "", "schema"},
		{`{"properties":[]}`, `{"a":1}`, "", "properties"},
		{`5`, `{}`, "", "inputSchema"},
		{`{"type":"object"`, `{}`, "", "inputSchema"},
		{`{"type":"object","type":"string"}`, `{}`, "", "inputSchema"},
		{strings.Repeat(`{"not":`, 100) + `{}` + strings.Repeat(`}`, 100), `{}`, "", "inputSchema"},
	} {
		v := Compile([]byte(tt.schema)).Check([]byte(tt.args))
		rule := ""
		if v.Refused != nil {
			rule = v.Refused.Rule
		}
		if rule != tt.rule || strings.Join(v.Gaps, " ") != tt.gaps {
			t.Errorf("%s\n%s: %q, %q", tt.schema, tt.args, rule, v.Gaps)
		}
	}
}

// bombs are schemas and arguments made to take for ever, or all memory.
func bombs() map[string][2]string {
	var chain strings.Builder
	chain.WriteString(`{"$ref":"#/$defs/a0","$defs":{`)
	for i := range 60 {
		fmt.Fprintf(&chain, `"a%d":{"allOf":[{"$ref":"#/$defs/a%d"},{"$ref":"#/$defs/a%d"}]},`, i, i+1, i+1)
	}
	chain.WriteString(`"a60":{}}}`)
	numbers := func(n int) string { return "[" + strings.TrimSuffix(strings.Repeat("1,", n), ",") + "]" }
	var enum strings.Builder
	for i := range 15000 {
		fmt.Fprintf(&enum, "%d,", i+10)
	}
	members := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `"m%d":1,`, i)
		}
		return "{" + strings.TrimSuffix(b.String(), ",") + "}"
	}
	return map[string][2]string{
		"doubling references": {chain.String(), `{}`},
		"a growing tree":      {`{"anyOf":[{"properties":{"a":{"$ref":"#"}},"required":["a"]},{"properties":{"a":{"$ref":"#"}},"required":["a"],"maxProperties":9}]}`, strings.Repeat(`{"a":`, 100) + `{}` + strings.Repeat(`}`, 100)},
		"enum by items":       {`{"items":{"enum":[` + strings.TrimSuffix(enum.String(), ",") + `]}}`, numbers(150000)},
		"one long pattern":    {`{"pattern":"(x+x+)+y|([a-z]{1,30}){1,30}z$"}`, `"` + strings.Repeat("x", 1<<20) + `"`},
		"a slow pattern":      {`{"pattern":"^(x?){40}(x*y?){5}[^x]$"}`, `"` + strings.Repeat("x", 160_000) + `"`},
		"patterns by members": {`{"patternProperties":{"^(a|b|m)[0-9]{1,900}$":true,"^[^q]{1,900}$":true}}`, members(60000)},
		"required by members": {`{"items":{"required":[` + strings.TrimSuffix(strings.Repeat(`"m1",`, 19000), ",") + `]}}`, "[" + strings.Repeat(members(3)+",", 5000) + "1]"},
		"a deep value":        {`{"items":{"$ref":"#"}}`, strings.Repeat("[", 100000) + strings.Repeat("]", 100000)},
		"deep in both":        {strings.Repeat(`{"allOf":[`, 28) + `{"items":{"$ref":"#"}}` + strings.Repeat(`]}`, 28), strings.Repeat("[", 120) + strings.Repeat("]", 120)},
		"many values":         {`{"uniqueItems":true}`, numbers(500000)},
		"a long number":       {`{"multipleOf":7}`, strings.Repeat("9", 1<<20)},
		"a far exponent":      {`{"multipleOf":0.0000003,"maximum":1e999999999}`, `1e99999999999999999999999999`},
		"a large schema":      {`{"enum":[` + strings.TrimSuffix(enum.String(), ",") + `,` + strings.Repeat("1,", 300000) + `2]}`, `1`},
		"a repeated repeat":   {`{"pattern":"((a{100}){100}){100}"}`, `"a"`},
		"nested arrays apart": {`{"uniqueItems":true,"items":{"uniqueItems":true}}`, "[" + strings.TrimSuffix(strings.Repeat("[1,2,[3,4,[5]]],", 20000), ",") + "]"},
	}
}

func TestBombsAreCutShort(t *testing.T) {
	for name, b := range bombs() {
		t.Run(name, func(t *testing.T) {
			begun := time.Now()
			s := Compile([]byte(b[0]))
			compiled := time.Since(begun)
			v := s.Check([]byte(b[1]))
			t.Logf("compiled in %v, judged in %v: %+v %v", compiled, time.Since(begun)-compiled, v.Refused, v.Gaps)
			if v.Refused == nil && len(v.Gaps) == 0 {
				t.Error("it is taken for a fit")
			}
		})
	}
}

// Writing arguments in another way changes no verdict, and neither does the order of
// the schema's keywords.
func TestVerdictsHangOnValues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64().Filter(func(n int64) bool { return n != 0 }).Draw(t, "n") // 00 is no number
		bound := rapid.Int64().Draw(t, "bound")
		step := rapid.Int64Range(1, 1000).Draw(t, "step")
		a := fmt.Sprintf(`{"minimum":%d,"multipleOf":%d,"type":"integer"}`, bound, step)
		b := fmt.Sprintf(`{"type":"integer","multipleOf":%d.0,"minimum":%de0}`, step, bound)
		want := n >= bound && n%step == 0
		for _, schema := range []string{a, b} {
			s := Compile([]byte(schema))
			for _, form := range []string{"%d", "%d.0", "%d.000", "%d0e-1", "%de0", "%d000E-3"} {
				if v := s.Check(fmt.Appendf(nil, form, n)); (v.Refused == nil) != want || len(v.Gaps) > 0 {
					t.Fatalf("%s, "+form+": %+v", schema, n, v)
				}
			}
		}
	})
}

// A not over any schema turns a sure verdict round and leaves an open one open.
func FuzzNot(f *testing.F) {
	f.Add(`{"type":"string"}`, `1`)
	f.Add(`{"oneOf":[{"minimum":2},{"multipleOf":3}]}`, `6`)
	f.Add(`{"properties":{"a":{"$ref":"#"}},"required":["a"]}`, `{"a":{"a":1}}`)
	f.Add(`{"pattern":"(?=x)"}`, `"a"`)
	f.Add(`{"contains":{"const":1e2},"uniqueItems":true}`, `[100,1]`)
	f.Fuzz(func(t *testing.T, schema, args string) {
		if strings.Contains(schema, "$ref") || strings.Contains(schema, "$schema") || strings.Contains(schema, "$id") {
			Compile([]byte(schema)).Check([]byte(args)) // it ends
			return
		}
		s, inverse := Compile([]byte(schema)), Compile([]byte(`{"not":`+schema+`}`))
		if len(inverse.root.gaps) > 0 || len(s.root.gaps) > 0 {
			return
		}
		a, b := s.Check([]byte(args)), inverse.Check([]byte(args))
		if a.Refused != nil && a.Refused.Rule == TooComplex || b.Refused != nil && b.Refused.Rule == TooComplex {
			return
		}
		switch open := len(a.Gaps) > 0; {
		case open != (len(b.Gaps) > 0):
			t.Fatalf("%s of %s: %+v, and turned round %+v", schema, args, a, b)
		case !open && (a.Refused == nil) == (b.Refused == nil):
			t.Fatalf("%s of %s: both ways %+v", schema, args, a.Refused)
		}
	})
}

func BenchmarkCheck(b *testing.B) {
	s := Compile([]byte(`{"type":"object","properties":{"id":{"type":"string","pattern":"^o-[0-9]+$"},"amount":{"type":"number","minimum":0.01}},"required":["id"],"additionalProperties":false}`))
	args := []byte(`{"id":"o-12345","amount":12.5}`)
	b.ReportAllocs()
	for b.Loop() {
		if v := s.Check(args); v.Refused != nil {
			b.Fatal(v)
		}
	}
}
