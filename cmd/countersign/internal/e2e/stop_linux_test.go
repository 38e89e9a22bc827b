package e2e

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// stopped waits until a fault point has stopped the process.
func (g *gate) stopped() {
	g.r.t.Helper()
	done := make(chan error, 1)
	go func() {
		for {
			err := unix.Waitid(unix.P_PID, g.cmd.Process.Pid, nil, unix.WSTOPPED|unix.WNOWAIT, nil)
			if !errors.Is(err, syscall.EINTR) {
				done <- err
				return
			}
		}
	}()
	select {
	case err := <-done:
		if err != nil {
			g.r.t.Fatalf("waiting for gate %s to be stopped: %v", g.name, err)
		}
	case <-time.After(30 * time.Second):
		g.r.t.Fatalf("gate %s was not stopped by its fault point\n%s", g.name, g.stderr)
	}
}

// fileSize bounds what a gate may write to files: 0 is a full disk to it. It is
// the one way that works for root, without mounts, on a file that is open.
func (g *gate) fileSize(most uint64) { fileSize(g.r.t, g.cmd.Process.Pid, most) }

func fileSize(t testing.TB, pid int, most uint64) {
	t.Helper()
	var was unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_FSIZE, nil, &was); err != nil {
		t.Fatal(err)
	}
	now := unix.Rlimit{Cur: min(most, was.Max), Max: was.Max}
	if err := unix.Prlimit(pid, unix.RLIMIT_FSIZE, &now, nil); err != nil {
		t.Fatal(err)
	}
}
