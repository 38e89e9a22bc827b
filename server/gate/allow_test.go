package gate

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/approvals/ledger"
	"github.com/countersign-mcp/countersign/server/upstream"
)

func TestAllowedCallPassesUnchangedAndIsRecorded(t *testing.T) {
	b := newBench(t)
	args := `{ "n":9007199254740993, "s":"\u003c", "a":[1.0, 1] }`
	r := req(ana, "echo", args)
	r.Call.Extra = json.RawMessage(`{"future": {"x":1.50}}`)
	r.Call.Meta = json.RawMessage(`{"trace":"t"}`)
	a := b.Call(t.Context(), r)
	want := `{"content":[{"type":"text","text":"ran"}],  "echo": ` + args + `,"unknownField":{"n":9007199254740993}}`
	if string(a.Result) != want {
		t.Errorf("got %s\nwant %s", a.Result, want)
	}
	frames := b.dir.Lines("frames.log")
	last := frames[len(frames)-1]
	if !strings.Contains(last, `"params":{"name":"echo","arguments":`+args+`,"future": {"x":1.50},"_meta":{"trace":"t"}}`) {
		t.Errorf("sent %s", last)
	}
	ops := b.ops()
	if diff := cmp.Diff([]string{"decision:allow", "exec_start:", "result:ok"}, b.told(ops[0])); diff != "" {
		t.Error(diff)
	}
	for _, rec := range b.records() {
		line, _ := json.Marshal(rec)
		if rec.Event == ledger.Decision && (rec.Actor != ana.ID || rec.Person != "ana") {
			t.Errorf("who asked: %s", line)
		}
		if strings.Contains(string(line), "9007199254740993") {
			t.Errorf("an argument is on the ledger: %s", line)
		}
	}
}

func TestEachCallHasAnOperationOfItsOwn(t *testing.T) {
	b := newBench(t)
	seen := map[string]bool{}
	for range 3 {
		b.do(ana, "echo", `{}`)
		b.do(ana, "nope", `{}`)
	}
	for _, op := range b.ops() {
		if seen[op] || !strings.HasPrefix(op, "cs_") || len(op) != 35 {
			t.Errorf("operation %q", op)
		}
		seen[op] = true
	}
	if len(seen) != 6 {
		t.Errorf("%d operations, want 6", len(seen))
	}
}

func TestOutcomesOfAllowedCalls(t *testing.T) {
	b := newBench(t)
	t.Run("a tool's own error passes", func(t *testing.T) {
		a := b.do(ana, "fail_read", `{}`)
		if string(a.Result) != `{"content":[{"type":"text","text":"no such order"}],"isError":true,"x":9007199254740993}` {
			t.Errorf("got %s", a.Result)
		}
	})
	t.Run("a protocol error passes raw", func(t *testing.T) {
		a := b.do(ana, "rpcerror_read", `{}`)
		if a.Error == nil || string(a.Error.Raw) != `{"code":-32050,"message":"own code","data":{"n":9007199254740993},"extra":true}` {
			t.Errorf("got %+v", a)
		}
	})
	t.Run("a crash is an unknown outcome, not an error to retry", func(t *testing.T) {
		s := read(t, b.do(ana, "crash_read", `{}`))
		if !s.IsError || !strings.Contains(s.text(), "nobody knows whether it ran") {
			t.Errorf("got %q", s.text())
		}
	})
	t.Run("progress is told", func(t *testing.T) {
		r := req(ana, "progress_read", `{}`)
		var got []string
		r.Tell = func(u Update) { got = append(got, string(u.Progress)) }
		if a := b.Call(t.Context(), r); a.Error != nil || len(got) != 3 {
			t.Errorf("%v: %v", a.Error, got)
		}
	})
	want := []string{"result:tool_error", "result:protocol_error", "result:unknown", "result:ok"}
	var got []string
	for _, op := range b.ops() {
		told := b.told(op)
		got = append(got, told[len(told)-1])
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestCallersEndCancelsAnAllowedCall(t *testing.T) {
	b := newBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan Answer, 1)
	go func() { done <- b.Call(ctx, req(ana, "hang_read", `{}`)) }()
	b.dir.Await("calls.log", 1)
	cancel()
	<-done
	b.dir.Await("cancelled.log", 1)
	if told := b.told(b.ops()[0]); told[len(told)-1] != "result:unknown" {
		t.Errorf("the ledger says %v", told)
	}
}

func TestUnwritableLedgerStopsEverything(t *testing.T) {
	b := newBench(t)
	b.do(ana, "echo", `{}`) // the upstream runs
	for _, e := range []ledger.Event{ledger.Decision, ledger.ExecStart} {
		b.book.refuseEvent(e)
		wantRefusal(t, b.do(ana, "echo", `{}`), codeInternal, "ledger_unavailable")
	}
	b.book.refuseEvent(ledger.Decision)
	wantRefusal(t, b.do(ana, "cancel_order", `{}`), codeInternal, "ledger_unavailable")
	wantRefusal(t, b.do(ana, "hidden_tool", `{}`), codeInternal, "ledger_unavailable")
	if n := len(b.dir.Calls()); n != 1 {
		t.Errorf("%d calls ran, want the first alone", n)
	}
	b.pendingN(0)

	b.book.refuseEvent(ledger.Result)
	s := read(t, b.do(ana, "echo", `{}`))
	if !s.IsError || !strings.Contains(s.text(), "could not be recorded") || strings.Contains(s.text(), "ran\n") {
		t.Errorf("got %q, want the unknown outcome", s.text())
	}
}

func TestUpstreamThatCanNotStart(t *testing.T) {
	b := newBench(t)
	down, err := upstream.New(upstream.Config{Name: "desk", Command: []string{"/nonexistent/server"}}, b.log)
	if err != nil {
		t.Fatal(err)
	}
	st := b.stateOf(testPolicy)
	st.Upstreams["desk"] = down
	b.Load(st)
	wantRefusal(t, b.do(ana, "echo", `{}`), codeInternal, "upstream_unavailable")
	wantRefusal(t, b.do(ana, "cancel_order", `{}`), codeInternal, "upstream_unavailable")
	wantRefusal(t, b.Tools(t.Context(), "desk", ana, nil), codeInternal, "upstream_unavailable")
}

func TestComposeNeverSendsAMemberTwice(t *testing.T) {
	got := compose(action.Call{
		Tool: "echo", Args: json.RawMessage(`{"a":1}`), Meta: json.RawMessage(`{"m":1}`),
		Extra: json.RawMessage(`{"name":"rm_rf","x":1,"arguments":{"b":2},"_meta":{}}`),
	})
	if want := `{"name":"echo","arguments":{"a":1},"x":1,"_meta":{"m":1}}`; string(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestClosingGateTakesNoCalls(t *testing.T) {
	b := newBench(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := b.Close(ctx); err != nil {
		t.Fatal(err)
	}
	wantRefusal(t, b.do(ana, "echo", `{}`), codeInternal, "stopping")
	wantRefusal(t, b.do(ana, "cancel_order", `{}`), codeInternal, "stopping")
	wantRefusal(t, b.do(ana, CollectTool, `{"approval_id":"x"}`), codeInternal, "stopping")
	if calls := b.dir.Calls(); calls != nil {
		t.Errorf("ran %v", calls)
	}
}
