package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/cmd/countersign/internal/e2e/testservers"
	"github.com/countersign-mcp/countersign/notifier/slacktest"
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
	const many = 8
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
	for i, c := range []*testservers.HTTP{g.client(testservers.Legacy), g.client(testservers.Modern)} {
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
				res := collect(t, c, id)
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
	}
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

// With allow_requester: true whoever asked may agree, and an actor that is no
// person's may ask; others who are on no route still may not answer.
func TestRequesterMayApprove(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Tokens: fmt.Sprintf("      - {sha256: %s, actor: ghost@acme.test}", hash("ghost"))})
	r.write("policy.yaml", strings.Replace(r.policy(), "allow_requester: false", "allow_requester: true", 1))
	g := r.start("a", "")
	q := r.ask(g.client(testservers.Legacy), 1)
	r.whispered(r.click(mallorySlack, q.card.TS, "approve"), "not one of the people configured here")
	r.open(q)
	if x := r.click(anaSlack, q.card.TS, "approve"); x.Status != 200 {
		t.Fatalf("%+v", x)
	}
	r.ranOnce(q)
	r.settled(q.card.TS, "Approved", "ana", "It ran")
	r.ended(q.id(), "approval_resolved", 3)
	if v := r.votes(q.id()); v["ana"] != 1 || len(v) != 1 {
		t.Errorf("votes: %v", v)
	}
	r.approved(r.ask(g.client(testservers.Modern, "ghost"), 2))
	r.verify()
}

// A Slack group on a route is whoever is in it at the click: a member may, others
// may not, one who left between the card and the click may not, and while Slack
// can't be asked nobody may, which is what they are told.
func TestSlackGroupApproves(t *testing.T) {
	t.Parallel()
	const group = "S0ONCALL"
	for name, approvers := range map[string]string{"on the route": "slack-group:" + group, "in a group of ours": "group:rota"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, rigOptions{Edit: func(config string) string {
				return strings.Replace(config, "\ngroups: {", "\ngroups: {rota: [\"slack-group:"+group+"\"], ", 1)
			}})
			r.write("policy.yaml", strings.Replace(r.policy(), "group:ops", approvers, 1))
			r.slack.AddUserGroup(slacktest.UserGroup{ID: group, Members: []string{olgaSlack, oskarSlack, mallorySlack, anaSlack}})
			g := r.start("a", "")
			q := r.ask(g.client(testservers.Legacy), 1)
			told(t, strings.Join(q.card.Mentions(), " "), group)
			r.slack.FailAlways("usergroups.users.list", slacktest.ErrorBefore())
			r.whispered(r.click(olgaSlack, q.card.TS, "approve"), "could not be checked who you are", "not counted")
			r.whispered(r.click(olgaSlack, q.card.TS, "deny"), "could not be checked who you are", "not counted")
			r.open(q)
			r.slack.Heal("usergroups.users.list")
			r.slack.AddUserGroup(slacktest.UserGroup{ID: group, Members: []string{olgaSlack, mallorySlack, anaSlack}}) // Oskar's week is over
			r.whispered(r.click(oskarSlack, q.card.TS, "approve"), "not among the people who may answer")
			r.whispered(r.click(oskarSlack, q.card.TS, "deny"), "not among the people who may answer")
			r.whispered(r.click(mallorySlack, q.card.TS, "approve"), "not one of the people configured here")
			r.whispered(r.click(anaSlack, q.card.TS, "approve"), "somebody else must approve it")
			r.open(q)
			r.ended(q.id(), "vote_refused", 6)
			if v := r.votes(q.id()); len(v) != 0 {
				t.Errorf("votes: %v", v)
			}
			r.approved(q)
			r.settled(q.card.TS, "Approved", "olga", "It ran")
			// The operators' way is under the same rule.
			r.slack.AddUserGroup(slacktest.UserGroup{ID: group, Members: []string{oskarSlack}})
			r2 := r.start("b", "") // remembers nobody
			q = r.ask(r2.client(testservers.Legacy), 2)
			if out, code := r2.operate("approve", "--yes", q.id()); code == 0 {
				t.Errorf("somebody who left approved: %s", out)
			}
			r.open(q)
			if x := r.click(oskarSlack, q.card.TS, "approve"); x.Status != 200 {
				t.Fatalf("%+v", x)
			}
			r.ranOnce(q)
			r.verify()
		})
	}
}

// Two people are needed: one of them in Slack and by the operators' command is
// still one.
func TestQuorumOverTwoWays(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Quorum: 2})
	g := r.start("a", "")
	q := r.ask(g.client(testservers.Modern), 1)
	r.approve(q.card.TS)
	if out, code := g.operate("approve", "--yes", q.id()); code == 0 {
		t.Errorf("Olga counted twice: %s", out)
	}
	if out, code := g.operate("show", q.id()); code != 0 || !strings.Contains(out, "pending") {
		t.Errorf("exit %d: %s", code, out)
	}
	r.open(q)
	m, err := r.slack.WaitMessage(within(t, 20*time.Second), channel, func(m slacktest.Message) bool {
		return strings.Contains(m.Plain(), "1 so far")
	})
	if err != nil || len(m.Buttons()) != 2 {
		t.Errorf("%v: %s", err, m.Plain())
	}
	if x := r.click(oskarSlack, q.card.TS, "approve"); x.Status != 200 {
		t.Fatalf("%+v", x)
	}
	r.ranOnce(q)
	r.settled(q.card.TS, "Approved", "olga", "oskar", "It ran")
	r.verify()
}
