package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"sync"
	"time"

	"github.com/countersign-mcp/countersign/cmd/countersign/internal/config"
	"github.com/countersign-mcp/countersign/server/gate"
	"github.com/countersign-mcp/countersign/server/upstream"
)

// ship is one upstream of the fleet. It counts the calls that are with it, so that
// it can be let go when they have ended.
type ship struct {
	*upstream.Upstream
	cfg config.Upstream

	mu    sync.Mutex
	calls int
	shut  bool // it takes no more calls

	ended chan struct{} // closed when it was let go and has ended
}

// Do is the upstream's, counted.
func (s *ship) Do(ctx context.Context, r upstream.Request) (json.RawMessage, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.exit()
	return s.Upstream.Do(ctx, r)
}

// Tools is the upstream's, counted.
func (s *ship) Tools(ctx context.Context) ([]json.RawMessage, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.exit()
	return s.Upstream.Tools(ctx)
}

func (s *ship) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shut {
		return fmt.Errorf("it is not configured any more: %w", upstream.ErrNotSent)
	}
	s.calls++
	return nil
}

func (s *ship) exit() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls--
}

// close shuts it if no call is with it: one that comes a moment later must not be
// cut off in the middle.
func (s *ship) close() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shut = s.calls == 0
	return s.shut
}

// StartOf says how a configured upstream is started, by the gate and by whoever
// asks it what it is. Version is our own.
func StartOf(cfg *config.Config, name, version string) upstream.Config {
	u := cfg.Upstreams[name]
	env := make(map[string]string, len(u.Env))
	for k, v := range u.Env {
		env[k] = v.Reveal()
	}
	return upstream.Config{Name: name, Command: u.Command, Dir: u.Dir, Env: env, Version: version}
}

// fleet are the upstreams of the configuration, and those that are on their way
// out. Only plan and sail change it.
type fleet struct {
	log     *slog.Logger
	version string        // of this program, for the handshake
	longest time.Duration // that a call may be with an upstream

	mu   sync.Mutex
	now  map[string]*ship
	gone map[*ship]bool // left, and not closed yet
	over chan struct{}  // closed by close
}

func newFleet(log *slog.Logger, version string, longest time.Duration) *fleet {
	return &fleet{log: log, version: version, longest: longest, now: map[string]*ship{}, gone: map[*ship]bool{}, over: make(chan struct{})}
}

// plan makes the fleet of a configuration. An upstream that is configured as before
// is the same one, with its process; nothing is started or stopped.
func (f *fleet) plan(cfg *config.Config) (map[string]*ship, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	next := map[string]*ship{}
	for name, c := range cfg.Upstreams {
		if was := f.now[name]; was != nil && reflect.DeepEqual(was.cfg, c) {
			next[name] = was
			continue
		}
		up, err := upstream.New(StartOf(cfg, name, f.version), f.log)
		if err != nil {
			return nil, err
		}
		next[name] = &ship{Upstream: up, cfg: c, ended: make(chan struct{})}
	}
	return next, nil
}

// sail makes a planned fleet the present one. It returns those that are new. The
// others end when the calls that are with them have ended.
func (f *fleet) sail(next map[string]*ship) (fresh map[string]*ship) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fresh = map[string]*ship{}
	for name, s := range next {
		if f.now[name] != s {
			fresh[name] = s
		}
	}
	for name, s := range f.now {
		if next[name] != s {
			f.gone[s] = true
			go f.farewell(name, s)
		}
	}
	f.now = next
	return fresh
}

// linger is how long at least an upstream stays that is not configured any more.
const linger = 2 * time.Second

func (f *fleet) farewell(name string, s *ship) {
	defer close(s.ended)
	late := time.NewTimer(max(f.longest, linger))
	defer late.Stop()
	// A call that was looked up in its list is not with it yet.
	look := time.NewTicker(linger)
	defer look.Stop()
	for done := false; !done; {
		select {
		case <-look.C:
			done = s.close()
		case <-late.C:
			done = true
		case <-f.over:
			return // close ends it
		}
	}
	if err := s.Close(); err != nil {
		f.log.Warn("an upstream that is not configured any more could not be stopped", "upstream", name, "error", err)
	}
	f.mu.Lock()
	delete(f.gone, s)
	f.mu.Unlock()
	f.log.Info("an upstream that is not configured any more was stopped", "upstream", name)
}

// ships are what the gate is given.
func ships(fleet map[string]*ship) map[string]gate.Upstream {
	out := map[string]gate.Upstream{}
	for name, s := range fleet {
		out[name] = s
	}
	return out
}

// close stops all of them side by side: each may need its grace.
func (f *fleet) close(context.Context) error {
	close(f.over)
	f.mu.Lock()
	var ends []func() error
	end := func(name string, s *ship) {
		ends = append(ends, func() error {
			if err := s.Close(); err != nil {
				return fmt.Errorf("upstream %s: %w", name, err)
			}
			return nil
		})
	}
	for name, s := range f.now {
		end(name, s)
	}
	for s := range f.gone {
		end("of an earlier configuration", s)
	}
	f.mu.Unlock()
	return together(ends)
}

// together does all at once and waits for all.
func together(what []func() error) error {
	errs := make([]error, len(what))
	var all sync.WaitGroup
	for i, do := range what {
		all.Go(func() { errs[i] = do() })
	}
	all.Wait()
	return errors.Join(errs...)
}
