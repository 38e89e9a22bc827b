package redact

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/action"
)

// known are secrets by their look. Each has a text around it that must be shown.
var known = []struct{ kind, before, secret, after string }{
	{"AWS key id", "id ", "AKIAIOSFODNN7CANARYX", " end"},
	{"AWS key id", "id=", "ASIAIOSFODNN7CANARYX", ";"},
	{"GitHub token", "git clone x ", "ghp_CANARY0123456789abcdefghijklmnopqrst", " now"},
	{"GitHub token", "", "github_pat_11CANARY0_abcdefghij0123456789", "\n"},
	{"GitLab token", "(", "glpat-CANARY-0123456789_x", ")"},
	{"Slack token", "t:", "xoxb-123-456-CANARYabc", ","},
	{"Slack token", "", "xapp-1-A0-1-CANARYabc", " "},
	{"Slack webhook", "https://", "hooks.slack.com/services/T0/B0/CANARY", " "},
	{"Stripe key", "'", "sk_live_CANARY0123456789", "'"},
	{"Stripe key", "'", "rk_test_CANARY0123456789", "'"},
	{"Google key", "key=", "AIzaSyCANARY0123456789abcdefghijklmnopq", "&x"},
	{"Google token", "", "ya29.CANARY0123456789abcdef", " "},
	{"JWT", "jwt ", "eyJhbGciOiJIUzI1NiJ9.eyJDQU5BUlkiOjF9.CANARY_sig-x", " ok"},
	{"JWT", "", "eyJhbGciOiJub25lIn0.eyJDQU5BUlkiOjF9CANARY.", ""},
	{"bearer token", "Authorization: Bearer ", "CANARY.abc-DEF_1", "' -v"},
	{"bearer token", "authorization:bearer  ", "xcanaryx", "\n"},
	{"bearer token", "BEARER ", "abcCANARY", " "},
	{"basic credentials", "Basic ", "dXNlcjpDQU5BUlk=", " x"},
	{"URL userinfo", "postgres://", "ana:CANARY", "@db/x"},
	{"URL userinfo", "https://", "CANARY", "@github.com/a"},
	{"URL userinfo", "amqp://", "u:CAN/AR@Y?#CANARY", "@host:5672/v"},
	{"URL parameter", "https://a.test/?x=1&access_token=", "CANARY", "&y=2"},
	{"PEM block", "a ", "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\nCANARY/+0=\n-----END RSA PRIVATE KEY-----", "\nb"},
	{"PEM block", "", "---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----\nCANARY\n---- END SSH2 ENCRYPTED PRIVATE KEY ----", " b"},
	{"PEM block", "", `-----BEGIN PRIVATE KEY-----\nCANARY\n-----END PRIVATE KEY-----\n`[:61], `\n`},
}

func declaring(names ...string) json.RawMessage {
	return json.RawMessage(`{"properties":{"` + strings.Join(names, `":{},"`) + `":{}}}`)
}

func view(t *testing.T, args any, schema json.RawMessage) approvals.View {
	t.Helper()
	raw, ok := args.(string)
	if !ok {
		b, err := json.Marshal(args)
		if err != nil {
			t.Fatal(err)
		}
		raw = string(b)
	}
	_, v := Render(action.Call{Tool: "t", Args: json.RawMessage(raw)}, Rules{Schema: schema}, keyed)
	return v
}

func TestValuesAreMaskedInPart(t *testing.T) {
	for _, k := range known {
		v := view(t, map[string]string{"cmd": k.before + k.secret + k.after}, declaring("cmd"))
		var w ink
		w.quoted(k.before + "\x00" + k.after)
		want := strings.Replace(w.String(), "⟦U+0000⟧", mark(k.kind, len(k.secret)), 1)
		if !strings.Contains(v.Text, want) {
			t.Errorf("%q: %s, want %s", k.secret, v.Text, want)
		}
		if len(v.Masked) != 1 || v.Masked[0].Pointer != "/cmd" || v.Masked[0].Type != k.kind || v.Masked[0].Len != len(k.secret) || v.Masked[0].Digest != keyed(quote(k.secret)) {
			t.Errorf("%q: %+v", k.secret, v.Masked)
		}
		if !v.Complete() {
			t.Errorf("%q: %q", k.secret, v.Missing)
		}
	}
}

// What only resembles a secret is shown: a mask hides from people what would run.
func TestPlainValuesAreShown(t *testing.T) {
	for _, s := range []string{
		"the bearer of news", "basic needs, Basic English.", "a bearer token is needed", "https://medium.com/@ana/post", "http://localhost:8080/@x", "http://[::1]:80/a@b",
		"ana@acme.test", "task_live_x sk_live_", "AKIA", "AKIAshort", "eyJhbGciOi only", "hooks.slack.com/services/", "xoxb-", "ghp_short", "?page=1&token=", "&sort=name",
		"da39a3ee5e6b4b0d3255bfef95601890afd80709", "sha wJalrXUtnFEMI/K7MDENG/bPxRfiCYCANARYKEYX", "-----BEGIN nothing", "[link](https://a.test)", "{name}, hello", "[INFO] token: none",
		`[1, 2, {"a": "b"}]`, `{"author": "ana", "password": null, "max_tokens": 5}`, `"just quoted text"`, "if (x) { y = a[1]; }", "{{ template }} auth: yes",
	} {
		v := view(t, map[string]string{"text": s}, nil)
		var w ink
		w.quoted(s)
		if len(v.Masked) > 0 || !v.Complete() || !strings.Contains(v.Text, w.String()) {
			t.Errorf("%q: %s %q", s, v.Text, v.Missing)
		}
	}
}

func TestAWSSecretNextToItsID(t *testing.T) {
	const secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYCANARYKEYX"
	for _, args := range []string{
		`{"a":"AKIAIOSFODNN7EXAMPLE ` + secret + `"}`,
		`{"a":"AKIAIOSFODNN7EXAMPLE","b":{"c":["` + secret + `"]}}`,
		`{"b":"x=` + secret + `;","a":"ASIAIOSFODNN7EXAMPLE"}`,
		`{"b":"` + secret + `","a":"\u0041KIAIOSFODNN7EXAMPLE"}`,
		`{"b":"{\"x\":\"` + secret + `\"}","a":"AKIAIOSFODNN7EXAMPLE"}`,
	} {
		v := view(t, args, nil)
		if strings.Contains(v.Text+v.Summary, "CANARY") || len(v.Masked) != 2 {
			t.Errorf("%s: %s %+v", args, v.Text, v.Masked)
		}
	}
}

// A text that is JSON is masked by the rules of JSON, and stays the text it is.
func TestJSONInText(t *testing.T) {
	for _, tc := range []struct{ text, shown, pointer string }{
		{`{"password":"CANARY","n":1}`, `{"password":⟦masked string, 8 bytes⟧,"n":1}`, "/s⟨JSON⟩/password"},
		{` [ {"token" : 4711 } ]` + "\n", ` [ {"token" : ⟦masked number, 4 bytes⟧ } ]` + "\n", "/s⟨JSON⟩/0/token"},
		{`{"headers":[{"name":"Authorization","value":"CANARY"}]}`, `{"headers":[{"name":"Authorization","value":⟦masked string, 8 bytes⟧}]}`, "/s⟨JSON⟩/headers/0/value"},
		{`{"pass\u0077ord":"CANARY"}`, `{"pass\u0077ord":⟦masked string, 8 bytes⟧}`, "/s⟨JSON⟩/password"},
		{`{"h":[["Cookie","CANARY"],["--pin","CANARY"]]}`[:25] + `]}`, `{"h":[["Cookie",⟦masked string, 8 bytes⟧]]}`, "/s⟨JSON⟩/h/0/1"},
		{`{"u":"\u0070ostgres:\/\/u:CANARY@h\ud83d\ude00"}`, `{"u":"\u0070ostgres:\/\/⟦masked URL userinfo, 8 bytes⟧@h\ud83d\ude00"}`, "/s⟨JSON⟩/u"},
		{`{"a":"{\"secret\":\"CANARY\"}"}`, `{"a":"{\"secret\":⟦masked string, 10 bytes⟧}"}`, "/s⟨JSON⟩/a⟨JSON⟩/secret"},
		{`"{\"secret\":\"CANARY\"}"`, `"{\"secret\":⟦masked string, 10 bytes⟧}"`, "/s⟨JSON⟩⟨JSON⟩/secret"},
		{`{"sk_live_CANARY0123456789":1}`, `{"⟦masked Stripe key, 24 bytes⟧":1}`, "/s⟨JSON⟩/⟦masked Stripe key, 24 bytes⟧"},
	} {
		v := view(t, map[string]string{"s": tc.text}, declaring("s"))
		var w ink
		for _, part := range strings.SplitAfter(tc.shown, "⟧") { // our marks are written as they are
			before, own, _ := strings.Cut(part, "⟦")
			w.escaped(before)
			if own != "" {
				w.WriteString("⟦" + own)
			}
		}
		if !strings.Contains(v.Text, `"`+w.String()+`"`) {
			t.Errorf("%s: %s, want %s", tc.text, v.Text, w.String())
		}
		if len(v.Masked) != 1 || v.Masked[0].Pointer != tc.pointer || !v.Complete() {
			t.Errorf("%s: %+v %q", tc.text, v.Masked, v.Missing)
		}
	}
}

// What can't be taken apart for sure is not shown as if it could.
func TestDoubtfulText(t *testing.T) {
	for _, s := range []string{
		`{"a":1,"a":"CANARY"}`, `{"Key":"CANARY","key":2}`, `{"a":"\ud800CANARY"}`, `{"password":"CANARY",}`, `{password: 'CANARY'}`, `{'password': 'CANARY'}`,
		`{"password":"CANARY"} {}`, "{\"password\":\"CANARY\"}\n{\"a\":1}", `{"pass\u0077ord":"CANARY"`, `{"token"="CANARY"}`, strings.Repeat("[", 100) + `{"password":"CANARY"}` + strings.Repeat("]", 100),
		strings.Repeat("[", 20_000) + `{"password":"CANARY"}` + strings.Repeat("]", 20_000), "{ // note\n password: 'CANARY' }",
		`curl -d '{"password": "CANARY;x"}'`, `curl -d "{\"password\": \"a CANARY\"}" x`, `x "secret": $(CANARY), y`, `x {"token":["CANARY"]} y`, `x "password":"CANARY`, `:"api_key" => "/CANARY"`,
		`{"password":{"x":["CANARY"]}}`, `{"token":"two CANARY"}`, `{"auth":"https://CANARY"}`, `["--password","a CANARY"]`, `https://x.test/?n%61me=1&r=https%3A%2F%2Fu%3ACANARY%40h`, `&quot;password&quot;: &quot;CANARY&quot;`,
		"ghp_\u200bCANARY0123456789abcdefghijklmnopqrst", "ｇｈｐ＿CANARY0123456789abcdefghijklmnopqrst", base64.StdEncoding.EncodeToString([]byte(`{"password":"CANARY"}`)),
		"x -----BEGIN RSA PRIVATE KEY-----\nCANARY", "-----BEGIN X-----\n$(rm -rf /) CANARY\n-----END X-----", "-----BEGIN X-----\nshutdown CANARY now\n-----END X-----",
		`x https://$(CANARY)@h`, `x https://u:CANARY;reboot@h`, `{"token":"$(CANARY)"}`, "{\"token\":\"`CANARY`\"}", `x postgres:\/\/u:CANARY@h`, `x \u0073k_live_CANARY0123456789`,
	} {
		for _, args := range []any{map[string]string{"s": s}, map[string]any{"a": []any{map[string]string{"s": s}}}, map[string]int{s: 1}} {
			if b, _ := json.Marshal(args); action.Check(b, action.Limits{}) != nil {
				continue // such a name is refused before
			}
			v := view(t, args, json.RawMessage(`{"patternProperties":{"":{"items":{"properties":{"s":{}}}}}}`))
			if strings.Contains(v.Text+v.Summary+fmt.Sprint(v.Masked, v.Missing), "CANARY") || v.Complete() || len(v.Masked) == 0 {
				t.Errorf("%q: %s %q %+v", s, v.Text, v.Missing, v.Masked)
			}
		}
	}
}

func TestUndeclaredMasks(t *testing.T) {
	args := `{"o":{"token":"x"},"l":[{"pin":1}],"t":[{"otp":"1"},{"otp":"2"}]}`
	all := []string{"/o/token", "/l/0/pin", "/t/0/otp", "/t/1/otp"}
	for _, tc := range []struct {
		schema   string
		declared []string
	}{
		{``, nil},
		{`{`, nil},
		{`true`, nil},
		{`{"type":"object"}`, nil},
		{`{"additionalProperties":{"properties":{"token":{}}}}`, nil},
		{`{"properties":{"o":{"properties":{"token":{}}}}}`, all[:1]},
		{`{"properties":{"o":{"properties":{"token":false}}}}`, nil},
		{`{"properties":{"o":{"patternProperties":{"^to":true}}}}`, all[:1]},
		{`{"properties":{"o":{"patternProperties":{"(":true}}}}`, nil},
		{`{"properties":{"o":{"$ref":"#/definitions/a~1b"}},"definitions":{"a/b":{"properties":{"token":{}}}}}`, all[:1]},
		{`{"properties":{"o":{"$ref":"https://x.test/s.json"}}}`, nil},
		{`{"$ref":"#/$defs/A","$defs":{"A":{"anyOf":[{"$ref":"#/$defs/A"},{"properties":{"o":{"$ref":"#/$defs/B"}}}]},"B":{"allOf":[{"$ref":"#/$defs/A"},{"properties":{"token":{}}}]}}}`, all[:1]},
		{`{"properties":{"l":{"items":{"properties":{"pin":{}}}}}}`, all[1:2]},
		{`{"properties":{"t":{"prefixItems":[{"properties":{"otp":{}}}]}}}`, all[2:3]},
		{`{"properties":{"t":{"prefixItems":[{}],"items":{"properties":{"otp":{}}}}}}`, all[3:4]},
		{`{"properties":{"t":{"items":[{"properties":{"otp":{}}}]}}}`, all[2:3]},
		{`{"properties":{"o":{"properties":{"token":{}}},"l":{"items":{"properties":{"pin":{}}}},"t":{"items":{"properties":{"otp":{}}}}}}`, all},
	} {
		v := view(t, args, json.RawMessage(tc.schema))
		var missing []string
		for _, p := range all {
			if !strings.Contains(strings.Join(tc.declared, " "), p) {
				missing = append(missing, p)
			}
		}
		want := "masked, and not declared by the tool's schema or the policy: " + strings.Join(missing, ", ")
		if len(missing) == 0 {
			want = ""
		}
		if got := strings.Join(v.Missing, "; "); got != want || len(v.Masked) != 4 {
			t.Errorf("%s: %q, want %q", tc.schema, got, want)
		}
	}
}

func TestMixedWordsAreNamed(t *testing.T) {
	v := view(t, `{"to":"p\u0430ypal and \u0430cme","p\u0430th":{"l":["x","\u03bfk"]},"ru":"\u043a\u043b\u044e\u0447","json":"{\"a\":\"p\u0430y\"}"}`, nil)
	want := []string{
		"5 characters that can't be seen or trusted are shown by code: ⟦U+0430⟧ ⟦U+03BF⟧",
		"5 words mix Latin letters with look-alikes of another script: /to, /p⟦U+0430⟧th, /p⟦U+0430⟧th/l/1, /json",
	}
	if d := cmp.Diff(want, v.Warnings); d != "" || !strings.Contains(v.Text, "p⟦U+0430⟧ypal and ⟦U+0430⟧cme") || !strings.Contains(v.Text, "ключ") {
		t.Errorf("%s %s", d, v.Text)
	}
	var many []string
	for i := range 9 {
		many = append(many, fmt.Sprintf(`"k%d":"\u0430a"`, i))
	}
	if v := view(t, "{"+strings.Join(many, ",")+"}", nil); len(v.Warnings) != 2 || !strings.HasSuffix(v.Warnings[1], ": /k0, /k1, /k2, /k3, /k4 and 4 more") {
		t.Errorf("%q", v.Warnings)
	}
}

// TestPlanted puts secrets at random places, plain, escaped, in JSON in text, and
// several of it at once: none comes out in anything that is made of the call.
func TestPlanted(t *testing.T) {
	const seed = 7
	r := rand.New(rand.NewPCG(seed, seed))
	spell := func(s string) string { // a JSON string with some escapes
		var b strings.Builder
		for _, c := range string(quote(s)[1 : len(quote(s))-1]) {
			if c < 128 && ('a' <= c|0x20 && c|0x20 <= 'z') && !strings.HasSuffix(b.String(), `\`) && r.IntN(12) == 0 {
				fmt.Fprintf(&b, `\u%04x`, c)
			} else {
				b.WriteRune(c)
			}
		}
		return `"` + b.String() + `"`
	}
	for range 4000 {
		k := known[r.IntN(len(known))]
		canary := k.secret
		value := string(quote(k.before + k.secret + k.after))
		if strings.HasSuffix(k.before, ":") || r.IntN(3) == 0 { // by name
			canary = fmt.Sprintf("CANARY-%d", r.Int64())
			names := []string{"password", "apiKey", "X-Api-Key", "client_secret", "refreshToken"}
			value = `{` + string(quote(names[r.IntN(len(names))])) + `:` + string(quote(canary)) + `}`
		}
		for range r.IntN(5) {
			switch r.IntN(6) {
			case 0:
				value = `{"a":1,"b":` + value + `}`
			case 1:
				value = `["x",` + value + `]`
			case 2:
				value = spell(value) // JSON in text
			case 3:
				value = `[{"note":"p\u0430ypal","x":` + spell(" "+value+"\n") + `}]`
			case 4:
				if value[0] == '"' {
					value = `{` + value + `:true}` // a name
				}
			case 5:
				value = `{"key":"note","value":` + value + `}`
			}
		}
		obj := json.RawMessage(`{"v":` + value + `}`)
		for part, c := range map[string]action.Call{"args": {Tool: "t", Args: obj}, "meta": {Tool: "t", Meta: obj}, "extra": {Tool: "t", Extra: obj}} {
			title := ""
			if r.IntN(2) == 0 {
				title = "Do {v}"
			}
			got := dump(Render(c, Rules{Title: title}, keyed))
			bare := strings.NewReplacer(`\`, "", "\n", "").Replace
			if strings.Contains(bare(got), bare(canary)) || strings.Contains(got, "CANARY") && strings.Contains(canary, "CANARY") || part == "args" && strings.Contains(got, "complete: true") {
				t.Fatalf("%s of %s leaks, or is complete without a schema:\n%s", part, obj, got)
			}
		}
	}
}

func FuzzSecrets(f *testing.F) {
	for _, k := range known {
		f.Add(k.before+k.secret+k.after, uint8(0))
	}
	for i, s := range []string{`{"password":"CANARY",}`, `{"a":"{\"secret\":\"x\"}"}`, `"\"{\""`, `x "token": [`, "-----BEGIN A-----", "://:@", "Basic ", `\u00`, `{"\ud83d\ude00":"\u00e9 ghp_CANARY0123456789abcdefghijklmnopqrst"}`} {
		f.Add(s, uint8(i))
	}
	f.Fuzz(func(t *testing.T, s string, level uint8) {
		if !json.Valid(quote(s)) || len(s) > 1<<16 {
			return
		}
		s = strings.ToValidUTF8(s, "?")
		d := &drawing{names: newNames(nil), aws: holdsKeyID(quote(s))}
		found, c := d.secrets(s, int(level)%(levels+1))
		at := 0
		for _, p := range found {
			if p.from < at || p.to <= p.from || p.to > len(s) || p.kind == "" {
				t.Fatalf("%q: span %+v after %d", s, p, at)
			}
			at = p.to
		}
		if c == opaque && len(found) > 0 {
			t.Fatalf("%q: opaque, with parts", s)
		}
		// A caller can put any text into a call; the view of it never fails.
		v := view(t, map[string]string{"s": s}, nil)
		if len(found) > 0 && v.Complete() {
			t.Fatalf("%q is complete: %s", s, v.Text)
		}
	})
}
