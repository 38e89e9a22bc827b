package e2e

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/cmd/countersign/internal/e2e/testservers"
	"github.com/countersign-mcp/countersign/notifier/slacktest"
)

// behindProxy puts a proxy between the gates that are started next and their
// Redis.
func (r *rig) behindProxy() *testservers.Proxy {
	r.t.Helper()
	p := testservers.NewProxy(r.t, "unix:"+r.redis.Addr)
	r.redisURL = withAddr(r.t, p.Addr())
	return p
}

// ofACall picks the requests that name an approval: all scripts and reads of the
// loop, and none of what runs on a timer.
func ofACall(request []byte) bool { return bytes.Contains(request, []byte("cs_")) }

// Redis carries a request out and its reply is lost: each one of the loop in turn,
// until there are no more. Every call runs exactly once and is answered
// with its result, every click is taken at the first press, and every call has
// one card.
func TestLostReplies(t *testing.T) {
	const parts = 3 // a channel takes one card a second, so gates share the work
	for part := range parts {
		t.Run(fmt.Sprintf("%d of %d", part+1, parts), func(t *testing.T) {
			t.Parallel()
			loseEach(t, ofACall, part+1, parts)
		})
	}
}

// loseEach loses the first reply of one loop, the first+by-th of the next, and
// so on.
func loseEach(t *testing.T, match func([]byte) bool, first, by int) {
	r := newRig(t, rigOptions{Lease: time.Second, Hold: time.Minute})
	proxy := r.behindProxy()
	g := r.start("a", "")
	client := g.client(testservers.Modern)
	loops := 0
	for nth := first; ; nth += by {
		lost := proxy.DropReply(nth, match)
		loops++
		r.oneLoop(client, loops)
		select {
		case <-lost:
			continue
		default: // a loop has fewer replies
		}
		break
	}
	t.Logf("%d replies were lost, one in each loop", loops-1)
	if loops-1 != proxy.Dropped() || loops < 15/by {
		t.Errorf("%d replies were lost in %d loops", proxy.Dropped(), loops)
	}
	if n := len(r.slack.Messages(channel)); n != loops {
		t.Errorf("%d calls have %d cards", loops, n)
	}
	r.judge(loops, "in the end")
	for _, s := range g.standings() {
		if s.State != "succeeded" || s.Cause != "" {
			t.Errorf("%+v", s)
		}
	}
	r.verify()
}

// oneLoop parks, approves and runs do_thing with n. The upstream is slow enough
// for the lease to be renewed meanwhile.
func (r *rig) oneLoop(c testservers.Client, n int) {
	r.t.Helper()
	do := testservers.Do{N: n, Wait: fmt.Sprint("renewed", n)}
	got := call(c, do, testservers.Extra{})
	card := r.card()
	r.approve(card.TS)
	if err := r.upstream.WaitRan(within(r.t, 30*time.Second), "do_thing", n); err != nil {
		r.t.Fatalf("loop %d: %v", n, err)
	}
	time.AfterFunc(400*time.Millisecond, func() { _ = r.upstream.Release(do.Wait) })
	res := await(r.t, got)
	if want := fmt.Sprintf("do_thing done, n=%d", n); res.IsError() || res.Text() != want {
		r.t.Errorf("loop %d: the call got %s", n, res.Body)
	}
	r.settled(card.TS, "It ran", "success")
	r.judge(n, fmt.Sprintf("after loop %d", n))
}

// Slack takes a post or an edit and its answer is lost, or is an error: there is
// one card, and it tells the end.
func TestLostSlackAnswers(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*slacktest.Slack){
		"post, no answer": func(s *slacktest.Slack) { s.FailNext("chat.postMessage", slacktest.DropAfterCommit()) },
		"post, error":     func(s *slacktest.Slack) { s.FailNext("chat.postMessage", slacktest.ErrorAfterCommit()) },
		"post, twice not posted": func(s *slacktest.Slack) {
			s.FailNext("chat.postMessage", slacktest.DropBefore(), slacktest.ErrorBefore())
		},
		"edit, no answer": func(s *slacktest.Slack) {
			s.FailNext("chat.update", slacktest.DropAfterCommit(), slacktest.ErrorAfterCommit())
		},
		"edit, not made": func(s *slacktest.Slack) { s.FailNext("chat.update", slacktest.DropBefore(), slacktest.TooMany(1)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, rigOptions{Hold: time.Minute})
			g := r.start("a", "")
			lose(r.slack)
			got := call(g.client(testservers.Legacy), testservers.Do{N: 1}, testservers.Extra{})
			card := r.card()
			r.approve(card.TS)
			if res := await(t, got); res.IsError() {
				t.Errorf("the call got %s", res.Body)
			}
			r.settled(card.TS, "It ran", "success")
			if n := len(r.slack.Messages(channel)); n != 1 {
				t.Errorf("there are %d cards", n)
			}
			r.judge(1, "in the end")
			r.verify()
		})
	}
}

// A network that is gone tells nobody: the connections to Redis stay open and
// are dead. A decision made elsewhere still wakes the waiting call, and it runs
// once.
func TestHalfOpen(t *testing.T) {
	t.Run("decided elsewhere", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, rigOptions{Hold: time.Minute})
		direct := r.redisURL
		proxy := r.behindProxy()
		a := r.start("a", "")
		r.redisURL = direct
		r.start("b", "")
		got := call(a.client(testservers.Modern), testservers.Do{N: 1}, testservers.Extra{})
		card := r.card()
		proxy.Freeze()
		r.approve(card.TS)
		if res := await(t, got); res.IsError() {
			t.Errorf("the call got %s", res.Body)
		}
		r.judge(1, "in the end")
		r.settled(card.TS, "It ran")
		r.verify()
	})
	t.Run("decided here", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, rigOptions{Hold: time.Minute})
		proxy := r.behindProxy()
		a := r.start("a", "")
		got := call(a.client(testservers.Modern), testservers.Do{N: 1}, testservers.Extra{})
		card := r.card()
		proxy.Freeze()
		// The first press may find out, for the 3 s that Slack allows, that the
		// connections are dead. It is told so, and a person presses again.
		for press := 1; ; press++ {
			a := r.slack.Click(within(t, 20*time.Second), slacktest.Click{User: olgaSlack, Channel: channel, TS: card.TS, Verdict: "approve", Stale: true})
			if a.Status == 200 {
				break
			}
			if a.Seen == "" || press == 5 {
				t.Fatalf("press %d: %+v", press, a)
			}
		}
		if res := await(t, got); res.IsError() {
			t.Errorf("the call got %s", res.Body)
		}
		r.judge(1, "in the end")
		r.settled(card.TS, "It ran")
		r.verify()
	})
}
