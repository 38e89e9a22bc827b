package gate

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/approvals/ledger"
)

func TestCallsThatAreNotParked(t *testing.T) {
	none := func(*bench) {}
	tests := []struct {
		name   string
		who    action.Actor
		args   string
		change func(b *bench)
		code   int
		reason string
	}{
		{"an actor without a person", action.Actor{ID: "ghost@acme.test"}, `{}`, none, codeParams, "requester_unknown"},
		{"long arguments", ana, `{"x":"` + strings.Repeat("x", 1<<20) + `"}`, none, codeParams, "arguments_too_big"},
		{"nobody to tell", ana, `{}`, func(b *bench) {
			b.calls.on("NotifierAlive", func(func() error) error { return nil })
		}, codeParams, "no_notifier"},
		{"a store that does not answer", ana, `{}`, func(b *bench) {
			b.calls.on("NotifierAlive", func(func() error) error { return errors.New("down") })
		}, codeInternal, "store_unavailable"},
		{"a store that goes away", ana, `{}`, func(b *bench) {
			b.calls.on("Park", func(func() error) error { return approvals.StoreUnavailable })
		}, codeInternal, "store_unavailable"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t)
			tt.change(b)
			wantRefusal(t, b.do(tt.who, "cancel_order", tt.args), tt.code, tt.reason)
			b.pendingN(0)
			if b.dir.Calls() != nil {
				t.Error("it ran")
			}
			ops := b.ops()
			told := b.told(ops[0])
			wanted := []string{"decision:deny", "result:not_run"}
			if tt.reason == "store_unavailable" { // it may be parked, for all that is known
				wanted = []string{"decision:deny", "decision:review"}
			}
			if !slices.Contains(wanted, told[len(told)-1]) {
				t.Errorf("the ledger says %v", told)
			}
		})
	}
}

// Whatever is long is kept as long, so all parts of a call count.
func TestLongParamsAreNotParked(t *testing.T) {
	long := json.RawMessage(`{"x":"` + strings.Repeat("x", 1<<20) + `"}`)
	for name, change := range map[string]func(*action.Call){
		"_meta":         func(c *action.Call) { c.Meta = long },
		"other members": func(c *action.Call) { c.Extra = long },
		"request id":    func(c *action.Call) { c.RequestID = json.RawMessage(`"` + strings.Repeat("x", 1<<20) + `"`) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			r := req(ana, "cancel_order", `{}`)
			change(&r.Call)
			wantRefusal(t, b.Call(t.Context(), r), codeParams, "arguments_too_big")
			b.pendingN(0)
		})
	}
}

func TestReadsGoOnWithoutTheStore(t *testing.T) {
	b := newBench(t)
	b.mini.Close()
	if s := read(t, b.do(ana, "echo", `{}`)); s.IsError {
		t.Errorf("got %v", s)
	}
	wantRefusal(t, b.do(ana, "cancel_order", `{}`), codeInternal, "store_unavailable")
	wantRefusal(t, b.do(ana, CollectTool, `{"approval_id":"cs_1"}`), codeInternal, "store_unavailable")
	if err := b.mini.Restart(); err != nil {
		t.Fatal(err)
	}
}

func TestOwnersCountAsRequesters(t *testing.T) {
	b := newBench(t)
	ch, tk := b.parked(req(robot, "cancel_order", `{}`))
	if diff := cmp.Diff([]string{"ben"}, tk.Requirements[0].Excluded); diff != "" {
		t.Error(diff)
	}
	_, err := b.store.Decide(t.Context(), approvals.Vote{ID: tk.ID, Nonce: "n1", Person: "ben", Verdict: approvals.Approve, Source: "admin"})
	if !errors.Is(err, approvals.SelfApproval) {
		t.Errorf("an owner's yes: %v", err)
	}
	b.vote(tk, "cleo", approvals.Approve, "")
	read(t, <-ch)
}

func TestCapsAreRefusals(t *testing.T) {
	b := newBench(t, settings(func(s *Settings) {
		s.Caps.Parked = 2
		s.Hold = time.Hour
		s.Holds = map[string]time.Duration{"hasty": time.Millisecond}
	}))
	for _, args := range []string{`{"n":1}`, `{"n":2}`} {
		r := req(ana, "cancel_order", args)
		r.Client = "hasty"
		read(t, b.Call(t.Context(), r))
	}
	wantRefusal(t, b.do(ana, "cancel_order", `{"n":3}`), codeParams, "too_many_pending")
	r := req(ana, "cancel_order", `{"n":1}`) // attaching costs no budget
	r.Client = "hasty"
	if s := read(t, b.Call(t.Context(), r)); s.status() != "pending" {
		t.Errorf("got %v", s)
	}
	r = req(dora, "cancel_order", `{"n":3}`) // another actor's budget
	r.Client = "hasty"
	read(t, b.Call(t.Context(), r))
	if n := len(b.pendingN(3)); n != 3 {
		t.Error(n)
	}
}

func TestSecretsAreMaskedInWhatPeopleSee(t *testing.T) {
	b := newBench(t)
	_, tk := b.parked(req(ana, "cancel_order", `{"order":"1","api_key":"canary-5512"}`))
	if strings.Contains(tk.View.Text, "canary") || len(tk.View.Masked) != 1 || !strings.HasPrefix(tk.View.Masked[0].Digest, b.ring.ID()+".") {
		t.Errorf("%+v", tk.View)
	}
}

func TestRoutesThatAllMustSayIt(t *testing.T) {
	yes, no := approvals.Route{Links: "approve", Run: runOnApprove}, approvals.Route{}
	links := func(r approvals.Route) string { return r.Links }
	for _, tt := range []struct {
		routes []approvals.Route
		want   string
	}{{nil, ""}, {[]approvals.Route{yes}, "approve"}, {[]approvals.Route{yes, no}, ""}, {[]approvals.Route{yes, yes}, "approve"}} {
		if got := every(tt.routes, "approve", links); got != tt.want {
			t.Errorf("%v: %q", tt.routes, got)
		}
	}
}

// With nobody to tell, a call that was parked before is still found by the same
// call; only a new one is refused.
func TestNobodyToTellFindsWhatIsParked(t *testing.T) {
	b := newBench(t)
	first, tk := b.parked(req(ana, "cancel_order", `{"n":1}`))
	b.calls.on("NotifierAlive", func(func() error) error { return nil })
	again := b.later(req(ana, "cancel_order", `{ "n" : 1 }`))
	b.eventually("the same call attaches", func() bool { return b.waiting(tk.ID) == 2 })
	wantRefusal(t, b.do(ana, "cancel_order", `{"n":2}`), codeParams, "no_notifier")
	b.pendingN(1)
	b.vote(tk, "ben", approvals.Approve, "")
	for _, c := range []<-chan Answer{first, again} {
		if s := read(t, <-c); s.IsError {
			t.Errorf("got %+v", s)
		}
	}
	if n := len(b.dir.Calls()); n != 1 {
		t.Errorf("it ran %d times", n)
	}
}

// A call whose park has no clear reply may be parked all the same, and then run
// for whoever asks again. What the ledger said of the first answer must not make a
// run of which nobody knows the end into one that never was.
func TestUnclearParkSaysNothingOfTheRun(t *testing.T) {
	b := newBench(t)
	b.calls.on("Park", func(real func() error) error {
		if err := real(); err != nil {
			return err
		}
		return errLostReply
	})
	wantRefusal(t, b.do(ana, "cancel_order", `{"order":"1"}`), codeInternal, "store_unavailable")
	tk := b.pendingN(1)[0]
	if told := b.told(tk.ID); slices.Contains(told, "result:not_run") {
		t.Errorf("the ledger says of a call that waits: %v", told)
	}
	b.vote(tk, "ben", approvals.Approve, "")
	p, err := b.store.Load(t.Context(), tk.ID, ana)
	if err != nil {
		t.Fatal(err)
	}
	// This process claims it, begins, and dies.
	if _, err := b.store.Claim(t.Context(), tk.ID, p.Rev, p.Envelope.Digest(), "n", p.Envelope.Policy); err != nil {
		t.Fatal(err)
	}
	r := b.claimRecord(ledger.ExecStart, p)
	r.Approval = approvalOf(p.Ticket)
	if _, err := b.book.Append(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if err := b.book.Ledger.(*ledger.Ledger).Close(); err != nil {
		t.Fatal(err)
	}
	next := b.replica()
	if err := next.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := next.ticket(tk.ID); got.State != approvals.Unknown {
		t.Errorf("a call that may have run is %s (%s)", got.State, got.Cause)
	}
}

// What people are shown is judged by the schema that the tool has at the park: a
// masked value that it doesn't declare makes the view incomplete.
func TestViewKnowsTheToolsSchema(t *testing.T) {
	for _, tc := range []struct{ schema, missing string }{
		{`{"type":"object"}`, "masked, and not declared by the tool's schema or the policy: /password"},
		{`{"type":"object","properties":{"password":{"type":"string"}}}`, ""},
	} {
		b := newBench(t)
		b.dir.SetTools(strings.Replace(testTools, `"destructiveHint":false},"inputSchema":{"type":"object"}`, `"destructiveHint":false},"inputSchema":`+tc.schema, 1))
		ch, tk := b.parked(req(ana, "cancel_order", `{"order":"`+strconv.Itoa(len(tc.schema))+`","password":"hunter2"}`))
		if got := strings.Join(tk.View.Missing, "; "); got != tc.missing || tk.View.Complete() != (tc.missing == "") || strings.Contains(tk.View.Text, "hunter2") {
			t.Errorf("%s: missing %q, want %q\n%s", tc.schema, got, tc.missing, tk.View.Text)
		}
		b.vote(tk, "ben", approvals.Deny, "")
		<-ch
	}
}
