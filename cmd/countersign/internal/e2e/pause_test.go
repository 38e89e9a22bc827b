package e2e

import (
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/cmd/countersign/internal/e2e/testservers"
)

// goOn is SIGCONT.
func (g *gate) goOn() {
	g.r.t.Helper()
	if err := g.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		g.r.t.Fatal(err)
	}
}

// stopAt parks a call on a gate that will stop at a point, has it approved on
// another, and returns when the first one stands still.
func (r *rig) stopAt(point string) (a, b *gate, card string, got <-chan answer) {
	r.t.Helper()
	a = r.start("a", point+"=stop")
	b = r.start("b", "")
	got = call(a.client(testservers.Modern), testservers.Do{N: 1}, testservers.Extra{})
	card = r.card().TS
	r.approve(card) // on b
	a.stopped()
	return a, b, card, got
}

var beforeTheSend = []string{"claim.after", "exec_start.after", "renew.after", "forward.before"}

// A process is stopped between its claim and the send for longer than its lease,
// and goes on after another one has settled the call. It sends nothing, says so,
// and the record ends as not run.
func TestStoppedBeforeTheSend(t *testing.T) {
	for _, point := range beforeTheSend {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, rigOptions{Hold: time.Minute, Lease: 2 * time.Second})
			a, b, card, got := r.stopAt(point)
			r.settled(card, "It is not known whether it ran") // by b, at the end of the lease
			b.stands("unknown", "owner_lost")
			a.goOn()
			res := await(t, got)
			if !res.IsError() || res.Approval().Status != "not_run" || !strings.Contains(res.Text(), "held up for too long") {
				t.Errorf("the caller was told: %s", res.Body)
			}
			r.settled(card, "It was not run", "held up too long")
			b.stands("not_run", "overslept")
			r.judge(0, "after it went on")
			r.runsAnew(b, testservers.Do{N: 1}, 0)
			r.verify()
		})
	}
}

// The same, but a person has meanwhile said that it did not run, and the repeat
// has been agreed to and has run. The first process must not run it a second
// time.
func TestStoppedAndResolved(t *testing.T) {
	for _, point := range []string{"exec_start.after", "forward.before"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, rigOptions{Hold: time.Minute, Lease: 2 * time.Second})
			a, b, card, got := r.stopAt(point)
			r.settled(card, "It is not known whether it ran")
			id := b.stands("unknown", "owner_lost")
			if out, code := b.operate("resolve", id, "--not-run", "--note", "looked"); code != 0 {
				t.Fatalf("resolve: exit %d\n%s", code, out)
			}
			r.runsAnew(b, testservers.Do{N: 1}, 0)
			a.goOn()
			if res := await(t, got); !res.IsError() || res.Approval().ID != id {
				t.Errorf("the caller was told: %s", res.Body)
			}
			a.stop() // lets what runs end
			r.judge(1, "after the first process went on")
			r.verify()
		})
	}
}

// Half a lease is the latest moment to send. A process that stood still for that
// long sends nothing, though its claim is still its own.
func TestStoppedForHalfALease(t *testing.T) {
	for _, point := range []string{"renew.after", "forward.before"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			const lease = 6 * time.Second
			r := newRig(t, rigOptions{Hold: time.Minute, Lease: lease})
			a, b, card, got := r.stopAt(point)
			b.stands("executing", "")
			time.Sleep(lease/2 + 100*time.Millisecond) // the very thing that is tested
			a.goOn()
			if res := await(t, got); res.Approval().Status != "not_run" {
				t.Errorf("the caller was told: %s", res.Body)
			}
			r.settled(card, "It was not run", "held up too long")
			b.stands("not_run", "overslept")
			r.judge(0, "after it went on")
			r.verify()
		})
	}
}

// A process that is stopped after the call ran, for longer than its lease, still
// knows the result when it goes on: the unknown ends as what it was.
func TestStoppedAfterTheAnswer(t *testing.T) {
	for _, point := range []string{"forward.after", "result.after"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, rigOptions{Hold: time.Minute, Lease: 2 * time.Second})
			a, b, card, got := r.stopAt(point)
			r.settled(card, "It is not known whether it ran")
			if res := b.again(testservers.Do{N: 1}); res.Approval().Status != "unknown" {
				t.Errorf("a retry was told: %s", res.Body)
			}
			a.goOn()
			if res := await(t, got); res.IsError() || res.Text() != "do_thing done, n=1" {
				t.Errorf("the caller got: %s", res.Body)
			}
			r.settled(card, "It ran", "success")
			b.stands("succeeded", "")
			if res := b.again(testservers.Do{N: 1}); res.IsError() || !strings.Contains(res.Text(), "not run again") {
				t.Errorf("a retry got: %s", res.Body)
			}
			r.judge(1, "in the end")
			r.verify()
		})
	}
}

// The caller waits on one replica and people answer on another. The first one
// dies after the yes; the retry on the other runs it, once.
func TestReplicas(t *testing.T) {
	t.Parallel()
	t.Run("answered on another", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, rigOptions{})
		a := r.start("a", "")
		r.start("b", "") // clicks go here
		got := call(a.client(testservers.Legacy), testservers.Do{N: 1}, testservers.Extra{})
		card := r.card()
		r.approve(card.TS)
		if res := await(t, got); res.IsError() {
			t.Errorf("the caller got: %s", res.Body)
		}
		r.settled(card.TS, "It ran")
		r.judge(1, "in the end")
		r.verify()
	})
	t.Run("killed after the yes", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, rigOptions{Hold: time.Second})
		a := r.start("a", "")
		b := r.start("b", "")
		first := a.again(testservers.Do{N: 1})
		card := r.card()
		r.approve(card.TS)
		a.kill()
		res := b.again(testservers.Do{N: 1})
		if res.IsError() || res.Text() != "do_thing done, n=1" {
			t.Errorf("the retry got: %s", res.Body)
		}
		if id := b.stands("succeeded", ""); id != first.Approval().ID {
			t.Errorf("the retry ran %s, not %s", id, first.Approval().ID)
		}
		r.settled(card.TS, "It ran")
		r.judge(1, "in the end")
		r.verify()
	})
}

// Fifty identical calls on each of two replicas are one question. Its yes makes
// one execution, and every caller gets its result, now or when it collects.
func TestCrowd(t *testing.T) {
	t.Parallel()
	const crowd = 50
	r := newRig(t, rigOptions{Hold: 30 * time.Second})
	clients := []testservers.Client{
		r.start("a", "").client(testservers.Modern), r.start("b", "").client(testservers.Legacy),
	}
	var all []<-chan answer
	for range crowd {
		for _, c := range clients {
			all = append(all, call(c, testservers.Do{N: 1}, testservers.Extra{}))
		}
	}
	// A process keeps eight waiting; the others are answered at once.
	const waiting = 2 * 8
	answers := make(chan testservers.Reply, len(all))
	var wg sync.WaitGroup
	for _, c := range all {
		wg.Go(func() {
			if a, ok := <-c; ok && a.err == nil {
				answers <- a.Reply
			} else {
				t.Errorf("a caller got no answer: %v", a.err)
			}
		})
	}
	ids := map[string]bool{}
	for range len(all) - waiting {
		select {
		case res := <-answers:
			if s := res.Approval(); s.Status != "pending" {
				t.Errorf("before the yes: %s", res.Body)
			} else {
				ids[s.ID] = true
			}
		case <-time.After(60 * time.Second):
			t.Fatal("more callers wait than may")
		}
	}
	r.approve(r.card().TS)
	wg.Wait()
	close(answers)
	plain := 0
	for res := range answers {
		if res.IsError() || !strings.HasPrefix(res.Text(), "do_thing done, n=1") {
			t.Errorf("after the yes: %s", res.Body)
		}
		if res.Text() == "do_thing done, n=1" {
			plain++
		}
	}
	if plain != 1 || len(ids) != 1 {
		t.Errorf("%d callers got the result as its first, of %d approvals", plain, len(ids))
	}
	for i, c := range clients {
		for id := range ids {
			res, err := c.Call(within(t, 20*time.Second), "countersign_collect", []byte(quoted(map[string]string{"approval_id": id})), testservers.Extra{})
			if err != nil || res.IsError() || !strings.Contains(res.Text(), "not run again") {
				t.Errorf("collecting on replica %d: %v, %s", i, err, res.Body)
			}
		}
	}
	r.judge(1, "in the end")
	if n := len(r.slack.Messages(channel)); n != 1 {
		t.Errorf("there are %d cards", n)
	}
	r.verify()
}
