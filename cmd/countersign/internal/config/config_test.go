package config

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-mcp/countersign/approvals/keys"
)

const digest = "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"

func small(t *testing.T, extra string) string {
	t.Helper()
	return fmt.Sprintf(`
redis: {url: "redis://127.0.0.1:6379/0"}
keys: {current: %q}
upstreams: {orders: {command: [orders-mcp]}}
%s`, keys.NewSecret().Reveal(), extra)
}

func TestSmallestFile(t *testing.T) {
	cfg, err := Parse([]byte(small(t, "")), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	want := Defaults()
	if diff := cmp.Diff(want.MCP, cfg.MCP); diff != "" {
		t.Errorf("defaults moved (-want +got):\n%s", diff)
	}
	if got := cfg.LedgerPath(); got != filepath.Join(cfg.DataPath(), "ledger") {
		t.Errorf("ledger at %s", got)
	}
}

// The reference is what users copy from: it must hold every key, and say the
// defaults that the code has.
func TestReferenceIsTheDefaults(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", "/state")
	root, err := tree([]byte(reference))
	if err != nil {
		t.Fatal(err)
	}
	got := Config{}
	if err := unknown(root, reflect.TypeFor[Config](), ""); err != nil {
		t.Fatal(err)
	}
	if err := root.Decode(&got); err != nil {
		t.Fatal(err)
	}
	want := Defaults()
	want.DataDir = ""
	empty := cmp.Transformer("nothing", func(m map[string]Person) int { return len(m) })
	if diff := cmp.Diff(normal(want), normal(got), empty, cmp.AllowUnexported(Config{}, Secret{})); diff != "" {
		t.Errorf("reference.yaml says other defaults (-code +file):\n%s", diff)
	}
}

// normal makes empty and absent lists the same.
func normal(c Config) string {
	return strings.NewReplacer("[]", "nil", "map[]", "nil").Replace(fmt.Sprintf("%+v", c))
}

func TestReferenceHasEveryKey(t *testing.T) {
	for path := range walkKeys(reflect.TypeFor[Config]()) {
		key := path[strings.LastIndex(path, ".")+1:]
		if !regexp.MustCompile(`(?m)[\s#{,]` + key + `:`).MatchString("\n" + reference) {
			t.Errorf("reference.yaml doesn't name %s", path)
		}
	}
}

func walkKeys(t reflect.Type) map[string]bool {
	out := map[string]bool{}
	var walk func(t reflect.Type, path string)
	walk = func(t reflect.Type, path string) {
		switch t.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			walk(t.Elem(), path)
		case reflect.Struct:
			for i := range t.NumField() {
				if tag := t.Field(i).Tag.Get("yaml"); tag != "" {
					out[path+tag] = true
					walk(t.Field(i).Type, path+tag+".")
				}
			}
		}
	}
	walk(t, "")
	return out
}

func TestRefused(t *testing.T) {
	t.Setenv("NOT_LINES", "a\nmcp: {listen: 0.0.0.0:1}")
	for name, tt := range map[string]struct{ yaml, want string }{
		"unknown key":          {"mpc: {}", "line 5: unknown key mpc; here are known: data_dir"},
		"unknown nested":       {"mcp: {listn: x}", "line 5: unknown key mcp.listn"},
		"unknown in a list":    {"mcp: {auth: {tokens: [{sha: x}]}}", "unknown key mcp.auth.tokens.sha"},
		"unknown in a map":     {"tickets: {desk: {inbund: {}}}", "unknown key tickets.desk.inbund"},
		"doubled key":          {"groups: {}\ngroups: {}", "already defined"},
		"later key":            {"mcp: {state_legs: 2}", "not in this release"},
		"socket mode":          {"slack: {app_token: xapp}", "Socket Mode is not in this release"},
		"unset variable":       {`policy: "${SURELY_NOT_SET_ANYWHERE}"`, "line 5: the variable SURELY_NOT_SET_ANYWHERE is not set"},
		"wrong kind":           {"mcp: {hold: soon}", "line 5"},
		"two documents":        {"---\na: 1", "more than one document"},
		"alias":                {"groups: &g {}\npeople: *g", "aliases"},
		"short hold":           {"mcp: {hold: 1ms}", "mcp.hold: 1ms is too short"},
		"token not a digest":   {"mcp: {auth: {tokens: [{sha256: abc, actor: a}]}}", "countersign token new"},
		"token without actor":  {"mcp: {auth: {tokens: [{sha256: " + digest + "}]}}", "say who this token belongs to"},
		"unknown owner":        {"mcp: {auth: {tokens: [{sha256: " + digest + ", actor: a, owners: [eve]}]}}", "eve is not under people"},
		"the gate's name":      {"mcp: {auth: {tokens: [{sha256: " + digest + ", actor: countersign}]}}", "tokens[0].actor: countersign is the gate's own name"},
		"the gate's, stdio":    {"mcp: {stdio: {actor: countersign}}", "mcp.stdio.actor: countersign is the gate's own name"},
		"the gate's, a person": {"people: {a: {actors: [countersign]}}", "people.a.actors: countersign is the gate's own name"},
		"nearly the gate's":    {"mcp: {stdio: {actor: \" Countersign\"}}", "mcp.stdio.actor:  Countersign is the gate's own name"},
		"the gate as a person": {"people: {countersign: {slack: U0123}}", "people: countersign is the gate's own name"},
		"admin off loopback":   {"admin: {listen: 0.0.0.0:8091}", "admin.tokens is empty"},
		"public_url http":      {`webhook: {public_url: "http://approvals.acme.test"}`, "needs https"},
		"public_url userinfo":  {`webhook: {public_url: "https://a:b@acme.test"}`, "not a plain URL"},
		"store and redis":      {"store: ephemeral", "exclude each other"},
		"slack without secret": {"slack: {bot_token: xoxb-1}", "no click can be trusted"},
		"slack user's token":   {"slack: {bot_token: xoxp-1}", "begins with xoxb-"},
		"group of a stranger":  {"groups: {ops: [eve]}", "group ops lists eve"},
		"two with one actor":   {"people: {a: {actors: [x]}, b: {actors: [x]}}", "actor x belongs to both"},
		"person's unknown key": {"people: {a: {jira: x}}", "people.a.jira"},
		"no Slack id":          {"people: {a: {slack: \"@ana\"}}", "people.a.slack"},
		"a Slack bot's id":     {"people: {a: {slack: B0123}}", "people.a.slack"},
		"a Slack id, small":    {"people: {a: {slack: u0123}}", "people.a.slack"},
		"ticket's name":        {"tickets: {Desk: {inbound: {scheme: standard-webhooks, secrets: [aaaaaaaaaaaaaaaaaaaaaaaa]}}}", "tickets.Desk: a name"},
		"ticket's name, _":     {"tickets: {a_b: {inbound: {scheme: standard-webhooks, secrets: [aaaaaaaaaaaaaaaaaaaaaaaa]}}}", "tickets.a_b: a name"},
		"no place":             {"mcp: {max_in_flight: 0}", "mcp.max_in_flight"},
		"ticket, no secret":    {"tickets: {desk: {inbound: {scheme: standard-webhooks}}}", "no callback can be trusted"},
		"ticket scheme":        {"tickets: {desk: {inbound: {scheme: hmac, secrets: [aaaaaaaaaaaaaaaaaaaaaaaa]}}}", "is not in this release"},
		"upstream name":        {"upstreams: {Orders: {command: [x]}}", "already defined"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse([]byte(small(t, tt.yaml)), t.TempDir())
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want one that says %q", err, tt.want)
			}
		})
	}
}

// Somebody who puts a secret in the wrong place reads where, and not the secret.
func TestSecretsAreNotRepeated(t *testing.T) {
	t.Setenv("SECRET", "hunter2-`")
	for name, tt := range map[string]struct{ yaml, want string }{
		"a mapping":           {"slack: ${SECRET}", "line 5: here belongs a mapping"},
		"a mapping, short":    {"slack: hunter2", "line 5: here belongs a mapping"},
		"keys":                {"mcp: {auth: hunter2}", "line 5: here belongs a mapping"},
		"a list":              {"slack: {signing_secrets: hunter2}", "line 5: here belongs a list"},
		"a list of mappings":  {"admin: {tokens: [hunter2]}", "line 5: here belongs a mapping"},
		"a map":               {"groups: hunter2", "line 5: here belongs a mapping"},
		"a duration":          {"mcp: {hold: hunter2}", "line 5: here belongs a duration"},
		"a number":            {"mcp: {max_in_flight: hunter2}", "line 5: here belongs a whole number"},
		"a switch":            {"mcp: {collect_tool: hunter2}", "line 5: here belongs true or false"},
		"a person's actors":   {"people: {a: {actors: hunter2}}", "line 5: here belongs a list"},
		"a tag":               {"slack: !hunter2 x", "line 5"},
		"a URL with user":     {`webhook: {public_url: "https://ana:hunter2@acme.test"}`, "webhook.public_url: is not a plain URL"},
		"a URL that is none":  {`webhook: {public_url: "https://ana:hunter2@acme.test:x"}`, "webhook.public_url: is not a plain URL"},
		"a URL with a query":  {`webhook: {public_url: "https://acme.test?token=hunter2"}`, "webhook.public_url: is not a plain URL"},
		"Slack's URL, a user": {`slack: {bot_token: x, signing_secrets: [0123456789abcdef], api_url: "https://hunter2@acme.test"}`, "slack.api_url: is not a plain URL"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse([]byte(small(t, tt.yaml)), t.TempDir())
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "hunter") {
				t.Errorf("got %v, want one that says %q", err, tt.want)
			}
		})
	}
}

func TestVariablesNeverAddStructure(t *testing.T) {
	t.Setenv("EVIL", "x\nadmin: {listen: 0.0.0.0:1}")
	cfg, err := Parse([]byte(small(t, "data_dir: ${EVIL}")), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Admin.Listen != Defaults().Admin.Listen || !strings.Contains(cfg.DataDir, "admin:") {
		t.Errorf("a variable changed the file's structure: %q", cfg.Admin.Listen)
	}
}

func TestAnUpstreamsDirStartsAtTheFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "countersign.yaml")
	file := "policy: p.yaml\nstore: ephemeral\nkeys: {current: " + strings.Repeat("ab", 32) + "}\nupstreams:\n" +
		"  near: {command: [x], dir: work/here}\n  far: {command: [x], dir: /srv}\n  up: {command: [x], dir: ..}\n  none: {command: [x]}\n"
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	cfg, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for name, u := range cfg.Upstreams {
		got[name] = u.Dir
	}
	want := map[string]string{"near": filepath.Join(dir, "work", "here"), "far": "/srv", "up": filepath.Dir(dir), "none": ""}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestSecretFromFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "token"), []byte("xoxb-from-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := Parse([]byte(small(t, `
slack: {bot_token: {file: token}, signing_secrets: ["0123456789abcdef0123"]}
webhook: {public_url: "https://approvals.acme.test"}`)), dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := cfg.Slack.BotToken.Reveal(); got != "xoxb-from-file" {
		t.Errorf("got %q", got)
	}
	if s := fmt.Sprintf("%v %+v %#v", cfg.Slack, *cfg.Slack, cfg.Slack.BotToken); strings.Contains(s, "xoxb-from") {
		t.Errorf("a secret was printed: %s", s)
	}
}

func TestNoFile(t *testing.T) {
	_, err := Load(filepath.Join(t.TempDir(), "countersign.yaml"))
	if err == nil || !strings.Contains(err.Error(), "countersign config --defaults") {
		t.Errorf("the error doesn't say what to do: %v", err)
	}
}
