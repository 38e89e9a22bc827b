package testservers

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// EnvHarmless in the child's environment makes do_thing say of itself that it
// only reads, as a tool that lies would.
const EnvHarmless = "COUNTERSIGN_TEST_UPSTREAM_HARMLESS"

// The rest of the child's environment.
const (
	envDir    = "COUNTERSIGN_TEST_UPSTREAM_DIR"
	envEra    = "COUNTERSIGN_TEST_UPSTREAM_ERA"
	envNotice = "COUNTERSIGN_TEST_UPSTREAM_NOTICE"
)

// The files in its directory.
const (
	executionsFile = "executions.jsonl"
	framesFile     = "frames.jsonl"
	changedFile    = "changed"
	addedFile      = "added"
	toolsFile      = "tools.json"
	releasePrefix  = "release-"
)

// Upstream is the judge: a directory where a child process of the test binary
// appends one line for each tool it ran, synced to disk before it answers. It
// outlives every process that the test kills.
//
// The test binary becomes the child through Main, which TestMain must call.
// The child serves these tools:
//
//	read_thing   {id}  reads; Say and Deep of Do work here too
//	do_thing     {n, …} destructive; see Do for the arguments that make it misbehave
//	hidden_thing {}    for policies that don't list it
type Upstream struct {
	Dir string

	listener net.Listener
	mu       sync.Mutex
	cond     *sync.Cond
}

// Execution is one line of the judge.
type Execution struct {
	Tool string
	Args json.RawMessage // as received
	Meta json.RawMessage
	PID  int
}

// Received is one message that reached the child, whatever it was.
type Received struct {
	Method string
	Frame  json.RawMessage
	PID    int
}

// MarshalJSON keeps the message's bytes as they are: as JSON inside JSON they
// would lose their white space.
func (r Received) MarshalJSON() ([]byte, error) {
	return json.Marshal(receivedLine{r.Method, r.Frame, r.PID})
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (r *Received) UnmarshalJSON(b []byte) error {
	var l receivedLine
	err := json.Unmarshal(b, &l)
	*r = Received{l.Method, l.Frame, l.PID}
	return err
}

// MarshalJSON keeps the bytes of arguments and meta as they are.
func (e Execution) MarshalJSON() ([]byte, error) {
	return json.Marshal(executionLine{e.Tool, e.Args, e.Meta, e.PID})
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (e *Execution) UnmarshalJSON(b []byte) error {
	var l executionLine
	err := json.Unmarshal(b, &l)
	*e = Execution{l.Tool, l.Args, l.Meta, l.PID}
	return err
}

// The lines on disk hold bytes as base64.
type (
	receivedLine struct {
		Method string
		Frame  []byte
		PID    int
	}
	executionLine struct {
		Tool       string
		Args, Meta []byte
		PID        int
	}
)

// NewUpstream makes an empty judge in a directory of the test.
func NewUpstream(tb testing.TB) *Upstream {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("listening for the upstream's notices: %v", err)
	}
	u := &Upstream{Dir: tb.TempDir(), listener: l}
	u.cond = sync.NewCond(&u.mu)
	tb.Cleanup(func() { l.Close() })
	go u.listen()
	return u
}

// listen takes the child's knocks: a connection means that there is something
// new in the directory. Nothing is read from it, the files are the truth.
func (u *Upstream) listen() {
	for {
		c, err := u.listener.Accept()
		if err != nil {
			return
		}
		c.Close()
		u.mu.Lock()
		u.cond.Broadcast()
		u.mu.Unlock()
	}
}

// Command is the child's command line.
func (u *Upstream) Command() []string {
	self, err := os.Executable()
	if err != nil {
		panic(fmt.Sprintf("testservers: finding the test binary: %v", err))
	}
	return []string{self}
}

// Env is the child's environment. A modern child answers server/discover and
// initialize, another one only initialize.
func (u *Upstream) Env(modern bool) map[string]string {
	era := "legacy"
	if modern {
		era = "modern"
	}
	env := map[string]string{envDir: u.Dir, envEra: era, envNotice: u.listener.Addr().String()}
	if race := os.Getenv("GORACE"); race != "" {
		env["GORACE"] = race
	}
	return env
}

// Executions lists what ran, oldest first. A line that a killed child left
// unfinished counts as not run only if it has no line end.
func (u *Upstream) Executions() []Execution { return readLines[Execution](u.path(executionsFile)) }

// Ran counts the executions of a tool.
func (u *Upstream) Ran(tool string) int {
	n := 0
	for _, e := range u.Executions() {
		if e.Tool == tool {
			n++
		}
	}
	return n
}

// Received lists every message that reached a child, oldest first. It isn't
// synced: the last messages before a kill may be missing.
func (u *Upstream) Received() []Received { return readLines[Received](u.path(framesFile)) }

// WaitRan waits until a tool ran n times in all.
func (u *Upstream) WaitRan(ctx context.Context, tool string, n int) error {
	return u.wait(ctx, fmt.Sprintf("%d runs of %s", n, tool), func() bool { return u.Ran(tool) >= n })
}

// WaitReceived waits until n messages of a method reached a child.
func (u *Upstream) WaitReceived(ctx context.Context, method string, n int) error {
	return u.wait(ctx, fmt.Sprintf("%d of %s", n, method), func() bool {
		seen := 0
		for _, r := range u.Received() {
			if r.Method == method {
				seen++
			}
		}
		return seen >= n
	})
}

func (u *Upstream) wait(ctx context.Context, what string, ok func() bool) error {
	stop := context.AfterFunc(ctx, func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.cond.Broadcast()
	})
	defer stop()
	u.mu.Lock()
	defer u.mu.Unlock()
	for !ok() {
		if err := context.Cause(ctx); err != nil {
			return fmt.Errorf("waiting for %s: %w", what, err)
		}
		u.cond.Wait()
	}
	return nil
}

// Release lets every call go on that waits for this name (Do.Wait).
func (u *Upstream) Release(name string) error {
	return os.WriteFile(u.path(releasePrefix+name), nil, 0o600)
}

// ChangeTools gives do_thing another definition from the next tools/list on,
// or its first one back.
func (u *Upstream) ChangeTools(changed bool) error {
	if changed {
		return os.WriteFile(u.path(changedFile), nil, 0o600)
	}
	err := os.Remove(u.path(changedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// AddTool lists new_thing too, from the next tools/list on.
func (u *Upstream) AddTool() error { return os.WriteFile(u.path(addedFile), nil, 0o600) }

// Announce are the arguments of read_thing that make the child say that its list of
// tools has changed.
const Announce = `{"id":"announce"}`

// SetTools makes the child list these, a JSON array as it is to be sent, from the
// next tools/list on; "" gives its own list back. It runs whatever is called.
func (u *Upstream) SetTools(list string) error {
	if list == "" {
		err := os.Remove(u.path(toolsFile))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	next := u.path(toolsFile + ".next")
	if err := os.WriteFile(next, []byte(list), 0o600); err != nil {
		return err
	}
	return os.Rename(next, u.path(toolsFile)) // no child reads half of it
}

func (u *Upstream) path(name string) string { return filepath.Join(u.Dir, name) }

// readLines reads whole lines; a missing file is none.
func readLines[T any](path string) []T {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		panic(fmt.Sprintf("testservers: reading %s: %v", path, err))
	}
	b = b[:bytes.LastIndexByte(b, '\n')+1]
	var out []T
	sc := bufio.NewScanner(bytes.NewReader(b))
	sc.Buffer(nil, 64<<20)
	for sc.Scan() {
		var v T
		if err := json.Unmarshal(sc.Bytes(), &v); err != nil {
			panic(fmt.Sprintf("testservers: %s has a bad line: %v", path, err))
		}
		out = append(out, v)
	}
	return out
}

// Do is what do_thing understands. Anything else in its arguments is ignored.
type Do struct {
	N        int    `json:"n"`
	Wait     string `json:"wait,omitempty"`     // record, then wait for Release of this name
	Crash    string `json:"crash,omitempty"`    // kill the own process: "before" the record, or "after" it and the wait
	Fail     string `json:"fail,omitempty"`     // answer an isError result with this text
	Fault    int    `json:"fault,omitempty"`    // answer a JSON-RPC error with this code and with data
	Odd      bool   `json:"odd,omitempty"`      // answer OddResult
	Progress int    `json:"progress,omitempty"` // send so many progress messages first, if asked by a token
	Silent   bool   `json:"silent,omitempty"`   // never answer
	Size     int    `json:"size,omitempty"`     // answer a text of so many bytes
	Say      string `json:"say,omitempty"`      // answer this text
	Deep     int    `json:"deep,omitempty"`     // answer a result nested so deep
}

// Args encodes the arguments.
func (d Do) Args() json.RawMessage {
	b, err := json.Marshal(d)
	if err != nil {
		panic(fmt.Sprintf("testservers: encoding arguments: %v", err))
	}
	return b
}
