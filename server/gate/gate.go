package gate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/approvals/keys"
	"github.com/countersign-mcp/countersign/approvals/ledger"
	"github.com/countersign-mcp/countersign/server/pins"
	"github.com/countersign-mcp/countersign/server/policy"
	"github.com/countersign-mcp/countersign/server/provenance"
	"github.com/countersign-mcp/countersign/server/upstream"
)

// Store is what the gate needs of the store of approvals. Every method may be
// sent twice with the same nonce; an error that is not an approvals.Conflict
// never means that nothing was written.
type Store interface {
	Park(ctx context.Context, p approvals.Park) (t approvals.Ticket, fresh bool, err error)
	Wait(ctx context.Context, id string, rev uint64) (approvals.Ticket, error)
	Ticket(ctx context.Context, id string) (approvals.Ticket, error)
	Load(ctx context.Context, id string, who action.Actor) (approvals.Parked, error)
	Recount(p approvals.Parked) error
	Claim(ctx context.Context, id string, rev uint64, d action.Digest, nonce string, policy action.Digest) (approvals.Grant, error)
	Renew(ctx context.Context, g approvals.Grant) error
	Finish(ctx context.Context, g approvals.Grant, o approvals.Outcome) (approvals.Ticket, error)
	End(ctx context.Context, id string, to approvals.State, cause, by, why string) (approvals.Ticket, error)
	Void(ctx context.Context, id, cause string, policy action.Digest) (approvals.Ticket, error)
	Claims(ctx context.Context, owner string) ([]approvals.Grant, error)
	NotifierAlive(ctx context.Context) (bool, error)
	provenance.Store
	List(ctx context.Context, states []approvals.State, limit int) ([]approvals.Ticket, error)
	PinStore
}

// Ledger is what the gate needs of this process's own ledger.
type Ledger interface {
	ID() string
	Append(ctx context.Context, recs ...ledger.Record) (ledger.Pos, error)
	Started(id string) (bool, error)
}

// Upstream is one MCP server; *upstream.Upstream is one.
type Upstream interface {
	Do(ctx context.Context, r upstream.Request) (json.RawMessage, error)
	Tools(ctx context.Context) ([]json.RawMessage, error)
	Generation() uint64
	Await(ctx context.Context, gen uint64) (uint64, error)
	Info() upstream.Info
	Identity() action.Digest
}

// State is what a reload exchanges as a whole. It is not changed after Load.
type State struct {
	Policy    *policy.Set // bound to the upstreams' names
	Roster    *approvals.Roster
	Upstreams map[string]Upstream
	Pins      Pins
	// Starts are how the upstreams are started, as people may read it, for what they
	// are shown when one is another server. One that is not there is shown by its
	// name alone.
	Starts map[string]pins.Server
	// Callers are all who may call, as their credentials have it: one entry for
	// each, before the policy gives roles. nil: whoever the edge lets in.
	Callers []action.Actor
	// Gone are the ids of those who could call before and can't any more. What
	// they have parked is not run.
	Gone map[string]bool

	limiter *policy.Limiter // of Policy; nil limits nothing
}

// Settings are the numbers of the configuration. Zero values mean the defaults.
type Settings struct {
	Hold        time.Duration            // how long a call waits at most, with its run; default 45 s
	Holds       map[string]time.Duration // by clientInfo.name
	ExecTimeout time.Duration            // of one execution; default 10 m
	Lease       time.Duration            // of a claim; default 30 s
	NoCollect   bool                     // countersign_collect is not offered
	// RefuseAsError makes the ends of an approval JSON-RPC errors (-32602)
	// instead of isError results.
	RefuseAsError bool
	Caps          approvals.Caps
	ReviewArgs    int // bytes of a reviewed call's arguments and other params; default 1 MiB
	Waiters       int // on one approval in this process; default 8
}

// Config is what New needs; Adopt, Now and Behind alone may be nil.
type Config struct {
	Store    Store
	Ledger   Ledger
	Ring     *keys.Ring
	Log      *slog.Logger
	State    State
	Settings Settings
	// Adopt takes the ledgers of dead processes, for Recover.
	Adopt func() ([]*ledger.Dead, error)
	// Now is the wall clock that ends a policy's observe; default time.Now.
	Now func() time.Time
	// Behind, when set, hears that the store refused a step because another
	// process has published another policy. It must return at once.
	Behind func()
}

// Gate is the pipeline. It is safe for concurrent use.
type Gate struct {
	store    Store
	ledger   Ledger
	ring     *keys.Ring
	log      *slog.Logger
	set      Settings
	adopt    func() ([]*ledger.Dead, error)
	now      func() time.Time
	state    atomic.Pointer[State]
	loading  sync.RWMutex // held while the state is exchanged
	onBehind func()
	gates    gates
	lists    singleflight.Group
	sessions *provenance.Sessions
	flushing atomic.Bool // labels are being written later
	schemas  schemas
	pins     PinStore // the store, for pins alone
	board    board
	watchmen sync.Map      // upstream's name → *watchman
	epoch    atomic.Uint64 // grows when what is pinned may have changed
	listings sync.Map      // Upstream → *catalogue, the last one
	recovery recovery

	reloaded chan struct{}   // a state was loaded; for Watch
	life     context.Context // ends with Close; background work lives by it
	stop     context.CancelFunc

	mu         sync.Mutex
	closing    bool
	closed     bool
	work       sync.WaitGroup // executions and their finishing
	afterwards sync.WaitGroup // what Close ends: it grows under mu, and not once closed
	runs       map[string]*run
	desks      map[string]*desk
}

// New makes a gate. It starts nothing.
func New(c Config) (*Gate, error) {
	if c.Store == nil || c.Ledger == nil || c.Ring == nil || c.Log == nil {
		return nil, errors.New("gate: store, ledger, ring and log are required")
	}
	s := c.Settings
	s.Hold = cmp.Or(s.Hold, 45*time.Second)
	s.ExecTimeout = cmp.Or(s.ExecTimeout, 10*time.Minute)
	s.Lease = cmp.Or(s.Lease, 30*time.Second)
	s.ReviewArgs = cmp.Or(s.ReviewArgs, 1<<20)
	s.Waiters = cmp.Or(s.Waiters, 8)
	s.Caps.Parked = cmp.Or(s.Caps.Parked, approvals.DefaultCaps.Parked)
	s.Caps.NewPerHour = cmp.Or(s.Caps.NewPerHour, approvals.DefaultCaps.NewPerHour)
	s.Caps.Total = cmp.Or(s.Caps.Total, approvals.DefaultCaps.Total)
	g := &Gate{
		store: c.Store, pins: c.Store, ledger: c.Ledger, ring: c.Ring, log: c.Log, set: s, adopt: c.Adopt, now: c.Now, onBehind: c.Behind,
		gates: theGates(), sessions: provenance.NewSessions(c.Store, c.Log), reloaded: make(chan struct{}, 1),
		runs: map[string]*run{}, desks: map[string]*desk{},
	}
	if g.now == nil {
		g.now = time.Now
	}
	g.life, g.stop = context.WithCancel(context.Background())
	g.Load(c.State)
	return g, nil
}

// Load exchanges policy, people and upstreams at once. Calls that were judged
// before are judged again by the new state right before they are forwarded.
func (g *Gate) Load(s State) {
	s.Upstreams = maps.Clone(s.Upstreams)
	if s.Roster == nil {
		s.Roster, _ = approvals.NewRoster(nil, nil) // nobody: no error is possible
	}
	if s.Policy == nil {
		s.Policy = new(policy.Set) // lists nothing, so denies everything
	}
	if was := g.state.Load(); was != nil {
		s.limiter = was.limiter.Next(s.Policy.Limits()) // a reload forgets no calls
	} else {
		s.limiter = policy.NewLimiter(s.Policy.Limits(), time.Now)
	}
	if g.state.Swap(&s) == nil {
		return
	}
	g.anew() // other upstreams, and other pins
	select {
	case g.reloaded <- struct{}{}:
	default: // it is told already
	}
}

// Fronts lists the upstreams' names.
func (g *Gate) Fronts() []string { return slices.Sorted(maps.Keys(g.state.Load().Upstreams)) }

// Info is what a front's upstream said of itself; empty where there are several
// behind it or nothing is known yet.
func (g *Gate) Info(front string) Info {
	st := g.state.Load()
	if front == "" {
		front = st.only()
	}
	up := st.Upstreams[front]
	if up == nil {
		return Info{}
	}
	i := up.Info()
	return Info{Name: i.Name, Version: i.Version, Instructions: i.Instructions}
}

// only is the name of the one upstream, or "".
func (s *State) only() string {
	if len(s.Upstreams) != 1 {
		return ""
	}
	for name := range s.Upstreams {
		return name
	}
	return ""
}

// ErrStopping is the cause with which the edge ends a call's context when the
// process stops. Nobody has left then: the wait ends and nothing is withdrawn,
// and an allowed call that runs goes on until Close gives it up.
var ErrStopping = errors.New("the gate is being stopped")

// lastWords is how long the calls that Close gives up have to be recorded.
const lastWords = 2 * time.Second

// Close refuses new calls, waits for the executions that are under way until ctx
// ends, gives up those that still run, and stops the background work. What is
// left undone is found by Recover in the next process.
func (g *Gate) Close(ctx context.Context) error {
	g.mu.Lock()
	g.closing = true
	g.mu.Unlock()
	done := make(chan struct{})
	go func() { g.work.Wait(); close(done) }()
	var err error
	select {
	case <-done:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.stop()
	g.flushLast(ctx)
	rest := make(chan struct{})
	go func() { g.afterwards.Wait(); <-done; close(rest) }()
	select {
	case <-rest:
	case <-time.After(lastWords):
	}
	return err
}

// untilLeft is the context of a call that its caller may cancel. It ends with
// ctx unless that ended because the process stops, and with the gate.
func (g *Gate) untilLeft(ctx context.Context) (context.Context, context.CancelFunc) {
	run, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	onLeave := context.AfterFunc(ctx, func() {
		if why := context.Cause(ctx); !errors.Is(why, ErrStopping) {
			cancel(why)
		}
	})
	onStop := context.AfterFunc(g.life, func() { cancel(ErrStopping) })
	return run, func() { onLeave(); onStop(); cancel(nil) }
}

// begin counts a piece of work that Close waits for; false when it is too late.
func (g *Gate) begin() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closing {
		return false
	}
	g.work.Add(1)
	return true
}
