package action

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
)

func TestMembers(t *testing.T) {
	obj := json.RawMessage(` { "a" : 1 , "b":[ 1, {"a":2} ],"c\u0064":"x" } `)
	for name, want := range map[string]string{"a": "1", "b": `[ 1, {"a":2} ]`, "cd": `"x"`} {
		if got, ok := Member(obj, name); !ok || string(got) != want {
			t.Errorf("%s: %s %v", name, got, ok)
		}
	}
	for _, none := range []string{"", "A", `c\u0064`} {
		if _, ok := Member(obj, none); ok {
			t.Errorf("%q is there", none)
		}
	}
	for _, notObject := range []string{"", "null", "[]", `"a"`, "{", "nonsense"} {
		if _, ok := Member(json.RawMessage(notObject), "a"); ok {
			t.Errorf("%q has a member", notObject)
		}
	}
	var items []string
	for v := range Items(json.RawMessage(`[1, "a", [2] ,{} ]`)) {
		items = append(items, string(v))
	}
	if want := []string{"1", `"a"`, "[2]", "{}"}; !reflect.DeepEqual(items, want) {
		t.Errorf("items %q", items)
	}
}

func TestSetAndDropMember(t *testing.T) {
	for _, tc := range []struct{ obj, name, set, drop string }{
		{`{}`, "n", `{"n":9}`, `{}`},
		{``, "n", `{"n":9}`, ``},
		{`null`, "n", `{"n":9}`, `null`},
		{`{ "n":1 }`, "n", `{ "n":9 }`, `{  }`},
		{`{"n":1,"b":2}`, "n", `{"n":9,"b":2}`, `{"b":2}`},
		{`{"a":1,"n":{"x":[1]},"b":2}`, "n", `{"a":1,"n":9,"b":2}`, `{"a":1,"b":2}`},
		{`{"a":1.0, "n" : "}" }`, "n", `{"a":1.0, "n" : 9 }`, `{"a":1.0 }`},
		{`{"a":1e400,"\u006e":1}`, "n", `{"a":1e400,"\u006e":9}`, `{"a":1e400}`},
		{`{"a":{"n":1}}`, "n", `{"a":{"n":1},"n":9}`, `{"a":{"n":1}}`},
		{`{"a":1}`, "q\"", `{"a":1,"q\"":9}`, `{"a":1}`},
	} {
		in := json.RawMessage(tc.obj)
		if got := SetMember(in, tc.name, json.RawMessage("9")); string(got) != tc.set {
			t.Errorf("set %s: %s, want %s", tc.obj, got, tc.set)
		}
		if got := DropMember(in, tc.name); string(got) != tc.drop {
			t.Errorf("drop %s: %s, want %s", tc.obj, got, tc.drop)
		}
		if string(in) != tc.obj {
			t.Errorf("%s was changed to %s", tc.obj, in)
		}
	}
}

func TestDropMembers(t *testing.T) {
	drop := func(name string) bool { return name[0] == 'x' }
	for in, want := range map[string]string{
		`{"x1":1,"x2":2}`:     `{}`,
		`{ "x1":1 , "x2":2 }`: `{  }`,
		`{"x1":1,"a":1.0,"x2":{"a":[2]},"b":"}","x3":3}`: `{"a":1.0,"b":"}"}`,
		`{"a":1 , "x1":2, "x2":3 }`:                      `{"a":1 }`,
		`{"x1":1,"x2":2, "a":3, "b":4}`:                  `{"a":3, "b":4}`,
		`{"a":1,"b":2}`:                                  `{"a":1,"b":2}`,
		`[{"x":1}]`:                                      `[{"x":1}]`,
		``:                                               ``,
	} {
		obj := json.RawMessage(in)
		if got := DropMembers(obj, drop); string(got) != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
		if string(obj) != in {
			t.Errorf("%s was changed to %s", in, obj)
		}
	}
}

func FuzzSetDropMember(f *testing.F) {
	f.Add([]byte(`{ "a":1 , "b":[2],"c":{} }`), "b")
	f.Add([]byte(`{}`), "x")
	f.Fuzz(func(t *testing.T, b []byte, name string) {
		if Check(b, Limits{}) != nil || bytes.TrimSpace(b)[0] != '{' || !json.Valid([]byte(`"`+name+`"`)) || !isASCII(name) {
			return
		}
		var before map[string]json.RawMessage
		if err := json.Unmarshal(b, &before); err != nil {
			t.Fatal(err)
		}
		name, ok := Text(json.RawMessage(`"` + name + `"`))
		if !ok {
			return
		}
		for op, got := range map[string]json.RawMessage{"set": SetMember(b, name, json.RawMessage("true")), "drop": DropMember(b, name)} {
			var after map[string]json.RawMessage
			if err := json.Unmarshal(got, &after); err != nil {
				t.Fatalf("%s of %s gives %s: %v", op, b, got, err)
			}
			want := map[string]json.RawMessage{}
			for k, v := range before {
				want[k] = v
			}
			if op == "set" {
				want[name] = json.RawMessage("true")
			} else {
				delete(want, name)
			}
			if !reflect.DeepEqual(after, want) {
				t.Fatalf("%s: %s, want %s", op, after, want)
			}
		}
	})
}

func TestText(t *testing.T) {
	for in, want := range map[string]string{`"a"`: "a", `"\u0041\ud83d\ude00"`: "A😀", `""`: "", ` "x" `: "x"} {
		if got, ok := Text(json.RawMessage(in)); !ok || got != want {
			t.Errorf("%s: %q %v", in, got, ok)
		}
	}
	for _, in := range []string{"", "1", "null", `"`, `"a`, `"\ud800"`, "\"\xff\"", `"a" "b"`, `{"a":1}`, "\"a\nb\""} {
		if got, ok := Text(json.RawMessage(in)); ok {
			t.Errorf("%q: %q", in, got)
		}
	}
}

func TestCanonical(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{`{"b":1,"a":2}`, `{"a":2,"b":1}`},
		{` [ 1 , "x" ] `, `[1,"x"]`},
		{`{"a":9007199254740993}`, `{"a":9007199254740993}`},
		{`[1.0,1,1e0,10E+2,-0,1e400,1e-400,0.1000000000000000055]`, `[1.0,1,1e0,10E+2,-0,1e400,1e-400,0.1000000000000000055]`},
		{`"\u0041\/\u00e9\u000a"`, `"A/é\n"`},
		{`"\u2028\u007f<&>"`, "\"\u2028\u007f<&>\""},
		// By UTF-16 unit: U+1F600 comes before U+E000.
		{`{"\ue000":1,"\ud83d\ude00":2}`, "{\"\U0001F600\":2,\"\ue000\":1}"},
		{`{"e\u0301":1,"\u00e9":2}`, "{\"e\u0301\":1,\"\u00e9\":2}"},
		{`null`, `null`},
	} {
		in := json.RawMessage(tc.in)
		got, err := Canonical(in)
		if err != nil || string(got) != tc.want {
			t.Errorf("%s: %s %v, want %s", tc.in, got, err, tc.want)
		}
		if string(in) != tc.in {
			t.Errorf("%s was changed", tc.in)
		}
	}
	for _, bad := range []string{``, `{`, `{"a":1,"a":2}`, `1 2`, `"\ud800"`, "\"\xff\""} {
		if got, err := Canonical(json.RawMessage(bad)); err == nil {
			t.Errorf("%q: %s", bad, got)
		}
	}
}

func FuzzCanonical(f *testing.F) {
	f.Add([]byte(`{"b":[1.0,-0,{"\u0061":null}],"a":"\n"}`))
	f.Add([]byte(`{"\ue000":1e400,"\ud83d\ude00":2}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		once, err := Canonical(b)
		if err != nil {
			return
		}
		twice, err := Canonical(once)
		if err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("%s became %s (%v)", once, twice, err)
		}
		// The value is the same, its numbers as written.
		if !reflect.DeepEqual(decoded(t, b), decoded(t, once)) {
			t.Fatalf("%s means something else than %s", once, b)
		}
	})
}

func decoded(t *testing.T, b []byte) any {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}
