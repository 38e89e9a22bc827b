package e2e

import (
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/cmd/countersign/internal/e2e/testservers"
)

// mortal is a `countersign stdio` process that a test kills.
type mortal struct {
	*testservers.Stdio
	cmd    *exec.Cmd
	stderr *tail
	dead   chan struct{}
}

func (r *rig) mortal(name, fault string) *mortal {
	r.t.Helper()
	m := &mortal{stderr: newTail(), dead: make(chan struct{})}
	m.cmd = exec.Command(binary, "stdio", "--config", r.config(name), "--log-level", "debug")
	m.cmd.Env = append(os.Environ(), "COUNTERSIGN_FAULT="+fault)
	m.cmd.Stderr = m.stderr
	dieWithUs(m.cmd)
	in, err := m.cmd.StdinPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	out, w := io.Pipe()
	m.cmd.Stdout = w
	if err := m.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	m.Stdio = testservers.NewStdio(in, out, testservers.Legacy)
	go func() { _ = m.cmd.Wait(); _ = w.Close(); close(m.dead) }()
	r.t.Cleanup(func() {
		m.kill()
		if text := m.stderr.String(); strings.Contains(text, "DATA RACE") || strings.Contains(text, "panic:") || r.t.Failed() {
			r.t.Errorf("stdio %s:\n%s", name, text)
		}
	})
	if _, err := m.Initialize(within(r.t, 20*time.Second)); err != nil {
		r.t.Fatalf("%v\n%s", err, m.stderr)
	}
	m.stderr.find(r.t, regexp.MustCompile(`the store is ready`), m.dead)
	return m
}

// kill is kill -9.
func (m *mortal) kill() {
	_ = m.cmd.Process.Kill() // it may be dead already
	<-m.dead
}

// A gate on pipes is killed while its call waits. The question stays, another
// process tells and listens, and the agent that comes back gets the one run.
func TestPipesKilledWhileParked(t *testing.T) {
	t.Parallel()
	for name, approveFirst := range map[string]bool{"answered while it is dead": true, "answered to the next one": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, rigOptions{})
			s := r.start("serve", "")
			m := r.mortal("pipes", "")
			got := call(m, testservers.Do{N: 1}, testservers.Extra{})
			card := r.card()
			m.kill()
			if a := <-got; a.err == nil {
				t.Errorf("a dead process answered: %s %s", a.Result, a.Error)
			}
			id := s.stands("pending", "")
			if approveFirst {
				r.approve(card.TS)
				r.settled(card.TS, "Approved", "olga", "Waiting to run")
			}
			r.judge(0, "with nobody there")
			p := r.stdio("pipes", testservers.Modern) // on the dead one's directory
			got = call(p, testservers.Do{N: 1}, testservers.Extra{})
			if !approveFirst {
				if n := r.attached(id); n != 1 {
					t.Fatalf("%d callers joined", n)
				}
				r.approve(card.TS)
			}
			if res := await(t, got); !runs(res) || res.Text() != "do_thing done, n=1" {
				t.Errorf("the agent got %s %s", res.Result, res.Error)
			}
			r.settled(card.TS, "It ran")
			p.close()
			r.judge(1, "in the end")
			if s.stands("succeeded", "") != id || len(r.slack.Messages(channel)) != 1 {
				t.Error("it was asked anew")
			}
			r.verify()
		})
	}
}

// A gate on pipes is killed with a claim in its hands. A `serve` that starts on
// its directory reads in the dead one's ledger what became of the call; with none
// there, the end of the lease leaves it unknown. It never runs again by itself.
func TestPipesKilledWhileExecuting(t *testing.T) {
	for _, c := range []struct {
		name, fault string
		adopted     bool // a serve starts on its directory
		ran         int
		state       string
		cause       string
		card        string
	}{
		{"claimed, adopted", "claim.after=kill", true, 0, "not_run", "never_started", "It was not run"},
		{"claimed, lease end", "claim.after=kill", false, 0, "unknown", "owner_lost", "It is not known whether it ran"},
		{"running, adopted", "", true, 1, "unknown", "owner_lost", "It is not known whether it ran"},
		{"running, lease end", "", false, 1, "unknown", "owner_lost", "It is not known whether it ran"},
		{"recorded, adopted", "result.after=kill", true, 1, "succeeded", "body_lost", "It ran"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := rigOptions{}
			if c.adopted {
				o.Lease = 5 * time.Minute // what settles it is not the lease
			}
			r := newRig(t, o)
			s := r.start("serve", "")
			m := r.mortal("pipes", c.fault)
			do := testservers.Do{N: 1}
			if c.fault == "" {
				do.Wait = "the kill"
			}
			got := call(m, do, testservers.Extra{})
			card := r.card()
			r.approve(card.TS)
			if c.fault == "" {
				if err := r.upstream.WaitRan(within(t, 20*time.Second), "do_thing", 1); err != nil {
					t.Fatal(err)
				}
				m.kill()
				if err := r.upstream.Release("the kill"); err != nil {
					t.Fatal(err)
				}
			}
			select {
			case <-m.dead:
			case <-time.After(30 * time.Second):
				t.Fatalf("it was not killed by its fault point\n%s", m.stderr)
			}
			if a := <-got; a.err == nil {
				t.Errorf("a dead process answered: %s %s", a.Result, a.Error)
			}
			r.judge(c.ran, "when it died")
			if c.adopted {
				s.stands("executing", "")
				r.start("pipes", "")
			}
			r.settled(card.TS, c.card)
			id := s.stands(c.state, c.cause)
			client := s.client(testservers.Modern) // the same actor, by another door
			if res := collect(t, client, id); !res.IsError() || res.Approval().Status != c.state {
				t.Errorf("collecting gave %s", res.Body)
			}
			if c.state == "unknown" {
				if res := s.again(do); res.Approval().ID != id || res.Approval().Status != "unknown" {
					t.Errorf("the same call gave %s", res.Body)
				}
				if out, code := s.operate("resolve", id, "--ran", "--note", "looked"); code != 0 {
					t.Fatalf("exit %d: %s", code, out)
				}
				told(t, collect(t, client, id).Text(), "as a person found out", "not run again")
			}
			r.judge(c.ran, "in the end")
			r.verify()
		})
	}
}
