package e2e

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/countersign-mcp/countersign/notifier/slacktest"
)

// ownRoom is the channel that whoever follows the instructions has.
const ownRoom = "C0MYROOM"

// Following the Slack page word by word leads to a card in one's own channel,
// and the call that was typed is answered by what the person clicked. Beside
// what a person fills in, only ports and Slack's own address are changed.
func TestSlackInstructions(t *testing.T) {
	t.Parallel()
	if shared == nil {
		t.Skip("no redis-server on the PATH")
	}
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("no curl on the PATH")
	}
	page := documents(t)["notifier/slack/README.md"]
	w := follow(t, page)
	curl := block(t, page, "## 4.", "curl ")
	for _, row := range []struct{ order, user, verdict, card, prints string }{
		{"4417", olgaSlack, "approve", "Approved", "Order 4417 is cancelled"},
		{"4418", olgaSlack, "deny", "Denied", "A person denied this call (you)"},
	} {
		script := strings.ReplaceAll(strings.Replace(curl, "http://127.0.0.1:8080/mcp", w.mcp, 1), `"4417"`, `"`+row.order+`"`)
		got := make(chan string, 1)
		cmd := exec.CommandContext(within(t, time.Minute), "sh", "-c", script)
		cmd.Env = append(os.Environ(), "AGENT_TOKEN="+w.agentToken)
		go func() {
			out, err := cmd.Output()
			got <- fmt.Sprintf("%s\n(%v)", out, err)
		}()
		card, err := w.slack.WaitMessage(within(t, 30*time.Second), ownRoom, func(m slacktest.Message) bool { return len(m.Buttons()) > 0 })
		if err != nil {
			t.Fatal(err)
		}
		told(t, card.PushText(), "Cancel order "+row.order)
		if !slices.Equal(card.Mentions(), []string{olgaSlack}) {
			t.Errorf("the card mentions %q", card.Mentions())
		}
		if a := w.slack.Click(within(t, 20*time.Second), slacktest.Click{User: row.user, Channel: ownRoom, TS: card.TS, Verdict: row.verdict}); a.Status != 200 {
			t.Fatalf("the click: %+v", a)
		}
		told(t, <-got, row.prints, "(<nil>)")
		if _, err := w.slack.WaitMessage(within(t, 20*time.Second), ownRoom, func(m slacktest.Message) bool {
			return m.TS == card.TS && len(m.Buttons()) == 0 && strings.Contains(m.Plain(), row.card)
		}); err != nil {
			t.Error(err)
		}
	}
}

// walk is a machine on which the instructions were followed.
type walk struct {
	slack      *slacktest.Slack
	mcp        string
	agentToken string
}

func follow(t *testing.T, page string) walk {
	t.Helper()
	slack := slacktest.New(t)
	slack.SetScopes(manifest(t).OAuth.Scopes.Bot...) // what the app of the instructions may do
	slack.AddUser(slacktest.User{ID: olgaSlack})
	slack.AddChannel(slacktest.Channel{ID: ownRoom, Private: true})
	dir := t.TempDir()
	copyExample(t, dir, slack.URL())

	out, errs, code := countersign(within(t, 20*time.Second), nil, "token", "new")
	m := regexp.MustCompile(`(?m)^token: +(\S+)\nsha256: +(\S+)$`).FindStringSubmatch(out)
	if m == nil {
		t.Fatalf("token new: exit %d\n%s%s", code, out, errs)
	}
	script := fill(t, block(t, page, "## 3.", "export "), map[string]string{
		"REDIS_URL": shared.URL(), "SLACK_BOT_TOKEN": slack.BotToken, "SLACK_SIGNING_SECRET": slack.SigningSecret(),
		"YOUR_SLACK_ID": olgaSlack, "AGENT_TOKEN": m[1], "AGENT_TOKEN_SHA256": m[2],
	})
	said, dead := newTail(), make(chan struct{})
	cmd := exec.Command("sh", "-e", "-c", strings.Replace(script, "countersign serve", "exec countersign serve", 1))
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"))
	cmd.Stdout, cmd.Stderr = said, said
	dieWithUs(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = cmd.Wait(); close(dead) }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-dead
		if t.Failed() {
			t.Logf("%s\n%s", script, said)
		}
	})
	said.find(t, regexp.MustCompile(`are well formed`), dead)
	at := said.find(t, listening, dead)
	said.find(t, regexp.MustCompile(`Slack knows us`), dead)
	request, err := url.Parse(manifest(t).Settings.Interactivity.URL)
	if err != nil {
		t.Fatal(err)
	}
	slack.SetInteractions(at[2] + request.Path) // as the proxy in front of it would pass it on
	return walk{slack, at[1], m[1]}
}

// copyExample is "copy deploy/slack and put the channel's id into policy.yaml",
// on ports that are free, with a Slack that isn't Slack.
func copyExample(t *testing.T, dir, api string) {
	t.Helper()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(root, "deploy/slack"))); err != nil {
		t.Fatal(err)
	}
	edit(t, filepath.Join(dir, "policy.yaml"), "C0APPROVALS", ownRoom)
	file := filepath.Join(dir, "countersign.yaml")
	edit(t, file, "127.0.0.1:8080", "127.0.0.1:0")
	edit(t, file, "127.0.0.1:8090", "127.0.0.1:0")
	edit(t, file, "slack:\n", "admin: {listen: 127.0.0.1:0}\nslack:\n  api_url: "+api+"\n")
}

func edit(t *testing.T, file, old, replacement string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(b), old) != 1 {
		t.Fatalf("%s has %q %d times", file, old, strings.Count(string(b), old))
	}
	if err := os.WriteFile(file, []byte(strings.Replace(string(b), old, replacement, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// block is the indented block that begins with a word, in a section of a page.
func block(t *testing.T, page, section, begins string) string {
	t.Helper()
	_, rest, ok := strings.Cut(page, "\n"+section)
	_, code, also := strings.Cut(rest, "\n    "+begins)
	if !ok || !also {
		t.Fatalf("there is no %q in section %q", begins, section)
	}
	code, _, _ = strings.Cut(begins+code, "\n\n")
	return code
}

// fill puts values where the page has an ellipsis or an example for one.
func fill(t *testing.T, script string, values map[string]string) string {
	t.Helper()
	for name, v := range values {
		re := regexp.MustCompile(`\b` + name + `=\S+`)
		if len(re.FindAllString(script, -1)) != 1 {
			t.Fatalf("%s is not set once in\n%s", name, script)
		}
		script = re.ReplaceAllLiteralString(script, name+"="+v)
	}
	if strings.Contains(script, "…") {
		t.Fatalf("something is left to fill in, and nobody says what:\n%s", script)
	}
	return script
}

// slackManifest is the part of an app manifest that we depend on.
type slackManifest struct {
	Display struct {
		Name        string `yaml:"name"`
		Description string `yaml:"description"`
	} `yaml:"display_information"`
	Features struct {
		Bot struct {
			Name string `yaml:"display_name"`
		} `yaml:"bot_user"`
	} `yaml:"features"`
	OAuth struct {
		Scopes struct {
			Bot  []string `yaml:"bot"`
			User []string `yaml:"user"`
		} `yaml:"scopes"`
	} `yaml:"oauth_config"`
	Settings struct {
		Interactivity struct {
			On  bool   `yaml:"is_enabled"`
			URL string `yaml:"request_url"`
		} `yaml:"interactivity"`
		SocketMode bool `yaml:"socket_mode_enabled"`
		Rotation   bool `yaml:"token_rotation_enabled"`
	} `yaml:"settings"`
}

func manifest(t testing.TB) slackManifest {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, "deploy/slack/manifest.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var m slackManifest
	if err := yaml.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// The app may do all that our code does, and nothing beside it. What a method
// needs is asked of the fake Slack, which refuses as Slack does.
func TestSlackManifest(t *testing.T) {
	t.Parallel()
	m := manifest(t)
	if n := len(m.Display.Name); n == 0 || n > 35 || len(m.Display.Description) > 140 || len(m.Features.Bot.Name) > 80 {
		t.Errorf("names: %+v %+v", m.Display, m.Features)
	}
	if !strings.Contains(documents(t)["notifier/slack/README.md"], "/invite @"+m.Features.Bot.Name+"`") {
		t.Errorf("the page invites another bot than %s", m.Features.Bot.Name)
	}
	u, err := url.Parse(m.Settings.Interactivity.URL)
	if err != nil || u.Scheme != "https" || u.Path != "/slack/interactions" || !m.Settings.Interactivity.On {
		t.Errorf("interactivity: %+v (%v)", m.Settings.Interactivity, err)
	}
	if m.Settings.SocketMode || m.Settings.Rotation || len(m.OAuth.Scopes.User) > 0 {
		t.Errorf("it asks for what we can't do: %+v %q", m.Settings, m.OAuth.Scopes.User)
	}
	slack := slacktest.New(t)
	slack.SetScopes()
	slack.AddChannel(slacktest.Channel{ID: "C0PUBLIC"})
	slack.AddChannel(slacktest.Channel{ID: "C0PRIVATE", Private: true})
	needed := map[string]bool{}
	for _, method := range slackMethods(t) {
		for _, room := range []string{"C0PUBLIC", "C0PRIVATE"} {
			for _, scope := range scopesOf(t, slack, method, room) {
				needed[scope] = true
			}
		}
	}
	got, want := slices.Sorted(slices.Values(m.OAuth.Scopes.Bot)), slices.Sorted(maps.Keys(needed))
	if !slices.Equal(got, want) {
		t.Errorf("scopes %q, and our calls need %q", got, want)
	}
}

// slackMethods are the methods of the Web API that our code calls, as its source
// says.
func slackMethods(t *testing.T) []string {
	t.Helper()
	names := map[string]string{
		"SendMessageContext/MsgOptionPost": "chat.postMessage", "SendMessageContext/MsgOptionUpdate": "chat.update",
		"GetConversationInfoContext": "conversations.info", "GetConversationHistoryContext": "conversations.history",
		"GetUserInfoContext": "users.info", "GetUserGroupMembersContext": "usergroups.users.list",
		"AuthTestContext": "auth.test", "GetBotInfoContext": "bots.info",
	}
	pkgs, err := filepath.Glob(filepath.Join(root, "notifier/slack/*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, file := range pkgs {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			f, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if on, ok := f.X.(*ast.SelectorExpr); !ok || on.Sel.Name != "api" {
				return true
			}
			name := f.Sel.Name
			if name == "SendMessageContext" {
				name += "/" + option(call)
			}
			method, ok := names[name]
			if !ok {
				t.Errorf("%s: this test does not know which method %s calls", file, name)
			}
			out = append(out, method)
			return true
		})
	}
	if len(out) < len(names) {
		t.Errorf("only %q were found", out)
	}
	return out
}

// option is the message option of ours that tells posting and editing apart.
func option(call *ast.CallExpr) string {
	for _, arg := range call.Args {
		if c, ok := arg.(*ast.CallExpr); ok {
			if f, ok := c.Fun.(*ast.SelectorExpr); ok && strings.HasPrefix(f.Sel.Name, "MsgOption") {
				return f.Sel.Name
			}
		}
	}
	return ""
}

// scopesOf asks for a method without any scope.
func scopesOf(t *testing.T, slack *slacktest.Slack, method, room string) []string {
	t.Helper()
	form := url.Values{"token": {slack.BotToken}, "channel": {room}}
	res, err := http.PostForm(slack.URL()+method, form)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var a struct {
		OK     bool   `json:"ok"`
		Error  string `json:"error"`
		Needed string `json:"needed"`
	}
	if err := json.NewDecoder(res.Body).Decode(&a); err != nil {
		t.Fatal(err)
	}
	switch {
	case a.Error == "missing_scope":
		return strings.Split(a.Needed, ",")
	case !a.OK:
		t.Errorf("%s: %s", method, a.Error)
	}
	return nil
}
