package action

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"
)

// peer is how one kind of server reads messages. For each body it gives id,
// method, name and arguments in one line, or "refused":
//
//	absent - · null true false · n and the number · s and the text's UTF-16 in hex
//	[item,…] · {name:value,…} sorted
type peer struct {
	name   string
	number func(literal string) string
	read   func(t *testing.T, bodies [][]byte) []string
}

func literally(s string) string { return s }

// double is the number that JSON.parse makes of a literal.
func double(s string) string {
	f, _ := strconv.ParseFloat(s, 64) // out of range is infinite there, too
	return hex.EncodeToString(binary.BigEndian.AppendUint64(nil, math.Float64bits(f)))
}

// script reads by a program on the PATH; nil where there is none.
func script(name string, number func(string) string, command ...string) *peer {
	path, err := exec.LookPath(command[0])
	if err != nil {
		return nil
	}
	return &peer{name: name, number: number, read: func(t *testing.T, bodies [][]byte) []string {
		var in bytes.Buffer
		for _, b := range bodies {
			in.WriteString(base64.StdEncoding.EncodeToString(b) + "\n")
		}
		cmd := exec.CommandContext(t.Context(), path, command[1:]...)
		cmd.Stdin = &in
		out, err := cmd.Output()
		lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
		if err != nil || len(lines) != len(bodies) {
			t.Fatalf("%s: %v, %d answers for %d bodies", name, err, len(lines), len(bodies))
		}
		return lines
	}}
}

// readers are those that are there. Python and Node are optional, and it is said
// when they are not.
func readers(t *testing.T) []*peer {
	out := []*peer{
		{"Go, into a struct", literally, each(readStruct)},
		{"Go, into maps", literally, each(readMaps)},
	}
	for _, s := range []struct {
		name string
		r    *peer
	}{
		{"Python", script("Python", literally, "python3", "testdata/decode.py")},
		{"Node", script("Node", double, "node", "testdata/decode.mjs")},
	} {
		if s.r == nil {
			t.Logf("%s is not on the PATH: it is not compared with", s.name)
			continue
		}
		out = append(out, s.r)
	}
	return out
}

func each(read func([]byte) (string, error)) func(*testing.T, [][]byte) []string {
	return func(_ *testing.T, bodies [][]byte) []string {
		out := make([]string, len(bodies))
		for i, b := range bodies {
			s, err := read(b)
			if err != nil {
				s = "refused"
			}
			out[i] = s
		}
		return out
	}
}

func readStruct(b []byte) (string, error) {
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method json.RawMessage `json:"method"`
		Params struct {
			Name      json.RawMessage `json:"name"`
			Arguments json.RawMessage `json:"arguments"`
		} `json:"params"`
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return "", err
	}
	return line(m.ID, m.Method, m.Params.Name, m.Params.Arguments)
}

func readMaps(b []byte) (string, error) {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(b, &m); err != nil {
		return "", err
	}
	var p map[string]json.RawMessage
	if m["params"] != nil {
		if err := json.Unmarshal(m["params"], &p); err != nil {
			p = nil
		}
	}
	return line(m["id"], m["method"], p["name"], p["arguments"])
}

// line reads the parts with encoding/json.
func line(parts ...json.RawMessage) (string, error) {
	var out []string
	for _, p := range parts {
		if p == nil {
			out = append(out, "-")
			continue
		}
		dec := json.NewDecoder(bytes.NewReader(p))
		dec.UseNumber()
		var v any
		if err := dec.Decode(&v); err != nil {
			return "", err
		}
		out = append(out, tree(v))
	}
	return strings.Join(out, " "), nil
}

func tree(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(v)
	case json.Number:
		return "n" + string(v)
	case string:
		return spell(v)
	case []any:
		var items []string
		for _, x := range v {
			items = append(items, tree(x))
		}
		return "[" + strings.Join(items, ",") + "]"
	}
	var members []string
	for name, x := range v.(map[string]any) {
		members = append(members, spell(name)+":"+tree(x))
	}
	slices.Sort(members)
	return "{" + strings.Join(members, ",") + "}"
}

func spell(s string) string {
	out := "s"
	for _, u := range utf16.Encode([]rune(s)) {
		out += fmt.Sprintf("%04x", u)
	}
	return out
}

// ours is the reading of this package, by its own functions alone.
func ours(f Frame, number func(string) string) string {
	name := json.RawMessage(nil)
	if f.Params != nil {
		name, _ = Member(f.Params, "name")
	}
	out := []string{branch(f.ID, number), spell(f.Method), branch(name, number), branch(f.Args, number)}
	return strings.Join(out, " ")
}

func branch(raw json.RawMessage, number func(string) string) string {
	if raw == nil {
		return "-"
	}
	switch TypeOf(raw) {
	case "object":
		var members []string
		for name, v := range Fields(raw) {
			members = append(members, spell(name)+":"+branch(v, number))
		}
		slices.Sort(members)
		return "{" + strings.Join(members, ",") + "}"
	case "array":
		var items []string
		for v := range Items(raw) {
			items = append(items, branch(v, number))
		}
		return "[" + strings.Join(items, ",") + "]"
	case "string":
		s, ok := Text(raw)
		if !ok {
			return "no text"
		}
		return spell(s)
	case "number":
		return "n" + number(string(raw))
	}
	return string(raw)
}

// corpus are bodies that decoders are known to read in different ways, and ones
// that they must read alike.
func corpus() [][]byte {
	var out [][]byte
	for _, tc := range hostile() {
		if len(tc.in) < 64<<10 {
			out = append(out, []byte(tc.in))
		}
	}
	for _, args := range []string{
		`{}`, `{"a":[1,-0,0.10,1E+2,1e-400,1e400,9007199254740993,18446744073709551616]}`, `{"n":` + strings.Repeat("9", 5000) + `}`, `{"f":0.` + strings.Repeat("1", 2000) + `}`,
		`{"2":"b","1":"a","10":"c","01":"d"}`, `{"a":"\u2028\u2029` + "\u2028\u2029" + `"}`, `{"a":"\ud83d\ude00😀"}`, `{"a":"\u0000\u001f\b\f\/\\\""}`, `{"":1," ":2}`, `{"a":"\uFEFF\ufffe\uffff"}`,
		`{"constructor":{"prototype":1},"toString":"x","length":3}`, `{"__proto__":{"path":"/etc"}}`, `{"a":{"__proto__":[1]}}`, `{"\u005f_proto__":1}`, `{"e\u0301":1,"x":"\u00e9 e\u0301"}`,
		`{"a":[[[[[]]]],{},{"b":{}}],"t":true,"f":false,"n":null}`, "{\"a\":\t[ 1 ,\r\n2 ]\n}", `{"a":1.0,"b":1,"c":1e0,"d":10e-1}`, `{"name":"other","arguments":{},"id":9,"method":"x"}`, `{"a":"` + strings.Repeat("é", 3000) + `"}`,
		`{"a":+1}`, `{"a":.5}`, `{"a":5.}`, `{"a":0x10}`, `{"a":1_000}`, `{"a":Infinity}`, `{"a":-Infinity}`, `{"a":-NaN}`, `{"a":undefined}`, `{"a":'x'}`, `{a:1}`, `{"a":1,}`, `{"a":[1,]}`, `{"a":[,1]}`, `{"a" "b"}`, `{"a":1 "b":2}`,
		`{"a":tru}`, `{"a":True}`, `{"a":None}`, `{"a":"\x41"}`, `{"a":"\u12"}`, `{"a":"\ud83d"}`, `{"a":"\ude00\ud83d"}`, `{"a":"\ud83dx"}`, `{"a":"\u{41}"}`, `{"a":"\'"}`, "{\"a\":\"\t\"}", "{\"a\":\"\x00\"}", "{\"a\":\"\x7f\"}", "{\"\x7f\":1}",
		"{\"a\":\"\xed\xa0\x80\"}", "{\"a\":\"\xf4\x90\x80\x80\"}", "{\"a\":\"\xc3\"}", "{\"a\":1}\x0b", "{\u00a0\"a\":1}", "{\u2028\"a\":1}", "{\ufeff\"a\":1}", `{"a":1}//x`, `{"a":1/*x*/}`, `{"a":1}#x`, `{"a":00}`, `{"a":-}`, `{"a":1e}`, `{"a":1e+}`, `{"a":--1}`,
		`{"İ":1,"i̇":2}`, `{"ǆ":1,"ǅ":2}`, `{"ß":1,"ẞ":2}`, `{"Σ":1,"ς":2}`, `{"K":1,"k":2}`, `{"ﬀ":1,"ff":2}`, `{"①":1,"1":2}`, `{"a\u00ad":1}`, `{"\ud83d\ude00":1,"😀":2}`, `{"a":{"B":1,"b":2}}`,
	} {
		out = append(out, []byte(call(`{"name":"x","arguments":`+args+`}`)))
	}
	for _, params := range []string{
		`{"name":"x","arguments":{},"n\u0061me":"y"}`, `{"name":"x","NAME":"y"}`, `{"name":"x","arguments":{"a":1},"Arguments":{"a":2}}`, `{"name":"x","arguments":{"a":1},"arguments":{"a":2}}`, `{"name":"x","__proto__":{"arguments":{"a":1}}}`,
		`{"name":"x\u0000y","arguments":{}}`, `{"name":" x","arguments":{}}`, `{"name":["x"],"arguments":{}}`, `{"name":null}`, `{}`, `[]`, `null`, `"x"`, `{"name":"x","arguments":""}`,
	} {
		out = append(out, []byte(call(params)))
	}
	for _, id := range []string{"1", "-1", "0", "9223372036854775807", `"a"`, `""`, `"\u0061"`, `"1"`, "1.0", "1e3", "-0", "null", "[1]", "9223372036854775808", "1e400", `"\ud800"`} {
		out = append(out, []byte(`{"jsonrpc":"2.0","id":`+id+`,"method":"tools/call","params":{"name":"x","arguments":{"a":`+id+`}}}`))
	}
	return out
}

// generated are bodies made at random: well-formed calls, and calls with a few bytes
// changed, taken out, doubled or moved.
func generated(n int) [][]byte {
	r := rand.New(rand.NewPCG(11, 17))
	texts := []string{"a", "b", "key", "name", "arguments", "Name", "ſ", "K", "é", "e\u0301", "😀", "\u2028", "", " ", "1", "10", "\\", `"`, "x\ty", "ﬁ", "constructor"}
	quoted := func() string {
		s := string(mustJSON(texts[r.IntN(len(texts))]))
		if len(s) > 2 && s[1] != '\\' && s[1] < 0x80 && r.IntN(4) == 0 {
			s = fmt.Sprintf(`"\u%04x`, s[1]) + s[2:]
		}
		return s
	}
	numbers := []string{"0", "-0", "1", "1.0", "-12.50", "1e5", "1E-7", "1e400", "9007199254740993", "0.1", "123456789012345678901234567890"}
	blank := func() string { return []string{"", "", "", " ", "\n", "\t "}[r.IntN(6)] }
	var value func(depth int) string
	object := func(depth int) string {
		var members []string
		for range r.IntN(5) {
			members = append(members, blank()+quoted()+blank()+":"+value(depth+1))
		}
		return "{" + strings.Join(members, ",") + blank() + "}"
	}
	value = func(depth int) string {
		kind := r.IntN(8)
		if depth > 4 {
			kind = r.IntN(6)
		}
		switch kind {
		case 0, 1:
			return numbers[r.IntN(len(numbers))]
		case 2, 3:
			return quoted()
		case 4:
			return []string{"true", "false", "null"}[r.IntN(3)]
		case 5:
			return "{}"
		case 6:
			var items []string
			for range r.IntN(4) {
				items = append(items, value(depth+1))
			}
			return "[" + strings.Join(items, ",") + "]"
		}
		return object(depth)
	}
	var out [][]byte
	for range n {
		parts := []string{`"jsonrpc":"2.0"`, `"id":` + []string{"1", `"x"`, "-7"}[r.IntN(3)], `"method":"tools/call"`, `"params":{"name":` + quoted() + `,"arguments":` + object(0) + `}`}
		r.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
		b := []byte("{" + strings.Join(parts, ",") + "}")
		for range r.IntN(4) {
			i := r.IntN(len(b))
			switch r.IntN(6) {
			case 0:
				b[i] = byte(r.IntN(256))
			case 1:
				b = slices.Delete(b, i, min(len(b), i+1+r.IntN(3)))
			case 2:
				b = slices.Insert(b, i, b[i:min(len(b), i+1+r.IntN(20))]...)
			case 3:
				b = slices.Insert(b, i, []byte([]string{"\x00", "\u200b", "ſ", `\ud800`, "//", ",", "}", `"a":1,`, "\ufeff", "e", "."}[r.IntN(11)])...)
			case 4:
				if b[i]|0x20 >= 'a' && b[i]|0x20 <= 'z' {
					b[i] ^= 0x20
				}
			}
		}
		out = append(out, b)
	}
	return out
}

func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// What this parser accepts, every decoder reads with the same id, method, name and
// arguments, value by value. What they read in different ways it refuses: the
// bodies must contain many such, or the test proves nothing.
func TestDecodersAgree(t *testing.T) {
	known := corpus()
	if len(known) < 150 {
		t.Fatalf("only %d bodies", len(known))
	}
	bodies := append(known, generated(6000)...)
	all := readers(t)
	readings := map[*peer][]string{}
	for _, r := range all {
		readings[r] = r.read(t, bodies)
	}
	accepted, split, refusedByAll := 0, 0, 0
	for i, b := range bodies {
		f, err := Parse(b, Limits{})
		if err == nil && f.Method != "tools/call" {
			continue // a byte of the method was changed: nobody runs a tool
		}
		different := map[string]bool{}
		for _, r := range all {
			got := readings[r][i]
			if err == nil && got != ours(f, r.number) {
				t.Errorf("%s reads %q as\n%s\nand we as\n%s", r.name, b, got, ours(f, r.number))
			}
			if r.name != "Node" { // its numbers are written in another way
				different[got] = true
			}
		}
		switch {
		case err == nil:
			accepted++
		case len(different) > 1:
			split++
		case maps.Equal(different, map[string]bool{"refused": true}):
			refusedByAll++
		}
	}
	t.Logf("%d bodies: %d accepted, %d refused that decoders read in different ways, %d that none takes", len(bodies), accepted, split, refusedByAll)
	if accepted < 1000 || split < 100 || refusedByAll < 100 {
		t.Error("the bodies are of too few kinds")
	}
}
