package upstreamtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Dir is a server's directory as a test sees it.
type Dir struct {
	t    testing.TB
	Path string
}

// NewDir makes a server's directory with these tools, a JSON array.
func NewDir(t testing.TB, tools string) Dir {
	t.Helper()
	d := Dir{t: t, Path: t.TempDir()}
	d.SetTools(tools)
	return d
}

// Command and Env start the server from the running test binary.
func (d Dir) Command() []string {
	self, err := os.Executable()
	if err != nil {
		d.t.Fatal(err)
	}
	return []string{self}
}

// Env is the server's environment; more are pairs of name and value.
func (d Dir) Env(more ...string) map[string]string {
	env := map[string]string{DirVar: d.Path}
	if race := os.Getenv("GORACE"); race != "" {
		env["GORACE"] = race
	}
	for i := 0; i+1 < len(more); i += 2 {
		env[more[i]] = more[i+1]
	}
	return env
}

// SetTools changes what the server lists.
func (d Dir) SetTools(tools string) {
	d.t.Helper()
	if err := os.WriteFile(filepath.Join(d.Path, "tools.json"), []byte(tools), 0o600); err != nil {
		d.t.Fatal(err)
	}
}

// Release lets the calls of "wait" go.
func (d Dir) Release() {
	d.t.Helper()
	if err := os.WriteFile(filepath.Join(d.Path, "go"), nil, 0o600); err != nil {
		d.t.Fatal(err)
	}
}

// Calls lists the executions so far, as "tool arguments".
func (d Dir) Calls() []string { return d.Lines("calls.log") }

// Lines reads one of the server's files.
func (d Dir) Lines(name string) []string {
	d.t.Helper()
	b, err := os.ReadFile(filepath.Join(d.Path, name))
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		d.t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
}

// Await waits until the file has n lines.
func (d Dir) Await(name string, n int) []string {
	d.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		lines := d.Lines(name)
		if len(lines) >= n {
			return lines
		}
		if time.Now().After(deadline) {
			d.t.Fatalf("%s has %d lines, want %d", name, len(lines), n)
		}
		time.Sleep(2 * time.Millisecond)
	}
}
