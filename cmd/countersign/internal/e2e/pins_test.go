package e2e

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/cmd/countersign/internal/e2e/testservers"
	"github.com/countersign-mcp/countersign/notifier/slacktest"
)

// pinnedPolicy asks people about other definitions of tools.
const pinnedPolicy = `version: 2
tools:
  judge/read_thing: read
  judge/new_thing: read
  judge/do_thing: {tier: destructive, title: "Do thing {n}"}
routes:
  default: {channels: [slack:` + channel + `], approvers: [group:ops], timeout: 1m, allow_requester: false}
  definitions: {channels: [slack:` + channel + `], approvers: [group:ops], timeout: 5m, allow_requester: false}
`

// pinnedRig has its upstream's tools in a file.
func pinnedRig(t *testing.T) *rig {
	t.Helper()
	var r *rig
	r = newRig(t, rigOptions{Policy: pinnedPolicy, Hold: 2 * time.Second, Edit: func(config string) string {
		return config + "\npins: {file: " + quoted(filepath.Join(r.dir, "pins.json")) + ", ask_every: 1s}\n"
	}})
	if out, errs, code := countersign(within(t, time.Minute), nil, "policy", "pin", "--config", r.config("a")); code != 0 {
		t.Fatalf("policy pin: exit %d\n%s%s", code, out, errs)
	}
	return r
}

// agreeing are the cards that ask for other definitions and can be answered.
func (r *rig) agreeing(t testing.TB, words string) slacktest.Message {
	t.Helper()
	m, err := r.slack.WaitMessage(within(t, 30*time.Second), channel, func(m slacktest.Message) bool {
		return len(m.Buttons()) > 0 && strings.Contains(m.PushText(), "Agree to other definitions") &&
			strings.Contains(strings.Join(m.Preformatted(), "\n"), words)
	})
	if err != nil {
		t.Fatalf("nobody is asked for %q: %v", words, err)
	}
	return m
}

func (g *gate) lists(t testing.TB, tool string) bool {
	t.Helper()
	res, err := g.client(testservers.Legacy).ListTools(within(t, 30*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	return slices.Contains(res.Tools(), tool)
}

func (g *gate) comesToList(t testing.TB, tool string) {
	t.Helper()
	for ctx := within(t, 60*time.Second); !g.lists(t, tool); {
		if ctx.Err() != nil {
			t.Fatalf("%s is never listed by %s", tool, g.name)
		}
	}
}

func (g *gate) asks(t testing.TB, tool, args string) testservers.Reply {
	t.Helper()
	res, err := g.client(testservers.Modern).Call(within(t, 60*time.Second), tool, json.RawMessage(args), testservers.Extra{})
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// A tool that the file lacks is held until a person agrees, and then it is there,
// for every gate and after a restart. A change that is announced is noticed though
// nobody calls, and a no holds.
func TestToolsAreHeldUntilSomebodyAgrees(t *testing.T) {
	t.Parallel()
	r := pinnedRig(t)
	a, b := r.start("a", ""), r.start("b", "")
	if !a.lists(t, "do_thing") || a.lists(t, "new_thing") {
		t.Fatal("the pinned tools are not listed as they should be")
	}
	if err := r.upstream.AddTool(); err != nil {
		t.Fatal(err)
	}
	for _, g := range []*gate{a, b} {
		// A list may be a second old; until then there is no such tool.
		for ctx, why := within(t, 60*time.Second), "unknown_tool"; why != "tool_not_pinned"; {
			res := g.asks(t, "new_thing", `{}`)
			if why = res.Reason(); res.Code() != -32602 || why != "tool_not_pinned" && why != "unknown_tool" || ctx.Err() != nil {
				t.Fatalf("the new tool: %s %s", res.Result, res.Error)
			}
		}
		if g.lists(t, "new_thing") {
			t.Error("the new tool is listed")
		}
	}
	card := r.agreeing(t, "tool added: new_thing")
	told(t, card.Plain(), "judge", "countersign")
	if c := r.click(olgaSlack, card.TS, "approve"); c.Status != 200 {
		t.Fatalf("the click: %+v", c)
	}
	r.settled(card.TS, "Approved", "olga", "It ran")
	for _, g := range []*gate{a, b} {
		g.comesToList(t, "new_thing")
		if res := g.asks(t, "new_thing", `{}`); res.IsError() || res.Error != nil {
			t.Errorf("agreed to, and not callable: %s %s", res.Result, res.Error)
		}
	}
	if n := r.upstream.Ran("new_thing"); n != 2 {
		t.Errorf("it ran %d times", n)
	}
	a.stop()
	a = r.start("a", "")
	if !a.lists(t, "new_thing") {
		t.Error("not after a restart")
	}

	if err := r.upstream.ChangeTools(true); err != nil {
		t.Fatal(err)
	}
	a.asks(t, "read_thing", testservers.Announce)
	card = r.agreeing(t, "mails a copy to a stranger")
	if c := r.click(oskarSlack, card.TS, "deny"); c.Status != 200 {
		t.Fatalf("the click: %+v", c)
	}
	r.settled(card.TS, "Denied", "oskar")
	b.stop()
	b = r.start("b", "")
	for _, g := range []*gate{a, b} {
		if res := g.asks(t, "do_thing", `{"n":1}`); res.Code() != -32602 || res.Reason() != "tool_changed" {
			t.Errorf("the changed tool: %s %s", res.Result, res.Error)
		}
		if g.lists(t, "do_thing") || !g.lists(t, "read_thing") {
			t.Error("listed, or another is held with it")
		}
	}
	if n := r.upstream.Ran("do_thing"); n != 0 {
		t.Errorf("the changed tool ran %d times", n)
	}
	kinds := map[any]bool{}
	for _, rec := range r.records() {
		if rec["event"] == "manifest_changed" {
			kinds[rec["reason"]] = true
		}
	}
	if !kinds["not_pinned"] || !kinds["pinned"] || !kinds["changed"] {
		t.Errorf("the ledger says %v", kinds)
	}
	r.verify()
}

// A gate is killed while it pins. The next one tells truly whether it had; where
// it had not, people are asked again.
func TestKilledWhilePinning(t *testing.T) {
	t.Parallel()
	for point, done := range map[string]bool{
		"claim.after": false, "exec_start.after": false, "pin.before": false, "pin.after": true, "result.after": true,
	} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			r := pinnedRig(t)
			if err := r.upstream.AddTool(); err != nil {
				t.Fatal(err)
			}
			a := r.start("a", point+"=kill")
			card := r.agreeing(t, "tool added: new_thing")
			r.click(olgaSlack, card.TS, "approve") // its reply may die with the gate
			a.died()
			a = r.start("a", "")
			if done {
				r.settled(card.TS, "Approved", "olga", "It ran")
			} else {
				r.settled(card.TS, "not run")
				card = r.agreeing(t, "tool added: new_thing")
				if c := r.click(oskarSlack, card.TS, "approve"); c.Status != 200 {
					t.Fatalf("the click: %+v", c)
				}
			}
			a.comesToList(t, "new_thing")
			if res := a.asks(t, "new_thing", `{}`); res.IsError() || res.Error != nil {
				t.Errorf("agreed to, and not callable: %s %s", res.Result, res.Error)
			}
			r.verify()
		})
	}
}
