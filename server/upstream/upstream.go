// Package upstream is the client side of MCP: it starts a server as a child
// process, keeps it running, and sends requests to it as raw frames, so that the
// bytes of arguments and results are the same on both sides.
//
// What matters to a gate is what is known after a failure: [ErrNotSent] says
// that the call can't have run, [ErrLost] that it may have.
package upstream

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/countersign-mcp/countersign/approvals/action"
)

// Config says how an upstream is started. Times of zero mean the defaults.
type Config struct {
	Name    string            // from the configuration; for logs and errors
	Command []string          // program and arguments; no shell
	Env     map[string]string // beside PATH, HOME, TMPDIR, the locale and their like
	Dir     string            // working directory; empty means ours
	Version string            // our own version, for clientInfo

	ShowStderr bool // log what the child writes to stderr; it may hold arguments

	StartTimeout time.Duration // of start and handshake together; default 60 s
	ProbeTimeout time.Duration // of the first server/discover; default 10 s
	StopGrace    time.Duration // before SIGTERM and again before SIGKILL; default 5 s
}

// Request is one request. Params are an object; its _meta gets a progress token
// of our own, and the protocol's members where the upstream's era needs them.
type Request struct {
	Method string
	Params json.RawMessage
	// Progress may be nil. It gets the params of notifications/progress as sent,
	// on the goroutine that called Do, before Do returns.
	Progress func(params json.RawMessage)
	// Before is the moment after which not a byte may be written any more, by
	// the monotonic and by the wall clock; zero means no such moment. It is
	// looked at right before the write.
	Before time.Time
	// Generation is that of the list of tools which the caller knows: the request
	// goes to the process that gave it or is not sent. Zero means any process.
	Generation uint64
}

// Fault is a JSON-RPC error that the upstream answered with.
type Fault struct {
	Code    int
	Message string
	Raw     json.RawMessage // the error member as sent
}

func (f *Fault) Error() string {
	return fmt.Sprintf("the upstream answered with error %d", f.Code)
}

// The ways in which no answer came. Compare with errors.Is.
var (
	// ErrNotSent: no byte of the request was written, so it can't have run.
	ErrNotSent = errors.New("the request was not sent")
	// ErrLost: the request was written, at least partly, and no answer was read.
	ErrLost = errors.New("the request was sent and no answer was read")
	// ErrTooLate is an ErrNotSent: Request.Before had passed.
	ErrTooLate = fmt.Errorf("it was too late: %w", ErrNotSent)
	// ErrChanged is an ErrNotSent: the process of Request.Generation is no more.
	ErrChanged = fmt.Errorf("another process listed its tools: %w", ErrNotSent)
)

// Info is what the upstream said of itself.
type Info struct {
	Name, Version, Instructions string
	Protocol                    string          // MCP version in use; empty before the first handshake
	Capabilities                json.RawMessage // as declared, not changed by anyone; nil when it declared none
}

// Upstream is one server. It is safe for concurrent use.
type Upstream struct {
	cfg Config
	log *slog.Logger

	mu       sync.Mutex
	peer     *peer         // the last process that was started; may have ended
	starting *launch       // the start under way, if any
	lastErr  error         // why the last start or life ended
	failures int           // starts and lives that ended badly, in a row
	notUntil time.Time     // no new start before this
	gen      uint64        // see Generation
	moved    chan struct{} // closed when gen moves, and made anew
	info     Info
	closed   bool
}

// launch is a start that several may wait for.
type launch struct {
	cancel context.CancelFunc
	done   chan struct{} // closed at the end; then peer or err is set
	peer   *peer
	err    error
}

// New makes an upstream. Its process starts with the first request or Start.
func New(cfg Config, log *slog.Logger) (*Upstream, error) {
	if len(cfg.Command) == 0 || cfg.Command[0] == "" {
		return nil, fmt.Errorf("upstream %s has no command", cfg.Name)
	}
	cfg.StartTimeout = cmp.Or(cfg.StartTimeout, time.Minute)
	cfg.ProbeTimeout = cmp.Or(cfg.ProbeTimeout, 10*time.Second)
	cfg.StopGrace = cmp.Or(cfg.StopGrace, 5*time.Second)
	cfg.Version = cmp.Or(cfg.Version, "0")
	return &Upstream{cfg: cfg, log: log.With("upstream", cfg.Name), moved: make(chan struct{})}, nil
}

// Start starts the process, if it is not running, and waits for the handshake.
func (u *Upstream) Start(ctx context.Context) error {
	_, err := u.live(ctx)
	return err
}

// Do sends a request and waits for its answer. The error is a *Fault when the
// upstream answered with one; otherwise it wraps ErrNotSent or ErrLost. When ctx
// ends first, the upstream is sent notifications/cancelled.
func (u *Upstream) Do(ctx context.Context, r Request) (json.RawMessage, error) {
	var err error
	for range 2 { // a process that died unnoticed costs one more try, if nothing was sent
		var p *peer
		if p, err = u.live(ctx); err != nil {
			return nil, err
		}
		if r.Generation != 0 && processOf(u.Generation()) != processOf(r.Generation) {
			return nil, fmt.Errorf("upstream %s: %w", u.cfg.Name, ErrChanged)
		}
		var res json.RawMessage
		res, err = p.do(ctx, r)
		if err == nil {
			u.answered(p)
			return res, nil
		}
		if !errors.Is(err, ErrNotSent) || errors.Is(err, ErrTooLate) || ctx.Err() != nil {
			return nil, err
		}
	}
	return nil, err
}

// Info is what the last handshake said. It does not start the process.
func (u *Upstream) Info() Info {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.info
}

// Generation grows when the list of tools may have changed: with every process
// and every tools/list_changed. It is 0 before the first process.
func (u *Upstream) Generation() uint64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.gen
}

// The upper half of a generation counts processes, the lower one the changes that
// the process has announced.
const nextProcess = 1 << 32

func processOf(gen uint64) uint64 { return gen / nextProcess }

// Identity says which server this is: its command and directory, the names of its
// configured environment, and what it calls itself. Its version is not part of it.
func (u *Upstream) Identity() action.Digest {
	return action.ServerID(u.cfg.Command, u.cfg.Dir, slices.Sorted(maps.Keys(u.cfg.Env)), u.Info().Name)
}

// Close stops the process: stdin is closed, then SIGTERM, then SIGKILL. One that
// has not ended its handshake is killed. Requests in flight end with ErrLost, later
// ones with ErrNotSent.
func (u *Upstream) Close() error {
	u.mu.Lock()
	u.closed = true
	p, l := u.peer, u.starting
	u.mu.Unlock()
	if l != nil {
		l.cancel() // a handshake may take as long as StartTimeout
		<-l.done
		p = l.peer
	}
	if p != nil {
		p.stop(u.cfg.StopGrace)
	}
	return nil
}

// live returns the running process, starting it when there is none. ctx ends
// only the wait: a start is shared by all who wait for it.
func (u *Upstream) live(ctx context.Context) (*peer, error) {
	u.mu.Lock()
	if u.peer != nil && u.peer.alive() {
		defer u.mu.Unlock()
		return u.peer, nil
	}
	if u.closed {
		u.mu.Unlock()
		return nil, fmt.Errorf("upstream %s is closed: %w", u.cfg.Name, ErrNotSent)
	}
	if u.starting == nil {
		if wait := time.Until(u.notUntil); wait > 0 {
			err := u.lastErr
			u.mu.Unlock()
			return nil, fmt.Errorf("upstream %s keeps failing, next try in %s (%v): %w",
				u.cfg.Name, wait.Round(100*time.Millisecond), err, ErrNotSent)
		}
		begin, cancel := context.WithTimeout(context.Background(), u.cfg.StartTimeout)
		u.starting = &launch{cancel: cancel, done: make(chan struct{})}
		go u.start(begin, u.starting)
	}
	l := u.starting
	u.mu.Unlock()

	select {
	case <-l.done:
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for upstream %s to start: %w: %w", u.cfg.Name, ctx.Err(), ErrNotSent)
	}
	if l.err != nil {
		return nil, fmt.Errorf("upstream %s could not be started: %w: %w", u.cfg.Name, l.err, ErrNotSent)
	}
	return l.peer, nil
}

func (u *Upstream) start(ctx context.Context, l *launch) {
	defer l.cancel()
	p, info, err := u.launch(ctx)

	u.mu.Lock()
	defer u.mu.Unlock()
	defer close(l.done)
	l.peer, l.err = p, err
	u.starting = nil
	if err != nil {
		if !u.closed {
			u.log.Error("upstream could not be started", "error", err)
		}
		u.failed(err)
		return
	}
	u.peer, u.info = p, info
	u.move((processOf(u.gen) + 1) * nextProcess)
	u.log.Info("upstream started", "pid", p.proc.pid, "server", info.Name, "version", info.Version, "protocol", info.Protocol)
	go u.watch(p)
}

func (u *Upstream) launch(ctx context.Context) (*peer, Info, error) {
	proc, err := startProcess(u.cfg)
	if err != nil {
		return nil, Info{}, err
	}
	p := newPeer(proc, u.log, u.listChanged)
	go u.readStderr(proc)
	info, err := p.handshake(ctx, u.cfg)
	if err != nil {
		p.kill("its handshake failed")
		return nil, Info{}, err
	}
	return p, info, nil
}

func (u *Upstream) watch(p *peer) {
	<-p.done
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		return
	}
	u.log.Warn("upstream process ended", "pid", p.proc.pid, "why", p.why())
	u.failed(errors.New(p.why()))
}

// failed makes the next start wait, the longer the more often it failed. The
// first failure costs nothing: a server may be restarted by hand.
func (u *Upstream) failed(err error) {
	const most = 15 * time.Second
	u.lastErr = err
	u.failures++
	if u.failures > 1 {
		u.notUntil = time.Now().Add(min(most, 200*time.Millisecond<<min(u.failures-2, 10)))
	}
}

// answered notes that this process works.
func (u *Upstream) answered(p *peer) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.peer == p {
		u.failures = 0
	}
}

func (u *Upstream) listChanged() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.move(u.gen + 1)
}

// Await returns the generation once it is another than gen. The error is the
// context's.
func (u *Upstream) Await(ctx context.Context, gen uint64) (uint64, error) {
	for {
		u.mu.Lock()
		now, moved := u.gen, u.moved
		u.mu.Unlock()
		if now != gen {
			return now, nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return gen, ctx.Err()
		}
	}
}

// move sets the generation and wakes those who wait for it. u.mu is held.
func (u *Upstream) move(gen uint64) {
	u.gen = gen
	close(u.moved)
	u.moved = make(chan struct{})
}
