package store

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/approvals/keys"
	"github.com/countersign-mcp/countersign/approvals/store/redistest"
)

// One private redis-server for the tests of this package that don't need one of
// their own; each test has a namespace.
var shared struct {
	sync.Once
	*redistest.Server
	err error
}

func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "rapid.checks" })
	if !given {
		_ = flag.Set("rapid.checks", "40") // of about 30 steps each; the default of 100 is for a quiet night
	}
	code := m.Run()
	if shared.Server != nil {
		shared.Close()
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, "goroutines are left:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// place is a server with a namespace of its own and the store that is tested.
type place struct {
	*Store
	raw  *redis.Client
	mini *miniredis.Miniredis // nil on a real server
	opt  Options
}

var testRing = func() *keys.Ring {
	r, err := keys.NewRing(keys.NewSecret())
	if err != nil {
		panic(err)
	}
	return r
}()

var places atomic.Int64

func options(url string, embedded bool) Options {
	return Options{
		URL: url, Embedded: embedded, Namespace: fmt.Sprintf("t%d", places.Add(1)), Ring: testRing,
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Owner: "file-a",
	}
}

func openStore(t testing.TB, o Options) *Store {
	t.Helper()
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func onMini(t testing.TB, change ...func(*Options)) *place {
	t.Helper()
	m := miniredis.RunT(t)
	o := options("redis://"+m.Addr(), true)
	for _, c := range change {
		c(&o)
	}
	raw := redis.NewClient(&redis.Options{Addr: m.Addr(), Protocol: 2})
	t.Cleanup(func() { raw.Close() })
	return &place{Store: openStore(t, o), raw: raw, mini: m, opt: o}
}

func onRedis(t testing.TB, change ...func(*Options)) *place {
	t.Helper()
	shared.Do(func() { shared.Server, shared.err = redistest.Launch() })
	if errors.Is(shared.err, redistest.ErrMissing) && os.Getenv("CI") != "true" {
		t.Skip("skipped: ", shared.err)
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	o := options(shared.URL(), false)
	for _, c := range change {
		c(&o)
	}
	return &place{Store: openStore(t, o), raw: shared.Client(), opt: o}
}

// everywhere runs a test on both servers.
func everywhere(t *testing.T, test func(t *testing.T, p *place), change ...func(*Options)) {
	t.Run("redis", func(t *testing.T) { test(t, onRedis(t, change...)) })
	t.Run("miniredis", func(t *testing.T) { test(t, onMini(t, change...)) })
}

// another opens a second store on the same server and namespace: another
// process.
func (p *place) another(t testing.TB, change ...func(*Options)) *Store {
	o := p.opt
	for _, c := range change {
		c(&o)
	}
	return openStore(t, o)
}

var serial atomic.Int64

func newID() string { return fmt.Sprintf("op-%d", serial.Add(1)) }

// request is a park of cancel_order by ana on the route "ops", for ben and cleo.
func request(args string, change ...func(*approvals.Park)) approvals.Park {
	route := approvals.Route{Name: "ops", Approvers: []string{"ben", "cleo", "ana", "group:ops"}, Quorum: 1, Timeout: 15 * time.Minute}
	id := newID()
	p := approvals.Park{
		Nonce: "park-" + id, Requester: "ana", Title: "Cancel order", View: approvals.View{Text: "shown"},
		Channels: []string{"slack:C1", "link:ben"}, Caps: approvals.DefaultCaps,
		Requirements: []approvals.Requirement{route.Require([]string{"ana"})},
		Envelope: action.Envelope{OperationID: id, Tier: "destructive", Call: action.Call{
			Server: "orders", Tool: "cancel_order", Args: json.RawMessage(args),
			Actor: action.Actor{ID: "ana@acme.test", Auth: "token"},
		}},
	}
	for _, c := range change {
		c(&p)
	}
	return p
}

func twoRoutes(p *approvals.Park) {
	ops := approvals.Route{Name: "ops", Approvers: []string{"ben", "cleo", "ana"}, Quorum: 2, Timeout: 10 * time.Minute}
	sec := approvals.Route{Name: "security", Approvers: []string{"cleo", "dan"}, Quorum: 1, Timeout: 5 * time.Minute}
	p.Requirements = []approvals.Requirement{ops.Require([]string{"ana"}), sec.Require([]string{"ana"})}
}

func (p *place) park(t testing.TB, r approvals.Park) approvals.Ticket {
	t.Helper()
	got, fresh, err := p.Park(t.Context(), r)
	if err != nil || !fresh {
		t.Fatalf("Park: fresh %v, %v", fresh, err)
	}
	return got
}

func vote(id, person string, v approvals.Verdict, change ...func(*approvals.Vote)) approvals.Vote {
	out := approvals.Vote{ID: id, Nonce: newID(), Person: person, Verdict: v, Source: "admin"}
	for _, c := range change {
		c(&out)
	}
	return out
}

func (p *place) decide(t testing.TB, v approvals.Vote) approvals.Ticket {
	t.Helper()
	got, err := p.Decide(t.Context(), v)
	if err != nil {
		t.Fatalf("Decide: %v", err)
	}
	return got
}

// noPolicy is the digest of a policy in a place where none was published.
var noPolicy action.Digest

// ends ends an approval without a run, whichever way.
func (p *place) ends(t testing.TB, id string, to approvals.State, by string) (approvals.Ticket, error) {
	if to == approvals.Void {
		return p.Void(t.Context(), id, "", noPolicy)
	}
	return p.End(t.Context(), id, to, "", by, "")
}

func (p *place) approved(t testing.TB, r approvals.Park) approvals.Ticket {
	t.Helper()
	p.park(t, r)
	return p.decide(t, vote(r.Envelope.OperationID, "ben", approvals.Approve))
}

func (p *place) claim(t testing.TB, r approvals.Park, nonce string) approvals.Grant {
	t.Helper()
	now := p.ticket(t, r.Envelope.OperationID)
	g, err := p.Claim(t.Context(), now.ID, now.Rev, r.Envelope.Digest(), nonce, noPolicy)
	if err != nil {
		t.Fatalf("Claim: %v", err)
	}
	return g
}

func (p *place) ticket(t testing.TB, id string) approvals.Ticket {
	t.Helper()
	got, err := p.Ticket(t.Context(), id)
	if err != nil {
		t.Fatalf("Ticket: %v", err)
	}
	return got
}

func (p *place) load(t testing.TB, id string) approvals.Parked {
	t.Helper()
	got, err := p.Load(t.Context(), id, action.Actor{ID: "ana@acme.test"})
	if err != nil {
		t.Fatalf("Load: %v", err)
	}
	return got
}

// set writes into the record as somebody with access to Redis would.
func (p *place) set(t testing.TB, id string, fields ...any) {
	t.Helper()
	if err := p.raw.HSet(t.Context(), p.k.record(id), fields...).Err(); err != nil {
		t.Fatal(err)
	}
}

// at moves miniredis's clock to a moment.
func (p *place) at(when time.Time) { p.mini.SetTime(when) }

func want(t testing.TB, err error, c approvals.Conflict) {
	t.Helper()
	if got, _ := approvals.AsConflict(err); got != c {
		t.Fatalf("got %v, want %s", err, c)
	}
}

func wantState(t testing.TB, got approvals.Ticket, s approvals.State) {
	t.Helper()
	if got.State != s {
		t.Fatalf("the state is %s (%s), want %s", got.State, got.Cause, s)
	}
}

// events drains the event stream and checks that the numbers have no gap.
func (p *place) events(t testing.TB) []approvals.Event {
	t.Helper()
	var all []approvals.Event
	for {
		evs, ids, err := p.Events(t.Context(), "test", 100, 0)
		if err != nil {
			t.Fatal(err)
		}
		if len(evs) == 0 {
			break
		}
		all = append(all, evs...)
		if err := p.EventsDone(t.Context(), ids...); err != nil {
			t.Fatal(err)
		}
	}
	for i, e := range all {
		if i > 0 && e.Seq != all[i-1].Seq+1 {
			t.Fatalf("event %d follows %d", e.Seq, all[i-1].Seq)
		}
	}
	return all
}

func kinds(evs []approvals.Event) (out []string) {
	for _, e := range evs {
		k := e.Kind
		if k == "state" {
			k = string(e.State)
		}
		out = append(out, k)
	}
	return out
}

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// until asks again and again whether something has come about.
func until(t testing.TB, what string, come func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !come(); {
		if time.Now().After(end) {
			t.Fatal("never: " + what)
		}
		runtime.Gosched()
	}
}
