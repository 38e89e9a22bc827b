package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/cmd/countersign/internal/e2e/testservers"
)

// The policy file is exchanged under a running gate, in every way that files are:
// nothing of it counts before a reload, each decision names the policy that made it,
// and a file that others could have written is not taken at all.
func TestPolicyFileIsSwapped(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Policy: plain, Hold: time.Second})
	path := filepath.Join(r.dir, "policy.yaml")
	open := strings.Replace(plain, "judge/do_thing: {tier: destructive", "judge/hidden_thing: read\n  judge/do_thing: {tier: write", 1)
	g := r.start("a", "")
	c := g.client(testservers.Modern)
	n := 0
	asks := func(when string) {
		t.Helper()
		n++
		waiting(t, send(t, c, fmt.Sprintf(`{"n":%d}`, n), testservers.Extra{}))
		if res, err := c.Call(within(t, 20*time.Second), "hidden_thing", nil, testservers.Extra{}); err != nil || res.Reason() != "unknown_tool" {
			t.Errorf("%s: %v: %s %s", when, err, res.Result, res.Error)
		}
		if ran := r.upstream.Executions(); len(ran) != 0 {
			t.Fatalf("%s: ran %v", when, ran)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	asks("at first")
	r.write("policy.yaml", open)
	asks("written over")
	must(os.Remove(path))
	asks("removed")
	must(os.Symlink(r.write("elsewhere.yaml", open), path))
	asks("a link to another")
	must(os.Remove(path))
	must(os.Rename(r.write("next.yaml", open), path))
	asks("renamed over")

	// A reload takes no file that somebody else could have written.
	must(os.Chmod(path, 0o666))
	g.hangup(1)
	asks("writable by everybody")
	must(os.Chmod(path, 0o620))
	g.hangup(2)
	asks("writable by the group")
	if os.Geteuid() == 0 {
		must(os.Chmod(path, 0o600))
		must(os.Chown(path, 65534, 65534))
		g.hangup(3)
		asks("another user's")
		must(os.Chown(path, 0, 0))
	} else {
		g.hangup(3) // as it is, so that the counts below hold
	}
	must(os.Remove(path))
	g.hangup(4)
	asks("no file")
	if loaded, rejected := r.loads(); loaded != 1 || rejected != 4 {
		t.Errorf("%d loaded, %d rejected", loaded, rejected)
	}

	r.write("policy.yaml", open)
	g.hangup(5)
	for tool, args := range map[string]string{"do_thing": `{"n":100}`, "hidden_thing": `{}`} {
		if res, err := c.Call(within(t, 20*time.Second), tool, []byte(args), testservers.Extra{}); err != nil || !runs(res) {
			t.Errorf("after the reload: %s: %v: %s %s", tool, err, res.Result, res.Error)
		}
	}
	if ran := r.upstream.Executions(); len(ran) != 2 {
		t.Errorf("ran %v", ran)
	}

	now := ""
	var loads []string
	for _, m := range r.records() { // one gate: in the order they were written
		switch m["event"] {
		case "policy_loaded":
			now = fmt.Sprint(m["policy_digest"])
			loads = append(loads, now)
		case "decision":
			if m["policy_digest"] != now {
				t.Errorf("decided by %v while %s was loaded: %v", m["policy_digest"], now, m)
			}
		}
	}
	if len(loads) != 2 || loads[0] == loads[1] {
		t.Fatalf("loaded %v", loads)
	}
	// Who has the file can say which it was, and the gate keeps what it has loaded.
	for i, text := range []string{plain, open} {
		kept, err := os.ReadFile(filepath.Join(r.dir, "a-data", "policies", loads[i]+".yaml"))
		if err != nil || string(kept) != text {
			t.Errorf("kept: %v\n%s", err, kept)
		}
	}
	r.verify()
}
