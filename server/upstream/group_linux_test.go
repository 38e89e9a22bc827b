package upstream

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// leaver is a child that leaves a process behind in its group, writes that one's pid
// to its first argument, and ends with its stdin.
const leaver = `sleep 600 </dev/null >/dev/null 2>&1 & echo $! >"$0.new"; mv "$0.new" "$0"; cat >/dev/null`

// A child that ends takes what it left in its group along, and no signal goes to a
// group once its leader was waited for: the number may be another's by then.
func TestNoSignalGoesToWhoeverHasTheNumberNow(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	p, err := startProcess(Config{Command: []string{"/bin/sh", "-c", leaver, file}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.stdout.Close()
	defer p.stderr.Close()
	var left int
	await(t, "the child runs", func() bool {
		b, err := os.ReadFile(file)
		left, _ = strconv.Atoi(strings.TrimSpace(string(b)))
		return err == nil
	})
	p.stop(20 * time.Second)
	var late []syscall.Signal
	p.mu.Lock()
	p.kill = func(_ int, s syscall.Signal) error { late = append(late, s); return nil }
	p.mu.Unlock()
	p.stop(20 * time.Second)
	p.signal(syscall.SIGKILL)
	if late != nil {
		t.Errorf("sent to it: %v", late)
	}
	await(t, "what it left behind ends", func() bool {
		b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(left), "stat"))
		return err != nil || strings.Contains(string(b), ") Z ")
	})
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("never: " + what)
		}
	}
}
