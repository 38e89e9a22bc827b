package gate

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/approvals/keys"
	"github.com/countersign-mcp/countersign/approvals/ledger"
	"github.com/countersign-mcp/countersign/approvals/store"
	"github.com/countersign-mcp/countersign/approvals/store/redistest"
	"github.com/countersign-mcp/countersign/server/policy"
	"github.com/countersign-mcp/countersign/server/upstream"
	"github.com/countersign-mcp/countersign/server/upstream/upstreamtest"
)

func TestMain(m *testing.M) {
	upstreamtest.Main()
	os.Exit(m.Run())
}

const testTools = `[
 {"name":"echo","description":"Reads.", "x-future":{"n":9007199254740993},"annotations":{"readOnlyHint":false,"title":"E"},"inputSchema":{"type":"object"}},
 {"name":"echo_note","inputSchema":{"type":"object"}},
 {"name":"cancel_order","description":"Cancels.","annotations":{"readOnlyHint":true,"destructiveHint":false},"inputSchema":{"type":"object"}},
 {"name":"hidden_tool","inputSchema":{"type":"object"}},
 {"name":"unlisted_tool","inputSchema":{"type":"object"}},
 {"name":"crash_it"},{"name":"crash_read"},{"name":"hang_it"},{"name":"hang_read"},{"name":"wait_read"},{"name":"wait_it"},{"name":"fail_it"},
 {"name":"leak_read"},{"name":"spill_read"},{"name":"leak_it"},
 {"name":"fail_read"},{"name":"rpcerror_it"},{"name":"rpcerror_read"},{"name":"big_it"},{"name":"progress_read"},
 {"name":"gone_order"},{"name":"auto_order"}
]`

const testPolicy = `version: 2
tools:
  desk/echo: read
  desk/echo_note: {tier: write, args: {title: {type: string, max_len: 5}}}
  desk/cancel_order: {tier: destructive, title: "Cancel {order}"}
  desk/crash_it: destructive
  desk/hang_it: destructive
  desk/wait_it: destructive
  desk/fail_it: destructive
  desk/rpcerror_it: destructive
  desk/big_it: destructive
  desk/missing_tool: destructive
  desk/crash_read: read
  desk/hang_read: read
  desk/wait_read: read
  desk/fail_read: read
  desk/leak_read: read
  desk/spill_read: read
  desk/leak_it: {tier: destructive, title: "Leak {order} to {list}"}
  desk/rpcerror_read: read
  desk/progress_read: read
  desk/gone_order: {tier: destructive, route: leaves}
  desk/auto_order: {tier: destructive, route: auto}
  desk/hidden_*: deny
routes:
  default: {channels: [link:ben], approvers: [ben, cleo], timeout: 15m, allow_requester: false}
  leaves: {channels: [link:ben], approvers: [ben], on_cancel: withdraw, allow_requester: false}
  auto: {channels: [link:ben], approvers: [ben], run: on_approve, allow_requester: false}
`

var (
	ana   = action.Actor{ID: "ana@acme.test", Auth: "token"}
	robot = action.Actor{ID: "robot@acme.test", Auth: "token", Owners: []string{"ben"}}
	dora  = action.Actor{ID: "dora@acme.test", Auth: "token"}
)

// bench is a gate on real parts: a store on miniredis, a ledger in a directory,
// an upstream process that counts its executions.
type bench struct {
	*Gate
	t      *testing.T
	mini   *miniredis.Miniredis // nil on a real server
	url    string
	store  *store.Store
	calls  *badStore
	book   *badLedger
	ledDir string
	dir    upstreamtest.Dir
	up     *upstream.Upstream
	ring   *keys.Ring
	set    Settings
	lease  time.Duration
	log    *slog.Logger // nothing is logged when nil
}

type option func(*bench)

func settings(change func(*Settings)) option { return func(b *bench) { change(&b.set) } }
func lease(d time.Duration) option           { return func(b *bench) { b.lease = d } }

// onRedis uses a private redis-server instead of miniredis.
func onRedis(b *bench) { b.url = redistest.Start(b.t).URL() }

func newBench(t *testing.T, opts ...option) *bench {
	t.Helper()
	b := &bench{t: t, ledDir: t.TempDir(), dir: upstreamtest.NewDir(t, testTools), set: Settings{Hold: 50 * time.Second}}
	for _, o := range opts {
		o(b)
	}
	if b.log == nil {
		b.log = slog.New(slog.DiscardHandler)
	}
	if b.url == "" {
		b.mini = miniredis.RunT(t)
		b.url = "redis://" + b.mini.Addr()
	}
	var err error
	if b.ring, err = keys.NewRing(keys.NewSecret()); err != nil {
		t.Fatal(err)
	}
	b.up, err = upstream.New(upstream.Config{
		Name: "desk", Command: b.dir.Command(), Env: b.dir.Env(), StopGrace: time.Second,
	}, b.log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.up.Close() })
	b.fill()
	return b
}

// fill makes ledger, store and gate; replica makes them once more on the same
// Redis: another process.
func (b *bench) fill() {
	t := b.t
	led, err := ledger.Open(b.ledDir, ledger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { led.Close() })
	b.book = &badLedger{Ledger: led}
	b.store, err = store.Open(t.Context(), store.Options{
		URL: b.url, Embedded: b.mini != nil, Ring: b.ring, Owner: led.ID(), Lease: b.lease,
		Log: b.log,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = b.store.Run(ctx) })
	wg.Go(func() {
		for ctx.Err() == nil {
			_ = b.store.Alive(ctx)
			select {
			case <-ctx.Done():
			case <-time.After(2 * time.Second):
			}
		}
	})
	b.calls = &badStore{Store: b.store}
	b.Gate, err = New(Config{
		Store: b.calls, Ledger: b.book, Ring: b.ring, Log: b.log, Settings: b.set,
		State: b.stateOf(testPolicy),
		Adopt: func() ([]*ledger.Dead, error) { return ledger.Adopt(b.ledDir) },
	})
	if err != nil {
		t.Fatal(err)
	}
	g, st := b.Gate, b.store
	t.Cleanup(func() {
		done, stop := context.WithTimeout(context.Background(), 5*time.Second)
		defer stop()
		_ = g.Close(done)
		cancel()
		wg.Wait()
		st.Close()
	})
	b.eventually("a notifier is alive", func() bool {
		ok, err := b.store.NotifierAlive(t.Context())
		return ok && err == nil
	})
}

func (b *bench) replica() *bench {
	r := *b
	r.fill()
	return &r
}

func (b *bench) stateOf(text string) State {
	b.t.Helper()
	set, err := policy.Parse("policy.yaml", []byte(text))
	if err != nil {
		b.t.Fatal(err)
	}
	if err := set.Bind([]string{"desk"}); err != nil {
		b.t.Fatal(err)
	}
	roster, err := approvals.NewRoster([]approvals.Person{
		{ID: "ana", Actors: []string{ana.ID}}, {ID: "ben"}, {ID: "cleo", Actors: []string{"cleo@acme.test"}}, {ID: "dora", Actors: []string{dora.ID}},
	}, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	return State{Policy: set, Roster: roster, Upstreams: map[string]Upstream{"desk": b.up}, Pins: Pins{FirstUse: true}}
}

func (b *bench) eventually(what string, ok func() bool) {
	b.t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.t.Fatal("waited in vain: ", what)
		}
	}
}

// waiting counts who waits for an approval in this process.
func (b *bench) waiting(id string) int {
	b.Gate.mu.Lock()
	defer b.Gate.mu.Unlock()
	if d := b.desks[id]; d != nil {
		return d.waiters
	}
	return 0
}

// req is a call on the upstream's own front.
func req(who action.Actor, tool, args string) Request {
	return Request{Front: "desk", Name: tool, Call: action.Call{
		Args: json.RawMessage(args), Actor: who, Version: "2025-11-25", RequestID: json.RawMessage("7"),
	}}
}

func (b *bench) do(who action.Actor, tool, args string) Answer {
	b.t.Helper()
	return b.Call(b.t.Context(), req(who, tool, args))
}

// later runs a call that will wait.
func (b *bench) later(r Request) <-chan Answer {
	out := make(chan Answer, 1)
	ctx := b.t.Context()
	go func() { out <- b.Call(ctx, r) }()
	return out
}

// pendingN waits until n approvals are pending.
func (b *bench) pendingN(n int) []approvals.Ticket {
	b.t.Helper()
	var got []approvals.Ticket
	b.eventually(fmt.Sprint(n, " pending"), func() bool {
		var err error
		got, err = b.store.List(b.t.Context(), []approvals.State{approvals.Pending}, 1000)
		return err == nil && len(got) == n
	})
	return got
}

// parked sends a call that waits and returns its approval.
func (b *bench) parked(r Request) (<-chan Answer, approvals.Ticket) {
	b.t.Helper()
	before, err := b.store.List(b.t.Context(), []approvals.State{approvals.Pending}, 1000)
	if err != nil {
		b.t.Fatal(err)
	}
	ch := b.later(r)
	for _, t := range b.pendingN(len(before) + 1) {
		if !slices.ContainsFunc(before, func(o approvals.Ticket) bool { return o.ID == t.ID }) {
			return ch, t
		}
	}
	b.t.Fatal("nothing was parked")
	return nil, approvals.Ticket{}
}

var nonces atomic.Int64

func (b *bench) vote(t approvals.Ticket, person string, v approvals.Verdict, reason string) {
	b.t.Helper()
	_, err := b.store.Decide(b.t.Context(), approvals.Vote{
		ID: t.ID, Nonce: fmt.Sprint("vote-", nonces.Add(1)), Person: person, Verdict: v, Source: "admin", Reason: reason, Bound: t.Bound,
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) ticket(id string) approvals.Ticket {
	b.t.Helper()
	t, err := b.store.Ticket(b.t.Context(), id)
	if err != nil {
		b.t.Fatal(err)
	}
	return t
}

// records reads all of the directory's ledgers, and checks their chains.
func (b *bench) records() []ledger.Record {
	b.t.Helper()
	files, err := ledger.Files(b.ledDir)
	if err != nil {
		b.t.Fatal(err)
	}
	var all []ledger.Record
	for _, f := range files {
		if filepath.Dir(f) == "." {
			f = filepath.Join(b.ledDir, f)
		}
		rep, err := ledger.ReadFile(f, func(r ledger.Record) error { all = append(all, r); return nil })
		if err != nil || rep.Kind != ledger.OK {
			b.t.Fatalf("%s: %v %v", f, rep, err)
		}
	}
	return all
}

// told lists the events of one operation, as "decision:allow" or "result:ok".
func (b *bench) told(op string) []string {
	var out []string
	for _, r := range b.records() {
		if r.OperationID == op {
			out = append(out, string(r.Event)+":"+r.Outcome+r.Status+r.To)
		}
	}
	return out
}

// ops lists the operations of decisions, in order.
func (b *bench) ops() []string {
	var out []string
	for _, r := range b.records() {
		if r.Event == ledger.Decision {
			out = append(out, r.OperationID)
		}
	}
	return out
}
