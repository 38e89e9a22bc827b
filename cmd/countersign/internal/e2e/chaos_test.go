package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/cmd/countersign/internal/e2e/testservers"
	"github.com/countersign-mcp/countersign/notifier/slacktest"
)

// chaosVariable says for how long TestChaos breaks things ("2m"). Without it the
// test is skipped: what it finds by luck the other tests look for one by one.
const chaosVariable = "COUNTERSIGN_E2E_CHAOS"

// chaos is a rig under fire: agents that call and call again, a person who
// answers every card, and a monkey.
type chaos struct {
	*rig
	proxy  *testservers.Proxy
	agents int

	mu    sync.Mutex
	gates []*gate
}

// Two replicas, their Redis and their network are killed, stopped, cut and
// frozen at random while agents call. Whatever happens: no approval runs twice,
// nothing runs without a yes, what is said to have run did, and each approval
// has one card.
func TestChaos(t *testing.T) {
	span, err := time.ParseDuration(os.Getenv(chaosVariable))
	if err != nil {
		t.Skipf("set %s to a duration to run it", chaosVariable)
	}
	const agents = 8
	o := rigOptions{Own: true, Hold: 5 * time.Second, Lease: 2 * time.Second, Timeout: 5 * time.Minute}
	for i := range agents {
		o.Tokens += fmt.Sprintf("      - {sha256: %s, actor: agent%d@acme.test}\n", hash(agentToken(i)), i)
		o.People += fmt.Sprintf("  agent%d: {actors: [agent%d@acme.test]}\n", i, i)
	}
	c := &chaos{rig: newRig(t, o), agents: agents}
	c.proxy = c.behindProxy()
	c.gates = []*gate{c.start("a", ""), c.start("b", "")}

	people, stopPeople := context.WithCancel(t.Context())
	var answering, calling sync.WaitGroup
	answering.Go(func() { c.answer(people) })
	over := make(chan struct{})
	for i := range agents {
		calling.Go(func() { c.agent(i, over) })
	}
	end := time.Now().Add(span)
	for time.Now().Before(end) && !t.Failed() {
		c.harm()
	}
	close(over)
	calling.Wait()
	stopPeople()
	answering.Wait()
	c.account()
	c.verify()
}

func agentToken(i int) string { return fmt.Sprint("token-of-agent-", i) }

func (c *chaos) any() *gate {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gates[rand.IntN(len(c.gates))]
}

// harm does one bad thing and undoes it, then leaves a moment of peace.
func (c *chaos) harm() {
	i := rand.IntN(len(c.gates))
	g := c.gates[i]
	moment := func(most time.Duration) { time.Sleep(rand.N(most)) }
	switch what := rand.IntN(7); what {
	case 0, 1:
		g.kill()
		moment(4 * time.Second)
		next := c.start(g.name, "")
		c.mu.Lock()
		c.gates[i] = next
		c.mu.Unlock()
	case 2:
		_ = g.cmd.Process.Signal(syscall.SIGSTOP)
		moment(5 * time.Second)
		g.goOn()
	case 3:
		c.proxy.Freeze()
	case 4:
		c.proxy.Down()
		moment(3 * time.Second)
		c.proxy.Up()
	case 5:
		c.redis.Kill()
		moment(2 * time.Second)
		c.restartRedis()
	case 6:
		for range 5 {
			<-c.proxy.DropReply(1+rand.IntN(5), nil)
		}
		c.slack.FailNext("*", slacktest.DropAfterCommit(), slacktest.ErrorBefore(), slacktest.DropBefore())
	}
	moment(1500 * time.Millisecond)
}

// answer is Olga, who looks at every card. What n she denies is fixed.
func (c *chaos) answer(ctx context.Context) {
	for ctx.Err() == nil {
		for _, m := range c.slack.Messages(channel) {
			if len(m.Buttons()) == 0 {
				continue
			}
			verdict := "approve"
			if denies(numberOf(m)) {
				verdict = "deny"
			}
			one, cancel := context.WithTimeout(ctx, 10*time.Second)
			c.slack.Click(one, slacktest.Click{User: olgaSlack, Channel: channel, TS: m.TS, Verdict: verdict, URL: c.any().interactions()})
			cancel()
		}
		time.Sleep(200 * time.Millisecond)
	}
}

func denies(n int) bool { return n%5 == 0 }

func numberOf(m slacktest.Message) int {
	var n int
	_, _ = fmt.Sscanf(strings.SplitN(m.Plain(), "\n", 2)[0], "Do thing %d", &n)
	return n
}

// agent makes one call after another, each until it hears how it ended.
func (c *chaos) agent(i int, over <-chan struct{}) {
	for k := range 50 { // an actor may ask for 60 an hour
		select {
		case <-over:
			return
		default:
		}
		n := 1 + i + k*c.agents
		if heard := c.insist(i, n); heard == "" {
			c.t.Errorf("agent %d never heard how %d ended", i, n)
			return
		}
	}
}

func (c *chaos) insist(i, n int) (heard string) {
	end := time.Now().Add(3 * time.Minute)
	do := testservers.Do{N: n}
	if n%2 == 1 { // slow enough to be hit
		do.Wait = fmt.Sprint("slow-", n)
		time.AfterFunc(2*time.Second+rand.N(4*time.Second), func() { _ = c.upstream.Release(do.Wait) })
	}
	for time.Now().Before(end) {
		ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
		cl := testservers.NewHTTP(c.any().MCP, agentToken(i), testservers.Modern)
		res, err := cl.Call(ctx, "do_thing", do.Args(), testservers.Extra{})
		cancel()
		if err != nil {
			time.Sleep(100 * time.Millisecond)
			continue
		}
		switch status := res.Approval().Status; {
		case strings.HasPrefix(res.Text(), fmt.Sprintf("do_thing done, n=%d", n)):
			return "ran"
		case status == "denied" || status == "unknown" || status == "succeeded":
			return status
		case res.Reason() == "too_many_pending":
			return "too many"
		}
		time.Sleep(50 * time.Millisecond)
	}
	return ""
}

// account compares what is said with what happened.
func (c *chaos) account() {
	g := c.gates[0]
	g.becomesReady()
	out, code := g.operate("--json", "list", "--all", "--max", "500")
	var list []struct {
		standing
		Title string `json:"title"`
		Votes []struct{ Verdict string }
	}
	if err := json.Unmarshal([]byte(out), &list); code != 0 || err != nil {
		c.t.Fatalf("approvals list: exit %d, %v\n%s", code, err, out)
	}
	ran := map[int]int{}
	for _, e := range c.upstream.Executions() {
		var a struct{ N int }
		if json.Unmarshal(e.Args, &a) == nil {
			ran[a.N]++
		}
	}
	surely, perhaps, states := map[int]int{}, map[int]int{}, map[string]int{}
	for _, a := range list {
		var n int
		_, _ = fmt.Sscanf(a.Title, "Do thing %d", &n)
		states[strings.TrimSuffix(a.State+"/"+a.Cause, "/")]++
		switch a.State {
		case "succeeded", "failed":
			surely[n]++
			perhaps[n]++
		case "unknown", "executing":
			perhaps[n]++
		}
		yes := slices.ContainsFunc(a.Votes, func(v struct{ Verdict string }) bool { return v.Verdict == "approve" })
		if !yes && slices.Contains([]string{"succeeded", "failed", "unknown", "executing", "not_run"}, a.State) {
			c.t.Errorf("%s of %d is %s without a yes", a.ID, n, a.State)
		}
		cards := 0
		for _, m := range c.slack.Messages(channel) {
			if strings.Contains(m.Plain(), a.ID) {
				cards++
			}
		}
		if cards > 1 {
			c.t.Errorf("%s of %d has %d cards", a.ID, n, cards)
		}
	}
	for n, times := range ran {
		if denies(n) || times > perhaps[n] {
			c.t.Errorf("%d ran %d times; its approvals allow %d", n, times, perhaps[n])
		}
	}
	for n, times := range surely {
		if ran[n] < times {
			c.t.Errorf("%d is said to have run %d times and ran %d", n, times, ran[n])
		}
	}
	c.t.Logf("%d approvals, %d calls ran: %v", len(list), len(ran), states)
}
