package redact

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/action"
)

var update = flag.Bool("update", false, "write the golden files anew")

// keyed stands in for the ring's MAC.
func keyed(b []byte) string {
	sum := sha256.Sum256(append([]byte("key"), b...))
	return "k1." + hex.EncodeToString(sum[:6])
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s (-want +got):\n%s", name, d)
	}
}

func dump(title string, v approvals.View) string {
	var b strings.Builder
	fmt.Fprintf(&b, "title:    %s\nsummary:  %s\ncomplete: %v\n", title, v.Summary, v.Complete())
	for _, m := range v.Masked {
		fmt.Fprintf(&b, "masked:   %s %s %d %s\n", m.Pointer, m.Type, m.Len, m.Digest)
	}
	for _, w := range v.Warnings {
		fmt.Fprintf(&b, "warning:  %s\n", w)
	}
	for _, m := range v.Missing {
		fmt.Fprintf(&b, "missing:  %s\n", m)
	}
	return b.String() + "\n" + v.Text + "\n"
}

var maskedSchema = json.RawMessage(`{"type":"object","properties":{"iban":{},"apiKey":{"type":"string"},"card":{"$ref":"#/$defs/Card"},"list":{"items":{"type":"string"}},
 "a/b":{},"headers":{"items":{"anyOf":[{"$ref":"#/$defs/Header"},{"type":"null"}]}},"credentials":{"properties":{"user":{},"password":{}}}},
 "$defs":{"Card":{"properties":{"number":{}}},"Header":{"properties":{"name":{},"value":{}}}}}`)

func TestRenderGolden(t *testing.T) {
	for _, tc := range []struct {
		name  string
		call  action.Call
		rules Rules
	}{
		{name: "plain", call: action.Call{Tool: "cancel_order", Args: json.RawMessage(`{ "order_id":"4417","amount":10.50,"big":9007199254740993,"exp":1E+2,"ok":true,"none":null,"empty":{},"list":[1,"two",[],{"z":1,"a":2}],"note":"line one\nline \"two\"\t\\ \/ \u00e9 <&>" }`)}},
		{name: "no_arguments", call: action.Call{Tool: "list_orders"}},
		{
			name: "masked", rules: Rules{Keys: []string{"iban"}, Pointers: []string{"/card/number", "/list/1", "/a~1b"}, Title: "Pay {amount} from {iban} with {card}", Schema: maskedSchema},
			call: action.Call{Tool: "pay", Args: json.RawMessage(`{"amount":5,"iban":"DE89 3704","apiKey":"sk-live","card":{"number":"4111","name":"ana"},"list":["shown","hidden"],"a/b":7,"headers":[{"name":"Authorization","value":"Bearer x"},{"name":"Accept","value":"text/html"}],"credentials":{"user":"u","password":"p"},"password_set":true,"token":null}`)},
		},
		{
			name: "all_parts", rules: Rules{Title: "Run {cmd}"},
			call: action.Call{
				Tool: "run", Args: json.RawMessage(`{"cmd":"ls"}`), Extra: json.RawMessage(`{"task":{"ttl":60000},"secret":"x"}`),
				Meta: json.RawMessage(`{"traceparent":"00-1-2-01","auth":{"token":"y"}}`),
			},
		},
		{name: "invisible", call: action.Call{Tool: "pay", Args: json.RawMessage(`{"to":"acme\u202emoc.live\u200b","word":"p\u0430ypal","nbsp":"a\u00a0b","flag":"\ud83c\uddea\ud83c\uddfa \u2764\ufe0f"}`)}},
		{
			name: "values", rules: Rules{Title: "Run {cmd} with {env} and {config}", Schema: json.RawMessage(`{"properties":{"cmd":{},"env":{},"config":{},"pem":{},"doc":{}}}`)},
			call: action.Call{Tool: "run", Args: json.RawMessage(`{"cmd":"curl -H 'Authorization: Bearer abc.DEF-123' \"https://ana:hunter2@db.acme.test/x?page=2&api_key=k1&v=3\"","env":"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln",` +
				`"config":"{ \"user\": \"ana\", \"password\": \"hunter2\",\n  \"note\": \"a \\u0041KIAIOSFODNN7EXAMPLE b\" }","pem":"key:\n-----BEGIN EC PRIVATE KEY-----\nMHcCAQEE\n-----END EC PRIVATE KEY-----\nend","doc":"see {\"token\": \"CANARY\"} there"}`)},
		},
		{name: "broken", call: action.Call{Tool: "pay", Args: json.RawMessage(`{"a":"CANARY","a":"CANARY"}`), Extra: json.RawMessage(`{"b":`), Meta: json.RawMessage(`{"ok":1}`)}, rules: Rules{Title: "Pay {a}"}},
		{name: "title", call: action.Call{Tool: "merge", Args: json.RawMessage(`{"n":7,"owner":"acme\n/evil","s":"` + strings.Repeat("é", 100) + `","o":{"a":[1,{"password":"CANARY"}]},"t":true,"mark":"⟨none⟩ ⟦masked⟧"}`)}, rules: Rules{Title: "#{n} {owner} {gone} {s} {o} {t} {mark}"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := dump(Render(tc.call, tc.rules, keyed))
			if strings.Contains(got, "CANARY") {
				t.Errorf("leaked:\n%s", got)
			}
			golden(t, tc.name, got)
			if again := dump(Render(tc.call, tc.rules, keyed)); again != got {
				t.Error("two renderings differ")
			}
		})
	}
}

// One row a class of characters that can't be seen or that change how others are
// read.
func TestVisible(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{"plain", "Zürich 名前 ключ 5 € 😀 é", "Zürich 名前 ключ 5 € 😀 é"},
		{"NUL", "a\x00b", "a⟦U+0000⟧b"},
		{"escape", "a\x1b[31mb", "a⟦U+001B⟧[31mb"},
		{"line feed", "a\nb", "a⟦U+000A⟧b"},
		{"tab", "a\tb", "a⟦U+0009⟧b"},
		{"delete", "a\x7fb", "a⟦U+007F⟧b"},
		{"next line", "a\u0085b", "a⟦U+0085⟧b"},
		{"C1", "a\u009bb", "a⟦U+009B⟧b"},
		{"no-break space", "a\u00a0b", "a⟦U+00A0⟧b"},
		{"narrow no-break space", "a\u202fb", "a⟦U+202F⟧b"},
		{"em space", "a\u2003b", "a⟦U+2003⟧b"},
		{"ideographic space", "a\u3000b", "a⟦U+3000⟧b"},
		{"ogham space", "a\u1680b", "a⟦U+1680⟧b"},
		{"soft hyphen", "a\u00adb", "a⟦U+00AD⟧b"},
		{"grapheme joiner", "a\u034fb", "a⟦U+034F⟧b"},
		{"arabic letter mark", "a\u061cb", "a⟦U+061C⟧b"},
		{"hangul choseong filler", "a\u115fb", "a⟦U+115F⟧b"},
		{"hangul filler", "a\u3164b", "a⟦U+3164⟧b"},
		{"half-width filler", "a\uffa0b", "a⟦U+FFA0⟧b"},
		{"mongolian separator", "a\u180eb", "a⟦U+180E⟧b"},
		{"mongolian variation", "a\u180bb", "a⟦U+180B⟧b"},
		{"zero-width space", "a\u200bb", "a⟦U+200B⟧b"},
		{"zero-width joiner", "a\u200db", "a⟦U+200D⟧b"},
		{"left-to-right mark", "a\u200eb", "a⟦U+200E⟧b"},
		{"line separator", "a\u2028b", "a⟦U+2028⟧b"},
		{"paragraph separator", "a\u2029b", "a⟦U+2029⟧b"},
		{"override", "a\u202eb", "a⟦U+202E⟧b"},
		{"isolate", "a\u2066b\u2069", "a⟦U+2066⟧b⟦U+2069⟧"},
		{"word joiner", "a\u2060b", "a⟦U+2060⟧b"},
		{"invisible times", "a\u2062b", "a⟦U+2062⟧b"},
		{"empty braille", "a\u2800b", "a⟦U+2800⟧b"},
		{"variation selector", "a\ufe0fb", "a⟦U+FE0F⟧b"},
		{"variation selector supplement", "a\U000e0100b", "a⟦U+E0100⟧b"},
		{"byte order mark", "a\ufeffb", "a⟦U+FEFF⟧b"},
		{"object replacement", "a\ufffcb", "a⟦U+FFFC⟧b"},
		{"tag", "a\U000e0041b", "a⟦U+E0041⟧b"},
		{"private use", "a\ue000b", "a⟦U+E000⟧b"},
		{"private plane", "a\U000f0000b", "a⟦U+F0000⟧b"},
		{"unassigned", "a\u0378b", "a⟦U+0378⟧b"},
		{"noncharacter", "a\uffffb", "a⟦U+FFFF⟧b"},
		{"musical format", "a\U0001d173b", "a⟦U+1D173⟧b"},
		{"interlinear", "a\ufff9b", "a⟦U+FFF9⟧b"},
		{"our own brackets", "⟦masked⟧ ⟨none⟩", "⟦U+27E6⟧masked⟦U+27E7⟧ ⟦U+27E8⟧none⟦U+27E9⟧"},
		{"marks", "e\u0301\u0302\u0303", "e\u0301\u0302\u0303"},
		{"pile of marks", "e\u0301\u0301\u0301\u0301\u0301", "e\u0301\u0301\u0301⟦U+0301⟧⟦U+0301⟧"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := Visible(tc.in); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
			b, err := json.Marshal(map[string]string{"k": tc.in})
			if err != nil {
				t.Fatal(err)
			}
			_, v := Render(action.Call{Tool: "t", Args: b}, Rules{}, keyed)
			if hidden := Visible(tc.in) != tc.in && !strings.ContainsAny(tc.in, "\n\t"); hidden != (len(v.Warnings) > 0) {
				t.Errorf("warnings %q", v.Warnings)
			}
			for _, r := range v.Text {
				if r != '\n' && r != '⟦' && r != '⟧' && !seen(r) {
					t.Errorf("%U is in the text", r)
				}
			}
		})
	}
}

func TestSecretNames(t *testing.T) {
	for _, name := range []string{
		"password", "Password", "PASSWORD", "pass_word", "pass-word", "p.a.s.s.w.o.r.d", "passwd", "pwd", "userPassword", "user_password",
		"userpassword", "newPassword2", "passwordConfirm", "password_hash", "PASSWORDS",
		"apiKey", "APIKey", "api_key", "API-Key", "X-API-Key", "apikey", "apiKeys", "stripe_api_key", "openaiApiKey", "API_KEY_1",
		"token", "accessToken", "access_token", "accesstoken", "refreshToken", "tokens", "github_token", "tokenValue", "JWT", "bearer", "bearerToken",
		"secret", "client_secret", "clientSecret", "secrets", "AWS_SECRET_ACCESS_KEY", "secretKey", "aws_access_key_id",
		"authorization", "Authorization", "Proxy-Authorization", "authorizationHeader", "auth", "X-Auth",
		"private_key", "privateKeyPem", "ssh_key", "signing-key", "access_key", "cookie", "Cookies", "Set-Cookie", "session", "sessionId", "session_token",
		"credential", "credentials", "dbCredentials", "pass", "dbPass", "MYSQL_PASS", "creds", "X-Auth-Key", "AccountKey", "mnemonic", "recoveryCodes",
		"Passwort", "contraseña", "ПАРОЛЬ", "密码", "パスワード", "pin", "card_pin", "PIN", "cvv", "otp", "passphrase", "passcode",
		"ｐａｓｓｗｏｒｄ", "pa\u017f\u017fword",
	} {
		if !newNames(nil).secret(name, false) {
			t.Errorf("%q is shown", name)
		}
	}
	for _, name := range []string{
		"", "order_id", "key", "keyboard", "mapping", "spin", "pinned", "opinion", "author", "oauth_app", "secretary", "secret_name", "token_count",
		"tokenizer", "session_count", "passenger", "compass", "authorized", "public_key", "primary_key", "keys", "path", "bypass", "pass_rate", "text", "value", "名前", "2",
	} {
		if newNames(nil).secret(name, false) {
			t.Errorf("%q is masked", name)
		}
	}
	if newNames(nil).secret("max_tokens", true) || !newNames(nil).secret("max_tokens", false) || !newNames(nil).secret("token", true) || newNames(nil).secret("pass", true) {
		t.Error("a number under a plural is a count, nothing else is")
	}
	added := newNames([]string{"IBAN", "card-holder", "_"})
	for _, name := range []string{"iban", "customerIban", "cardHolder", "card_holder", "password"} {
		if !added.secret(name, false) {
			t.Errorf("%q is shown though the policy adds it or the defaults have it", name)
		}
	}
}

// A secret, wherever it is put, comes out nowhere.
func TestCanary(t *testing.T) {
	const canary = "CANARY-7f3a"
	str, num := `"`+canary+`"`, "73519264"
	for _, name := range []string{"password", "apiKey", "API-Key", "client_secret", "x-authorization", "Cookie", "session", "creditPin", "privateKey"} {
		for _, shape := range []string{
			`{%q:V}`, `{"a":{%q:V}}`, `{"a":[[{%q:V}]]}`, `{%q:{"deep":[V]}}`, `{%q:[V]}`, `{"n":1,%q:V,"m":2}`, `{"headers":[{"name":%q,"value":V}]}`, `{"env":[{"value":V,"key":%q}]}`,
		} {
			for _, value := range []string{str, num, `{"x":` + str + `}`} {
				obj := json.RawMessage(strings.ReplaceAll(fmt.Sprintf(shape, name), "V", value))
				for part, c := range map[string]action.Call{
					"args": {Tool: "t", Args: obj}, "meta": {Tool: "t", Meta: obj}, "extra": {Tool: "t", Extra: obj},
				} {
					for _, title := range []string{"", "{a} {" + name + "} {headers} {env} {n}"} {
						got := dump(Render(c, Rules{Title: title}, keyed))
						if strings.Contains(got, canary) || strings.Contains(got, num) {
							t.Fatalf("%s of %s leaks:\n%s", part, obj, got)
						}
						if !strings.Contains(got, "masked:") {
							t.Fatalf("%s of %s has no mask:\n%s", part, obj, got)
						}
					}
				}
			}
		}
	}
	for _, pointer := range []string{"/a", "/a/b", "/a/b/0"} {
		c := action.Call{Tool: "t", Args: json.RawMessage(`{"a":{"b":[` + str + `]}}`)}
		for _, title := range []string{"", "{a}"} {
			if got := dump(Render(c, Rules{Pointers: []string{pointer}, Title: title}, keyed)); strings.Contains(got, canary) {
				t.Fatalf("%s leaks:\n%s", pointer, got)
			}
		}
	}
}

func TestMaskDigest(t *testing.T) {
	one := func(args string) approvals.Mask {
		_, v := Render(action.Call{Args: json.RawMessage(args)}, Rules{Schema: json.RawMessage(`{"properties":{"token":{}}}`)}, keyed)
		if len(v.Masked) != 1 || !v.Complete() {
			t.Fatalf("%+v", v)
		}
		return v.Masked[0]
	}
	a, b, c := one(`{"token":"A\u00e9"}`), one(`{"token":"\u0041é"}`), one(`{"token":"B"}`)
	if a.Digest != b.Digest || a.Digest == c.Digest || a.Digest == "" {
		t.Errorf("%+v %+v %+v", a, b, c)
	}
	if a.Pointer != "/token" || a.Type != "string" || a.Len != len(`"A\u00e9"`) {
		t.Errorf("%+v", a)
	}
	_, v := Render(action.Call{Args: json.RawMessage(`{"token":"x"}`)}, Rules{}, nil)
	if len(v.Masked) != 1 || v.Masked[0].Digest != "" {
		t.Errorf("without a digest: %+v", v.Masked)
	}
}

func TestTooBigIsSaid(t *testing.T) {
	tail := "rm -rf /"
	for name, c := range map[string]action.Call{
		"long string":     {Args: json.RawMessage(`{"a":"` + strings.Repeat("x", MaxText) + `","b":"` + tail + `"}`)},
		"grows by indent": {Args: json.RawMessage(`{"a":` + strings.Repeat("[", 28) + strings.Repeat("1,", 20_000) + `1` + strings.Repeat("]", 28) + `}`)},
		"grows by codes":  {Args: json.RawMessage(`{"a":"` + strings.Repeat("\u200b", 120_000) + `"}`)},
		"long extra":      {Args: json.RawMessage(`{}`), Extra: json.RawMessage(`{"a":"` + strings.Repeat("x", MaxText) + `"}`)},
		"together":        {Args: json.RawMessage(`{"a":"` + strings.Repeat("x", 600<<10) + `"}`), Extra: json.RawMessage(`{"a":"` + strings.Repeat("x", 600<<10) + `"}`)},
	} {
		_, v := Render(c, Rules{}, keyed)
		if v.Complete() || len(v.Missing) == 0 || len(v.Text) > MaxText || !strings.Contains(v.Text, "not shown") {
			t.Errorf("%s: complete %v, missing %q, %d bytes", name, v.Complete(), v.Missing, len(v.Text))
		}
	}
	// Nothing is cut below that: the tail of a long text is there.
	c := action.Call{Args: json.RawMessage(`{"a":"` + strings.Repeat("pad ", 100_000) + tail + `"}`)}
	if _, v := Render(c, Rules{}, keyed); !v.Complete() || !strings.Contains(v.Text, tail) {
		t.Error("the end of a long argument is missing")
	}
	deep := action.Call{Args: json.RawMessage(strings.Repeat(`{"a":`, 40) + `"x"` + strings.Repeat("}", 40))}
	if _, v := Render(deep, Rules{}, keyed); v.Complete() {
		t.Error("arguments that are too deep count as shown")
	}
}

// leaves lists every scalar of a value as the text must show it.
func leaves(raw json.RawMessage, out *[]string) {
	switch raw[0] {
	case '{':
		for name, v := range action.Fields(raw) {
			var w ink
			w.quoted(name)
			*out = append(*out, w.String()+": ")
			leaves(v, out)
		}
	case '[':
		for v := range action.Items(raw) {
			leaves(v, out)
		}
	case '"':
		s, _ := action.Text(raw)
		var w ink
		w.quoted(s)
		*out = append(*out, w.String())
	default:
		*out = append(*out, string(raw))
	}
}

// What a caller and an upstream choose can't break a view: it is bounded, the same
// each time, shows nothing that can't be seen, and is the whole or says that it is
// not.
func FuzzRender(f *testing.F) {
	f.Add([]byte(`{"a":"x","password":"y","l":[1,{"b":null}]}`), []byte(`{"task":1}`), []byte(`{"properties":{"a":{},"l":{"items":{}}}}`), "do {a} {password}")
	f.Add([]byte(`{"a":"\u202e","name":"token","value":"v"}`), []byte(nil), []byte(`{"$ref":"#/$defs/A","$defs":{"A":{"anyOf":[{"$ref":"#/$defs/A"}]}}}`), "")
	f.Add([]byte(`{`), []byte(`[]`), []byte(`{"patternProperties":{"(":1,"^a":true}}`), "{")
	f.Add([]byte(`{"h":["--token","a b"],"k":["-----BEGIN A-----","x"]}`), []byte(`{"session":"a"}`), []byte(`true`), "{h}{k}{gone}")
	f.Add([]byte(`{"s":"{\"a\":[\"Authorization\",\"x\"],\"t\":\"password: |\\n x\"}"}`), []byte(`{"p\u0430y":"\uff52\u0301"}`), []byte(`{"properties":{"s":{}}}`), "{s}")
	f.Fuzz(func(t *testing.T, args, extra, schema []byte, title string) {
		c := action.Call{Tool: "t", Args: args}
		if len(extra) > 0 {
			c.Extra, c.Meta = extra, extra
		}
		rules := Rules{Title: title, Schema: schema, Pointers: []string{"/a/0"}, Keys: []string{"iban"}}
		got, v := Render(c, rules, keyed)
		if again, w := Render(c, rules, keyed); again != got || !cmp.Equal(v, w) {
			t.Fatalf("two views of one call:\n%s\n%s", dump(got, v), dump(again, w))
		}
		size := len(v.Text) + len(v.Summary)
		for _, m := range v.Masked {
			size += len(m.Pointer)
		}
		for _, words := range [][]string{v.Missing, v.Warnings} {
			for _, w := range words {
				size += len(w)
			}
		}
		if len(v.Text) > MaxText || size > 2*MaxText {
			t.Fatalf("%d bytes of text, %d in all", len(v.Text), size)
		}
		if v.Text == "" || !utf8.ValidString(v.Text) {
			t.Fatalf("the text is %q", v.Text)
		}
		for _, r := range got + v.Summary + strings.Join(v.Warnings, "") + strings.Join(v.Missing, "") + strings.ReplaceAll(v.Text, "\n", "") {
			if r != '⟦' && r != '⟧' && r != '⟨' && r != '⟩' && r != '…' && !seen(r) {
				t.Fatalf("%U in the view %s", r, dump(got, v))
			}
		}
		if !v.Complete() {
			return
		}
		for _, part := range []json.RawMessage{args, extra} {
			if len(part) == 0 {
				continue
			}
			if err := action.Check(part, action.Limits{}); err != nil {
				t.Fatalf("complete, but %s is refused: %v", part, err)
			}
			if len(v.Masked) > 0 {
				continue
			}
			var all []string
			leaves(trim(part), &all)
			for _, leaf := range all {
				if !strings.Contains(v.Text, leaf) {
					t.Fatalf("%s is missing in\n%s", leaf, v.Text)
				}
			}
		}
	})
}

func BenchmarkRender(b *testing.B) {
	c := action.Call{Tool: "write_file", Args: json.RawMessage(`{"path":"/a/b","text":"` + strings.Repeat("lorem ipsum ", 800) + `","mode":420,"tags":["a","b"]}`)}
	b.ReportAllocs()
	for b.Loop() {
		if _, v := Render(c, Rules{Title: "Write {path}"}, keyed); !v.Complete() {
			b.Fatal("incomplete")
		}
	}
}
