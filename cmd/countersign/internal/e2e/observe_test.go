package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/cmd/countersign/internal/e2e/testservers"
)

// While an upstream is observed nothing is posted and the call runs, recorded as
// observed; from the date on the same gate, never restarted, asks.
func TestObserveUntilADate(t *testing.T) {
	t.Parallel()
	for ahead := 10 * time.Second; ; ahead *= 2 {
		until := time.Now().Add(ahead).Truncate(time.Second)
		r := newRig(t, rigOptions{Policy: fmt.Sprintf(`version: 2
tools:
  judge/read_thing: read
  judge/do_thing: {tier: destructive, title: "Do thing {n}"}
  judge/fail_thing: deny
routes:
  default: {channels: [slack:%s], approvers: [group:ops], timeout: 1m}
observe: {upstreams: [judge], until: %s}
`, channel, until.Format(time.RFC3339))})
		g := r.start("a", "")
		c := g.client(testservers.Modern)
		do := testservers.Do{N: 1}
		res, err := c.Call(within(t, 30*time.Second), "do_thing", do.Args(), testservers.Extra{})
		if !time.Now().Before(until) {
			continue // a slow machine: the date was over before the call
		}
		if err != nil || res.IsError() || res.Error != nil {
			t.Fatalf("the observed call: %v: %s %s", err, res.Result, res.Error)
		}
		told(t, g.stderr.String(), "nobody is asked about calls of judge")
		if r.ran(1) != 1 || len(r.slack.Messages(channel)) != 0 {
			t.Errorf("it ran %d times, with %d messages", r.ran(1), len(r.slack.Messages(channel)))
		}
		r.observed(t, until)

		<-time.After(time.Until(until)) // it is the date itself that is waited for
		got := call(c, testservers.Do{N: 2}, testservers.Extra{})
		card := r.cardOf(2)
		if r.ran(2) != 0 {
			t.Error("it ran before anybody agreed")
		}
		if a := r.click(olgaSlack, card.TS, "approve"); a.Status != 200 {
			t.Fatalf("the click: %+v", a)
		}
		if res := await(t, got); res.IsError() || r.ran(2) != 1 {
			t.Errorf("after the yes: %s, ran %d times", res.Result, r.ran(2))
		}
		r.verify()
		return
	}
}

// observed looks at what the ledger says of the one observed call.
func (r *rig) observed(t *testing.T, until time.Time) {
	t.Helper()
	var decisions, loaded int
	for _, m := range r.records() {
		switch {
		case m["event"] == "decision" && m["tool"] == "do_thing":
			decisions++
			if m["outcome"] != "allow" || m["observed"] != true || fmt.Sprint(m["routes"]) != "[map[name:default quorum:1]]" ||
				fmt.Sprint(m["rules"]) != "[map[effect:review id:tier:destructive]]" {
				t.Errorf("the decision: %v", m)
			}
		case m["event"] == "policy_loaded":
			loaded++
			if fmt.Sprint(m["observe"]) != fmt.Sprintf("map[until:%s upstreams:[judge]]", until.UTC().Format(time.RFC3339)) {
				t.Errorf("the policy's record: %v", m)
			}
		case m["approval"] != nil:
			t.Errorf("something was parked: %v", m)
		}
	}
	if decisions != 1 || loaded != 1 {
		t.Errorf("%d decisions, %d policies", decisions, loaded)
	}
}
