package redact

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/countersign-mcp/countersign/approvals/action"
)

// inText are texts of no form with a secret in them. The mask hides one plain word,
// so the view of a declared text is complete.
var inText = []string{
	"password=CANARY7q", "DB_PASSWORD=CANARY7q ./run", "export TOKEN=CANARY7q;", "PGPASSWORD=CANARY7q psql", "env MYSQL_PWD=CANARY7q&& x", "pin=CANARY7q",
	"curl -H 'X-Api-Key: CANARY7q' h", `curl -H "X-Auth-Token:CANARY7q" h`, "Authorization: token CANARY7q", "Authorization: CANARY7q\nX: y", "authorization:Bearer CANARY7q!~x",
	`curl -H 'Authorization: Basic CANARY7q==' x`, "Proxy-Authorization: Negotiate CANARY7q",
	"password: CANARY7q\nuser: x", "stringData:\n  password: CANARY7q\n", "- token: CANARY7q", "# api_key: CANARY7q", "a: {user: x, password: CANARY7q}", "the password: CANARY7q",
	"- name: DB_PASSWORD\n  value: CANARY7q\n", "- name: DB_PASSWORD\n  value: 'CANARY7q'\n", `<add key="ApiKey" value="CANARY7q"/>`, `<input name="password" type="x"> name=token value=CANARY7q`,
	"mysql -u root -pCANARY7q db", "mysqldump -u root -p'CANARY7q' db", "curl -u ana:CANARY7q https://x", "curl --user 'ana:CANARY7q' x", "sshpass -p CANARY7q ssh h", "redis-cli -h x -a CANARY7q get y",
	"cmd --password CANARY7q", "cmd -token 'CANARY7q' x", "cmd --token=CANARY7q", `cmd --api-key "CANARY7q"`, "--client-secret\tCANARY7q",
	"<password>CANARY7q</password>", "<wsse:Password Type=\"x\"> CANARY7q </wsse:Password>", "ALTER USER x PASSWORD 'CANARY7q'", "CREATE USER x IDENTIFIED BY 'CANARY7q'", `alter user x identified with y by "CANARY7q"`,
	"Server=x;User Id=u;Password=CANARY7q;", "AccountName=x;AccountKey=CANARY7qabcdef==;", "host=x password=CANARY7q dbname=y", "user:CANARY7q@tcp(h:3306)/db", "see ana:CANARY7q@db.acme.test:5432",
	"https://h/?access%5Ftoken=CANARY7q", "https://h/?sig=CANARY7q&x=1", "https://h/x?X-Amz-Signature=CANARY7q", "https://h/#access_token=CANARY7q&x", "https://h/?pass%77ord=CANARY7q",
	"machine h login u password CANARY7q", "the password is CANARY7q.", "api key: CANARY7q1", "passwd to CANARY7q",
	`password = "CANARY7q"`, `const apiKey = 'CANARY7q';`, "secret := `CANARY7q`", `db.connect(password="CANARY7q")`, `x "password": "CANARY7q", y`, `{'a': x, "secret" => 'CANARY7q'}`[1:], "password = CANARY7q",
	`curl -d '{"password": "CANARY7q"}'`, `curl -d "{\"password\": \"CANARY7q\"}" x`, "data: {\"user\":\"u\",\"pass\":\"CANARY7q\"}", "pass:CANARY7q",
	"Content-Disposition: form-data; name=\"password\"\r\n\r\nCANARY7q\r\n--x",
	"sk-CANARY7qabcdefghij0123456789abcdefghij", "hf_CANARY7qabcdefghij0123456789abcd", "SG.CANARY7qabcdefghij01.23456789abcdefghij0123456789abcdefghij012",
	"AGE-SECRET-KEY-1CANARY7Q0000000000000000000000000000000000000000000000000", "https://discord.com/api/webhooks/123456/CANARY7qabcdefghijklm", "https://api.telegram.org/bot123456:CANARY7qabcdefgh/x",
}

// doubted hold a secret too, and the mask may hide more than that.
var doubted = []string{
	"Cookie: sid=CANARY7q; a=b", "Set-Cookie: a=CANARY7q; HttpOnly\nX: y", `Authorization: Digest username="x", response="CANARY7q"`, `curl -H 'Cookie: a="CANARY7q"; b' x`,
	"password: 'CANARY7q $(x)'", "passphrase: correct horse CANARY7q", "token=CANARY7q\\;x", "PASSWORD=/CANARY7q", "password=https://CANARY7q", "secret: |\n  two\n\n  CANARY7q\nother: y", "a:\n  key: x\n  password: >-\n    CANARY7q\n  shown: y",
	"x?redirect=https%3A%2F%2Fu%3ACANARY7q%40h%2F", "&lt;password&gt;CANARY7q&lt;/password&gt;", "p\u200bassword=CANARY7q", "ｐａｓｓｗｏｒｄ＝CANARY7q", "-----BEGIN OPENSSH PRIVATE KEY-----CANARY7q",
	"see " + base64.StdEncoding.EncodeToString([]byte(`{"a":"b","password":"CANARY7q"}`)), base64.RawURLEncoding.EncodeToString([]byte("DB_PASSWORD=CANARY7q?>")),
	base64.StdEncoding.EncodeToString([]byte(base64.StdEncoding.EncodeToString([]byte("https://ana:CANARY7q@db/x")))),
}

// forms of a canary that would still give it away.
func given(text string) string {
	for _, form := range []string{"CANARY7q", "CANARY7Q", "Q0FOQVJZN3", "DQU5BUlk3c", "NBTkFSWTdx", "43414e415259"} {
		if strings.Contains(text, form) {
			return form
		}
	}
	return ""
}

func all(title string, v any) string { return title + fmt.Sprintf("%+v", v) }

func TestSecretsInTextWithoutForm(t *testing.T) {
	for _, complete := range []bool{true, false} {
		texts := inText
		if !complete {
			texts = doubted
		}
		for _, s := range texts {
			for shape, args := range map[string]any{
				"value": map[string]string{"s": s}, "item": map[string]any{"s": []string{"x", s}}, "JSON in text": map[string]string{"s": string(quote(s))},
				"deep": map[string]string{"s": `{"a":[` + string(quote(`["`+"x"+`",`+string(quote(s))+`]`)) + `]}`},
			} {
				raw, _ := json.Marshal(args)
				for _, title := range []string{"", "Do {s}"} {
					name, v := Render(action.Call{Tool: "t", Args: raw}, Rules{Title: title, Schema: json.RawMessage(`{"properties":{"s":{"items":{}}}}`)}, keyed)
					if form := given(all(name, v)); form != "" {
						t.Errorf("%s %q leaks as %s: %s %s", shape, s, form, name, v.Text)
					}
					if v.Complete() != complete || len(v.Masked) == 0 {
						t.Errorf("%s %q: complete %v, masked %+v, missing %q", shape, s, v.Complete(), v.Masked, v.Missing)
					}
				}
			}
			raw, _ := json.Marshal(map[string]any{"x": map[string]int{s: 1}})
			if action.Check(raw, action.Limits{}) != nil {
				continue // no such name gets this far
			}
			name, v := Render(action.Call{Tool: "t", Args: raw, Meta: raw, Extra: raw}, Rules{Title: "{x}"}, keyed)
			if form := given(all(name, v)); form != "" {
				t.Errorf("the name %q leaks as %s: %s", s, form, v.Text)
			}
		}
	}
}

// Only the secret goes: what stands around it is shown.
func TestTextAroundASecret(t *testing.T) {
	for in, want := range map[string]string{
		"DB_PASSWORD=CANARY7q ./run":                   "DB_PASSWORD=⟦masked value, 8 bytes⟧ ./run",
		"curl -H 'X-Api-Key: CANARY7q' h":              "curl -H 'X-Api-Key: ⟦masked value, 8 bytes⟧' h",
		"Authorization: Digest CANARY7q":               "Authorization: Digest ⟦masked value, 8 bytes⟧",
		"a\n  password: CANARY7q\n  b: c":              `a\n  password: ⟦masked value, 8 bytes⟧\n  b: c`,
		"<password>CANARY7q</password>":                "<password>⟦masked value, 8 bytes⟧</password>",
		"cmd --token CANARY7q; rm -rf /":               "cmd --token ⟦masked value, 8 bytes⟧; rm -rf /",
		"password=CANARY7q|sh":                         "password=⟦masked value, 8 bytes⟧|sh",
		"a:\n  secret: |\n    CANARY7q\n    x\n  b: y": `a:\n  secret: ⟦masked value, 20 bytes⟧\n  b: y`,
		"the password is CANARY7q. Bye":                "the password is ⟦masked value, 8 bytes⟧. Bye",
	} {
		if v := view(t, map[string]string{"s": in}, declaring("s")); !strings.Contains(v.Text, `"`+want+`"`) {
			t.Errorf("%q: %s", in, v.Text)
		}
	}
}

// Names of secrets stand in code and in sentences too, without one.
func TestNamesWithoutASecret(t *testing.T) {
	for _, s := range []string{
		"token = getToken()", `password = os.Getenv("X")`, "if token == nil {", "password: string;", "password: Optional[str] = None", "token=$TOKEN", "--token ${TOKEN}", "password={{ .Values.password }}",
		"--password-file /run/x", "--no-password x", "token: none", "Session: the one of Monday", "the password must be changed", "password reset", "a token for you", "std::token::next", "token://x",
		"password=********", "api_key=<your key>", "secret: %SECRET%", "mailto:ana@acme.test", "docker run -u 1000:1000 x", "ssh -p 22 h", "mkdir -p a/b", "pass: true", "<token/>", "<tokens>", "x > y < z",
		"let token = self.token.clone();", "tokens[0] = x", "password=password", "token, ok := f(x)", "SGVsbG8gd29ybGQsIGhvdyBhcmUgeW91Pw==", "100% of 20%25", "a &amp; b", "the secret of it", "key: value", "pin the tab",
	} {
		if v := view(t, map[string]string{"text": s}, nil); len(v.Masked) > 0 || !v.Complete() {
			t.Errorf("%q: %s %q", s, v.Text, v.Missing)
		}
	}
}

// A secret's name and its value can be neighbours in an array or an object, and a
// key can be kept as its lines.
func TestSecretsBesideTheirName(t *testing.T) {
	for _, args := range []string{
		`{"args":["cmd","--password","CANARY7q"]}`, `{"args":["-token","CANARY7q","x"]}`, `{"args":["--pin",73519264]}`, `{"h":[["Authorization","CANARY7q"],["Accept","x"]]}`, `{"h":["X-Api-Key","CANARY7q"]}`,
		`{"k":["-----BEGIN RSA PRIVATE KEY-----","CANARY7q","CANARY7q==","-----END RSA PRIVATE KEY-----","shown"]}`, `{"k":["a -----BEGIN X-----\nMII","CANARY7q"]}`,
		`{"k":"password","v":"CANARY7q"}`, `{"op":"replace","path":"/spec/password","value":"CANARY7q"}`, `{"name":"password","default":"CANARY7q"}`, `{"Name":"password","Values":["CANARY7q"]}`,
		`{"param":"token","old":"CANARY7q","new":"CANARY7q"}`, `{"user":"u","pass":"CANARY7q"}`, `{"creds":{"x":"CANARY7q"}}`, `{"secrets":{"CANARY7q":1}}`,
	} {
		for shape, raw := range map[string]string{"args": args, "nested": `{"a":[` + args + `]}`, "JSON in text": `{"a":` + string(quote(args)) + `}`, "twice": `{"a":` + string(quote(`{"b":`+string(quote(args))+`}`)) + `}`} {
			name, v := Render(action.Call{Tool: "t", Args: json.RawMessage(raw)}, Rules{Title: "{args} {a} {v} {h} {k}"}, keyed)
			_, w := Render(action.Call{Tool: "t", Args: json.RawMessage(raw), Extra: json.RawMessage(raw), Meta: json.RawMessage(raw)}, Rules{}, keyed)
			if form := given(all(name, v) + all("", w)); form != "" || strings.Contains(v.Text, "73519264") || len(v.Masked) == 0 {
				t.Errorf("%s %s leaks: %s %s", shape, args, name, v.Text)
			}
		}
	}
	for _, args := range []string{`{"fields":["password","token"]}`, `{"args":["--no-password","x","--","-token"]}`, `{"h":["Accept","x"]}`, `{"path":"/etc/password","value":"x"}`, `{"name":"note","value":"x"}`, `{"l":["token","a","b"]}`} {
		if v := view(t, args, nil); len(v.Masked) > 0 {
			t.Errorf("%s: %s", args, v.Text)
		}
	}
}
