package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/cmd/countersign/internal/e2e/testservers"
	"github.com/countersign-mcp/countersign/notifier/slacktest"
)

// on is the same rig for a subtest, which then fails by itself.
func (r *rig) on(t testing.TB) *rig {
	c := *r
	c.t = t
	return &c
}

func (g *gate) on(t testing.TB) *gate {
	c := *g
	c.r = g.r.on(t)
	return &c
}

// startHolding starts another gate of the rig with another hold.
func (r *rig) startHolding(name string, hold time.Duration) *gate {
	r.t.Helper()
	c := *r
	c.o.Hold = hold
	return c.start(name, "")
}

// cardOf waits for the open card of do_thing with this n.
func (r *rig) cardOf(n int) slacktest.Message {
	r.t.Helper()
	m, err := r.slack.WaitMessage(within(r.t, 30*time.Second), channel, func(m slacktest.Message) bool {
		return len(m.Buttons()) > 0 && titled(m, n)
	})
	if err != nil {
		r.t.Fatalf("no open card for n=%d: %v", n, err)
	}
	return m
}

// cards lists all cards of do_thing with this n, open or not.
func (r *rig) cards(n int) []slacktest.Message {
	var out []slacktest.Message
	for _, m := range r.slack.Messages(channel) {
		if titled(m, n) {
			out = append(out, m)
		}
	}
	return out
}

// titled looks at the card's header, which is a line of its own.
func titled(m slacktest.Message, n int) bool {
	first, _, _ := strings.Cut(m.Plain(), "\n")
	return first == fmt.Sprintf("Do thing %d", n)
}

// ran counts the executions of do_thing with this n: tests share an upstream.
func (r *rig) ran(n int) int {
	count := 0
	for _, e := range r.upstream.Executions() {
		var a struct{ N int }
		if e.Tool == "do_thing" && json.Unmarshal(e.Args, &a) == nil && a.N == n {
			count++
		}
	}
	return count
}

// told fails unless a text holds every word.
func told(t testing.TB, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("it does not say %q: %s", w, text)
		}
	}
}

// recordsOf are the ledger's records of one approval, each event once.
func (r *rig) recordsOf(id, event string) []map[string]any {
	var out []map[string]any
	seen := map[any]bool{}
	for _, m := range r.records() {
		if m["operation_id"] != id || m["event"] != event {
			continue
		}
		if seq := m["event_seq"]; seq != nil {
			if seen[seq] {
				continue // copied twice by processes that died
			}
			seen[seq] = true
		}
		out = append(out, m)
	}
	return out
}

// ended waits until the ledger has this many records of an approval's event:
// they are copied from the store's stream a moment later.
func (r *rig) ended(id, event string, n int) []map[string]any {
	r.t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		got := r.recordsOf(id, event)
		if len(got) >= n {
			return got
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("the ledger has %d %s records of %s, not %d", len(got), event, id, n)
		}
		time.Sleep(20 * time.Millisecond) // a file can only be looked at again
	}
}

// pipe is one `countersign stdio` process with its client.
type pipe struct {
	*testservers.Stdio
	r      *rig
	cmd    *exec.Cmd
	stderr *tail
	wrote  *transcript
	dead   chan struct{}
}

// transcript keeps every byte of stdout.
type transcript struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *transcript) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

// stdio starts a gate on pipes and opens the conversation.
func (r *rig) stdio(name string, era testservers.Era) *pipe {
	r.t.Helper()
	p := &pipe{r: r, stderr: newTail(), wrote: &transcript{}, dead: make(chan struct{})}
	cmd := exec.Command(binary, "stdio", "--config", r.config(name), "--log-level", "debug")
	p.cmd = cmd
	cmd.Env = os.Environ()
	cmd.Stderr = p.stderr
	dieWithUs(cmd)
	in, err := cmd.StdinPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	out, w := io.Pipe()
	cmd.Stdout = w
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	p.Stdio = testservers.NewStdio(in, io.TeeReader(out, p.wrote), era)
	go func() { _ = cmd.Wait(); _ = w.Close(); close(p.dead) }()
	r.t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended by itself
		<-p.dead
		if text := p.stderr.String(); strings.Contains(text, "DATA RACE") || strings.Contains(text, "panic:") || r.t.Failed() {
			r.t.Errorf("stdio %s:\n%s", name, text)
		}
	})
	if _, err := p.Initialize(within(r.t, 20*time.Second)); err != nil {
		r.t.Fatalf("%v\n%s", err, p.stderr)
	}
	return p
}

// close ends the conversation and judges what went over the pipes: protocol
// lines alone on stdout, the ledger's path on stderr.
func (p *pipe) close() {
	p.r.t.Helper()
	if err := p.CloseInput(); err != nil {
		p.r.t.Error(err)
	}
	select {
	case <-p.dead:
	case <-time.After(40 * time.Second):
		p.r.t.Fatal("stdio did not end with its input")
	}
	p.wrote.mu.Lock()
	defer p.wrote.mu.Unlock()
	all := p.wrote.b.Bytes()
	if len(all) == 0 || all[len(all)-1] != '\n' {
		p.r.t.Errorf("stdout does not end with a line: %q", all)
	}
	for line := range bytes.Lines(all) {
		var m struct {
			JSONRPC string `json:"jsonrpc"`
		}
		if json.Unmarshal(line, &m) != nil || m.JSONRPC != "2.0" || bytes.Contains(line, []byte("\r")) {
			p.r.t.Errorf("stdout has a line that is no message: %q", line)
		}
	}
	m := regexp.MustCompile(`(?m)^countersign: ledger (\S+\.jsonl)$`).FindStringSubmatch(p.stderr.String())
	if m == nil {
		p.r.t.Fatalf("stderr does not name the ledger:\n%s", p.stderr)
	}
	if _, err := os.Stat(m[1]); err != nil {
		p.r.t.Errorf("the ledger's path on stderr: %v", err)
	}
}

// surface is a way in: an era over a transport.
type surface struct {
	name  string
	era   testservers.Era
	stdio bool
}

var surfaces = []surface{
	{"legacy http", testservers.Legacy, false}, {"modern http", testservers.Modern, false},
	{"legacy stdio", testservers.Legacy, true}, {"modern stdio", testservers.Modern, true},
}

// together runs subtests at once, however many processors there are: they wait
// for other processes, not for each other.
func together[T any](t *testing.T, cases []T, name func(T) string, do func(t *testing.T, i int, c T)) {
	var wg sync.WaitGroup
	for i, c := range cases {
		wg.Go(func() { t.Run(name(c), func(t *testing.T) { do(t, i, c) }) })
	}
	wg.Wait()
}

// each runs one story over every surface against one serving gate.
func each(t *testing.T, r *rig, g *gate, story func(r *rig, c testservers.Client, n int)) {
	together(t, surfaces, func(s surface) string { return s.name }, func(t *testing.T, i int, s surface) {
		r := r.on(t)
		if !s.stdio {
			story(r, g.on(t).client(s.era), 100+i)
			return
		}
		p := r.stdio(strings.ReplaceAll(s.name, " ", "-"), s.era)
		story(r, p, 100+i)
		p.close()
	})
	r.verify()
}

// A call waits for a person, runs once when they agree, and is answered as if
// nothing had been in between.
func TestApproved(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	g := r.start("a", "")
	each(t, r, g, func(r *rig, c testservers.Client, n int) {
		got := call(c, testservers.Do{N: n}, testservers.Extra{})
		card := r.cardOf(n)
		if r.ran(n) != 0 {
			r.t.Fatal("it ran before anybody was asked")
		}
		told(r.t, card.PushText(), fmt.Sprintf("Do thing %d", n), "ana@acme.test")
		told(r.t, card.Plain(), "do_thing", "ana@acme.test", "destructive")
		told(r.t, strings.Join(card.Preformatted(), "\n"), fmt.Sprintf(`"n": %d`, n))
		if a := r.click(olgaSlack, card.TS, "approve"); a.Status != 200 || a.Late {
			r.t.Fatalf("the click: %+v", a)
		}
		res := await(r.t, got)
		if res.IsError() || res.Text() != fmt.Sprintf("do_thing done, n=%d", n) {
			r.t.Errorf("the agent got: %s %s", res.Result, res.Error)
		}
		if got := r.ran(n); got != 1 {
			r.t.Errorf("it ran %d times", got)
		}
		r.settled(card.TS, "Approved", "It ran", "olga")
	})
	for _, rec := range r.records() {
		if rec["event"] == "exec_start" && rec["approval"] == nil {
			t.Errorf("a run without its votes on the ledger: %v", rec)
		}
	}
}

// A no is told to the agent as a person's no, and nothing runs, now or later.
func TestDenied(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	g := r.start("a", "")
	each(t, r, g, func(r *rig, c testservers.Client, n int) {
		got := call(c, testservers.Do{N: n}, testservers.Extra{})
		card := r.cardOf(n)
		if a := r.click(oskarSlack, card.TS, "deny"); a.Status != 200 {
			r.t.Fatalf("the click: %+v", a)
		}
		res := await(r.t, got)
		if !res.IsError() || res.Approval().Status != "denied" {
			r.t.Errorf("the agent got: %s %s", res.Result, res.Error)
		}
		told(r.t, res.Text(), "Not an argument error; do not vary the call.", "A person denied this call (oskar)", "not run")
		r.settled(card.TS, "Denied", "oskar")
		again := await(r.t, call(c, testservers.Do{N: n}, testservers.Extra{}))
		if again.Approval() != res.Approval() || again.Text() != res.Text() {
			r.t.Errorf("the second answer is another: %s", again.Result)
		}
		if r.ran(n) != 0 || len(r.cards(n)) != 1 {
			r.t.Errorf("ran %d times, %d cards", r.ran(n), len(r.cards(n)))
		}
		_, piped := c.(*pipe)
		for _, rec := range r.ended(res.Approval().ID, "decision", 1) {
			if piped != (rec["auth"] == "none:stdio") {
				r.t.Errorf("the ledger says auth %v", rec["auth"])
			}
		}
	})
}

// Silence is neither a yes nor a no, and is told apart from a person's no.
func TestExpired(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Timeout: 6 * time.Second})
	g := r.start("a", "")
	each(t, r, g, func(r *rig, c testservers.Client, n int) {
		got := call(c, testservers.Do{N: n}, testservers.Extra{})
		card := r.cardOf(n)
		res := await(r.t, got)
		if !res.IsError() || res.Approval().Status != "expired" {
			r.t.Errorf("the agent got: %s %s", res.Result, res.Error)
		}
		told(r.t, res.Text(), "Not an argument error", "Nobody decided by", "Nobody said no")
		r.settled(card.TS, "Expired", "not run")
		if r.ran(n) != 0 {
			r.t.Error("it ran without a yes")
		}
	})
}

// A question that reached nobody is not an expiry like others, and the agent
// that waits is told what is delivered and what is not.
func TestUndelivered(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Timeout: 4 * time.Second})
	g := r.start("a", "")
	quick := r.startHolding("quick", 1500*time.Millisecond)
	r.slack.Down()
	each(t, r, g, func(r *rig, c testservers.Client, n int) {
		got := call(c, testservers.Do{N: n}, testservers.Extra{})
		if c, ok := c.(*testservers.HTTP); ok {
			waiting := await(r.t, call(quick.on(r.t).client(c.Era), testservers.Do{N: n + 50}, testservers.Extra{}))
			if waiting.Approval().Status != "pending" {
				r.t.Errorf("the agent got: %s %s", waiting.Result, waiting.Error)
			}
			told(r.t, waiting.Text(), "has not been delivered to anyone yet", "slack:"+channel, "countersign_collect")
		}
		res := await(r.t, got)
		if !res.IsError() || res.Approval().Status != "undelivered" {
			r.t.Errorf("the agent got: %s %s", res.Result, res.Error)
		}
		told(r.t, res.Text(), "Not an argument error", "could not be delivered to anyone", "Nobody said no")
		if r.ran(n) != 0 {
			r.t.Error("it ran without a yes")
		}
	})
	r.slack.Up()
	if m := r.slack.Messages(channel); len(m) != 0 {
		t.Errorf("%d messages were posted while Slack was down", len(m))
	}
}

// A gate on pipes with nobody to tell refuses at once what a person would have
// to see, and serves the rest.
func TestNobodyTells(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	p := r.stdio("alone", testservers.Legacy)
	ctx := within(t, 30*time.Second)
	res, err := p.Call(ctx, "do_thing", testservers.Do{N: 1}.Args(), testservers.Extra{})
	if err != nil || res.Code() != -32602 || res.Reason() != "no_notifier" {
		t.Errorf("%v: %s %s", err, res.Result, res.Error)
	}
	if res, err = p.Call(ctx, "read_thing", json.RawMessage(`{"id":"x"}`), testservers.Extra{}); err != nil || res.IsError() || res.Result == nil {
		t.Errorf("reading: %v: %s %s", err, res.Result, res.Error)
	}
	if r.ran(1) != 0 || r.upstream.Ran("read_thing") != 1 {
		t.Errorf("ran: %v", r.upstream.Executions())
	}
	p.close()
	r.verify()
}
