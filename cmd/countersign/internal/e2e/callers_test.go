package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/cmd/countersign/internal/e2e/testservers"
)

// collect comes for an approval.
func collect(t testing.TB, c testservers.Client, id string) testservers.Reply {
	t.Helper()
	res, err := c.Call(within(t, 60*time.Second), "countersign_collect", json.RawMessage(`{"approval_id":`+quoted(id)+`}`), testservers.Extra{})
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// send calls do_thing with exactly these bytes and waits for the answer.
func send(t testing.TB, c testservers.Client, args string, x testservers.Extra) testservers.Reply {
	t.Helper()
	res, err := c.Call(within(t, 60*time.Second), "do_thing", json.RawMessage(args), x)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func waiting(t testing.TB, res testservers.Reply) string {
	t.Helper()
	if a := res.Approval(); a.Status == "pending" && a.ID != "" && res.IsError() {
		return a.ID
	}
	t.Fatalf("not a pending result: %s %s", res.Result, res.Error)
	return ""
}

// An approval that comes after its caller has gone runs nothing by itself; the
// same actor collects it, once, and later gets the same result, marked.
func TestDisconnectThenCollect(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	g := r.start("a", "")
	b := r.start("b", "")
	leave := map[testservers.Era]func(c *testservers.HTTP, hangUp func()){
		// In the newer era the caller hangs up; in the older one that is no
		// cancellation, so it says so.
		testservers.Modern: func(_ *testservers.HTTP, hangUp func()) { hangUp() },
		testservers.Legacy: func(c *testservers.HTTP, _ func()) {
			res, err := c.Send(within(t, 20*time.Second), []byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":4711}}`), testservers.Extra{})
			if err != nil || res.Status != 202 {
				t.Errorf("%v: status %d", err, res.Status)
			}
		},
	}
	together(t, []testservers.Era{testservers.Legacy, testservers.Modern}, func(e testservers.Era) string { return string(e) }, func(t *testing.T, i int, era testservers.Era) {
		r := r.on(t)
		n := 1 + i
		c := g.on(t).client(era)
		ctx, hangUp := context.WithCancel(context.Background())
		defer hangUp()
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			_, _ = c.Call(ctx, "do_thing", testservers.Do{N: n}.Args(), testservers.Extra{ID: json.RawMessage("4711")}) // it is never answered
		}()
		card := r.cardOf(n)
		id := asked{card: card}.id()
		leave[era](c, hangUp)
		<-gone
		if x := r.click(olgaSlack, card.TS, "approve"); x.Status != 200 {
			t.Fatalf("%+v", x)
		}
		r.settled(card.TS, "Approved", "olga", "Waiting to run")
		if r.ran(n) != 0 {
			t.Fatal("it ran with nobody there")
		}
		first := collect(t, b.on(t).client(era), id) // on any replica
		if first.IsError() || strings.Contains(first.Text(), "not run again") {
			t.Errorf("collecting gave %s %s", first.Result, first.Error)
		}
		for _, again := range []testservers.Reply{collect(t, c, id), send(t, c, string(testservers.Do{N: n}.Args()), testservers.Extra{})} {
			told(t, again.Text(), first.Text(), "Result of the run at ", "not run again")
			if again.IsError() || again.Approval().ID != id || again.Approval().Status != "succeeded" {
				t.Errorf("the kept result is %s", again.Result)
			}
		}
		if got := r.ran(n); got != 1 {
			t.Errorf("it ran %d times", got)
		}
		r.settled(card.TS, "It ran")
	})
	r.verify()
}

// Approved and never collected: it lapses, runs never, and a new call asks anew.
func TestApprovedAndNeverCollected(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{ClaimTTL: 1500 * time.Millisecond, Hold: time.Second})
	g := r.start("a", "")
	c := g.client(testservers.Modern)
	id := waiting(t, send(t, c, `{"n":1}`, testservers.Extra{}))
	card := r.cardOf(1)
	if x := r.click(olgaSlack, card.TS, "approve"); x.Status != 200 {
		t.Fatalf("%+v", x)
	}
	r.settled(card.TS, "Lapsed", "not run")
	res := collect(t, c, id)
	if !res.IsError() || res.Approval().Status != "lapsed" {
		t.Errorf("collecting gave %s %s", res.Result, res.Error)
	}
	told(t, res.Text(), "Not an argument error", "nobody collected it", "Calling again asks anew")
	if second := waiting(t, send(t, c, `{"n":1}`, testservers.Extra{})); second == id {
		t.Error("the lapsed approval was given out again")
	}
	if r.cardOf(1); len(r.cards(1)) != 2 || r.ran(1) != 0 {
		t.Errorf("%d cards, ran %d times", len(r.cards(1)), r.ran(1))
	}
	r.verify()
}

// An approval belongs to the actor that asked: the same call of another one has
// a card of its own, and another's id is like one that was never there.
func TestAnotherActor(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Hold: time.Second})
	g := r.start("a", "")
	ana, bot := g.client(testservers.Legacy), g.client(testservers.Legacy, botToken)
	mine := waiting(t, send(t, ana, `{"n":1}`, testservers.Extra{}))
	r.cardOf(1)
	if out, code := g.operate("approve", "--yes", mine); code != 0 {
		t.Fatal(out)
	}
	theirs := waiting(t, send(t, bot, `{"n":1}`, testservers.Extra{}))
	if mine == theirs {
		t.Fatal("two actors share an approval")
	}
	if r.cardOf(1); len(r.cards(1)) != 2 {
		t.Errorf("%d cards", len(r.cards(1)))
	}
	x := testservers.Extra{ID: json.RawMessage("77")}
	ctx := within(t, 20*time.Second)
	stolen, err := bot.Call(ctx, "countersign_collect", json.RawMessage(`{"approval_id":`+quoted(mine)+`}`), x)
	if err != nil {
		t.Fatal(err)
	}
	nothing, err := bot.Call(ctx, "countersign_collect", json.RawMessage(`{"approval_id":"cs_00000000000000000000000000000000"}`), x)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(stolen.Body, nothing.Body) || stolen.Status != nothing.Status || stolen.Reason() != "unknown_approval" {
		t.Errorf("another's id is told apart:\n%s\n%s", stolen.Body, nothing.Body)
	}
	// Somebody else's session is no way either.
	bot.SetSession(ana.Session())
	if res, err := bot.Call(ctx, "countersign_collect", json.RawMessage(`{"approval_id":`+quoted(mine)+`}`), testservers.Extra{}); err != nil || res.Result != nil || res.Status == 200 {
		t.Errorf("%v: status %d %s", err, res.Status, res.Body)
	}
	if r.ran(1) != 0 {
		t.Error("it ran for another actor")
	}
	if res := collect(t, ana, mine); res.IsError() || r.ran(1) != 1 {
		t.Errorf("its own actor got %s; ran %d times", res.Result, r.ran(1))
	}
	r.verify()
}

// What is approved is the call as it was stored: a retry that means the same
// attaches and gets the stored bytes run; one byte of another meaning is a new
// question.
func TestRetryThatDiffers(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Hold: time.Second})
	g := r.start("a", "")
	c := g.client(testservers.Modern)
	const stored = `{"n":1, "x":1.0,"s":"a b","big":9007199254740993,"o":{"k":[1,2]}}`
	id := waiting(t, send(t, c, stored, testservers.Extra{}))
	tests := []struct {
		name, args, meta string
		same             bool
	}{
		{"the same bytes", stored, "", true},
		{"whitespace", ` { "n" : 1,"x":1.0,"s":"a b","big":9007199254740993,"o":{"k":[1, 2]} } `, "", true},
		{"key order", `{"o":{"k":[1,2]},"s":"a b","x":1.0,"n":1,"big":9007199254740993}`, "", true},
		{"escapes", `{"n":1,"\u0078":1.0,"s":"\u0061 b","big":9007199254740993,"o":{"k":[1,2]}}`, "", true},
		{"one byte", `{"n":1, "x":1.0,"s":"a c","big":9007199254740993,"o":{"k":[1,2]}}`, "", false},
		{"a space in a string", `{"n":1, "x":1.0,"s":"a  b","big":9007199254740993,"o":{"k":[1,2]}}`, "", false},
		{"number form", `{"n":1, "x":1,"s":"a b","big":9007199254740993,"o":{"k":[1,2]}}`, "", false},
		{"exponent", `{"n":1, "x":1e0,"s":"a b","big":9007199254740993,"o":{"k":[1,2]}}`, "", false},
		{"the double's neighbour", `{"n":1, "x":1.0,"s":"a b","big":9007199254740992,"o":{"k":[1,2]}}`, "", false},
		{"order of a list", `{"n":1, "x":1.0,"s":"a b","big":9007199254740993,"o":{"k":[2,1]}}`, "", false},
		{"one member more", `{"n":1, "x":1.0,"s":"a b","big":9007199254740993,"o":{"k":[1,2]},"z":null}`, "", false},
		{"another key", stored, `{"countersign/idempotency-key":"second"}`, false},
	}
	ids := make([]string, len(tests))
	var wg sync.WaitGroup
	for i, tc := range tests {
		wg.Go(func() {
			res, err := c.Call(within(t, 60*time.Second), "do_thing", json.RawMessage(tc.args), testservers.Extra{Meta: json.RawMessage(tc.meta)})
			if err != nil || res.Approval().Status != "pending" {
				t.Errorf("%s: %v: %s %s", tc.name, err, res.Result, res.Error)
			}
			ids[i] = res.Approval().ID
		})
	}
	wg.Wait()
	seen := map[string]string{}
	for i, tc := range tests {
		if (ids[i] == id) != tc.same {
			t.Errorf("%s: approval %s, the first one was %s", tc.name, ids[i], id)
		}
		if other := seen[ids[i]]; other != "" && !tc.same {
			t.Errorf("%s shares an approval with %s", tc.name, other)
		}
		seen[ids[i]] = tc.name
	}
	if out, code := g.operate("approve", "--yes", id); code != 0 {
		t.Fatal(out)
	}
	// The retry in other words gets the approved bytes run, not its own.
	if res := send(t, c, tests[1].args, testservers.Extra{}); res.IsError() || res.Result == nil {
		t.Errorf("the retry got %s %s", res.Result, res.Error)
	}
	for i, tc := range tests {
		if !tc.same {
			wg.Go(func() { collect(t, c, ids[i]) })
		}
	}
	wg.Wait()
	if ran := r.upstream.Executions(); len(ran) != 1 || string(ran[0].Args) != stored {
		t.Errorf("ran %v", ran)
	}
	for _, m := range r.upstream.Received() {
		if m.Method == "tools/call" && !bytes.Contains(m.Frame, []byte(`"arguments":`+stored)) {
			t.Errorf("the upstream received %s", m.Frame)
		}
	}
	r.verify()
}

// A no holds: a thousand tries are one card and no run.
func TestDeniedCallRepeated(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	g := r.start("a", "")
	c := g.client(testservers.Legacy)
	q := r.ask(c, 1)
	if x := r.click(olgaSlack, q.card.TS, "deny"); x.Status != 200 {
		t.Fatalf("%+v", x)
	}
	no := await(t, q.got)
	const times, workers = 1000, 16
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range times / workers {
				res, err := c.Call(within(t, 60*time.Second), "do_thing", testservers.Do{N: 1}.Args(), testservers.Extra{})
				if err != nil || res.Approval() != no.Approval() {
					t.Errorf("%v: %s %s", err, res.Result, res.Error)
					return
				}
			}
		})
	}
	wg.Wait()
	r.settled(q.card.TS, "Denied")
	if cards := r.slack.Messages(channel); len(cards) != 1 || r.ran(1) != 0 {
		t.Errorf("%d cards, ran %d times", len(cards), r.ran(1))
	}
	if n := len(r.recordsOf(q.id(), "approval_requested")); n != 1 {
		t.Errorf("%d requests on the ledger", n)
	}
	r.verify()
}

// One actor's questions are bounded; what it has asked already, and what others
// ask, is not in the way.
func TestTooManyWait(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Hold: time.Second})
	g := r.start("a", "")
	c := g.client(testservers.Legacy)
	ids := make([]string, 20)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() {
			res, err := c.Call(within(t, 60*time.Second), "do_thing", testservers.Do{N: i}.Args(), testservers.Extra{})
			if err != nil || res.Approval().Status != "pending" {
				t.Errorf("%v: %s %s", err, res.Result, res.Error)
			}
			ids[i] = res.Approval().ID
		})
	}
	wg.Wait()
	over := send(t, c, `{"n":20}`, testservers.Extra{})
	if over.Code() != -32602 || over.Reason() != "too_many_pending" {
		t.Errorf("the 21st got %s %s", over.Result, over.Error)
	}
	if again := waiting(t, send(t, c, string(testservers.Do{N: 7}.Args()), testservers.Extra{})); again != ids[7] {
		t.Errorf("a retry got %s, not %s", again, ids[7])
	}
	waiting(t, send(t, g.client(testservers.Modern, botToken), `{"n":20}`, testservers.Extra{}))
	if out, code := g.operate("deny", "--reason", "not today", ids[3]); code != 0 {
		t.Fatal(out)
	}
	waiting(t, send(t, c, `{"n":20}`, testservers.Extra{}))
	if n := len(r.upstream.Executions()); n != 0 {
		t.Errorf("%d calls ran", n)
	}
	r.verify()
}

// The operators' commands do what a click does and more, under the same rules.
func TestOperators(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Hold: time.Second})
	g := r.start("a", "")
	c := g.client(testservers.Legacy)
	run := func(want int, words []string, args ...string) {
		t.Helper()
		out, code := g.operate(args...)
		if code != want {
			t.Errorf("%v: exit %d: %s", args, code, out)
		}
		told(t, out, words...)
	}
	id := waiting(t, send(t, c, `{"n":1}`, testservers.Extra{}))
	run(0, []string{id, "pending", "Do thing 1", "ana@acme.test"}, "list")
	run(0, []string{id, "judge/do_thing", `"n": 1`, "1 of group:ops", "arguments"}, "show", id)
	run(1, nil, "show", "cs_00000000000000000000000000000000")
	run(0, []string{id + " is approved"}, "approve", "--yes", id)
	run(1, []string{"approved"}, "approve", "--yes", id)
	run(0, []string{"approve by olga"}, "show", id)
	run(0, []string{id + " is revoked"}, "revoke", "--reason", "second thoughts", id)
	res := collect(t, c, id)
	if res.Approval().Status != "revoked" || r.ran(1) != 0 {
		t.Errorf("ran %d; collecting gave %s", r.ran(1), res.Result)
	}
	told(t, res.Text(), "taken back (olga)", `"second thoughts"`)

	id = waiting(t, send(t, c, `{"n":2}`, testservers.Extra{}))
	run(0, []string{id + " is denied"}, "deny", "--reason", "not on a Friday", id)
	res = collect(t, c, id)
	if res.Approval().Status != "denied" {
		t.Errorf("collecting gave %s", res.Result)
	}
	told(t, res.Text(), "denied this call (olga)", `"not on a Friday"`)
	run(1, nil, "resolve", "--ran", "--note", "I looked", id)

	id = waiting(t, send(t, c, `{"n":3,"crash":"after"}`, testservers.Extra{}))
	run(0, nil, "approve", "--yes", id)
	if res = collect(t, c, id); res.Approval().Status != "unknown" {
		t.Errorf("collecting gave %s %s", res.Result, res.Error)
	}
	run(0, []string{"unknown"}, "list")
	run(0, []string{id + " is succeeded"}, "resolve", "--ran", "--note", "the thing is done", id)
	if res = collect(t, c, id); res.Approval().Status != "succeeded" || r.ran(3) != 1 {
		t.Errorf("ran %d; collecting gave %s", r.ran(3), res.Result)
	}
	run(0, []string{"Nothing is waiting."}, "list")
	run(0, []string{"revoked", "denied", "succeeded"}, "list", "--all")
	out, code := g.on(t).anonymous("list")
	if code == 0 || strings.Contains(out, "cs_") {
		t.Errorf("without a token: exit %d: %s", code, out)
	}
	r.verify()
}

// anonymous is operate without a token that is anybody's.
func (g *gate) anonymous(args ...string) (string, int) {
	out, errs, code := countersign(within(g.r.t, 20*time.Second), []string{fmt.Sprintf("COUNTERSIGN_ADMIN_TOKEN=%s", "nobody")},
		append([]string{"approvals", "--admin", g.Admin}, args...)...)
	return out + errs, code
}
