package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/cmd/countersign/internal/e2e/testservers"
	"github.com/countersign-mcp/countersign/notifier/slacktest"
)

// plain is the policy under which people agree in these tests.
const plain = `version: 2
tools:
  judge/read_thing: read
  judge/do_thing: {tier: destructive, title: "Do thing {n}"}
routes:
  default: {channels: [slack:` + channel + `], approvers: [group:ops], quorum: 1, timeout: 1m, allow_requester: false}
`

// change is what happens to a gate between the yes and the collecting.
type change struct {
	name   string
	policy string                           // instead of the plain one
	do     func(t *testing.T, r *rig)       // or something else
	cause  string                           // of the void; "" when the approval is still good
	card   string                           // what the card then says
	told   string                           // what the caller is told
	again  func(res testservers.Reply) bool // how the same call is answered afterwards
}

func asksAnew(res testservers.Reply) bool { return res.Approval().Status == "pending" }
func runs(res testservers.Reply) bool     { return !res.IsError() && res.Result != nil }
func refused(reason string) func(testservers.Reply) bool {
	return func(res testservers.Reply) bool { return res.Code() == -32602 && res.Reason() == reason }
}

// of writes the plain policy with one thing replaced.
func of(t *testing.T, old, by string) string {
	t.Helper()
	if !strings.Contains(plain, old) {
		t.Fatalf("%q is not in the policy", old)
	}
	return strings.Replace(plain, old, by, 1)
}

func changes(t *testing.T) []change {
	policy := func(name, text string, again func(testservers.Reply) bool) change {
		return change{name: name, policy: text, cause: "policy_changed", card: "the policy changed", told: "the policy changed after people agreed", again: again}
	}
	elsewhere := "  other: {channels: [slack:" + channel + "], approvers: [group:ops], timeout: 1m}\n"
	return []change{
		policy("another route", of(t, `"Do thing {n}"}`, `"Do thing {n}", route: other}`)+elsewhere, asksAnew),
		policy("other approvers", of(t, "[group:ops]", "[olga, oskar]"), asksAnew),
		policy("one approver more", of(t, "[group:ops]", "[group:ops, bob]"), asksAnew),
		policy("a higher quorum", of(t, "quorum: 1", "quorum: 2"), asksAnew),
		policy("requesters may approve", of(t, "allow_requester: false", "allow_requester: true"), asksAnew),
		policy("denied", of(t, `{tier: destructive, title: "Do thing {n}"}`, "deny"), refused("unknown_tool")),
		policy("denied, while another tool still asks", strings.Replace(of(t, `{tier: destructive, title: "Do thing {n}"}`, "deny"),
			"judge/read_thing: read", "judge/read_thing: destructive", 1), refused("unknown_tool")),
		policy("not listed any more", of(t, "  judge/do_thing: {tier: destructive, title: \"Do thing {n}\"}\n", ""), refused("unknown_tool")),
		policy("an argument that is not allowed", of(t, `"Do thing {n}"}`, `"Do thing {n}", args: {n: {type: string}}}`), refused("policy_denied")),
		// Allowed is not what people agreed to: only the same question keeps an answer.
		policy("allowed for everybody", of(t, "tier: destructive", "tier: write"), runs),
		{
			name: "another definition of the tool", cause: "tool_changed", card: "the tool's definition changed",
			told: "the tool's definition changed after people agreed", again: refused("tool_changed"),
			do: func(t *testing.T, r *rig) {
				if err := r.upstream.ChangeTools(true); err != nil {
					t.Fatal(err)
				}
			},
		},
		{
			name: "who agreed is the requester now", cause: "actor_changed", card: "the caller may no longer ask for this",
			told: "the caller's roles or people changed", again: asksAnew,
			do: func(_ *testing.T, r *rig) {
				r.o.Edit = func(config string) string {
					config = strings.Replace(config, "ana: {actors: [ana@acme.test], ", "ana: {", 1)
					return strings.Replace(config, "olga: {", "olga: {actors: [ana@acme.test], ", 1)
				}
			},
		},
		{
			name: "other words for the same", policy: `# The same routes, said in another way.
routes:
  other: {channels: [slack:` + channel + `], approvers: [ana]}
  "default":
    timeout: 90s
    approvers:
      - "group:ops"
    channels: ["slack:` + channel + `"]
version: 2
tools:
  judge/do_thing: {title: "Really do thing {n}", tier: destructive, route: default, mask: ["/nothing"], args: {n: {type: integer}}}
  judge/hidden_thing: {tier: destructive, route: other}
`, again: func(res testservers.Reply) bool {
				return runs(res) && strings.Contains(res.Text(), "not run again")
			},
		},
	}
}

// comeBack comes for an approval until it is over, as an agent would: on a busy
// machine one hold may be too short.
func comeBack(t testing.TB, c testservers.Client, id string) testservers.Reply {
	t.Helper()
	for deadline := time.Now().Add(60 * time.Second); ; {
		res := collect(t, c, id)
		switch res.Approval().Status {
		case "pending", "approved", "executing":
			if time.Now().Before(deadline) {
				continue
			}
		}
		return res
	}
}

// late is a yes from a client that hasn't seen the card's last change.
func (r *rig) late(user, ts string) slacktest.Answer {
	r.t.Helper()
	return r.slack.Click(within(r.t, 20*time.Second), slacktest.Click{User: user, Channel: channel, TS: ts, Verdict: "approve", Stale: true})
}

// People agreed to one question. A gate that is started again with a question
// that differs runs nothing on that answer: the approval ends void, with the
// cause, on the card, for the caller and on the ledger. Only a policy that still
// asks the same people the same thing keeps it.
func TestChangedAfterTheYes(t *testing.T) {
	t.Parallel()
	for _, c := range changes(t) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, rigOptions{Hold: time.Second, Policy: plain})
			a := r.start("a", "")
			id := waiting(t, send(t, a.client(testservers.Legacy), `{"n":1}`, testservers.Extra{}))
			card := r.cardOf(1)
			r.approve(card.TS)
			a.stop()
			if c.policy != "" {
				r.write("policy.yaml", c.policy)
			}
			if c.do != nil {
				c.do(t, r)
			}
			a = r.start("a", "")
			r.judge(0, "before anybody came for it")
			caller := a.client(testservers.Modern)
			res := comeBack(t, caller, id)
			if c.cause == "" {
				if !runs(res) {
					t.Errorf("the caller got %s", res.Body)
				}
				r.settled(card.TS, "Approved", "olga", "It ran")
			} else {
				if !res.IsError() || res.Approval().Status != "void" || res.Approval().ID != id {
					t.Errorf("the caller got %s", res.Body)
				}
				told(t, res.Text(), "Not an argument error; do not vary the call.", "was not run", c.told)
				r.settled(card.TS, "Void", "not run", c.card)
				r.judge(0, "after it was collected")
				if out, code := a.operate("show", id); code != 0 || !strings.Contains(out, "void") {
					t.Errorf("the operators are told: exit %d: %s", code, out)
				}
				resolved := r.ended(id, "approval_resolved", 2) // approved, void
				last := fmt.Sprint(resolved[len(resolved)-1]["approval"])
				told(t, last, "state:void", "cause:"+c.cause)
				if n := len(r.recordsOf(id, "exec_start")); n != 0 {
					t.Errorf("the ledger has %d starts", n)
				}
				r.whispered(r.late(oskarSlack, card.TS), "void", "changed nothing")
				if res := collect(t, caller, id); res.Approval().Status != "void" {
					t.Errorf("collecting again gave %s", res.Body)
				}
			}
			want := 0
			if res := send(t, caller, `{"n":1}`, testservers.Extra{}); !c.again(res) {
				t.Errorf("the same call again: %s", res.Body)
			} else if runs(res) {
				want = 1 // by the new policy's own yes, or before
			}
			r.judge(want, "in the end")
			r.verify()
		})
	}
}
