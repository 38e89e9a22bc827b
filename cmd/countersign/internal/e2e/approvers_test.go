package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/cmd/countersign/internal/e2e/testservers"
	"github.com/countersign-mcp/countersign/notifier/slacktest"
)

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
