package e2e

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/cmd/countersign/internal/e2e/testservers"
)

// Reading is free, and so is doing, until the session has read something.
const readingPolicy = `version: 2
tools:
  judge/read_thing: {tier: read, produces: retrieved}
  judge/do_thing: {tier: write, title: "Do thing {n}"}
rules:
  - id: after-reading
    tools: [judge/do_thing]
    effect: review
    when: labels("").exists(l, l in ["session:retrieved", "unknown"])
    reason: the session has read what others wrote
  - id: from-a-page
    tools: [judge/do_thing]
    effect: deny
    when: '"retrieved" in labels("/n")'
    reason: a page does not choose it
routes:
  default: {channels: [slack:` + channel + `], approvers: [group:ops], allow_requester: false}
`

// inSession is what a client says of its session and of where n comes from.
func inSession(session, n string) testservers.Extra {
	meta := map[string]any{"countersign/session": session}
	if n != "" {
		meta["countersign/provenance"] = map[string]any{"v": 1, "labels": map[string]any{"/n": []string{n}}}
	}
	b, err := json.Marshal(meta)
	if err != nil {
		panic(err)
	}
	return testservers.Extra{Meta: b}
}

// What a session has read it carries: past a kill right before the call left, in
// the next process, and in another beside it.
func TestSessionsCarryWhatTheyHaveRead(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Policy: readingPolicy, Hold: time.Second})
	dying := r.start("a", "labels.after=kill")
	_, err := dying.client(testservers.Modern).Call(within(t, 20*time.Second), "read_thing", json.RawMessage(`{}`), inSession("s", ""))
	if err == nil {
		t.Error("the call was answered by a process that was killed before")
	}
	dying.died()
	if n := r.upstream.Ran("read_thing"); n != 0 {
		t.Errorf("it ran %d times", n)
	}

	for i, name := range []string{"a", "b"} { // the next process, and one beside it
		c := r.start(name, "").client(testservers.Modern)
		do := func(session, n string) testservers.Reply {
			t.Helper()
			reply, err := c.Call(within(t, 30*time.Second), "do_thing", testservers.Do{N: 10 + i}.Args(), inSession(session, n))
			if err != nil {
				t.Fatal(err)
			}
			return reply
		}
		ran := r.upstream.Ran("do_thing")
		if got := do("s", "user"); got.Error != nil || !got.IsError() {
			t.Errorf("%s: the session that has read was not asked for: %s", name, got.Text())
		}
		r.judge(ran, "while it waited")
		if got := do(fmt.Sprint("new", i), "user"); got.Error != nil || got.IsError() {
			t.Errorf("%s: another session: %s", name, got.Text())
		}
		r.judge(ran+1, "in another session")
		if got := do("s", "retrieved"); got.Code() != -32602 || got.Reason() != "policy_denied" {
			t.Errorf("%s: what a page chose: %s", name, got.Text())
		}
		if got := do("s", "trusted"); got.Code() != -32602 || got.Reason() != "malformed" {
			t.Errorf("%s: a claim that is none: %s", name, got.Text())
		}
		r.judge(ran+1, "after the refusals")
	}
	asked := false
	for _, rec := range r.records() {
		if labels, _ := rec["labels"].([]any); rec["event"] == "decision" && len(labels) > 0 {
			asked = asked || rec["outcome"] == "review" && fmt.Sprint(labels) == "[session:retrieved unknown]"
		}
	}
	if !asked {
		t.Error("no decision on the ledger has the labels")
	}
	r.verify()
}
