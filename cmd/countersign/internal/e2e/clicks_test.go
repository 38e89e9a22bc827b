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

// asked is a call that waits, with its card.
type asked struct {
	n    int
	got  <-chan answer
	card slacktest.Message
}

func (r *rig) ask(c testservers.Client, n int) asked {
	r.t.Helper()
	a := asked{n: n, got: call(c, testservers.Do{N: n}, testservers.Extra{})}
	a.card = r.cardOf(n)
	return a
}

// id is the approval's, from the card's metadata.
func (a asked) id() string {
	id, _ := a.card.Metadata.EventPayload["approval_id"].(string)
	return id
}

// open fails unless the card still waits for somebody and nothing ran.
func (r *rig) open(a asked) {
	r.t.Helper()
	m, ok := r.slack.Message(channel, a.card.TS)
	if !ok || len(m.Buttons()) != 2 {
		r.t.Errorf("the card does not wait any more: %s", m.Plain())
	}
	if n := r.ran(a.n); n != 0 {
		r.t.Errorf("it ran %d times", n)
	}
}

// approved lets the story end well: Olga agrees, and it runs once.
func (r *rig) approved(a asked) {
	r.t.Helper()
	if c := r.click(olgaSlack, a.card.TS, "approve"); c.Status != 200 {
		r.t.Fatalf("the click: %+v", c)
	}
	r.ranOnce(a)
}

func (r *rig) ranOnce(a asked) {
	r.t.Helper()
	if res := await(r.t, a.got); res.IsError() || res.Result == nil {
		r.t.Errorf("the agent got: %s %s", res.Result, res.Error)
	}
	if n := r.ran(a.n); n != 1 {
		r.t.Errorf("it ran %d times", n)
	}
}

// whispered waits for the sentence that answers a click.
func (r *rig) whispered(a slacktest.Answer, words ...string) {
	r.t.Helper()
	if a.Status != 200 || a.Request == nil {
		r.t.Fatalf("the click: %+v", a)
	}
	reply, err := r.slack.WaitReply(within(r.t, 20*time.Second), a.Request.ResponseURL)
	if err != nil {
		r.t.Fatalf("nothing was said: %v", err)
	}
	if reply.InChannel || reply.ReplaceOriginal {
		r.t.Errorf("everybody sees it: %+v", reply)
	}
	told(r.t, reply.Text, words...)
}

// votes counts an approval's counted votes on the ledger by person.
func (r *rig) votes(id string) map[string]int {
	r.t.Helper()
	out := map[string]int{}
	for _, rec := range r.recordsOf(id, "approval_vote") {
		for _, v := range rec["approval"].(map[string]any)["votes"].([]any) {
			out[v.(map[string]any)["person"].(string)]++
		}
	}
	return out
}

// Any number of presses at once, on two replicas, are one decision, one run and
// one vote of a person; replays of a captured request add nothing.
func TestManyClicksAreOne(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	a, b := r.start("a", ""), r.start("b", "")
	c := a.client(testservers.Legacy)
	everywhere := []string{a.interactions(), b.interactions()}
	ctx := within(t, 60*time.Second)

	t.Run("double click", func(t *testing.T) {
		r := r.on(t)
		q := r.ask(c, 1)
		for _, x := range r.slack.ClickMany(ctx, slacktest.Click{User: olgaSlack, Channel: channel, TS: q.card.TS, Verdict: "approve"}, 2) {
			if x.Status != 200 || x.Late {
				t.Errorf("%+v", x)
			}
		}
		r.ranOnce(q)
		r.ended(q.id(), "approval_resolved", 3) // approved, executing, succeeded
		if v := r.votes(q.id()); len(v) != 1 || v["olga"] != 1 {
			t.Errorf("votes: %v", v)
		}
	})
	t.Run("fifty on two replicas", func(t *testing.T) {
		r := r.on(t)
		q := r.ask(c, 2)
		both := make(chan []slacktest.Answer, 2)
		for _, user := range []string{olgaSlack, oskarSlack} {
			go func() {
				both <- r.slack.ClickMany(ctx, slacktest.Click{User: user, Channel: channel, TS: q.card.TS, Verdict: "approve"}, 25, everywhere...)
			}()
		}
		for _, x := range append(<-both, <-both...) {
			if x.Status != 200 || x.Late {
				t.Errorf("status %d late %v %v", x.Status, x.Late, x.Err)
			}
		}
		r.ranOnce(q)
		if got := r.ended(q.id(), "approval_resolved", 3); len(got) != 3 {
			t.Errorf("%d state records: %v", len(got), got)
		}
		if v := r.votes(q.id()); len(v) != 1 || v["olga"]+v["oskar"] != 1 {
			t.Errorf("votes: %v", v)
		}
	})
	t.Run("replayed body", func(t *testing.T) {
		r := r.on(t)
		q := r.ask(c, 3)
		in, err := r.slack.Prepare(slacktest.Click{User: olgaSlack, Channel: channel, TS: q.card.TS, Verdict: "approve"})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			if x := r.slack.Send(ctx, in.To(everywhere[i%2])); x.Status != 200 {
				t.Errorf("%+v", x)
			}
		}
		r.ranOnce(q)
		r.settled(q.card.TS, "It ran")
		for i := range 3 { // and when all is over
			if x := r.slack.Send(ctx, in.To(everywhere[i%2])); x.Status != 200 {
				t.Errorf("%+v", x)
			}
		}
		again := await(t, call(c, testservers.Do{N: 3}, testservers.Extra{}))
		told(t, again.Text(), "not run again")
		if n := r.ran(3); n != 1 {
			t.Errorf("it ran %d times", n)
		}
		if v := r.votes(q.id()); v["olga"] != 1 {
			t.Errorf("votes: %v", v)
		}
	})
	t.Run("on the other replica", func(t *testing.T) {
		r := r.on(t)
		q := r.ask(c, 4) // waits at a
		x := r.slack.Click(ctx, slacktest.Click{User: oskarSlack, Channel: channel, TS: q.card.TS, Verdict: "approve", URL: b.interactions()})
		if x.Status != 200 {
			t.Fatalf("%+v", x)
		}
		r.ranOnce(q)
		r.settled(q.card.TS, "It ran", "oskar")
	})
	r.verify()
}

// Two people are two people, whatever one of them clicks.
func TestQuorumCountsPeople(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Quorum: 2})
	g := r.start("a", "")
	b := r.start("b", "")
	ctx := within(t, 60*time.Second)
	q := r.ask(g.client(testservers.Modern), 1)
	for _, x := range r.slack.ClickMany(ctx, slacktest.Click{User: olgaSlack, Channel: channel, TS: q.card.TS, Verdict: "approve"}, 20, g.interactions(), b.interactions()) {
		if x.Status != 200 {
			t.Errorf("%+v", x)
		}
	}
	r.whispered(r.click(olgaSlack, q.card.TS, "approve"), "already answered")
	r.whispered(r.click(anaSlack, q.card.TS, "approve"), "somebody else must approve it")
	r.open(q)
	if x := r.click(oskarSlack, q.card.TS, "approve"); x.Status != 200 {
		t.Fatalf("%+v", x)
	}
	r.ranOnce(q)
	r.settled(q.card.TS, "It ran", "olga", "oskar")
	r.ended(q.id(), "approval_resolved", 3)
	if v := r.votes(q.id()); len(v) != 2 || v["olga"] != 1 || v["oskar"] != 1 {
		t.Errorf("votes: %v", v)
	}
	r.verify()
}

// Only Slack, now, with the shared secret, about our app, can say that somebody
// clicked; a bot token is no voice.
func TestClicksNobodyMade(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	g := r.start("a", "")
	q := r.ask(g.client(testservers.Legacy), 1)
	base := slacktest.Click{User: olgaSlack, Channel: channel, TS: q.card.TS, Verdict: "approve"}
	value := q.card.Buttons()[0].Value
	bent := strings.Replace(value, value[len(value)/2:len(value)/2+1], "~", 1)
	cases := map[string]struct {
		change func(*slacktest.Click)       // before it is signed
		forge  func(*slacktest.Interaction) // after
		status int
	}{
		"301 s old":          {change: func(c *slacktest.Click) { c.At = time.Now().Add(-301 * time.Second) }, status: 401},
		"301 s ahead":        {change: func(c *slacktest.Click) { c.At = time.Now().Add(302 * time.Second) }, status: 401},
		"wrong secret":       {change: func(c *slacktest.Click) { c.Secret = "0123456789abcdef0123456789abcdef" }, status: 401},
		"empty secret":       {forge: func(in *slacktest.Interaction) { sign(in, "") }, status: 401},
		"signed by token":    {forge: func(in *slacktest.Interaction) { sign(in, r.slack.BotToken) }, status: 401},
		"token, unsigned":    {forge: func(in *slacktest.Interaction) { unsign(in, r.slack.BotToken) }, status: 401},
		"no signature":       {forge: func(in *slacktest.Interaction) { in.Header.Del(signature) }, status: 401},
		"no timestamp":       {forge: func(in *slacktest.Interaction) { in.Header.Del("X-Slack-Request-Timestamp") }, status: 401},
		"two signatures":     {forge: func(in *slacktest.Interaction) { in.Header.Add(signature, in.Header.Get(signature)) }, status: 401},
		"body changed":       {forge: func(in *slacktest.Interaction) { in.Body = append(in.Body, '&') }, status: 401},
		"another app":        {change: func(c *slacktest.Click) { c.Mutate = slacktest.WrongApp("A0EVIL00001") }, status: 403},
		"another workspace":  {change: func(c *slacktest.Click) { c.Mutate = slacktest.WrongTeam("T0EVIL00001") }, status: 403},
		"another channel":    {change: func(c *slacktest.Click) { c.Mutate = slacktest.WrongChannel("C0ELSEWHERE") }, status: 200},
		"another user's org": {change: func(c *slacktest.Click) { c.Mutate = slacktest.UserTeam("T0EVIL00001") }, status: 200},
		"a bent button":      {change: func(c *slacktest.Click) { c.Mutate = slacktest.Value(bent) }, status: 200},
		"an empty button":    {change: func(c *slacktest.Click) { c.Mutate = slacktest.Value("") }, status: 200},
		"deny's as approve":  {change: func(c *slacktest.Click) { c.Mutate = slacktest.Value(q.card.Buttons()[1].Value) }, status: 200},
		"an old button":      {change: func(c *slacktest.Click) { c.Mutate = slacktest.ActionID("countersign:approve:v0") }, status: 200},
		"a view":             {change: func(c *slacktest.Click) { c.Mutate = func(p map[string]any) { p["type"] = "view_submission" } }, status: 422},
		"nobody":             {change: func(c *slacktest.Click) { c.Mutate = func(p map[string]any) { delete(p, "user") } }, status: 422},
		"two buttons": {status: 422, change: func(c *slacktest.Click) {
			c.Mutate = func(p map[string]any) { a := p["actions"].([]any); p["actions"] = append(a, a[0]) }
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := base
			if tc.change != nil {
				tc.change(&c)
			}
			in, err := r.slack.Prepare(c)
			if err != nil {
				t.Fatal(err)
			}
			if tc.forge != nil {
				tc.forge(in)
			}
			if x := r.slack.Send(within(t, 20*time.Second), in); x.Status != tc.status {
				t.Errorf("status %d, want %d: %s %v", x.Status, tc.status, x.Body, x.Err)
			}
			r.on(t).open(q)
		})
	}
	if v := r.votes(q.id()); len(v) != 0 {
		t.Errorf("votes: %v", v)
	}
	r.approved(q)
	r.verify()
}

const signature = "X-Slack-Signature"

// sign signs again, with something that is not the shared secret.
func sign(in *slacktest.Interaction, secret string) {
	in.Header.Set(signature, slacktest.Sign(secret, in.Header.Get("X-Slack-Request-Timestamp"), in.Body))
}

// unsign shows a token instead of a signature.
func unsign(in *slacktest.Interaction, token string) {
	in.Header.Del(signature)
	in.Header.Set("Authorization", "Bearer "+token)
}

// Whoever is not on the route, or is no full member any more, changes nothing by
// a click; the requester may say no and not yes.
func TestWrongPeople(t *testing.T) {
	t.Parallel()
	people := map[string]slacktest.User{
		"gus":   {ID: "U0GUS", Restricted: true},
		"una":   {ID: "U0UNA", UltraRestricted: true},
		"bert":  {ID: "U0BERT", Bot: true},
		"dora":  {ID: "U0DORA", Deleted: true},
		"sten":  {ID: "U0STEN", Stranger: true, TeamID: "T0OTHER0001"},
		"inge":  {ID: "U0INGE", Invisible: true},
		"appia": {ID: "U0APPIA", AppUser: true},
	}
	var lines, names []string
	for name, u := range people {
		names = append(names, name)
		lines = append(lines, fmt.Sprintf("  %s: {slack: %s}", name, u.ID))
	}
	r := newRig(t, rigOptions{People: strings.Join(lines, "\n")})
	r.write("policy.yaml", strings.Replace(r.policy(), "[group:ops]", "["+strings.Join(append(names, "group:ops"), ", ")+"]", 1))
	for _, u := range people {
		r.slack.AddUser(u)
	}
	g := r.start("a", "")
	c := g.client(testservers.Legacy)
	q := r.ask(c, 1)
	for _, u := range people {
		r.whispered(r.click(u.ID, q.card.TS, "approve"), "may not answer")
		r.whispered(r.click(u.ID, q.card.TS, "deny"), "may not answer")
	}
	r.whispered(r.click(mallorySlack, q.card.TS, "approve"), "not one of the people configured here")
	r.whispered(r.click(mallorySlack, q.card.TS, "deny"), "not one of the people configured here")
	r.whispered(r.click(anaSlack, q.card.TS, "approve"), "somebody else must approve it", "You may deny it")
	r.open(q)
	if v := r.ended(q.id(), "vote_refused", 2*len(people)+3); len(v) != 2*len(people)+3 {
		t.Errorf("%d refused votes on the ledger", len(v))
	}
	if v := r.votes(q.id()); len(v) != 0 {
		t.Errorf("votes: %v", v)
	}
	// Ana's no counts, and ends it.
	if x := r.click(anaSlack, q.card.TS, "deny"); x.Status != 200 {
		t.Fatalf("%+v", x)
	}
	res := await(t, q.got)
	if res.Approval().Status != "denied" || r.ran(1) != 0 {
		t.Errorf("ran %d; the agent got %s", r.ran(1), res.Result)
	}
	r.settled(q.card.TS, "Denied", "ana")
	r.verify()
}

// A click after the end is answered with what is true, and changes nothing.
func TestLateClick(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Timeout: 2500 * time.Millisecond})
	g := r.start("a", "")
	q := r.ask(g.client(testservers.Legacy), 1)
	if res := await(t, q.got); res.Approval().Status != "expired" {
		t.Fatalf("the agent got %s %s", res.Result, res.Error)
	}
	r.settled(q.card.TS, "Expired")
	for _, verdict := range []string{"approve", "deny"} {
		x := r.slack.Click(within(t, 20*time.Second), slacktest.Click{User: olgaSlack, Channel: channel, TS: q.card.TS, Verdict: verdict, Stale: true})
		r.whispered(x, "expired", "did not run", "changed nothing")
	}
	r.settled(q.card.TS, "Expired")
	again := await(t, call(g.client(testservers.Legacy), testservers.Do{N: 1}, testservers.Extra{}))
	if again.Approval().Status != "expired" || r.ran(1) != 0 {
		t.Errorf("ran %d; the agent got %s", r.ran(1), again.Result)
	}
	r.verify()
}

// A yes that races the deadline either counts, and then it runs, or it doesn't,
// and then it never does; clicker and caller are told the same.
func TestClickRacesExpiry(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Timeout: 10 * time.Second})
	g, other := r.start("a", ""), r.start("b", "")
	c := g.client(testservers.Modern)
	const rounds = 6
	cases := make([]int, rounds)
	together(t, cases, func(int) string { return "round" }, func(t *testing.T, i, _ int) {
		r := r.on(t)
		q := r.ask(c, 10+i)
		in, err := r.slack.Prepare(slacktest.Click{User: olgaSlack, Channel: channel, TS: q.card.TS, Verdict: "approve"})
		if err != nil {
			t.Fatal(err)
		}
		var shown struct{ Deadline time.Time }
		out, _ := g.operate("--json", "show", q.id())
		if err := json.Unmarshal([]byte(out), &shown); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		ctx, cancel := context.WithDeadline(context.Background(), shown.Deadline.Add(time.Duration(4*i-14)*time.Millisecond))
		defer cancel()
		<-ctx.Done() // the moment is what is tried
		x := r.slack.Send(within(t, 20*time.Second), in.To([]string{g.interactions(), other.interactions()}[i%2]))
		res := await(t, q.got)
		switch ran := r.ran(q.n); {
		case res.Approval().Status == "expired" && ran == 0:
			x.Request = in
			r.whispered(x, "expired")
			r.settled(q.card.TS, "Expired")
		case !res.IsError() && ran == 1:
			r.settled(q.card.TS, "It ran", "olga")
		default:
			t.Errorf("it ran %d times and the agent got %s %s", ran, res.Result, res.Error)
		}
	})
	r.verify()
}
