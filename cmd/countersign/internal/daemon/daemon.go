// Package daemon joins the parts into one running gate. It is the only package
// that knows all of them, and it holds no rules of its own.
//
// New opens files and listeners; Start begins to serve; Stop ends waits, lets
// running calls finish and closes everything in reverse order. A daemon is
// started once.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/countersign-mcp/countersign/approvals/keys"
	"github.com/countersign-mcp/countersign/approvals/ledger"
	"github.com/countersign-mcp/countersign/approvals/store"
	"github.com/countersign-mcp/countersign/cmd/countersign/internal/config"
	"github.com/countersign-mcp/countersign/notifier"
	"github.com/countersign-mcp/countersign/notifier/link"
	"github.com/countersign-mcp/countersign/notifier/slack"
	"github.com/countersign-mcp/countersign/server"
	"github.com/countersign-mcp/countersign/server/gate"
	"github.com/countersign-mcp/countersign/webhook"
)

// Options are what a command adds to the configuration.
type Options struct {
	Version string
	Log     *slog.Logger
	// Stdio serves one client on standard input and output instead of the MCP
	// listener. With a shared Redis it then neither tells nor listens: some
	// `countersign serve` does.
	Stdio bool
	// Links receives the links of "link:PERSON" channels. Without it a policy
	// that names such a channel is refused.
	Links link.Sink
	// Load reads the configuration again, for Reload; nil where there is nothing
	// to read it from.
	Load func() (*config.Config, error)
}

// Addrs are the addresses that are listened on; empty where nothing is.
type Addrs struct{ MCP, Webhook, Admin string }

// Daemon is one running gate.
type Daemon struct {
	cfg *config.Config // of the start; what a reload exchanges is in rules
	opt Options
	log *slog.Logger

	ring     *keys.Ring
	rules    atomic.Pointer[rules]
	ledger   *ledger.Ledger
	store    *store.Store
	fleet    *fleet
	tokens   *server.Tokens
	metrics  *metrics
	gate     *gate.Gate
	edge     *server.Server
	refusals *refusals
	slack    *slack.Slack // nil without Slack
	teller   *notifier.Dispatcher
	hooks    *webhook.Server

	listeners map[string]net.Listener
	servers   []*http.Server
	cleanups  []cleanup

	generations *generations
	preparing   sync.Mutex // held by a reload, as long as it takes to read the files too
	reloading   sync.Mutex // held while a reload takes over, and by Stop when it begins
	stopped     bool
	loopCtx     context.Context // ends with the loops

	storeSeen atomic.Bool // the store passed its checks
	failed    chan error
	runner    *runner
	loops     sync.WaitGroup
	endLoops  context.CancelFunc
	stopOnce  sync.Once
	stopErr   error
}

// cleanup is one step of Stop; they run last in, first out. One that drains waits
// for others to end, and gets only a part of the time: what comes after it needs
// some too.
type cleanup struct {
	name   string
	drains bool
	run    func(ctx context.Context) error
}

// drainShare is the part of a stop's time that may be spent on waiting for
// callers and running calls. The rest is for the loops, the upstreams and the
// ledger.
const drainShare = 2.0 / 3

// New builds a daemon. On an error everything that was opened is closed again.
func New(cfg *config.Config, opt Options) (*Daemon, error) {
	d := &Daemon{
		cfg: cfg, opt: opt, log: opt.Log, failed: make(chan error, 1),
		listeners: map[string]net.Listener{}, metrics: newMetrics(opt.Version), generations: newGenerations(opt.Log),
		fleet: newFleet(opt.Log, opt.Version, cfg.Approvals.ExecTimeout),
	}
	d.metrics.follow(d.generations)
	for _, step := range []func() error{
		d.openRules, d.openLedger, d.openListeners, d.openStore, d.openUpstreams, d.openGate, d.openEdge, d.openTelling, d.openHooks,
	} {
		if err := step(); err != nil {
			_ = d.cleanup(context.Background())
			return nil, err
		}
	}
	return d, nil
}

func (d *Daemon) onStop(name string, run func(ctx context.Context) error) {
	d.cleanups = append(d.cleanups, cleanup{name: name, run: run})
}

func (d *Daemon) onDrain(name string, run func(ctx context.Context) error) {
	d.cleanups = append(d.cleanups, cleanup{name: name, drains: true, run: run})
}

func (d *Daemon) cleanup(ctx context.Context) error {
	drain, cancel := ctx, context.CancelFunc(func() {})
	if end, ok := ctx.Deadline(); ok {
		drain, cancel = context.WithTimeout(ctx, time.Duration(float64(time.Until(end))*drainShare))
	}
	defer cancel()
	var errs []error
	for i := len(d.cleanups) - 1; i >= 0; i-- {
		c := d.cleanups[i]
		in := ctx
		if c.drains {
			in = drain
		}
		if err := c.run(in); err != nil {
			errs = append(errs, fmt.Errorf("stopping %s: %w", c.name, err))
		}
	}
	d.cleanups = nil
	return errors.Join(errs...)
}

// tells says whether this process posts messages and hears answers.
func (d *Daemon) tells() bool { return !d.opt.Stdio || d.cfg.Redis.URL.IsZero() }

// Start begins to serve. It does not wait for Redis or Slack: without them
// harmless calls are served and the others refused, and /readyz says so.
func (d *Daemon) Start(ctx context.Context) error {
	loopCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	d.loopCtx, d.endLoops = loopCtx, cancel
	// Before the first call: a session must not be clean in between.
	if err := d.gate.Recall(ctx); err != nil {
		d.log.Warn("labels that a dead process gave to sessions may be missing; it is tried again", "error", err)
	}
	for name, run := range d.loopsToRun() {
		d.loops.Go(func() {
			if err := run(loopCtx); err != nil && loopCtx.Err() == nil {
				d.fail(fmt.Errorf("%s: %w", name, err))
			}
		})
	}
	for _, s := range d.servers {
		ln := d.listeners[s.Addr]
		go func() {
			if err := s.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
				d.fail(fmt.Errorf("serving %s: %w", s.Addr, err))
			}
		}()
	}
	return nil
}

func (d *Daemon) loopsToRun() map[string]func(context.Context) error {
	loops := map[string]func(context.Context) error{
		"store":     d.watchStore,
		"recovery":  d.recover,
		"upstreams": d.wake,
		"tools":     d.watchTools,
		"sweeper":   d.sweep,
		"ledger":    d.newClerk().run,
		"runner":    d.runner.loop,
		"heads":     d.tellHeads,
		"refusals":  d.refusals.run,
		"policy":    func(ctx context.Context) error { return d.generations.run(ctx, d.storeSeen.Load) },
	}
	if d.tells() {
		loops["notifier"] = d.teller.Run
		if d.slack != nil {
			loops["slack"] = d.identify
		}
	}
	return loops
}

func (d *Daemon) fail(err error) {
	select {
	case d.failed <- err:
	default: // the first failure is the one that matters
	}
}

// Failed gives the error that makes going on pointless.
func (d *Daemon) Failed() <-chan error { return d.failed }

// Addrs tells where it listens.
func (d *Daemon) Addrs() Addrs {
	at := func(name string) string {
		if ln := d.listeners[name]; ln != nil {
			return ln.Addr().String()
		}
		return ""
	}
	return Addrs{MCP: at(listenMCP), Webhook: at(listenWebhook), Admin: at(listenAdmin)}
}

// LedgerPath is this process's own ledger file.
func (d *Daemon) LedgerPath() string { return d.ledger.Path() }

// ServeStdio serves one client until in ends or ctx does.
func (d *Daemon) ServeStdio(ctx context.Context, in io.Reader, out io.Writer) error {
	who := stdioActor(d.cfg)
	if who.ID == "" {
		return errors.New("mcp.stdio.actor is empty: say who calls over standard input")
	}
	return d.edge.ServeStdio(ctx, in, out, who)
}

// Stop ends everything. Waiting callers are answered; running calls have two
// thirds of the time that ctx leaves, and are recorded as unknown after that. The
// upstreams, which are stopped at once and side by side, may take some seconds
// beyond ctx. It may be called more than once.
func (d *Daemon) Stop(ctx context.Context) error {
	d.stopOnce.Do(func() {
		d.reloading.Lock()
		d.stopped = true
		d.reloading.Unlock()
		d.stopErr = d.cleanup(ctx)
	})
	return d.stopErr
}

// stopLoops is a cleanup: the loops end after the listeners and before the store.
func (d *Daemon) stopLoops(ctx context.Context) error {
	if d.endLoops == nil {
		return nil
	}
	d.endLoops()
	done := make(chan struct{})
	go func() { d.loops.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

const retryStore = time.Second
