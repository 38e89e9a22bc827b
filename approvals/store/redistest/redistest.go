// Package redistest runs a private redis-server for a test: a unix socket in a
// directory of its own, every write in an append-only file, no eviction.
// It is for tests only and never linked into the binary.
package redistest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// ErrMissing says that there is no redis-server on the PATH.
var ErrMissing = errors.New("redis-server is not on the PATH")

// Server is a running redis-server. Kill and Restart may be called in turn;
// they are not for concurrent use.
type Server struct {
	Addr string // path of the unix socket

	dir    string
	args   []string
	guard  *exec.Cmd
	leash  io.WriteCloser // the server dies when this closes, also by our death
	pid    int
	client *redis.Client
}

// Start runs a server until the test ends. Without redis-server on the PATH the
// test is skipped, except where the environment says CI=true: there it fails.
// More arguments go to redis-server as they are ("--maxmemory", "10mb").
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	s, err := Launch(args...)
	if errors.Is(err, ErrMissing) {
		if os.Getenv("CI") == "true" {
			t.Fatal("redis-server is needed in CI: ", err)
		}
		t.Skip("skipped: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// Launch is Start for a TestMain: the caller closes the server.
func Launch(args ...string) (*Server, error) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		return nil, ErrMissing
	}
	dir, err := os.MkdirTemp("", "redistest") // short: a socket's path has a limit of about 100 bytes
	if err != nil {
		return nil, err
	}
	s := &Server{Addr: filepath.Join(dir, "s"), dir: dir, args: slices.Clone(args)}
	if err := s.start(); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// URL is the server's address for a client.
func (s *Server) URL() string { return "unix://" + s.Addr }

// Client is one client of the server, closed with it.
func (s *Server) Client() *redis.Client {
	if s.client == nil {
		s.client = redis.NewClient(&redis.Options{Network: "unix", Addr: s.Addr, Protocol: 2})
	}
	return s.client
}

// Kill ends the server with SIGKILL and waits until it is gone.
func (s *Server) Kill() {
	if s.guard == nil {
		return
	}
	if s.pid > 0 {
		_ = syscall.Kill(s.pid, syscall.SIGKILL)
	}
	_ = s.leash.Close()
	_ = s.guard.Wait()
	s.guard, s.pid = nil, 0
}

// Restart starts a killed server on the same files.
func (s *Server) Restart() error {
	s.Kill()
	return s.start()
}

// Close ends the server and removes its files.
func (s *Server) Close() {
	if s.client != nil {
		_ = s.client.Close()
		s.client = nil
	}
	s.Kill()
	_ = os.RemoveAll(s.dir)
}

// The guard is a shell that holds the server and our pipe: when the pipe closes,
// for whatever reason, the server is killed. So a test binary that dies leaves
// nothing behind.
const guard = `"$@" 3<&- >redis.log 2>&1 & p=$!; (cat <&3 >/dev/null; kill -9 $p) 2>/dev/null & wait $p`

func (s *Server) start() error {
	_ = os.Remove(s.Addr)
	args := append([]string{
		"-c", guard, "guard", "redis-server", "--port", "0", "--unixsocket", s.Addr, "--dir", s.dir,
		// A killed process loses nothing that it handed to the kernel, so no sync is
		// waited for: tests don't stand on the disk of the machine they run on.
		"--appendonly", "yes", "--appendfsync", "no", "--save", "", "--maxmemory-policy", "noeviction",
		"--daemonize", "no",
	}, s.args...)
	cmd := exec.Command("sh", args...)
	cmd.Dir = s.dir
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd.ExtraFiles = []*os.File{r} // descriptor 3: a shell gives its background jobs no stdin
	if err := cmd.Start(); err != nil {
		_ = errors.Join(r.Close(), w.Close())
		return fmt.Errorf("starting redis-server: %w", err)
	}
	_ = r.Close()
	s.guard, s.leash = cmd, w
	return s.await()
}

// await returns when the server answers, which it does after it has read its
// files.
func (s *Server) await() error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	c := redis.NewClient(&redis.Options{Network: "unix", Addr: s.Addr, Protocol: 2, MaxRetries: -1, DialerRetries: 1})
	defer c.Close()
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for {
		_, err := os.Stat(s.Addr) // go-redis logs every dial that fails
		var info string
		if err == nil {
			info, err = c.Info(ctx, "server").Result()
		}
		if err == nil {
			_, rest, _ := strings.Cut(info, "process_id:")
			num, _, _ := strings.Cut(rest, "\r\n")
			s.pid, err = strconv.Atoi(num)
			return err
		}
		select {
		case <-ctx.Done():
			log, _ := os.ReadFile(filepath.Join(s.dir, "redis.log"))
			return fmt.Errorf("redis-server does not answer: %w\n%s", err, log)
		case <-poll.C:
		}
	}
}
