package schema

import (
	"encoding/json"
	"strings"
	"testing"
)

// The schema does not say by which language its server reads it. What one of them
// takes is not refused here, and what one of them refuses is not called fitting.
func TestServersReadPatternsDifferently(t *testing.T) {
	for _, tt := range []struct{ schema, args, gap string }{
		{`{"pattern": "^\\w+$"}`, `"Müller"`, "pattern"},    // Python, Rust: a word; JavaScript: none
		{`{"pattern": "^\\d+$"}`, `"٣"`, "pattern"},         // Python, Rust: a digit
		{`{"pattern": "^\\W$"}`, `"ü"`, "pattern"},          // JavaScript: no word
		{`{"pattern": "\\bü"}`, `"ü"`, "pattern"},           // Python, Rust
		{`{"pattern": "^\\s$"}`, `"\u001c"`, "pattern"},     // Python: a blank
		{`{"pattern": "^(?i)k$"}`, `"\u212a"`, "pattern"},   // the sign of kelvin
		{`{"pattern": "^a$"}`, `"a\n"`, "pattern"},          // Python: $ stands before a last line end
		{`{"pattern": "^.$"}`, `"\r"`, "pattern"},           // JavaScript: a line end
		{`{"pattern": "^.{2}$"}`, `"😀"`, "pattern"},         // JavaScript without u: two characters
		{`{"pattern": "^[^a]$"}`, `"😀"`, "pattern"},         // the same
		{`{"pattern": "^[[:alpha:]]$"}`, `":]"`, "pattern"}, // Python, JavaScript: a list of characters
		{`{"pattern": "^a{,3}$"}`, `"aa"`, "pattern"},       // Python: up to three
		{`{"pattern": "^[]a]$"}`, `"a"`, "pattern"},         // JavaScript: nothing, then a]
		{`{"minLength": 2}`, `"😀"`, "minLength"},            // two units in UTF-16
		{`{"maxLength": 1}`, `"😀"`, "maxLength"},            // the same
		{`{"type": "string", "nullable": true}`, `null`, "nullable"},
		{`{"required": ["x"], "properties": {"x": {"default": 1}}}`, `{}`, "default"},
		{`{"patternProperties": {"^\\w+$": {"type": "string"}}, "additionalProperties": false}`, `{"ü": "a"}`, "patternProperties"},
		{`{"propertyNames": {"maxLength": 1}}`, `{"😀": 1}`, "maxLength"},
	} {
		v := Compile([]byte(tt.schema)).Check([]byte(tt.args))
		if v.Refused != nil || len(v.Gaps) != 1 || v.Gaps[0] != tt.gap {
			t.Errorf("%s of %s: %v, open: %v; want it open by %s", tt.schema, tt.args, v.Refused, v.Gaps, tt.gap)
		}
	}
}

// What all of them refuse stays refused.
func TestAllServersRefuse(t *testing.T) {
	for _, tt := range []struct{ schema, args, rule string }{
		{`{"pattern": "^[a-z]+$"}`, `"😀"`, "pattern"},
		{`{"pattern": "^a$"}`, `"b\r"`, "pattern"},
		{`{"pattern": "^\\w+$"}`, `"a-b"`, "pattern"},
		{`{"minLength": 3}`, `"😀"`, "minLength"},
		{`{"maxLength": 1}`, `"😀😀"`, "maxLength"},
		{`{"type": "string", "nullable": false}`, `null`, "type"},
		{`{"type": "string", "nullable": true}`, `1`, "type"},
		{`{"required": ["x", "y"], "properties": {"x": {"default": 1}}}`, `{}`, "required"},
		{`{"minLength": 3, "maxLength": 1}`, `"😀"`, "minLength"},
	} {
		v := Compile([]byte(tt.schema)).Check([]byte(tt.args))
		if v.Refused == nil || v.Refused.Rule != tt.rule {
			t.Errorf("%s of %s: %v, open: %v; want it refused by %s", tt.schema, tt.args, v.Refused, v.Gaps, tt.rule)
		}
	}
}

// Repetitions are short to write. What they come to is known before any is made.
func TestPatternsAreWeighedBeforeTheyAreMade(t *testing.T) {
	for _, expr := range []string{
		strings.Repeat("a{0,1000}", 100), strings.Repeat("(a|b|c){1000}", 70), strings.Repeat(`\pL{1000}`, 100), "(((a{10}){10}){10}){2}",
	} {
		b, _ := json.Marshal(expr)
		made := testing.AllocsPerRun(1, func() {
			if v := Compile([]byte(`{"pattern": ` + string(b) + `}`)).Check([]byte(`"a"`)); len(v.Gaps) != 1 {
				t.Errorf("%.20s… is judged: %+v", expr, v)
			}
		})
		if made > 5000 {
			t.Errorf("%.20s… took %.0f allocations", expr, made)
		}
	}
}

// All patterns of a schema together are bounded too.
func TestPatternsTogetherAreBounded(t *testing.T) {
	var all []string
	for range 200 {
		all = append(all, `{"pattern": "`+strings.Repeat("(?i:[k-s])", 20)+`"}`)
	}
	v := Compile([]byte(`{"allOf": [` + strings.Join(all, ",") + `]}`)).Check([]byte(`"kkkkkkkkkkkkkkkkkkkk"`))
	if v.Refused != nil || len(v.Gaps) != 1 {
		t.Errorf("%+v", v)
	}
}
