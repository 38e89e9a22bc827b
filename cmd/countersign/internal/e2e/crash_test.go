package e2e

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/cmd/countersign/internal/e2e/testservers"
	"github.com/countersign-mcp/countersign/notifier/slacktest"
)

// standing is an approval as the operators' API tells it.
type standing struct {
	ID    string `json:"id"`
	State string `json:"state"`
	Cause string `json:"cause"`
}

// standings lists all approvals, the newest first.
func (g *gate) standings() []standing {
	g.r.t.Helper()
	out, code := g.operate("--json", "list", "--all")
	var list []standing
	if err := json.Unmarshal([]byte(out), &list); code != 0 || err != nil {
		g.r.t.Fatalf("approvals list: exit %d, %v\n%s", code, err, out)
	}
	return list
}

// stands fails unless there is one approval in all, in this state.
func (g *gate) stands(state, cause string) string {
	g.r.t.Helper()
	list := g.standings()
	if len(list) != 1 || list[0].State != state || list[0].Cause != cause {
		g.r.t.Fatalf("the approval should be %s (%s); there is %+v", state, cause, list)
	}
	return list[0].ID
}

// judge fails unless do_thing ran n times in all.
func (r *rig) judge(n int, when string) {
	r.t.Helper()
	if got := r.upstream.Ran("do_thing"); got != n {
		r.t.Fatalf("%s it had run %d times, not %d", when, got, n)
	}
}

// approve is Olga's tap; the answer must be a clean 200.
func (r *rig) approve(ts string) {
	r.t.Helper()
	if a := r.click(olgaSlack, ts, "approve"); a.Status != 200 || a.Late {
		r.t.Fatalf("the click: %+v", a)
	}
}

// runsAnew makes the same call again, which must ask people once more, and run
// once when they agree. ran is how often it ran before.
func (r *rig) runsAnew(g *gate, do testservers.Do, ran int) {
	r.t.Helper()
	before := len(r.slack.Messages(channel))
	got := call(g.client(testservers.Modern), do, testservers.Extra{})
	card := r.card()
	r.judge(ran, "before anybody agreed")
	if n := len(r.slack.Messages(channel)); n != before+1 {
		r.t.Errorf("there are %d cards, not %d", n, before+1)
	}
	r.approve(card.TS)
	if res := await(r.t, got); res.IsError() || res.Error != nil {
		r.t.Errorf("the new call: %s", res.Text())
	}
	r.judge(ran+1, "after the new call")
	r.settled(card.TS, "It ran")
}

// again makes the same call without anybody agreeing to anything.
func (g *gate) again(do testservers.Do) testservers.Reply {
	g.r.t.Helper()
	return await(g.r.t, call(g.client(testservers.Legacy), do, testservers.Extra{}))
}

// crash is a place where kill -9 hits the process that serves the call.
type crash struct {
	point   string // of the fault; "" kills it while the upstream works
	ran     int    // executions at that moment
	clicked bool   // people have agreed
	same    after  // with a new process on the same data directory; nil: no claim is open, so it is as other
	other   after  // with one that can't read the dead one's ledger
}

// after checks what is left: c is the crash, card the only card (empty before
// there is one), g the new process.
type after func(r *rig, c crash, g *gate, card string)

var crashes = []crash{
	{"park.before", 0, false, nil, nothing},
	{"park.after", 0, false, nil, pending},
	{"decide.after", 0, true, nil, approved},
	{"claim.after", 0, true, neverRan, unknown},
	{"exec_start.after", 0, true, unknown, unknown},
	{"labels.after", 0, true, unknown, unknown},
	{"renew.after", 0, true, unknown, unknown},
	{"forward.before", 0, true, unknown, unknown},
	{"", 1, true, unknown, unknown},
	{"forward.after", 1, true, unknown, unknown},
	{"result.after", 1, true, bodyLost, unknown},
	{"finish.after", 1, true, nil, kept},
}

// The gate is killed at every step of a call. Whatever process comes next, the
// call ran at most once, its state is what the dead process's ledger allows, the
// card says so, a retry is told so, and nothing runs by itself.
func TestKilled(t *testing.T) {
	for _, c := range crashes {
		for name, check := range map[string]after{"same directory": c.same, "another directory": c.other} {
			if check == nil {
				continue
			}
			t.Run(fmt.Sprintf("%s/%s", cmp.Or(c.point, "running"), name), func(t *testing.T) {
				t.Parallel()
				c.play(t, name == "same directory", check)
			})
		}
	}
}

// thing is what the killed call does.
func (c crash) thing() testservers.Do {
	if c.point == "" {
		return testservers.Do{N: 1, Wait: "the kill"}
	}
	return testservers.Do{N: 1}
}

func (c crash) play(t *testing.T, same bool, check after) {
	o := rigOptions{Lease: 2 * time.Second}
	if c.point == "decide.after" {
		o.Hold = time.Second // so that nobody waits in the process that dies
	}
	r := newRig(t, o)
	fault := ""
	if c.point != "" {
		fault = c.point + "=kill"
	}
	dying := r.start("a", fault)
	got := call(dying.client(testservers.Modern), c.thing(), testservers.Extra{})
	card := ""
	if c.clicked {
		card = r.card().TS
		if o.Hold > 0 {
			await(t, got)
		}
		a := r.click(olgaSlack, card, "approve") // the process may die before it answers
		if c.point == "decide.after" && a.Status == 200 {
			t.Error("the click was answered by a process that was killed before")
		}
	}
	if c.point == "" {
		if err := r.upstream.WaitRan(within(t, 20*time.Second), "do_thing", 1); err != nil {
			t.Fatal(err)
		}
		dying.kill()
		if err := r.upstream.Release("the kill"); err != nil {
			t.Fatal(err)
		}
	}
	dying.died()
	r.judge(c.ran, "when the process died")
	name := "b"
	if same {
		name = "a"
	}
	next := r.start(name, "")
	check(r, c, next, card)
	next.stop() // lets running calls end
	r.judge(1, "in the end, with the retries that people agreed to,")
	r.verify()
}

// nothing was parked: the caller's retry is a first call.
func nothing(r *rig, c crash, g *gate, _ string) {
	if list := g.standings(); len(list) != 0 {
		r.t.Errorf("something is parked: %+v", list)
	}
	r.runsAnew(g, c.thing(), 0)
	g.stands("succeeded", "")
}

// pending: the question is still there, is asked once, and the retry waits for
// the same answer.
func pending(r *rig, c crash, g *gate, _ string) {
	card := r.card()
	id := g.stands("pending", "")
	got := call(g.client(testservers.Modern), c.thing(), testservers.Extra{})
	r.approve(card.TS)
	if res := await(r.t, got); res.IsError() {
		r.t.Errorf("the retry: %s", res.Text())
	}
	r.settled(card.TS, "It ran")
	if now := g.stands("succeeded", ""); now != id || len(r.slack.Messages(channel)) != 1 {
		r.t.Errorf("the retry asked anew: %s is not %s", now, id)
	}
	r.judge(1, "after the retry")
}

// approved: the decision stands, a second click hears so, and it runs only when
// its caller comes back.
func approved(r *rig, c crash, g *gate, card string) {
	r.settled(card, "Waiting to run")
	g.stands("approved", "")
	a := r.slack.Click(within(r.t, 20*time.Second), slacktest.Click{User: olgaSlack, Channel: channel, TS: card, Verdict: "approve", Stale: true})
	if a.Status != 200 {
		r.t.Fatalf("the second click: %+v", a)
	}
	reply, err := r.slack.WaitReply(within(r.t, 20*time.Second), a.Request.ResponseURL)
	if err != nil || !strings.Contains(reply.Text, "approved by olga and has not run yet") {
		r.t.Errorf("the second click heard %q, %v", reply.Text, err)
	}
	r.judge(0, "before its caller came back")
	if res := g.again(c.thing()); res.IsError() {
		r.t.Errorf("the retry: %s", res.Text())
	}
	r.judge(1, "after its caller came back")
	r.settled(card, "It ran")
	g.stands("succeeded", "")
}

// neverRan: the ledger shows that it was not started, so it did not run, and
// the retry is a new question.
func neverRan(r *rig, c crash, g *gate, card string) {
	r.settled(card, "It was not run", "the process ended before it began")
	g.stands("not_run", "never_started")
	r.runsAnew(g, c.thing(), 0)
}

// unknown: nobody can tell. It stays so, also for the caller, until a person
// has looked; what they say decides what a retry gets.
func unknown(r *rig, c crash, g *gate, card string) {
	r.settled(card, "It is not known whether it ran", "countersign approvals resolve")
	id := g.stands("unknown", "owner_lost")
	res := g.again(c.thing())
	if !res.IsError() || res.Approval().Status != "unknown" || !strings.HasPrefix(res.Text(), "Not an argument error") ||
		!strings.Contains(res.Text(), "nobody knows whether it ran") {
		r.t.Errorf("the retry was told: %s", res.Body)
	}
	r.judge(c.ran, "after a retry of what is unknown")
	if out, code := g.operate("resolve", id, "--ran"); code == 0 {
		r.t.Errorf("resolved without a note: %s", out)
	}
	if c.ran == 0 {
		if out, code := g.operate("resolve", id, "--not-run", "--note", "looked"); code != 0 {
			r.t.Fatalf("resolve: exit %d\n%s", code, out)
		}
		r.settled(card, "It was not run", "olga", "closed it by hand", "looked")
		g.stands("not_run", "resolved")
		r.runsAnew(g, c.thing(), 0)
		return
	}
	if out, code := g.operate("resolve", id, "--ran", "--note", "looked"); code != 0 {
		r.t.Fatalf("resolve: exit %d\n%s", code, out)
	}
	r.settled(card, "It ran", "olga", "closed it by hand", "looked")
	g.stands("succeeded", "resolved")
	res = g.again(c.thing())
	if !strings.Contains(res.Text(), "its result is not known") || res.Approval().ID != id {
		r.t.Errorf("the retry of what ran was told: %s", res.Body)
	}
	r.judge(1, "after a retry of what ran")
	if out, code := g.operate("resolve", id, "--not-run", "--note", "no"); code == 0 {
		r.t.Errorf("resolved twice: %s", out)
	}
}

// bodyLost: the ledger has the result's status, and nobody has its body.
func bodyLost(r *rig, c crash, g *gate, card string) {
	r.settled(card, "It ran", "success")
	id := g.stands("succeeded", "body_lost")
	res := g.again(c.thing())
	if !strings.Contains(res.Text(), "The call ran") || !strings.Contains(res.Text(), "its result is not known") || res.Approval().ID != id {
		r.t.Errorf("the retry was told: %s", res.Body)
	}
	r.judge(1, "after the retry")
}

// kept: the result is there, and is handed out again with a mark.
func kept(r *rig, c crash, g *gate, card string) {
	r.settled(card, "It ran", "success")
	g.stands("succeeded", "")
	res := g.again(c.thing())
	if res.IsError() || !strings.Contains(res.Text(), "do_thing done, n=1") || !strings.Contains(res.Text(), "not run again") {
		r.t.Errorf("the retry got: %s", res.Body)
	}
	r.judge(1, "after the retry")
}

// A dead process's directory comes back after the lease has ended elsewhere:
// what its ledger knows then settles the unknown, and nothing runs.
func TestOwnerComesBack(t *testing.T) {
	for point, want := range map[string]struct {
		state, cause, card string
		ran                int
	}{
		"claim.after":  {"not_run", "never_started", "It was not run", 0},
		"result.after": {"succeeded", "body_lost", "It ran", 1},
	} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, rigOptions{Lease: 2 * time.Second})
			a := r.start("a", point+"=kill")
			call(a.client(testservers.Modern), testservers.Do{N: 1}, testservers.Extra{})
			card := r.card()
			r.click(olgaSlack, card.TS, "approve")
			a.died()
			b := r.start("b", "")
			r.settled(card.TS, "It is not known whether it ran")
			b.stands("unknown", "owner_lost")
			r.start("a", "")
			r.settled(card.TS, want.card)
			b.stands(want.state, want.cause)
			r.judge(want.ran, "after all")
			r.verify()
		})
	}
}

// The notifier is killed around its post. The next one finds out by itself
// whether there is a card, and in the end there is exactly one that tells the
// truth.
func TestNotifierKilled(t *testing.T) {
	t.Parallel()
	for point, posted := range map[string]int{"post.before": 0, "post.after": 1} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, rigOptions{})
			a := r.start("a", point+"=kill")
			call(a.client(testservers.Modern), testservers.Do{N: 1}, testservers.Extra{})
			a.died()
			if n := len(r.slack.Messages(channel)); n != posted {
				t.Fatalf("%d cards were posted before the kill, not %d", n, posted)
			}
			b := r.start("b", "")
			id := b.stands("pending", "")
			if posted == 0 {
				r.card()
			}
			if out, code := b.operate("deny", id, "--reason", "not today"); code != 0 {
				t.Fatalf("deny: exit %d\n%s", code, out)
			}
			if res := b.again(testservers.Do{N: 1}); !strings.Contains(res.Text(), "not today") {
				t.Errorf("the caller was told: %s", res.Text())
			}
			all := r.slack.Messages(channel)
			if len(all) == 0 {
				t.Fatal("no card")
			}
			r.settled(all[0].TS, "Denied", "not today")
			if all = r.slack.Messages(channel); len(all) != 1 {
				t.Errorf("there are %d cards", len(all))
			}
			r.judge(0, "after the denial")
			r.verify()
		})
	}
}
