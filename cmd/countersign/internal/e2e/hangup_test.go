package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/cmd/countersign/internal/e2e/testservers"
)

// pipe puts a named pipe in a file's place: whoever reads the file waits for the
// test.
func (r *rig) pipe(name string) string {
	r.t.Helper()
	path := filepath.Join(r.dir, name)
	if err := os.Remove(path); err != nil {
		r.t.Fatal(err)
	}
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		r.t.Fatal(err)
	}
	return path
}

// A signal that comes while a gate starts is about a file that it has read already.
// It is not lost.
func TestHangupWhileAGateStarts(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Policy: plain, Hold: time.Second})
	path := r.pipe("policy.yaml")
	g := &gate{r: r, name: "a", stderr: newTail(), dead: make(chan struct{})}
	g.cmd = exec.Command(binary, "serve", "--config", r.config("a"))
	g.cmd.Stderr = g.stderr
	dieWithUs(g.cmd)
	if err := g.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = g.cmd.Wait(); close(g.dead) }()
	t.Cleanup(g.stop)
	old, err := os.OpenFile(path, os.O_WRONLY, 0) // returns when the gate reads
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(r.write("next.yaml", withoutTool(t)), path); err != nil {
		t.Fatal(err)
	}
	if err := g.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if _, err := old.WriteString(plain); err != nil {
		t.Fatal(err)
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	g.MCP = g.stderr.find(t, listening, g.dead)[1]
	g.stderr.find(t, reloaded, g.dead)
	if res := send(t, g.client(testservers.Modern), `{"n":1}`, testservers.Extra{}); res.Reason() != "unknown_tool" {
		t.Errorf("the file of before is in force: %s", res.Body)
	}
}

// A reload whose file can't be read to its end keeps no gate from stopping.
func TestStopWhileAReloadReads(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Policy: plain})
	g := r.start("a", "")
	path := r.pipe("policy.yaml")
	if err := g.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	never, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer never.Close()
	g.stop()
	if regexp.MustCompile(`the configuration was reloaded`).MatchString(g.stderr.String()) {
		t.Error("it was taken over")
	}
	r.verify()
}
