package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/countersign-mcp/countersign/approvals/keys"
)

// root is the project's directory.
const root = "../../../.."

// documents are the project's texts, by their path from root.
func documents(t testing.TB) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata"):
			return fs.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".md":
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		out[filepath.ToSlash(name)] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 8 {
		t.Fatalf("only %d documents: %q", len(out), slices.Sorted(maps.Keys(out)))
	}
	return out
}

// Every file under deploy is an example that works, or is checked elsewhere.
func TestExamplesLoad(t *testing.T) {
	t.Parallel()
	loaded := 0
	err := filepath.WalkDir(filepath.Join(root, "deploy"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		switch name := d.Name(); name {
		case "countersign.yaml":
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			out, errs, code := countersign(within(t, 20*time.Second), variables(t, string(b)), "check", "--config", path)
			if code != 0 || !strings.Contains(out, "are well formed") {
				t.Errorf("%s: exit %d\n%s%s", path, code, out, errs)
			}
			loaded++
		case "policy.yaml": // by the configuration beside it
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), "countersign.yaml")); err != nil {
				t.Errorf("%s has no configuration beside it", path)
			}
		case "policy-five-rules.yaml", "github.yaml", "filesystem.yaml", "postgres.yaml":
			if out, errs, code := countersign(within(t, 20*time.Second), nil, "policy", "test", path); code != 0 {
				t.Errorf("%s: exit %d\n%s%s", path, code, out, errs)
			}
		case "manifest.yaml": // TestSlackManifest
		default:
			if filepath.Ext(name) == ".md" { // with the other documents
				return nil
			}
			t.Errorf("%s: nothing checks it", path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if loaded == 0 {
		t.Error("there is no example")
	}
}

// variables are values for every ${NAME} of a configuration.
func variables(t testing.TB, config string) []string {
	t.Helper()
	values := map[string]string{
		"REDIS_URL": "redis://127.0.0.1:6379/0", "COUNTERSIGN_KEY": keys.NewSecret().Reveal(),
		"AGENT_TOKEN_SHA256": hash("t"), "PUBLIC_URL": "https://approvals.example.com", "SLACK_BOT_TOKEN": "xoxb-1",
		"SLACK_SIGNING_SECRET": strings.Repeat("a", 32), "YOUR_SLACK_ID": "U0YOU", "DESK_FILE": "/tmp/desk.json", "DESK_SECRET": deskSecret,
	}
	var out []string
	for _, m := range regexp.MustCompile(`\$\{(\w+)\}`).FindAllStringSubmatch(config, -1) {
		v, ok := values[m[1]]
		if !ok {
			t.Fatalf("${%s} has no value in this test", m[1])
		}
		out = append(out, m[1]+"="+v)
	}
	return out
}

// A block of YAML in a document is a policy, or keys of a configuration: it is
// put where it belongs and has to load there.
func TestDocumentsYAML(t *testing.T) {
	t.Parallel()
	blocks := 0
	for name, text := range documents(t) {
		for _, block := range fenced(text, "yaml") {
			blocks++
			config, policy := block, samplePolicy
			if strings.HasPrefix(block, "version:") {
				config, policy = "", block
			}
			loads(t, name, config, policy)
		}
	}
	// The table of a policy's keys shows some of them in a line.
	policyText := documents(t)["server/policy/README.md"]
	inline := regexp.MustCompile("`([a-z_]+: \\{[^`]+\\})`").FindAllStringSubmatch(policyText, -1)
	for _, m := range inline {
		loads(t, "server/policy/README.md", "", samplePolicy+m[1]+"\n")
	}
	if blocks < 2 || len(inline) < 2 {
		t.Errorf("%d blocks and %d lines were found", blocks, len(inline))
	}
	v1 := regexp.MustCompile("(?s)`(\\{\"version\": 1,.*?\\})`").FindStringSubmatch(policyText)
	if v1 == nil {
		t.Fatal("no version 1 is shown")
	}
	loads(t, "server/policy/README.md", "", strings.ReplaceAll(v1[1], "…", ""))
}

const samplePolicy = `version: 2
tools: {github/do: destructive}
routes:
  default: {channels: [slack:C0APPROVALS], approvers: [group:ops]}
`

// loads lays config over a small whole configuration and checks it with policy.
func loads(t *testing.T, name, config, policy string) {
	t.Helper()
	whole := map[string]any{
		"store": "ephemeral", "policy": "policy.yaml",
		"keys":      map[string]any{"current": keys.NewSecret().Reveal()},
		"mcp":       map[string]any{"auth": map[string]any{"tokens": []any{map[string]any{"sha256": hash("t"), "actor": "ana@acme.test"}}}},
		"upstreams": map[string]any{"github": map[string]any{"command": []any{"github-mcp"}}},
		"slack":     map[string]any{"bot_token": "xoxb-1", "signing_secrets": []any{strings.Repeat("a", 32)}},
		"webhook":   map[string]any{"public_url": "https://approvals.acme.test"},
		"people":    map[string]any{"ana": map[string]any{"actors": []any{"ana@acme.test"}}, "olga": map[string]any{"slack": "U0OLGA"}},
		"groups":    map[string]any{"ops": []any{"olga"}, "leads": []any{"olga"}},
	}
	var over map[string]any
	if err := yaml.Unmarshal([]byte(config), &over); err != nil {
		t.Errorf("%s: %v\n%s", name, err, config)
		return
	}
	for k, v := range over {
		if people, ok := v.(map[string]any); ok && k == "people" {
			maps.Copy(whole["people"].(map[string]any), people)
			continue
		}
		whole[k] = v
	}
	b, err := yaml.Marshal(whole)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for file, text := range map[string]string{"countersign.yaml": string(b), "policy.yaml": policy} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, errs, code := countersign(within(t, 20*time.Second), variables(t, string(b)), "check", "--config", filepath.Join(dir, "countersign.yaml"))
	if code != 0 {
		t.Errorf("%s: exit %d\n%s%s\n%s\n%s", name, code, out, errs, config, policy)
	}
}

// fenced lists the blocks of a language in a document.
func fenced(text, language string) []string {
	var out []string
	for _, m := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(text, -1) {
		out = append(out, m[1])
	}
	return out
}

// A link of a document to a file leads to one, and to a heading leads to that.
func TestDocumentsLinks(t *testing.T) {
	t.Parallel()
	links := 0
	for name, text := range documents(t) {
		for _, m := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			links++
			file, heading, _ := strings.Cut(m[1], "#")
			target := filepath.Join(root, filepath.Dir(name), file)
			if file == "" {
				target = filepath.Join(root, name)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s, which isn't there", name, m[1])
			}
			if b, err := os.ReadFile(target); heading != "" && (err != nil || !bytes.Contains(anchors(b), []byte("#"+heading+"\n"))) {
				t.Errorf("%s links to %s, which has no such heading (%v)", name, m[1], err)
			}
		}
	}
	if links < 10 {
		t.Errorf("only %d links were found", links)
	}
}

func anchors(document []byte) []byte {
	var out bytes.Buffer
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllSubmatch(document, -1) {
		plain := regexp.MustCompile(`[^\p{L}\d _-]`).ReplaceAll(bytes.ToLower(m[1]), nil)
		fmt.Fprintf(&out, "#%s\n", bytes.ReplaceAll(plain, []byte(" "), []byte("-")))
	}
	return out.Bytes()
}

// What a document tells people to type exists: the command, and each of its
// flags. The texts of the commands' help are compared with the program elsewhere.
func TestDocumentsCommands(t *testing.T) {
	t.Parallel()
	helps := commandHelp(t)
	for _, wrong := range []string{"frobnicate", "check --frob", "approvals resolve ID --run"} {
		if _, err := known(helps, strings.Fields(wrong)); err == nil {
			t.Fatalf("%s is believed to exist", wrong)
		}
	}
	found := map[string]bool{}
	for name, text := range documents(t) {
		for _, line := range typed(text) {
			words := strings.Fields(line)
			i := slices.IndexFunc(words, func(w string) bool { return w == "countersign" || w == "./cmd/countersign" })
			if i < 0 || i+1 == len(words) {
				continue
			}
			for _, command := range alternatives(words[i+1:]) {
				path, err := known(helps, command)
				if err != nil {
					t.Errorf("%s: %q: %v", name, line, err)
				}
				found[path] = true
			}
		}
	}
	for _, must := range []string{"demo", "serve", "check", "keygen", "token_new", "approvals_resolve", "ledger_verify"} {
		if !found[must] {
			t.Errorf("no document names countersign %s (found %q)", must, slices.Sorted(maps.Keys(found)))
		}
	}
	// README's list is of all commands.
	_, list, _ := strings.Cut(documents(t)["README.md"], "## Commands\n")
	list, _, _ = strings.Cut(list, "Each explains itself")
	for path := range helps {
		if top, _, _ := strings.Cut(path, "_"); top != "" && top != "demo-server" && !regexp.MustCompile("[` ]"+top+"[` ]").MatchString(list) {
			t.Errorf("README's list of commands lacks %s", top)
		}
	}
}

// commandHelp is the help of each command, by its words joined with "_".
func commandHelp(t testing.TB) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../../testdata/help/countersign*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no help texts: %v", err)
	}
	out := map[string]string{}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(f), "countersign"), ".txt")
		out[strings.TrimPrefix(name, "_")] = string(b)
	}
	return out
}

// typed are the lines of code blocks and the code within sentences. A list such
// as `countersign demo` · `check` counts as if each were written out.
func typed(text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "    ") {
			out = append(out, line)
		}
	}
	text = regexp.MustCompile("(?s)```.*?```").ReplaceAllString(text, "")
	for _, list := range regexp.MustCompile("`countersign [^`]+`(?:\\s*[·,]\\s+`[^`]+`)*").FindAllString(text, -1) {
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(list, -1) {
			out = append(out, "countersign "+strings.TrimPrefix(strings.Join(strings.Fields(m[1]), " "), "countersign "))
		}
	}
	return out
}

// alternatives writes out a|b.
func alternatives(words []string) [][]string {
	for i, w := range words {
		if a, b, ok := strings.Cut(w, "|"); ok && !strings.HasPrefix(w, "\"") {
			one := slices.Concat(words[:i], []string{a}, words[i+1:])
			other := slices.Concat(words[:i], []string{b}, words[i+1:])
			return append([][]string{one}, alternatives(other)...)
		}
	}
	return [][]string{words}
}

// known finds the command that words begin with, and its flags.
func known(helps map[string]string, words []string) (string, error) {
	path := ""
	for _, w := range words {
		longer := strings.TrimPrefix(path+"_"+w, "_")
		if _, ok := helps[longer]; !ok {
			break
		}
		path = longer
	}
	if path == "" {
		return "", errors.New("there is no such command")
	}
	for _, w := range words {
		if w == "#" {
			break
		}
		flag, _, _ := strings.Cut(strings.TrimRight(w, ")."), "=")
		if strings.HasPrefix(flag, "--") && !regexp.MustCompile(regexp.QuoteMeta(flag)+`\b`).MatchString(helps[path]) {
			return path, fmt.Errorf("countersign %s has no %s", path, flag)
		}
	}
	return path, nil
}

// The README's first and second commands are the ones that are tested.
func TestReadmeCommands(t *testing.T) {
	t.Parallel()
	readme := documents(t)["README.md"]
	for _, want := range []string{"\n    go run ./cmd/countersign demo\n", "\n    go test ./...\n"} {
		if !strings.Contains(readme, want) {
			t.Errorf("README has no line %q", strings.TrimSpace(want))
		}
	}
	b, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(string(b))
	if version == nil || !strings.Contains(readme, "Go "+version[1]) {
		t.Errorf("README does not ask for the Go of go.mod: %q", version)
	}
	if out, err := exec.Command("go", "list", "-m").Output(); err != nil || strings.TrimSpace(string(out)) != module {
		t.Errorf("the module is %s (%v)", out, err)
	}
}
