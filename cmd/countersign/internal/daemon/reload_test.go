package daemon

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/approvals/ledger"
	"github.com/countersign-mcp/countersign/cmd/countersign/internal/archive"
	"github.com/countersign-mcp/countersign/cmd/countersign/internal/config"
	"github.com/countersign-mcp/countersign/cmd/countersign/internal/e2e/testservers"
	"github.com/countersign-mcp/countersign/server/policy"
)

const allowingPolicy = "version: 2\ntools:\n  judge/read_thing: read\n  judge/do_thing: read\n"

// reloader is a daemon that reads its scene again, and its log.
func (s *scene) reloader() (*Daemon, *kept) {
	s.t.Helper()
	d, log, _ := s.asking()
	return d, log
}

func (s *scene) asking() (*Daemon, *kept, *asked) {
	s.t.Helper()
	log, links := &kept{}, newAsked()
	o := s.options(links)
	o.Log = slog.New(slog.NewTextHandler(log, nil))
	o.Load = func() (*config.Config, error) { return s.config(), nil }
	d := s.start(o)
	s.t.Cleanup(func() { s.stop(d) })
	return d, log, links
}

// policies lists what the ledger of a running scene says of policies.
func (s *scene) policies() []string {
	s.t.Helper()
	files, err := filepath.Glob(filepath.Join(s.dir, "data", "ledger", "*.jsonl"))
	if err != nil {
		s.t.Fatal(err)
	}
	var out []string
	for _, f := range files {
		_, err := ledger.ReadFile(f, func(r ledger.Record) error {
			if r.Event == ledger.PolicyLoaded || r.Event == ledger.PolicyRejected {
				out = append(out, string(r.Event)+" "+r.Reason+" "+short(r.PolicyDigest))
			}
			return nil
		})
		if err != nil {
			s.t.Fatal(err)
		}
	}
	return out
}

func digestOf(text string) string { return short(policy.DigestOf([]byte(text)).Hex()) }

func (s *scene) metric(d *Daemon, line string) {
	s.t.Helper()
	if _, body := ask(s.t, "GET", "http://"+d.Addrs().Admin+"/metrics", ""); !strings.Contains(body, line+"\n") {
		s.t.Errorf("the metrics don't say %q", line)
	}
}

func TestReload(t *testing.T) {
	s := newScene(t)
	d, log := s.reloader()
	c := s.client(d)
	if res, err := c.Call(within(t, 20*time.Second), "read_thing", []byte(`{"id":"1"}`), testservers.Extra{}); err != nil || res.Error != nil {
		t.Fatalf("%v %s", err, res.Error)
	}
	before := d.fleet.now["judge"]

	// Another file changes nothing until it is asked for.
	s.write("policy.yaml", allowingPolicy)
	if got := d.gate.Fronts(); len(got) != 1 || d.rules.Load().policy.Digest() != policy.DigestOf([]byte(goodPolicy)) {
		t.Fatal("it was taken over without a reload")
	}
	if err := d.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	res, err := c.Call(within(t, 20*time.Second), "do_thing", testservers.Do{N: 1}.Args(), testservers.Extra{})
	if err != nil || res.Error != nil || res.IsError() {
		t.Fatalf("allowed by the new policy: %v %s", err, res.Error)
	}
	if d.fleet.now["judge"] != before {
		t.Error("an upstream that is configured as before was replaced")
	}

	// A bad one changes nothing.
	bad := "version: 2\ntools: {judge/do_thing: dangerous}\n"
	s.write("policy.yaml", bad)
	if err := d.Reload(t.Context()); err == nil {
		t.Fatal("a bad policy was taken")
	}
	if res, err := c.Call(within(t, 20*time.Second), "do_thing", testservers.Do{N: 2}.Args(), testservers.Extra{}); err != nil || res.Error != nil {
		t.Errorf("after the refused reload: %v %s", err, res.Error)
	}
	want := []string{"policy_loaded  " + digestOf(goodPolicy), "policy_loaded  " + digestOf(allowingPolicy), "policy_rejected rules " + digestOf(bad)}
	if got := s.policies(); !slices.Equal(got, want) {
		t.Errorf("on the ledger: %q, want %q", got, want)
	}
	for _, word := range []string{"level=ERROR", "the reload was refused, and everything stays as it was", "policy.yaml:2: a tier is", "the configuration was reloaded"} {
		if !strings.Contains(log.String(), word) {
			t.Errorf("the log does not say %q", word)
		}
	}
	s.metric(d, `countersign_policy_reloads_total{outcome="loaded"} 1`)
	s.metric(d, `countersign_policy_reloads_total{outcome="rejected"} 1`)
	s.metric(d, "countersign_policy_generation 2")
	s.metric(d, "countersign_policy_behind 0")
	all, err := archive.List(filepath.Join(s.dir, "data"))
	if err != nil || len(all) != 2 || all[0].Digest[:12] != digestOf(allowingPolicy) {
		t.Errorf("kept: %v, %v", all, err)
	}
}

// Everything that can be wrong with a configuration leaves everything as it was:
// also what was right in it.
func TestRefusedReloads(t *testing.T) {
	for name, spoil := range map[string]struct {
		with func(s *scene, o *Options)
		part string
		says string
	}{
		"a file that can't be read": {func(_ *scene, o *Options) {
			o.Load = func() (*config.Config, error) { return nil, errors.New("countersign.yaml: line 1: unknown key redsi") }
		}, "configuration", "unknown key redsi"},
		"nothing to read": {func(_ *scene, o *Options) { o.Load = nil }, "configuration", "no file"},
		"no policy": {func(s *scene, _ *Options) {
			if err := os.Remove(filepath.Join(s.dir, "policy.yaml")); err != nil {
				s.t.Fatal(err)
			}
		}, "rules", "there is no"},
		"a policy that others may write": {func(s *scene, _ *Options) {
			if err := os.Chmod(filepath.Join(s.dir, "policy.yaml"), 0o664); err != nil {
				s.t.Fatal(err)
			}
		}, "rules", "chmod go-w"},
		"an approver who is nobody": {func(s *scene, _ *Options) {
			s.write("policy.yaml", strings.ReplaceAll(goodPolicy, "approvers: [olga]", "approvers: [otto]"))
		}, "rules", "otto"},
		"a channel that takes a restart": {func(s *scene, _ *Options) {
			s.write("policy.yaml", strings.ReplaceAll(goodPolicy, "link:olga", "slack:C0"))
			s.More = `slack: {bot_token: xoxb-1, signing_secrets: [0123456789abcdef], api_url: "http://127.0.0.1:1/"}`
		}, "rules", "needs a restart: slack"},
		"a callback's secret that is none": {func(s *scene, _ *Options) { s.Callback = "whsec_short" }, "rules", "desk"},
		"a policy that does not bind": {func(s *scene, _ *Options) {
			s.write("policy.yaml", `{"version": 1, "allow": ["do_thing"], "deny": []}`)
			s.Upstream2 = true
		}, "rules", "exactly one"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			log := &kept{}
			o := s.options(newAsked())
			o.Log = slog.New(slog.NewTextHandler(log, nil))
			o.Load = func() (*config.Config, error) { return s.config(), nil }
			d := s.start(o)
			defer s.stop(d)
			was, fleet := d.rules.Load(), d.fleet.now
			spoil.with(s, &d.opt)
			// Right by itself, and not taken either.
			s.Tokens = "[]"
			if err := d.Reload(t.Context()); err == nil {
				t.Fatal("it was taken")
			}
			if d.rules.Load() != was || len(d.fleet.now) != len(fleet) || d.fleet.now["judge"] != fleet["judge"] || d.tokens.Len() != 1 {
				t.Error("something was taken over")
			}
			if !strings.Contains(log.String(), spoil.says) {
				t.Errorf("the log does not say %q:\n%s", spoil.says, log)
			}
			got := s.policies()
			if last := got[len(got)-1]; len(got) != 2 || !strings.HasPrefix(last, "policy_rejected "+spoil.part+" ") {
				t.Errorf("on the ledger: %q", got)
			}
		})
	}
}

// What takes a restart is told by its key, and keeps nothing else from being taken
// over.
func TestKeysThatTakeARestart(t *testing.T) {
	s := newScene(t)
	d, log := s.reloader()
	s.MCP, s.Ledger, s.Key = "127.0.0.1:1", "other", "c2hvcnQ="
	s.write("policy.yaml", allowingPolicy)
	if err := d.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"mcp.listen", "ledger.dir", "keys.current"} {
		if !strings.Contains(log.String(), "needs a restart: "+key+";") {
			t.Errorf("%s is not told", key)
		}
	}
	if strings.Contains(log.String(), "c2hvcnQ") {
		t.Error("a secret is in the log")
	}
	if d.rules.Load().policy.Digest() != policy.DigestOf([]byte(allowingPolicy)) {
		t.Error("the policy was not taken over")
	}
}

// A token that is gone is let in no more; who came with it is ended.
func TestReloadOfTokens(t *testing.T) {
	s := newScene(t)
	d, _, links := s.asking()
	c := s.client(d)
	waits := make(chan string, 1)
	go func() {
		res, err := c.Call(within(t, 60*time.Second), "do_thing", testservers.Do{N: 1}.Args(), testservers.Extra{})
		waits <- string(res.Error) + errText(err)
	}()
	<-links.got
	sum := sha256.Sum256([]byte("another token"))
	s.Tokens = "[{sha256: " + hex.EncodeToString(sum[:]) + ", actor: bot@acme.test}]"
	if err := d.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if told := <-waits; !strings.Contains(told, "removed or changed") {
		t.Errorf("who waited was told %q", told)
	}
	if status, _ := ask(t, "POST", "http://"+d.Addrs().MCP+"/mcp", "{}"); status != 401 {
		t.Errorf("without a token: %d", status)
	}
	if res, err := c.Call(within(t, 20*time.Second), "read_thing", []byte(`{"id":"1"}`), testservers.Extra{}); err == nil && res.Status != 401 {
		t.Errorf("the removed token still calls: %d", res.Status)
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// A changed upstream gets another process; the calls that are with the old one
// end first.
func TestReloadOfUpstreams(t *testing.T) {
	s := newScene(t)
	s.write("policy.yaml", allowingPolicy)
	d, _ := s.reloader()
	c := s.client(d)
	old := d.fleet.now["judge"]
	got := make(chan testservers.Reply, 1)
	go func() {
		res, err := c.Call(within(t, 60*time.Second), "do_thing", testservers.Do{N: 1, Wait: "go"}.Args(), testservers.Extra{})
		if err != nil {
			t.Error(err)
		}
		got <- res
	}()
	if err := s.upstream.WaitRan(within(t, 30*time.Second), "do_thing", 1); err != nil {
		t.Fatal(err)
	}
	s.Env = "rotated" // a new value; a new name would be another server, whose tools are held
	if err := d.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	fresh := d.fleet.now["judge"]
	if fresh == old {
		t.Fatal("it is the same one")
	}
	res, err := c.Call(within(t, 20*time.Second), "do_thing", testservers.Do{N: 2}.Args(), testservers.Extra{})
	if err != nil || res.Error != nil {
		t.Fatalf("with the new one: %v %s", err, res.Error)
	}
	if err := s.upstream.Release("go"); err != nil {
		t.Fatal(err)
	}
	if res := <-got; res.Error != nil || res.IsError() {
		t.Errorf("the call that was with the old one: %s %s", res.Error, res.Result)
	}
	select {
	case <-old.ended:
	case <-time.After(30 * time.Second):
		t.Error("the old one was not let go")
	}
	pids := map[int]bool{}
	for _, e := range s.upstream.Executions() {
		pids[e.PID] = true
	}
	if len(pids) != 2 {
		t.Errorf("%d processes ran the calls", len(pids))
	}
}

// A daemon that is being stopped takes nothing over any more.
func TestReloadAfterStop(t *testing.T) {
	s := newScene(t)
	d, _ := s.reloader()
	s.stop(d)
	if err := d.Reload(t.Context()); !errors.Is(err, errStopped) {
		t.Errorf("%v", err)
	}
}

func TestPolicyFilesOfOthers(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "policy.yaml")
	for mode, ok := range map[os.FileMode]bool{0o600: true, 0o644: true, 0o640: true, 0o440: true, 0o664: false, 0o646: false, 0o666: false, 0o622: false} {
		if err := os.WriteFile(path, []byte(goodPolicy), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		_, err := readPolicyFile(path, reading{})
		if (err == nil) != ok {
			t.Errorf("mode %04o: %v", mode, err)
		}
		if err != nil && !strings.Contains(err.Error(), "chmod go-w "+path) {
			t.Errorf("it does not say what to do: %v", err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	// A config map: a link to a link to a file. What is asked is the file.
	if err := os.Mkdir(filepath.Join(dir, "..2026"), 0o755); err != nil {
		t.Fatal(err)
	}
	real := filepath.Join(dir, "..2026", "policy.yaml")
	if err := os.WriteFile(real, []byte(goodPolicy), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"..data": "..2026", "policy.yaml": "..data/policy.yaml"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := readPolicyFile(path, reading{}); err != nil {
		t.Errorf("a config map: %v", err)
	}
	if err := os.Chmod(real, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := readPolicyFile(path, reading{}); err == nil {
		t.Error("the file behind the links is not looked at")
	}
	if os.Geteuid() == 0 {
		if err := errors.Join(os.Chmod(real, 0o644), os.Chown(real, 12345, -1)); err != nil {
			t.Skip("its owner can't be changed here")
		}
		if _, err := readPolicyFile(path, reading{}); err == nil || !strings.Contains(err.Error(), "belongs to another user (12345)") {
			t.Errorf("another user's: %v", err)
		}
		if _, err := readPolicyFile(path, reading{onlooker: true}); err != nil {
			t.Errorf("root looks at it for a gate: %v", err)
		}
	}
}
