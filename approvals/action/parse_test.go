package action

import (
	"bytes"
	"encoding/json"
	"errors"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

func TestParseAccepts(t *testing.T) {
	for _, tc := range []struct {
		name, in string
		want     Frame
	}{
		{
			"a call", `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"pay","arguments":{"a": 1.0},"_meta":{"x":1},"task":{}}}`,
			Frame{
				Kind: Request, ID: json.RawMessage("7"), Method: "tools/call", Name: "pay",
				Params: json.RawMessage(`{"name":"pay","arguments":{"a": 1.0},"_meta":{"x":1},"task":{}}`),
				Args:   json.RawMessage(`{"a": 1.0}`), Meta: json.RawMessage(`{"x":1}`),
			},
		},
		{
			"id last, blanks around", " {\"method\":\"ping\" , \"jsonrpc\":\"2.0\",\n\"id\" : \"a\\nb\" }\r\n",
			Frame{Kind: Request, ID: json.RawMessage(`"a\nb"`), Method: "ping"},
		},
		{
			"escapes in names and values", `{"\u006asonrpc":"\u0032.0","id":9007199254740993,"method":"tools\/call","params":{"n\u0061me":"\u0070ay"}}`,
			Frame{Kind: Request, ID: json.RawMessage("9007199254740993"), Method: "tools/call", Name: "pay", Params: json.RawMessage(`{"n\u0061me":"\u0070ay"}`)},
		},
		{"a notification", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`, Frame{Kind: Notification, Method: "notifications/cancelled", Params: json.RawMessage(`{"requestId":1}`)}},
		{"a result", `{"jsonrpc":"2.0","id":-3,"result":{"A":1,"a":2}}`, Frame{Kind: Response, ID: json.RawMessage("-3"), Result: json.RawMessage(`{"A":1,"a":2}`)}},
		{"an error", `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no","x":[1e400]}}`, Frame{Kind: Response, ID: json.RawMessage("1"), Error: json.RawMessage(`{"code":-32601,"message":"no","x":[1e400]}`)}},
		{"a null result", `{"jsonrpc":"2.0","id":1,"result":null}`, Frame{Kind: Response, ID: json.RawMessage("1"), Result: json.RawMessage("null")}},
		{"an unknown member", `{"jsonrpc":"2.0","id":1,"method":"ping","trace":{"a":[]}}`, Frame{Kind: Request, ID: json.RawMessage("1"), Method: "ping"}},
		{
			"names in another script", `{"jsonrpc":"2.0","id":1,"method":"x","params":{"straße":1,"ключ":2,"名前":3}}`,
			Frame{Kind: Request, ID: json.RawMessage("1"), Method: "x", Params: json.RawMessage(`{"straße":1,"ключ":2,"名前":3}`)},
		},
		{
			"a long plain name", `{"jsonrpc":"2.0","id":1,"method":"x","params":{"` + strings.Repeat("n", 9000) + `":1}}`,
			Frame{Kind: Request, ID: json.RawMessage("1"), Method: "x", Params: json.RawMessage(`{"` + strings.Repeat("n", 9000) + `":1}`)},
		},
		{
			"the same name in sibling objects", `{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":{"k":1},"b":[{"k":1},{"K":1}]}}`,
			Frame{Kind: Request, ID: json.RawMessage("1"), Method: "x", Params: json.RawMessage(`{"a":{"k":1},"b":[{"k":1},{"K":1}]}`)},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := []byte(tc.in)
			got, err := Parse(in, Limits{})
			if err != nil {
				t.Fatal(err)
			}
			if string(in) != tc.in {
				t.Error("the message was changed")
			}
			same := got.Kind == tc.want.Kind && got.Method == tc.want.Method && got.Name == tc.want.Name
			for _, pair := range [][2]json.RawMessage{
				{got.ID, tc.want.ID}, {got.Params, tc.want.Params}, {got.Result, tc.want.Result},
				{got.Error, tc.want.Error}, {got.Args, tc.want.Args}, {got.Meta, tc.want.Meta},
			} {
				same = same && bytes.Equal(pair[0], pair[1]) && (pair[0] == nil) == (pair[1] == nil)
			}
			if !same {
				t.Errorf("got %+v\nwant %+v", got, tc.want)
			}
		})
	}
}

// body is a message that must be refused.
type body struct {
	name, in string
	code     int
	id       string // of the answer; empty for null
}

// call is a tools/call with the given params, its id last, as some clients write.
func call(params string) string {
	return `{"jsonrpc":"2.0","method":"tools/call","params":` + params + `,"id":5}`
}

func hostile() []body {
	deep := strings.Repeat(`{"a":`, 30) + "{}" + strings.Repeat("}", 30)
	return []body{
		// Two readers, two tools.
		{"duplicate name", call(`{"name":"read_file","name":"rm_rf"}`), CodeParse, "5"},
		{"duplicate by escape", call(`{"name":"read_file","n\u0061me":"rm_rf"}`), CodeParse, "5"},
		{"case variant", call(`{"name":"read_file","Name":"rm_rf"}`), CodeParse, "5"},
		{"long s", call(`{"name":"x","arguments":{},"argumentſ":{"a":1}}`), CodeParse, "5"},
		{"long s by escape", call(`{"name":"x","arguments":{},"argument\u017f":{"a":1}}`), CodeParse, "5"},
		{"long s alone", call(`{"name":"x","argumentſ":{"a":1}}`), CodeParse, "5"},
		{"case variant alone", call(`{"name":"x","Arguments":{"a":1}}`), CodeParse, "5"},
		{"meta in another case", call(`{"name":"x","_META":{"progressToken":1}}`), CodeParse, "5"},
		{"full width name", call(`{"name":"x","\uff4eame":"y"}`), CodeParse, "5"},
		{"kelvin in arguments", call(`{"name":"x","arguments":{"key":1,"\u212aey":2}}`), CodeParse, "5"},
		{"long s in arguments", call(`{"name":"x","arguments":{"path":"/a","desſt":1,"desst":2}}`), CodeParse, "5"},
		{"sharp s in arguments", call(`{"name":"x","arguments":{"straße":1,"STRASSE":2}}`), CodeParse, "5"},
		{"composed and decomposed", call(`{"name":"x","arguments":{"\u00e9":1,"e\u0301":2}}`), CodeParse, "5"},
		{"ligature", call(`{"name":"x","arguments":{"file":1,"\ufb01le":2}}`), CodeParse, "5"},
		{"deep in arguments", call(`{"name":"x","arguments":{"list":[1,{"to":"a","TO":"b"}]}}`), CodeParse, "5"},
		{"duplicate in arguments", call(`{"name":"x","arguments":{"to":"a","to":"b"}}`), CodeParse, "5"},
		{"duplicate in _meta", call(`{"name":"x","_meta":{"a":1,"a":2}}`), CodeParse, "5"},
		{"NUL in a name", call(`{"name":"x","name\u0000":"y"}`), CodeParse, "5"},
		{"control in a name", call(`{"name":"x","arguments":{"a\u001fb":1}}`), CodeParse, "5"},
		{"zero width in a name", call(`{"name":"x","arguments":{"to\u200b":1}}`), CodeParse, "5"},
		{"bidi in a name", call(`{"name":"x","arguments":{"\u202eto":1}}`), CodeParse, "5"},
		{"variation selector in a name", call(`{"name":"x","arguments":{"to\ufe00":1}}`), CodeParse, "5"},
		{"filler in a name", call(`{"name":"x","arguments":{"\u3164":1}}`), CodeParse, "5"},
		{"line separator in a name", call(`{"name":"x","arguments":{"a\u2028":1}}`), CodeParse, "5"},
		{"prototype", call(`{"name":"x","arguments":{"a":{"__proto__":{"path":"/etc"}}}}`), CodeParse, "5"},
		{"prototype by escape", call(`{"name":"x","arguments":{"\u005f_proto__":{"path":"/etc"}}}`), CodeParse, "5"},
		{"a name that grows when it is folded", call(`{"name":"x","arguments":{"` + strings.Repeat("\ufdfa", 2000) + `":1}}`), CodeParse, "5"},
		{"duplicate method", `{"jsonrpc":"2.0","id":5,"method":"tools/list","method":"tools/call"}`, CodeParse, ""},
		{"method in another case", `{"jsonrpc":"2.0","id":5,"method":"tools/list","Method":"tools/call"}`, CodeParse, ""},
		{"method only in another case", `{"jsonrpc":"2.0","id":5,"METHOD":"tools/call"}`, CodeParse, ""},
		{"params in another case", `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"a"},"Params":{"name":"b"}}`, CodeParse, ""},
		{"paramſ", `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"a"},"paramſ":{"name":"b"}}`, CodeParse, ""},
		{"jsonrpc in another case", `{"jsonrpc":"2.0","JSONRPC":"1.0","id":5,"method":"ping"}`, CodeParse, ""},
		{"two ids", `{"jsonrpc":"2.0","id":5,"id":6,"method":"ping"}`, CodeParse, ""},
		{"id in another case", `{"jsonrpc":"2.0","id":5,"ID":6,"method":"ping"}`, CodeParse, ""},
		{"unknown member twice", `{"jsonrpc":"2.0","id":5,"method":"ping","x":1,"X":2}`, CodeParse, ""},
		// Bytes that are no JSON, or more than one value.
		{"empty", ``, CodeParse, ""},
		{"blanks", " \n", CodeParse, ""},
		{"cut short", `{"jsonrpc":"2.0","id":5,"method":"ping"`, CodeParse, "5"},
		{"byte order mark", "\ufeff" + call(`{"name":"x"}`), CodeParse, ""},
		{"UTF-16", "{\x00\"\x00", CodeParse, ""},
		{"second value", call(`{"name":"x"}`) + call(`{"name":"y"}`), CodeParse, "5"},
		{"trailing brace", call(`{"name":"x"}`) + "}", CodeParse, "5"},
		{"trailing NUL", call(`{"name":"x"}`) + "\x00", CodeParse, "5"},
		{"bad UTF-8 in a value", call("{\"name\":\"x\",\"arguments\":{\"a\":\"\xff\"}}"), CodeParse, ""},
		{"bad UTF-8 in a name", call("{\"name\":\"x\",\"\xc0\xaf\":1}"), CodeParse, ""},
		{"overlong slash", call("{\"name\":\"a\xc0\xafb\"}"), CodeParse, ""},
		{"lone surrogate", call(`{"name":"x","arguments":{"a":"\ud800"}}`), CodeParse, ""},
		{"lone surrogate in a name", call(`{"name":"x","arguments":{"\udfff":1}}`), CodeParse, ""},
		{"surrogates swapped", call(`{"name":"x","arguments":{"a":"\udc00\ud800"}}`), CodeParse, ""},
		{"raw line break in a string", call("{\"name\":\"x\ny\"}"), CodeParse, ""},
		{"NaN", call(`{"name":"x","arguments":{"a":NaN}}`), CodeParse, ""},
		{"leading zero", call(`{"name":"x","arguments":{"a":01}}`), CodeParse, ""},
		{"comment", call(`{"name":"x"/**/}`), CodeParse, ""},
		{"trailing comma", call(`{"name":"x",}`), CodeParse, ""},
		{"single quotes", `{'jsonrpc':'2.0','id':5,'method':'ping'}`, CodeParse, ""},
		{"too deep", call(`{"name":"x","arguments":` + deep + `}`), CodeParse, "5"},
		{"too deep in arrays", call(`{"name":"x","arguments":{"a":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}}`), CodeParse, "5"},
		{"200,000 deep", strings.Repeat("[", 200000), CodeInvalidRequest, ""},
		{"200,000 deep inside", `{"jsonrpc":"2.0","id":5,"params":` + strings.Repeat(`{"a":`, 200000), CodeParse, "5"},
		{"too long", call(`{"name":"x","arguments":{"a":"` + strings.Repeat("x", 4<<20) + `"}}`), CodeParse, ""},
		// JSON, but no single JSON-RPC message.
		{"batch", "[" + call(`{"name":"x"}`) + "]", CodeInvalidRequest, ""},
		{"empty batch", `[]`, CodeInvalidRequest, ""},
		{"string", `"ping"`, CodeInvalidRequest, ""},
		{"null", `null`, CodeInvalidRequest, ""},
		{"no version", `{"id":5,"method":"ping"}`, CodeInvalidRequest, "5"},
		{"version 1.0", `{"jsonrpc":"1.0","id":5,"method":"ping"}`, CodeInvalidRequest, "5"},
		{"version is a number", `{"jsonrpc":2.0,"id":5,"method":"ping"}`, CodeInvalidRequest, "5"},
		{"id null", `{"jsonrpc":"2.0","id":null,"method":"ping"}`, CodeInvalidRequest, ""},
		{"id fractional", `{"jsonrpc":"2.0","id":1.5,"method":"ping"}`, CodeInvalidRequest, ""},
		{"id 1.0", `{"jsonrpc":"2.0","id":1.0,"method":"ping"}`, CodeInvalidRequest, ""},
		{"id 1e0", `{"jsonrpc":"2.0","id":1e0,"method":"ping"}`, CodeInvalidRequest, ""},
		{"id -0", `{"jsonrpc":"2.0","id":-0,"method":"ping"}`, CodeInvalidRequest, ""},
		{"id of 65 bits", `{"jsonrpc":"2.0","id":9223372036854775808,"method":"ping"}`, CodeInvalidRequest, ""},
		{"id object", `{"jsonrpc":"2.0","id":{},"method":"ping"}`, CodeInvalidRequest, ""},
		{"id true", `{"jsonrpc":"2.0","id":true,"method":"ping"}`, CodeInvalidRequest, ""},
		{"no method", `{"jsonrpc":"2.0","id":5}`, CodeInvalidRequest, "5"},
		{"method is a number", `{"jsonrpc":"2.0","id":5,"method":1}`, CodeInvalidRequest, "5"},
		{"method is null", `{"jsonrpc":"2.0","id":5,"method":null}`, CodeInvalidRequest, "5"},
		{"method is empty", `{"jsonrpc":"2.0","id":5,"method":""}`, CodeInvalidRequest, "5"},
		{"request and response", `{"jsonrpc":"2.0","id":5,"method":"ping","result":{}}`, CodeInvalidRequest, "5"},
		{"result and error", `{"jsonrpc":"2.0","id":5,"result":{},"error":{"code":1,"message":""}}`, CodeInvalidRequest, "5"},
		{"result and null error", `{"jsonrpc":"2.0","id":5,"result":{},"error":null}`, CodeInvalidRequest, "5"},
		{"error is a string", `{"jsonrpc":"2.0","id":5,"error":"no"}`, CodeInvalidRequest, "5"},
		{"response without id", `{"jsonrpc":"2.0","result":{}}`, CodeInvalidRequest, ""},
		{"duplicate in a result", `{"jsonrpc":"2.0","id":5,"result":{"isError":true,"isError":false}}`, CodeParse, "5"},
		// Params of the wrong shape.
		{"params array", call(`["x"]`), CodeInvalidParams, "5"},
		{"params null", call(`null`), CodeInvalidParams, "5"},
		{"params string", call(`"x"`), CodeInvalidParams, "5"},
		{"no name", call(`{"arguments":{}}`), CodeInvalidParams, "5"},
		{"name is a number", call(`{"name":1}`), CodeInvalidParams, "5"},
		{"name is empty", call(`{"name":""}`), CodeInvalidParams, "5"},
		{"no params", `{"jsonrpc":"2.0","method":"tools/call","id":5}`, CodeInvalidParams, "5"},
		{"arguments array", call(`{"name":"x","arguments":[1]}`), CodeInvalidParams, "5"},
		{"arguments null", call(`{"name":"x","arguments":null}`), CodeInvalidParams, "5"},
		{"arguments string of JSON", call(`{"name":"x","arguments":"{}"}`), CodeInvalidParams, "5"},
		{"_meta array", call(`{"name":"x","_meta":[]}`), CodeInvalidParams, "5"},
	}
}

func TestParseRefuses(t *testing.T) {
	for _, tc := range hostile() {
		t.Run(tc.name, func(t *testing.T) {
			f, err := Parse([]byte(tc.in), Limits{})
			var m *Malformed
			if !errors.As(err, &m) {
				t.Fatalf("accepted as %+v (%v)", f, err)
			}
			if m.Code != tc.code || string(m.ID) != tc.id {
				t.Errorf("code %d id %q, want %d %q (%s)", m.Code, m.ID, tc.code, tc.id, m.Reason)
			}
			if m.Reason == "" || strings.Contains(m.Error(), "rm_rf") {
				t.Errorf("reason %q", m.Reason)
			}
			if f.Method != "" || f.Params != nil {
				t.Error("a refused message left a frame")
			}
		})
	}
}

func TestLimits(t *testing.T) {
	in := []byte(`{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":[[]]}}`)
	for _, tc := range []struct {
		l  Limits
		ok bool
	}{
		{Limits{}, true},
		{Limits{Depth: 4}, true},
		{Limits{Depth: 3}, false},
		{Limits{Bytes: len(in)}, true},
		{Limits{Bytes: len(in) - 1}, false},
	} {
		if _, err := Parse(in, tc.l); (err == nil) != tc.ok {
			t.Errorf("%+v: %v", tc.l, err)
		}
	}
}

func TestCheck(t *testing.T) {
	for in, ok := range map[string]bool{
		`{"a":[1,{"b":null}]}`: true,
		` "x" `:                true,
		`[]`:                   true,
		`{"a":1,"A":2}`:        false,
		`{"a":1}{"a":1}`:       false,
		`{"a":1`:               false,
		"\ufeff{}":             false,
		``:                     false,
		`{"a\u0000":1}`:        false,
	} {
		if err := Check([]byte(in), Limits{}); (err == nil) != ok {
			t.Errorf("%q: %v", in, err)
		}
	}
}

func BenchmarkParse(b *testing.B) {
	in := []byte(call(`{"name":"write_file","arguments":{"path":"/a/b","text":"` + strings.Repeat("lorem ipsum ", 80) + `","mode":420,"tags":["a","b"]},"_meta":{"progressToken":7}}`))
	b.ReportAllocs()
	b.SetBytes(int64(len(in)))
	for b.Loop() {
		if _, err := Parse(in, Limits{}); err != nil {
			b.Fatal(err)
		}
	}
}

// A message of the greatest size costs a small multiple of that, whatever it holds.
func TestHostileMessagesCostTheirSize(t *testing.T) {
	const size = 1 << 20
	fill := func(s string) string { return strings.Repeat(s, size/len(s)) }
	var distinct, odd strings.Builder
	for i := range size / 12 {
		distinct.WriteString(`"` + strconv.FormatInt(int64(i), 36) + `":1,`)
	}
	for i := range size / 16 {
		odd.WriteString(`"é` + strconv.FormatInt(int64(i), 36) + `":1,`)
	}
	for name, in := range map[string]string{
		"one long text":       call(`{"name":"x","arguments":{"a":"` + fill("x") + `"}}`),
		"escapes":             call(`{"name":"x","arguments":{"a":"` + fill(`\u0041`) + `"}}`),
		"one long name":       call(`{"name":"x","arguments":{"` + fill("N") + `":1}}`),
		"an escaped name":     call(`{"name":"x","arguments":{"` + fill(`\u0041`) + `":1}}`),
		"a name that expands": call(`{"name":"x","arguments":{"` + fill("\ufdfa") + `":1}}`),
		"names that expand":   call(`{"name":"x","arguments":{"a":[` + fill(`{"`+strings.Repeat("\ufdfa", 300)+`":1},`) + `1]}}`),
		"many names":          call(`{"name":"x","arguments":{` + distinct.String() + `"z":1}}`),
		"many odd names":      call(`{"name":"x","arguments":{` + odd.String() + `"z":1}}`),
		"the same name":       call(`{"name":"x","arguments":{` + fill(`"a":1,`) + `"z":1}}`),
		"many objects":        call(`{"name":"x","arguments":{"a":[` + fill(`{"a":1},`) + `1]}}`),
		"many empty lists":    call(`{"name":"x","arguments":{"a":[` + fill(`[],`) + `1]}}`),
		"deep":                call(`{"name":"x","arguments":{"a":[` + fill(strings.Repeat("[", 28)+strings.Repeat("]", 28)+",") + `1]}}`),
		"too deep":            call(`{"name":"x","arguments":{"a":` + fill("[")),
		"one number":          call(`{"name":"x","arguments":{"a":` + fill("1") + `}}`),
		"an open text":        `{"` + fill("a"),
		"blanks":              fill(" "),
		"a long id":           `{"id":"` + fill("a") + `","jsonrpc":"2.0","method":"ping"}`,
	} {
		var before, parsed, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f, err := Parse([]byte(in), Limits{})
		runtime.ReadMemStats(&parsed)
		if took := (parsed.TotalAlloc - before.TotalAlloc) / size; took > 80 && !raceEnabled {
			t.Errorf("%s: %d times its size was taken", name, took)
		}
		if err != nil {
			continue
		}
		runtime.ReadMemStats(&before)
		if _, err := Canonical(f.Args); err != nil && f.Args != nil {
			t.Errorf("%s: %v", name, err)
		}
		for range Fields(f.Args) {
		}
		runtime.ReadMemStats(&after)
		if took := (after.TotalAlloc - before.TotalAlloc) / size; took > 80 && !raceEnabled {
			t.Errorf("%s: its canonical form took %d times its size", name, took)
		}
	}
}
