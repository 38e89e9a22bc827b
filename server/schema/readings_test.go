package schema

import (
	"encoding/json"
	"runtime"
	"strconv"
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

// Long names are not written again for each schema below them.
func TestLongNamesAreReadOnce(t *testing.T) {
	var inner []string
	for i := range 9000 {
		inner = append(inner, `"`+strconv.Itoa(i)+`":{}`)
	}
	doc := []byte(`{"properties": {"` + strings.Repeat("n", 300<<10) + `": {"properties": {` + strings.Join(inner, ",") + `}}}}`)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	s := Compile(doc)
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 64<<20 {
		t.Errorf("reading %d bytes took %d MB", len(doc), got>>20)
	}
	if v := s.Check([]byte(`{}`)); v.Refused != nil || v.Gaps != nil {
		t.Errorf("%+v", v)
	}
}

// Long numbers are charged for what they take: these few bytes were a minute's work.
func TestDividingIsCharged(t *testing.T) {
	s := Compile([]byte(`{"items": {"anyOf": [{"multipleOf": ` + strings.Repeat("7", 1900) + `}, true]}}`))
	v := s.Check([]byte("[" + strings.Repeat("1e999999999999,", 5000) + "1]"))
	if v.Refused == nil || v.Refused.Rule != TooComplex {
		t.Errorf("%+v", v)
	}
	if v := s.Check([]byte("[7e3]")); v.Refused != nil {
		t.Errorf("one of them: %+v", v)
	}
}

// What may fail without the whole failing is not put to words.
func TestAlternativesAreSilent(t *testing.T) {
	for _, one := range []string{`{"type": ["string", "boolean"]}`, `{"minimum": 5.5}`, `{"exclusiveMaximum": 0.5}`} {
		s := Compile([]byte(`{"items": {"anyOf": [` + strings.Repeat(one+",", 100) + `true]}}`))
		args := []byte("[" + strings.Repeat("1,", 100) + "1]")
		if made := testing.AllocsPerRun(1, func() { s.Check(args) }); made > 2000 {
			t.Errorf("%s: %.0f allocations for 10000 alternatives", one, made)
		}
	}
}
