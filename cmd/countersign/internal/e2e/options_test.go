package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/cmd/countersign/internal/e2e/testservers"
)

// With run: on_approve the yes runs the call, with nobody waiting, once however
// many processes look for such calls; its caller collects the result later, or
// gets it at once if it still waits.
func TestRunOnApprove(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Hold: time.Second, Route: "    run: on_approve\n"})
	a := r.start("a", "")
	b := r.start("b", "")
	c := a.client(testservers.Legacy)
	const many = 4
	var ids [many]string
	for n := range many {
		ids[n] = waiting(t, send(t, c, fmt.Sprintf(`{"n":%d}`, n), testservers.Extra{}))
		r.approve(r.cardOf(n).TS)
	}
	for n, id := range ids {
		r.settled(r.cards(n)[0].TS, "Approved", "It ran", "olga")
		res := collect(t, b.client(testservers.Modern), id)
		if res.IsError() || res.Approval().Status != "succeeded" {
			t.Errorf("collecting gave %s", res.Body)
		}
		told(t, res.Text(), fmt.Sprintf("do_thing done, n=%d", n), "not run again")
		if got := r.ran(n); got != 1 {
			t.Errorf("n=%d ran %d times", n, got)
		}
		if got := len(r.recordsOf(id, "exec_start")); got != 1 {
			t.Errorf("n=%d has %d starts on the ledger", n, got)
		}
	}
	t.Run("with its caller waiting", func(t *testing.T) {
		r := r.on(t)
		patient := r.startHolding("c", 30*time.Second)
		q := r.ask(patient.client(testservers.Modern), 100)
		r.approved(q)
	})
	r.slack.SetInteractions(b.interactions())
	t.Run("a no runs nothing", func(t *testing.T) {
		r := r.on(t)
		id := waiting(t, send(t, c, `{"n":200}`, testservers.Extra{}))
		card := r.cardOf(200)
		if x := r.click(oskarSlack, card.TS, "deny"); x.Status != 200 {
			t.Fatalf("%+v", x)
		}
		r.settled(card.TS, "Denied", "oskar")
		if res := collect(t, c, id); res.Approval().Status != "denied" || r.ran(200) != 0 {
			t.Errorf("ran %d times; collecting gave %s", r.ran(200), res.Body)
		}
	})
	r.verify()
}

// The gate that took the click is killed before it can run anything. Another one
// finds the approved call and runs it, once.
func TestRunOnApproveAfterAKill(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Hold: time.Second, Route: "    run: on_approve\n"})
	b := r.start("b", "")
	a := r.start("a", "decide.after=kill") // clicks go here
	id := waiting(t, send(t, b.client(testservers.Legacy), `{"n":1}`, testservers.Extra{}))
	card := r.card()
	if x := r.click(olgaSlack, card.TS, "approve"); x.Status == 200 {
		t.Error("a dead process answered")
	}
	a.died()
	r.settled(card.TS, "Approved", "It ran", "olga")
	r.judge(1, "by the other gate")
	told(t, collect(t, b.client(testservers.Modern), id).Text(), "do_thing done, n=1", "not run again")
	r.start("a", "") // on the dead one's ledger
	r.judge(1, "in the end")
	b.stands("succeeded", "")
	r.verify()
}

// The yes comes, and before anything runs the gate is started again with another
// policy. Nobody has to come for the call to be found unfit: it is void, and not
// run.
func TestRunOnApproveUnderAnotherPolicy(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Hold: time.Second, Route: "    run: on_approve\n"})
	a := r.start("a", "decide.after=kill")
	waiting(t, send(t, a.client(testservers.Legacy), `{"n":1}`, testservers.Extra{}))
	card := r.card()
	r.click(olgaSlack, card.TS, "approve") // the process dies before it answers
	a.died()
	r.write("policy.yaml", strings.Replace(r.policy(), "approvers: [group:ops]", "approvers: [oskar]", 1))
	a = r.start("a", "")
	r.settled(card.TS, "Void", "not run", "the policy changed")
	a.stands("void", "policy_changed")
	r.judge(0, "in the end")
	r.verify()
}

// cancelled says of a request that its answer isn't wanted any more.
func cancelled(t *testing.T, c *testservers.HTTP, id string) {
	t.Helper()
	res, err := c.Send(within(t, 20*time.Second), []byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+id+`}}`), testservers.Extra{})
	if err != nil || res.Status != 202 {
		t.Fatalf("%v: status %d", err, res.Status)
	}
}

// With on_cancel: withdraw a question ends when the last caller who waits for it
// says so (in the older era) or hangs up (in the newer one); a yes that comes
// later changes nothing, and the same call asks anew. While another caller still
// waits, nothing is withdrawn.
func TestWithdrawnByItsCaller(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Route: "    on_cancel: withdraw\n"})
	g := r.start("a", "")
	together(t, []testservers.Era{testservers.Legacy, testservers.Modern}, func(e testservers.Era) string { return string(e) }, func(t *testing.T, i int, era testservers.Era) {
		r, n := r.on(t), 1+i
		c := g.on(t).client(era)
		leave := func(hangUp func(), id string) {
			if era == testservers.Modern {
				hangUp()
			} else {
				cancelled(t, c, id)
			}
		}
		var gone [2]chan struct{}
		var hangUp [2]func()
		start := func(k int, id string) {
			ctx, stop := context.WithCancel(context.Background())
			t.Cleanup(stop)
			gone[k], hangUp[k] = make(chan struct{}), stop
			go func() {
				defer close(gone[k])
				_, _ = c.Call(ctx, "do_thing", testservers.Do{N: n}.Args(), testservers.Extra{ID: json.RawMessage(id)}) // it is never answered
			}()
		}
		start(0, "4711")
		card := r.cardOf(n)
		id := asked{card: card}.id()
		start(1, "4712")
		if got := r.attached(id); got != 1 {
			t.Fatalf("%d callers joined", got)
		}
		leave(hangUp[0], "4711")
		<-gone[0]
		r.open(asked{n: n, card: card})
		leave(hangUp[1], "4712")
		<-gone[1]
		r.settled(card.TS, "Withdrawn", "ana@acme.test", "not run")
		r.whispered(r.late(olgaSlack, card.TS), "withdrawn", "did not run", "changed nothing")
		res := collect(t, c, id)
		if res.Approval().Status != "withdrawn" {
			t.Errorf("collecting gave %s", res.Body)
		}
		told(t, res.Text(), "Not an argument error", "withdrawn", "not run")
		if r.ran(n) != 0 {
			t.Errorf("it ran %d times", r.ran(n))
		}
		q := r.ask(c, n)
		if q.id() == id {
			t.Error("the withdrawn question was asked again")
		}
		r.approved(q)
		r.ended(id, "approval_resolved", 1)
	})
	r.verify()
}

// On pipes both eras cancel by a message, and who closes them has left.
func TestWithdrawnOnPipes(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Route: "    on_cancel: withdraw\n"})
	r.start("serve", "")
	leave := map[string]func(p *pipe){
		"legacy": func(p *pipe) {
			_ = p.Line([]byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":4711}}`))
		},
		"modern": func(p *pipe) {
			_ = p.Line([]byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":4711}}`))
		},
		"closes": func(p *pipe) { p.close() },
	}
	together(t, []string{"legacy", "modern", "closes"}, func(s string) string { return s }, func(t *testing.T, i int, how string) {
		r, n, era := r.on(t), 1+i, testservers.Legacy
		if how == "modern" {
			era = testservers.Modern
		}
		p := r.stdio(how, era)
		ctx, stop := context.WithCancel(context.Background())
		t.Cleanup(stop)
		go func() {
			_, _ = p.Call(ctx, "do_thing", testservers.Do{N: n}.Args(), testservers.Extra{ID: json.RawMessage("4711")}) // it is never answered
		}()
		card := r.cardOf(n)
		leave[how](p)
		r.settled(card.TS, "Withdrawn", "not run")
		if how != "closes" {
			p.close()
		}
		if r.ran(n) != 0 {
			t.Errorf("it ran %d times", r.ran(n))
		}
	})
	r.verify()
}

// attached waits until a caller has joined an approval.
func (r *rig) attached(id string) int {
	r.t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		n := 0
		for _, m := range r.records() {
			if m["event"] == "attached" && m["to"] == id {
				n++
			}
		}
		if n > 0 || time.Now().After(deadline) {
			return n
		}
		time.Sleep(20 * time.Millisecond) // a file can only be looked at again
	}
}

// With refusal_style: error an approval that ends without a run is a JSON-RPC
// error with the same words; what still waits is a result as before.
func TestRefusalStyleError(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Hold: time.Second, Edit: func(config string) string {
		return strings.Replace(config, "\nmcp:\n", "\nmcp:\n  refusal_style: error\n", 1)
	}})
	g := r.start("a", "")
	var crash sync.Mutex // the other's call must not be on its way to the process that ends
	together(t, []testservers.Era{testservers.Legacy, testservers.Modern}, func(e testservers.Era) string { return string(e) }, func(t *testing.T, i int, era testservers.Era) {
		g := g.on(t)
		c := g.client(era)
		for j, end := range []struct {
			status string
			steps  [][]string
			args   string
		}{
			{"denied", [][]string{{"deny"}}, ""},
			{"revoked", [][]string{{"approve", "--yes"}, {"revoke"}}, ""},
			{"unknown", [][]string{{"approve", "--yes"}}, `,"crash":"after"`},
		} {
			id := waiting(t, send(t, c, fmt.Sprintf(`{"n":%d%s}`, 10*i+j, end.args), testservers.Extra{}))
			for _, s := range end.steps {
				if out, code := g.operate(append(s, id)...); code != 0 {
					t.Fatalf("%v: exit %d: %s", s, code, out)
				}
			}
			for range 2 { // told now, and told again
				res := func() testservers.Reply {
					crash.Lock()
					defer crash.Unlock()
					return comeBack(t, c, id)
				}()
				var e struct {
					Message string
					Data    struct {
						Reason   string
						Standing testservers.Approval `json:"countersign/approval"`
					}
				}
				if err := json.Unmarshal(res.Error, &e); err != nil || res.Code() != -32602 || res.Result != nil {
					t.Fatalf("%s: %v: %s", end.status, err, res.Body)
				}
				if e.Data.Reason != end.status || e.Data.Standing.ID != id || e.Data.Standing.Status != end.status {
					t.Errorf("%s: %s", end.status, res.Error)
				}
				told(t, e.Message, "Not an argument error; do not vary the call.")
			}
		}
	})
	r.judge(2, "in the end (the ones that crashed)")
	r.verify()
}

// A client may be held for longer than others, by its name.
func TestHoldByClientName(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Hold: time.Second, Edit: func(config string) string {
		return strings.Replace(config, "\nmcp:\n", "\nmcp:\n  holds: {e2e: 60s}\n", 1)
	}})
	g := r.start("a", "")
	together(t, []testservers.Era{testservers.Legacy, testservers.Modern}, func(e testservers.Era) string { return string(e) }, func(t *testing.T, i int, era testservers.Era) {
		r, n := r.on(t), 1+i
		patient := r.ask(g.on(t).client(era), n) // its name is e2e
		// Another name, the same call: it gives up while the first one waits.
		other := testservers.NewHTTP(g.MCP, anaToken, era)
		body := fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"do_thing","arguments":{"n":%d}`, n)
		if era == testservers.Modern {
			body += `,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"e2e2","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`
		} else {
			res, err := other.Request(within(t, 20*time.Second), "initialize", json.RawMessage(`{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"E2E","version":"1"}}`), testservers.Extra{})
			if err != nil || res.Result == nil {
				t.Fatalf("%v: %s", err, res.Body)
			}
			other.SetSession(res.Header.Get("Mcp-Session-Id"))
			if res, err := other.Send(within(t, 20*time.Second), []byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`), testservers.Extra{}); err != nil || res.Status != 202 {
				t.Fatalf("%v: %d", err, res.Status)
			}
		}
		res, err := other.Send(within(t, 60*time.Second), []byte(body+`}}`), testservers.Extra{})
		if err != nil {
			t.Fatal(err)
		}
		if id := waiting(t, res); id != patient.id() {
			t.Errorf("it waits for %s, not %s", id, patient.id())
		}
		select {
		case a := <-patient.got:
			t.Fatalf("the patient one gave up, too: %s", a.Body)
		default:
		}
		r.approved(patient)
	})
	r.verify()
}
