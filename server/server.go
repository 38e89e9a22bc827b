package server

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/server/gate"
)

// Gate is what the edge needs of the gate. All methods may be called from many
// goroutines.
type Gate interface {
	// Call answers one tools/call. The end of ctx ends the wait.
	Call(ctx context.Context, r gate.Request) gate.Answer
	// Tools answers tools/list for one actor. params is an object as sent, without
	// the era's members, or nil.
	Tools(ctx context.Context, front string, who action.Actor, params json.RawMessage) gate.Answer
	// Fronts lists the upstream names that have a path of their own.
	Fronts() []string
	// Info is what a front says of itself at initialize and server/discover.
	Info(front string) gate.Info
}

// Authenticator turns a bearer token into the actor it stands for; false refuses.
// *Tokens is one.
type Authenticator interface {
	Authenticate(ctx context.Context, token string) (action.Actor, bool)
}

// Config is what New needs. Gate is required; HTTP also needs Auth, and refuses
// every request without it. The zero value of everything else means the default.
type Config struct {
	Gate Gate
	Auth Authenticator
	Log  *slog.Logger // nothing is logged when nil

	// Malformed, when set, hears of each message that could not be read as one, and
	// of each tools/call whose _meta or headers don't fit, before its sender is told. It must return soon.
	Malformed func(ctx context.Context, m Malformed)

	Path    string // of the endpoint that serves all upstreams; default "/mcp"
	Version string // of this program, for serverInfo

	// AllowedHosts are the Host headers that are served beside the loopback names:
	// a name, which allows any port, or name:port.
	AllowedHosts []string
	// AllowedOrigins are the Origin headers that are served ("https://app.test")
	// beside none at all and the one that is the request's own host.
	AllowedOrigins []string

	Limits      action.Limits // of one message; default action.DefaultLimits
	MaxInFlight int           // requests at once on one stdio connection; default 1024

	// MaxPerActor is how many requests one actor may have in flight over HTTP,
	// waiting ones included; 429 beyond it. Default 256.
	MaxPerActor int
	// MaxBodyBytes is how many bytes of request bodies may be in memory over HTTP,
	// from all actors; 503 beyond it. One actor's may be a quarter, 429 beyond
	// it. Default 256 MiB; never less than four longest messages.
	MaxBodyBytes int64

	SessionIdle         time.Duration // a session without a request ends; default 1 h
	MaxSessions         int           // in all; default 8192
	MaxSessionsPerActor int           // the actor's longest idle one makes room; default 1024

	Keepalive  time.Duration // between comments on a quiet stream; default 15 s
	Progress   time.Duration // between notifications while a call waits; default 10 s
	WriteLimit time.Duration // for one write to a client; default 30 s
	ReadLimit  time.Duration // for a request's body; default 30 s
	Drain      time.Duration // for running calls once stdin has ended; default 3 s
}

// Malformed is a message that an actor sent and that was refused before any policy
// saw it. It holds nothing of the message.
type Malformed struct {
	Actor  action.Actor
	Front  string
	Code   int    // of the JSON-RPC error that is answered
	Reason string // from action.Malformed: where and what, never a value
}

func (c Config) withDefaults() Config {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Path == "" {
		c.Path = "/mcp"
	}
	if c.Version == "" {
		c.Version = "dev"
	}
	if c.Limits.Bytes <= 0 {
		c.Limits.Bytes = action.DefaultLimits.Bytes
	}
	if c.Limits.Depth <= 0 {
		c.Limits.Depth = action.DefaultLimits.Depth
	}
	orInt := func(p *int, d int) {
		if *p <= 0 {
			*p = d
		}
	}
	orInt(&c.MaxInFlight, 1024)
	orInt(&c.MaxPerActor, 256)
	if c.MaxBodyBytes <= 0 {
		c.MaxBodyBytes = 256 << 20
	}
	c.MaxBodyBytes = max(c.MaxBodyBytes, actorShare*int64(c.Limits.Bytes)) // one message must fit
	orInt(&c.MaxSessions, 8192)
	orInt(&c.MaxSessionsPerActor, 1024)
	orTime := func(p *time.Duration, d time.Duration) {
		if *p <= 0 {
			*p = d
		}
	}
	orTime(&c.SessionIdle, time.Hour)
	orTime(&c.Keepalive, 15*time.Second)
	orTime(&c.Progress, 10*time.Second)
	orTime(&c.WriteLimit, 30*time.Second)
	orTime(&c.ReadLimit, 30*time.Second)
	orTime(&c.Drain, 3*time.Second)
	return c
}

var _ Gate = (*gate.Gate)(nil)

// Why a call's context ended. Only after errShutdown is the call still answered as
// the gate did; after errRevoked its caller is told that.
var (
	errCancelled = errors.New("cancelled by the client")
	errGone      = errors.New("the client is gone")
	errEnded     = errors.New("the session has ended")
	errShutdown  = gate.ErrStopping // the gate takes it for nobody's leaving
)

// Server is the edge. Its methods may be called from many goroutines.
type Server struct {
	cfg      Config
	hosts    hostList
	origins  map[string]bool
	sdk      *lifecycle
	sessions *sessions
	load     *load
	guests   guests

	base context.Context // ends with errShutdown
	stop context.CancelCauseFunc

	mu     sync.Mutex
	closed bool
	calls  sync.WaitGroup
}

// New makes a server. It starts nothing.
func New(cfg Config) (*Server, error) {
	if cfg.Gate == nil {
		return nil, errors.New("server: no gate")
	}
	cfg = cfg.withDefaults()
	hosts, err := newHostList(cfg.AllowedHosts)
	if err != nil {
		return nil, err
	}
	origins, err := newOrigins(cfg.AllowedOrigins)
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, hosts: hosts, origins: origins}
	s.base, s.stop = context.WithCancelCause(context.Background())
	s.sdk = newLifecycle(cfg.Gate, cfg.Version)
	s.guests.all = map[*guest]struct{}{}
	s.load = newLoad(cfg.MaxPerActor, cfg.MaxBodyBytes)
	s.sessions = newSessions(cfg.SessionIdle, cfg.MaxSessions, cfg.MaxSessionsPerActor)
	return s, nil
}

// Handler serves the endpoint and one path below it for each front. It checks
// Host, Origin and the bearer token of every request, whatever its path.
func (s *Server) Handler() http.Handler { return http.HandlerFunc(s.serveHTTP) }

// Close ends every wait and every session, and returns when the calls have been
// answered or ctx ends. New requests are refused.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.stop(errShutdown)
	done := make(chan struct{})
	go func() {
		s.calls.Wait()
		close(done)
	}()
	var err error
	select {
	case <-done:
	case <-ctx.Done():
		err = ctx.Err()
	}
	s.sessions.closeAll()
	return err
}

// malformed is what to answer to a message that could not be read.
func (s *Server) malformed(ctx context.Context, who caller, err error) (*gate.Error, json.RawMessage) {
	e, id := failure(codeParse, "the message could not be read"), json.RawMessage(nil)
	if m := (*action.Malformed)(nil); errors.As(err, &m) {
		e, id = failure(m.Code, m.Reason), m.ID
	}
	if s.cfg.Malformed != nil {
		s.cfg.Malformed(ctx, Malformed{Actor: who.actor, Front: who.front, Code: e.Code, Reason: e.Message})
	}
	return e, id
}

// misfit hears of a tools/call that could be read and is refused for what is around
// the call: its _meta, its headers. No policy has seen it, so nobody else records
// it. e's words are ours and quote nothing of the message.
func (s *Server) misfit(ctx context.Context, who caller, f action.Frame, e *gate.Error) {
	if f.Method == methodCall && s.cfg.Malformed != nil {
		s.cfg.Malformed(ctx, Malformed{Actor: who.actor, Front: who.front, Code: e.Code, Reason: e.Message})
	}
}

// begin counts a request that Close waits for; false when closing.
func (s *Server) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.calls.Add(1)
	return true
}
