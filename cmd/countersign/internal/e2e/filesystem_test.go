package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/cmd/countersign/internal/e2e/testservers"
	"github.com/countersign-mcp/countersign/notifier/slacktest"
)

// filesystemServer is a real MCP server that somebody else wrote: it speaks the
// older era, has tools that our policy doesn't name, and can ask for roots.
const filesystemServer = "@modelcontextprotocol/server-filesystem@2026.8.31"

// What a real server does is done after a yes and once, with the very bytes that
// were shown; after a no it isn't done, and what nobody listed isn't there.
func TestFilesystemServer(t *testing.T) {
	t.Parallel()
	command := filesystemCommand(t)
	files, err := filepath.EvalSymlinks(t.TempDir()) // the server compares resolved paths
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, rigOptions{
		Beside: fmt.Sprintf(", files: {command: %s}", quoted(append(command, files))),
		Policy: fmt.Sprintf(`version: 2
tools:
  files/read_text_file: read
  files/list_directory: read
  files/write_file: {tier: destructive, title: "Write {path}"}
routes:
  default: {channels: [slack:%s], approvers: [group:ops], timeout: 1m}
`, channel),
	})
	g := r.start("a", "")
	g.MCP += "/files"
	ctx := within(t, 2*time.Minute)
	old, modern := g.client(testservers.Legacy), g.client(testservers.Modern)
	if err := os.WriteFile(filepath.Join(files, "there.txt"), []byte("was here"), 0o600); err != nil {
		t.Fatal(err)
	}

	t.Run("shows what is listed", func(t *testing.T) {
		for _, c := range []testservers.Client{old, modern} {
			res, err := c.ListTools(ctx)
			if err != nil {
				t.Fatal(err)
			}
			got := slices.Sorted(slices.Values(res.Tools()))
			if want := []string{"countersign_collect", "list_directory", "read_text_file", "write_file"}; !slices.Equal(got, want) {
				t.Errorf("tools %q, not %q", got, want)
			}
			hidden, err := c.Call(ctx, "move_file", pathArgs(files, "there.txt", ""), testservers.Extra{})
			if err != nil || hidden.Code() != -32602 {
				t.Errorf("a tool that is not listed: %v: %s %s", err, hidden.Result, hidden.Error)
			}
		}
	})
	t.Run("reads at once", func(t *testing.T) {
		for _, c := range []testservers.Client{old, modern} {
			res, err := c.Call(ctx, "read_text_file", pathArgs(files, "there.txt", ""), testservers.Extra{})
			if err != nil || res.IsError() || !strings.Contains(res.Text(), "was here") {
				t.Errorf("%v: %s %s", err, res.Result, res.Error)
			}
		}
		if m := r.slack.Messages(channel); len(m) != 0 {
			t.Errorf("reading asked somebody: %d cards", len(m))
		}
	})
	for i, c := range []*testservers.HTTP{old, modern} {
		t.Run("writes once after a yes, "+string(c.Era), func(t *testing.T) {
			r := r.on(t)
			name := fmt.Sprintf("yes-%d.txt", i)
			content := "one line\n\ttwo: \"quoted\" <&> 9007199254740993 ✓\n"
			got, card := r.write1(t, c, files, name, content)
			if a := r.click(olgaSlack, card.TS, "approve"); a.Status != 200 {
				t.Fatalf("the click: %+v", a)
			}
			if res := await(t, got); res.IsError() || res.Error != nil {
				t.Fatalf("the agent got: %s %s", res.Result, res.Error)
			}
			is(t, files, name, content)
			// Whoever writes again would undo what was done to the file meanwhile.
			if err := os.WriteFile(filepath.Join(files, name), []byte("changed since"), 0o600); err != nil {
				t.Fatal(err)
			}
			again, err := c.Call(ctx, "write_file", pathArgs(files, name, content), testservers.Extra{})
			if err != nil || again.IsError() || !strings.Contains(again.Text(), "not run again") {
				t.Errorf("the same call again: %v: %s %s", err, again.Result, again.Error)
			}
			is(t, files, name, "changed since")
			r.settled(card.TS, "Approved", "It ran", "olga")
		})
		t.Run("does not write after a no, "+string(c.Era), func(t *testing.T) {
			r := r.on(t)
			name := fmt.Sprintf("no-%d.txt", i)
			got, card := r.write1(t, c, files, name, "never")
			if a := r.click(oskarSlack, card.TS, "deny"); a.Status != 200 {
				t.Fatalf("the click: %+v", a)
			}
			if res := await(t, got); !res.IsError() || res.Approval().Status != "denied" {
				t.Errorf("the agent got: %s %s", res.Result, res.Error)
			}
			r.settled(card.TS, "Denied", "oskar")
			if _, err := os.Lstat(filepath.Join(files, name)); !os.IsNotExist(err) {
				t.Errorf("the file is there: %v", err)
			}
		})
		t.Run("leaves a file as it was after a no, "+string(c.Era), func(t *testing.T) {
			r := r.on(t)
			name := fmt.Sprintf("kept-%d.txt", i)
			if err := os.WriteFile(filepath.Join(files, name), []byte("as it was"), 0o640); err != nil {
				t.Fatal(err)
			}
			before := look(t, files, name)
			got, card := r.askToWrite(t, c, files, name, "another content")
			if a := r.click(oskarSlack, card.TS, "deny"); a.Status != 200 {
				t.Fatalf("the click: %+v", a)
			}
			if res := await(t, got); !res.IsError() || res.Approval().Status != "denied" {
				t.Errorf("the agent got: %s %s", res.Result, res.Error)
			}
			r.settled(card.TS, "Denied", "oskar")
			after := look(t, files, name)
			if !os.SameFile(before.info, after.info) || before.sum != after.sum || before.info.Mode() != after.info.Mode() ||
				before.info.Size() != after.info.Size() || !before.info.ModTime().Equal(after.info.ModTime()) {
				t.Errorf("the file is another: %+v, was %+v", after, before)
			}
		})
	}
	r.verify()
}

// The starting policy for this server holds on the server itself: it says something
// of every tool, reading runs, writing asks, and what is outside, or usually holds a
// secret, is denied before the server hears of it.
func TestStartingPolicyForTheFilesystemServer(t *testing.T) {
	t.Parallel()
	command := filesystemCommand(t)
	files, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(root, "deploy", "policies", "filesystem.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	policy := strings.NewReplacer("/workspace", files, "slack:C0APPROVALS", "slack:"+channel).Replace(string(b))
	r := newRig(t, rigOptions{Beside: fmt.Sprintf(", files: {command: %s}", quoted(append(command, files))), Policy: policy})
	for name, text := range map[string]string{"there.txt": "was here", ".env": "TOKEN=x"} {
		if err := os.WriteFile(filepath.Join(files, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, errs, code := countersign(within(t, time.Minute), nil, "policy", "test", filepath.Join(r.dir, "policy.yaml"))
	if code != 0 || errs != "" {
		t.Errorf("its cases, with another directory: exit %d\n%s%s", code, out, errs)
	}
	out, _, _ = countersign(within(t, time.Minute), nil, "doctor", "--config", r.config("a"))
	if strings.Contains(out, "files: no entry lists these") || strings.Contains(out, "files: no tool is meant") || !strings.Contains(out, "files: the policy shows 14 of them and denies 0") {
		t.Errorf("the policy and the server do not fit: %s", out)
	}

	g := r.start("a", "")
	g.MCP += "/files"
	c, ctx := g.client(testservers.Legacy), within(t, 2*time.Minute)
	res, err := c.Call(ctx, "read_text_file", pathArgs(files, "there.txt", ""), testservers.Extra{})
	if err != nil || res.IsError() || !strings.Contains(res.Text(), "was here") {
		t.Errorf("reading: %v: %s %s", err, res.Result, res.Error)
	}
	for _, path := range []string{".env", "../x", "a/../../x"} {
		res, err := c.Call(ctx, "read_text_file", json.RawMessage(quoted(map[string]string{"path": files + "/" + path})), testservers.Extra{})
		if err != nil || res.Code() != -32602 {
			t.Errorf("%s: %v: %s %s", path, err, res.Result, res.Error)
		}
	}
	got, card := r.write1(t, c, files, "new.txt", "content")
	if a := r.click(olgaSlack, card.TS, "approve"); a.Status != 200 {
		t.Fatalf("the click: %+v", a)
	}
	if res := await(t, got); res.IsError() || res.Error != nil {
		t.Errorf("writing: %s %s", res.Result, res.Error)
	}
	is(t, files, "new.txt", "content")
}

// file is what can be seen of one without changing it.
type file struct {
	info os.FileInfo
	sum  [sha256.Size]byte
}

func look(t *testing.T, dir, name string) file {
	t.Helper()
	path := filepath.Join(dir, name)
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return file{info, sha256.Sum256(b)}
}

// write1 asks to write a file that isn't there; nothing is written yet.
func (r *rig) write1(t *testing.T, c testservers.Client, dir, name, content string) (<-chan answer, slacktest.Message) {
	t.Helper()
	got, card := r.askToWrite(t, c, dir, name, content)
	if _, err := os.Lstat(filepath.Join(dir, name)); !os.IsNotExist(err) {
		t.Fatalf("the file is there before anybody agreed: %v", err)
	}
	return got, card
}

// askToWrite asks to write a file and waits for the card.
func (r *rig) askToWrite(t *testing.T, c testservers.Client, dir, name, content string) (<-chan answer, slacktest.Message) {
	t.Helper()
	got := make(chan answer, 1)
	ctx := within(t, time.Minute)
	go func() {
		res, err := c.Call(ctx, "write_file", pathArgs(dir, name, content), testservers.Extra{})
		got <- answer{res, err}
	}()
	card, err := r.slack.WaitMessage(ctx, channel, func(m slacktest.Message) bool {
		return len(m.Buttons()) > 0 && strings.Contains(m.Plain(), name)
	})
	if err != nil {
		t.Fatal(err)
	}
	return got, card
}

func pathArgs(dir, name, content string) json.RawMessage {
	args := map[string]string{"path": filepath.Join(dir, name)}
	if content != "" {
		args["content"] = content
	}
	return json.RawMessage(quoted(args))
}

func is(t *testing.T, dir, name, content string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil || string(b) != content {
		t.Errorf("%s has %q (%v), not %q", name, b, err, content)
	}
}

// filesystemCommand installs the server into a cache of its own, once, and says
// how it is started. Without Node there is nothing to test.
func filesystemCommand(t *testing.T) []string {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("no node on the PATH")
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		t.Skip("no npm on the PATH")
	}
	cache := os.Getenv("COUNTERSIGN_TEST_CACHE")
	if cache == "" {
		if cache, err = os.UserCacheDir(); err != nil {
			cache = t.TempDir() // no home: it is installed for this run
		}
	}
	name := strings.NewReplacer("@", "", "/", "-").Replace(filesystemServer)
	dir := filepath.Join(cache, "countersign-tests", name)
	if _, err := os.Stat(dir); err != nil {
		install(t, npm, dir)
	}
	return []string{node, filepath.Join(dir, "node_modules/@modelcontextprotocol/server-filesystem/dist/index.js")}
}

// install puts the package beside its place and renames it: a half-done or a
// second installation is never seen.
func install(t *testing.T, npm, dir string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		t.Fatal(err)
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), "installing-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(tmp)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, npm, "install", "--prefix", tmp, "--ignore-scripts", "--no-audit", "--no-fund",
		"--cache", filepath.Join(tmp, "cache"), filesystemServer)
	cmd.Dir = tmp
	cmd.WaitDelay = 10 * time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("npm install: %v\n%s", err, out)
		}
		t.Skipf("npm could not install %s: %v", filesystemServer, err)
	}
	if err := os.RemoveAll(filepath.Join(tmp, "cache")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(tmp, dir); err != nil && !os.IsExist(err) {
		if _, there := os.Stat(dir); there != nil {
			t.Fatal(err)
		}
	}
}
