package e2e

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/cmd/countersign/internal/e2e/testservers"
)

// gate is one `countersign serve` process.
type gate struct {
	r       *rig
	name    string
	cmd     *exec.Cmd
	stderr  *tail
	MCP     string // URL of the endpoint
	Webhook string
	Admin   string
	dead    chan struct{}
}

var listening = regexp.MustCompile(`MCP on (http://\S+), approvers' answers on (http://\S+), operators on (http://\S+)`)

// start runs a gate and waits until it is ready. fault is a COUNTERSIGN_FAULT
// value, or empty. Slack's clicks go to the gate that was started last.
func (r *rig) start(name, fault string) *gate {
	r.t.Helper()
	g := &gate{r: r, name: name, stderr: newTail(), dead: make(chan struct{})}
	g.cmd = exec.Command(binary, "serve", "--config", r.config(name), "--log-level", "debug")
	g.cmd.Env = append(os.Environ(), "COUNTERSIGN_FAULT="+fault)
	g.cmd.Stderr = g.stderr
	dieWithUs(g.cmd)
	if err := g.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	go func() { _ = g.cmd.Wait(); close(g.dead) }()
	r.t.Cleanup(g.stop)
	m := g.stderr.find(r.t, listening, g.dead)
	g.MCP, g.Webhook, g.Admin = m[1], m[2], m[3]
	g.stderr.find(r.t, regexp.MustCompile(`the store is ready`), g.dead)
	g.stderr.find(r.t, regexp.MustCompile(`Slack knows us`), g.dead)
	r.slack.SetInteractions(g.Webhook + "/slack/interactions")
	return g
}

func (g *gate) interactions() string { return g.Webhook + "/slack/interactions" }

// stop ends the process as an operator would, and shows its log when the test
// has failed.
func (g *gate) stop() {
	_ = g.cmd.Process.Signal(syscall.SIGCONT)
	_ = g.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-g.dead:
	case <-time.After(40 * time.Second):
		g.r.t.Errorf("gate %s did not stop", g.name)
		g.kill()
	}
	text := g.stderr.String()
	if strings.Contains(text, "DATA RACE") || strings.Contains(text, "panic:") {
		g.r.t.Errorf("gate %s:\n%s", g.name, text)
	} else if g.r.t.Failed() {
		g.r.t.Logf("gate %s:\n%s", g.name, text)
	}
}

// kill is kill -9.
func (g *gate) kill() {
	_ = g.cmd.Process.Kill()
	<-g.dead
}

// died waits until a fault point has killed the process.
func (g *gate) died() {
	g.r.t.Helper()
	select {
	case <-g.dead:
	case <-time.After(30 * time.Second):
		g.r.t.Fatalf("gate %s was not killed by its fault point\n%s", g.name, g.stderr)
	}
}

// client is ana's agent, unless another token is given.
func (g *gate) client(era testservers.Era, token ...string) *testservers.HTTP {
	g.r.t.Helper()
	tok := anaToken
	if len(token) > 0 {
		tok = token[0]
	}
	c := testservers.NewHTTP(g.MCP, tok, era)
	if _, err := c.Initialize(within(g.r.t, 20*time.Second)); err != nil {
		g.r.t.Fatal(err)
	}
	return c
}

// operate runs `countersign approvals ...` as Olga.
func (g *gate) operate(args ...string) (string, int) {
	out, errs, code := countersign(within(g.r.t, 20*time.Second), []string{"COUNTERSIGN_ADMIN_TOKEN=" + olgaAdmin},
		append([]string{"approvals", "--admin", g.Admin}, args...)...)
	return out + errs, code
}

// tail keeps what a process writes and lets a test wait for a line.
type tail struct {
	mu    sync.Mutex
	text  strings.Builder
	grown chan struct{}
	w     *io.PipeWriter
}

func newTail() *tail {
	pr, pw := io.Pipe()
	t := &tail{grown: make(chan struct{}), w: pw}
	go func() {
		sc := bufio.NewReader(pr)
		for {
			line, err := sc.ReadString('\n')
			t.mu.Lock()
			t.text.WriteString(line)
			close(t.grown)
			t.grown = make(chan struct{})
			t.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return t
}

func (t *tail) Write(p []byte) (int, error) { return t.w.Write(p) }

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.String()
}

// find waits for a line.
func (t *tail) find(tb testing.TB, re *regexp.Regexp, dead <-chan struct{}) []string {
	tb.Helper()
	timeout := time.After(60 * time.Second)
	for {
		t.mu.Lock()
		m, grown := re.FindStringSubmatch(t.text.String()), t.grown
		t.mu.Unlock()
		if m != nil {
			return m
		}
		select {
		case <-grown:
		case <-dead:
			if m := re.FindStringSubmatch(t.String()); m != nil {
				return m
			}
			tb.Fatalf("the process ended without saying %q:\n%s", re, t)
		case <-timeout:
			tb.Fatalf("the process never said %q:\n%s", re, t)
		}
	}
}
