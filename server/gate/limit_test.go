package gate

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/server/policy"
)

// A limit refuses what would run or be asked for, says when it may be called
// again, and counts neither refusals nor a call that joins one that waits.
func TestLimits(t *testing.T) {
	b := newBench(t, settings(func(s *Settings) { s.Holds = map[string]time.Duration{"hasty": time.Millisecond} }))
	st := b.stateOf(testPolicy + "\nlimits:\n  - {match: \"*\", per: actor, rate: 1/h, burst: 2}\n")
	b.Load(st)
	hasty := func(args string) Answer {
		r := req(ana, "cancel_order", args)
		r.Client = "hasty"
		return b.Call(t.Context(), r)
	}
	if s := read(t, hasty(`{"n":1}`)); s.status() != "pending" {
		t.Fatalf("the first: %+v", s)
	}
	for range 5 { // joins; a denied tool; an unknown tool
		if s := read(t, hasty(`{ "n": 1 }`)); s.status() != "pending" {
			t.Fatalf("a call that joins was counted: %+v", s)
		}
		wantRefusal(t, b.do(ana, "no_such_tool", `{}`), codeParams, "unknown_tool")
	}
	if s := read(t, b.do(ana, "echo", `{}`)); s.IsError {
		t.Fatalf("the second: %+v", s)
	}
	over := b.do(ana, "echo", `{}`)
	wantRefusal(t, over, codeParams, "rate_limited")
	var after struct {
		Retry int64 `json:"retry_after_ms"`
		Rule  string
	}
	if err := json.Unmarshal(over.Error.Data, &after); err != nil {
		t.Fatal(err)
	}
	if after.Retry <= 0 || after.Retry > time.Hour.Milliseconds()+1 || after.Rule == "" {
		t.Errorf("it doesn't say when and why: %s", over.Error.Data)
	}
	wantRefusal(t, hasty(`{"n":2}`), codeParams, "rate_limited")
	b.pendingN(1)
	if s := read(t, b.do(dora, "echo", `{}`)); s.IsError {
		t.Errorf("another actor's budget: %+v", s)
	}
	if s := read(t, hasty(`{"n":1}`)); s.status() != "pending" {
		t.Errorf("what waits can't be joined over the limit: %+v", s)
	}
	tk := b.pendingN(1)[0]
	b.vote(tk, "ben", approvals.Approve, "")
	b.eventually("it is collected over the limit", func() bool { return !read(t, hasty(`{"n":1}`)).IsError })

	// The next policy goes on counting where it says the same, and this one says
	// nothing of limits.
	b.Load(b.stateOf(testPolicy + "\n# a comment\nlimits:\n  - {match: \"*\", per: actor, rate: 1/h, burst: 2}\n"))
	wantRefusal(t, b.do(ana, "echo", `{}`), codeParams, "rate_limited")
	b.Load(b.stateOf(testPolicy))
	if s := read(t, b.do(ana, "echo", `{}`)); s.IsError {
		t.Errorf("after the reload: %+v", s)
	}
}

// A caller whom there is no room to count for is over no limit that has a name.
func TestTooManyCallersAreNoNamedLimit(t *testing.T) {
	set, err := policy.Parse("policy.yaml", []byte(testPolicy+"\nlimits:\n  - {match: \"*\", per: actor, rate: 1/h, burst: 2}\n"))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	l := policy.NewLimiter(set.Limits(), func() time.Time { return now })
	for i := range 10_000 {
		if err := l.Allow(fmt.Sprint(i), "read", "desk", "echo"); err != nil {
			t.Fatal(err)
		}
	}
	k := &call{st: &State{limiter: l}, c: action.Call{Server: "desk", Tool: "echo", Actor: ana}}
	if no := k.limited(); no == nil || no.reason != "rate_limited" || no.rule != "" || no.after <= 0 {
		t.Errorf("%+v", no)
	}
}
