package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/approvals/keys"
	"github.com/countersign-mcp/countersign/cmd/countersign/internal/e2e/testservers"
	"github.com/countersign-mcp/countersign/notifier/slacktest"
)

// rotate gives the gates that are started from now on another key, and the ones
// before it that they still know.
func (r *rig) rotate(current string, previous ...string) {
	r.key = current
	r.o.Edit = func(config string) string {
		return strings.Replace(config, "keys: {current: ", "keys: {previous: "+quoted(previous)+", current: ", 1)
	}
}

// A gate gets a new key and still knows the old one. What was parked and agreed
// to under the old one goes on: the card's buttons work, the same call finds its
// twin, and each runs once.
func TestKeyRotation(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Hold: time.Second})
	first, second := r.key, keys.NewSecret().Reveal()
	a := r.start("a", "")
	c := a.client(testservers.Legacy)
	asked := waiting(t, send(t, c, `{"n":1}`, testservers.Extra{}))
	agreed := waiting(t, send(t, c, `{"n":2}`, testservers.Extra{}))
	old := r.cardOf(1)
	r.approve(r.cardOf(2).TS)
	done := waiting(t, send(t, c, `{"n":3}`, testservers.Extra{}))
	r.approve(r.cardOf(3).TS)
	if res := comeBack(t, c, done); !runs(res) {
		t.Fatalf("%s", res.Body)
	}
	a.stop()

	r.rotate(second, first)
	a = r.start("a", "")
	c = a.client(testservers.Modern)
	if id := waiting(t, send(t, c, `{"n":1}`, testservers.Extra{})); id != asked {
		t.Errorf("the same call is %s now, not %s", id, asked)
	}
	r.approve(old.TS)
	for n, id := range map[int]string{1: asked, 2: agreed, 3: done} {
		if res := comeBack(t, c, id); !runs(res) {
			t.Errorf("n=%d: %s", n, res.Body)
		}
		if got := r.ran(n); got != 1 {
			t.Errorf("n=%d ran %d times", n, got)
		}
		r.settled(r.cards(n)[0].TS, "Approved", "olga", "It ran")
	}
	// A call of the new key's time is found by a gate that has only that one.
	fresh := waiting(t, send(t, c, `{"n":4}`, testservers.Extra{}))
	card := r.cardOf(4)
	a.stop()
	r.rotate(second)
	a = r.start("a", "")
	c = a.client(testservers.Legacy)
	if id := waiting(t, send(t, c, `{"n":4}`, testservers.Extra{})); id != fresh {
		t.Errorf("the same call is %s now, not %s", id, fresh)
	}
	r.approve(card.TS)
	if res := comeBack(t, c, fresh); !runs(res) || r.ran(4) != 1 {
		t.Errorf("ran %d times; %s", r.ran(4), res.Body)
	}
	if len(r.cards(1)) != 1 || len(r.cards(4)) != 1 {
		t.Errorf("%d and %d cards", len(r.cards(1)), len(r.cards(4)))
	}
	r.verify()
}

// A gate that doesn't know the old key any more can't open what was made with
// it: it says so, runs none of it, and serves everything else. With the old key
// back, nothing is lost.
func TestKeyLost(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Hold: time.Second, Timeout: 10 * time.Minute, Config: "pins: {file: pins.json, ask_every: 1s}\n"})
	r.pin("a")
	first, second := r.key, keys.NewSecret().Reveal()
	a := r.start("a", "")
	c := a.client(testservers.Legacy)
	asked := waiting(t, send(t, c, `{"n":1}`, testservers.Extra{}))
	agreed := waiting(t, send(t, c, `{"n":2}`, testservers.Extra{}))
	old := r.cardOf(1)
	r.approve(r.cardOf(2).TS)
	a.stop()

	r.rotate(second)
	a = r.start("a", "")
	c = a.client(testservers.Modern)
	r.whispered(r.click(olgaSlack, old.TS, "approve"), "its key was retired", "Nothing was recorded")
	for name, id := range map[string]string{"asked": asked, "agreed": agreed} {
		res := collect(t, c, id)
		if res.Reason() != "forged" || !strings.Contains(string(res.Error), "does not verify. Nothing was run") {
			t.Errorf("%s: %s", name, res.Body)
		}
		if out, code := a.operate("show", id); code == 0 {
			t.Errorf("%s: it is shown: %s", name, out)
		}
		if out, code := a.operate("approve", "--yes", id); code == 0 {
			t.Errorf("%s: it is approved: %s", name, out)
		}
	}
	r.judge(0, "with another key")
	// The others are none the worse for it.
	id := waiting(t, send(t, c, `{"n":3}`, testservers.Extra{}))
	r.approve(r.cardOf(3).TS)
	if out, code := a.operate("list", "--all"); code != 0 || !strings.Contains(out, id) {
		t.Errorf("exit %d: %s", code, out)
	}
	if res := comeBack(t, c, id); !runs(res) || r.ran(3) != 1 {
		t.Errorf("ran %d times; %s", r.ran(3), res.Body)
	}
	// The same call is another question now, which is asked.
	if again := waiting(t, send(t, c, `{"n":1}`, testservers.Extra{})); again == asked {
		t.Error("a record that can't be opened was attached to")
	}
	a.stop()

	r.rotate(second, first)
	a = r.start("a", "")
	c = a.client(testservers.Legacy)
	r.approve(old.TS)
	for n, id := range map[int]string{1: asked, 2: agreed} {
		if res := comeBack(t, c, id); !runs(res) || r.ran(n) != 1 {
			t.Errorf("n=%d ran %d times with its key back: %s", n, r.ran(n), res.Body)
		}
	}
	r.verify()
}

// Tools that are pinned in Redis alone are held when its key is lost: what was agreed
// on can't be read any more, and is not guessed. A file of pins needs no key.
func TestKeyOfPinsLost(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Hold: time.Second})
	a := r.start("a", "")
	a.reads()
	a.stop()
	r.rotate(keys.NewSecret().Reveal())
	a = r.start("a", "")
	if res := a.reads(); res.Code() != -32602 || res.Reason() != "tool_not_pinned" {
		t.Errorf("a pin that does not open: %s %s", res.Result, res.Error)
	}
	shows(t, a.client(testservers.Modern))
	a.stop()
	r.o.Config = "pins: {file: pins.json, ask_every: 1s}\n"
	r.pin("a")
	a = r.start("a", "")
	a.serves("with a file")
	if n := r.upstream.Ran("read_thing"); n != 2 {
		t.Errorf("it ran %d times", n)
	}
	r.verify()
}

// Slack's signing secret is rotated: while two are configured clicks signed with
// either count, and after one was removed its clicks don't.
func TestSigningSecretRotation(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	before, after := r.slack.SigningSecret(), "0123456789abcdef0123456789abcdef"
	with := func(secrets ...string) {
		r.o.Edit = func(config string) string {
			return strings.Replace(config, "signing_secrets: ["+quoted(before)+"]", "signing_secrets: "+quoted(secrets), 1)
		}
	}
	with(after, before)
	both := r.start("both", "")
	with(after)
	one := r.start("one", "")
	c := both.client(testservers.Legacy)
	q1, q2, q3 := r.ask(c, 1), r.ask(c, 2), r.ask(c, 3)
	press := func(q asked, g *gate, secret string, status int) {
		t.Helper()
		x := r.slack.Click(within(t, 20*time.Second), slacktest.Click{User: olgaSlack, Channel: channel, TS: q.card.TS, Verdict: "approve", Secret: secret, URL: g.interactions()})
		if x.Status != status {
			t.Fatalf("status %d, not %d: %+v", x.Status, status, x)
		}
	}
	for _, q := range []asked{q1, q2, q3} {
		press(q, one, before, 401)
		press(q, both, "fedcba9876543210fedcba9876543210", 401)
		r.open(q)
	}
	press(q1, both, before, 200)
	r.ranOnce(q1)
	press(q2, both, after, 200)
	r.ranOnce(q2)
	press(q3, one, after, 200)
	r.ranOnce(q3)
	r.verify()
}
