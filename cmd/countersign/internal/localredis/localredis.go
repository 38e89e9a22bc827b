// Package localredis is a Redis inside the process, for `store: ephemeral` and
// the demo. It forgets everything when the process ends, and says so.
package localredis

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// Server is a running in-process Redis on a loopback port, behind a random
// password.
type Server struct {
	mini     *miniredis.Miniredis
	password string
	stop     context.CancelFunc
	done     chan struct{}
}

// tick is how often the server's keys are aged. Deadlines of approvals don't
// depend on it: scripts compare with TIME.
const tick = time.Second

// Start runs a server until Close.
func Start() (*Server, error) {
	mini := miniredis.NewMiniRedis()
	s := &Server{mini: mini, password: rand.Text(), done: make(chan struct{})}
	mini.RequireAuth(s.password)
	if err := mini.StartAddr("127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("starting the store in this process: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.stop = cancel
	go s.age(ctx)
	return s, nil
}

// age moves the keys' time to live on: miniredis doesn't by itself, and its own
// option costs time in proportion to the number of keys on every command.
func (s *Server) age(ctx context.Context) {
	defer close(s.done)
	t := time.NewTicker(tick)
	defer t.Stop()
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-t.C:
			s.mini.FastForward(now.Sub(last))
			last = now
		}
	}
}

// URL is how a client reaches the server.
func (s *Server) URL() string {
	return fmt.Sprintf("redis://:%s@%s/0", s.password, s.mini.Addr())
}

// Close ends the server; everything in it is gone.
func (s *Server) Close() {
	s.stop()
	<-s.done
	s.mini.Close()
}
