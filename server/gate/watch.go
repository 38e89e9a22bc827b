package gate

import (
	"context"
	"sync"
	"time"
)

// Watch reads an upstream's list when it may have changed, so that a change is
// noticed also while nobody calls. It returns when ctx ends.
func (g *Gate) Watch(ctx context.Context) {
	for ctx.Err() == nil {
		st := g.state.Load()
		round, end := context.WithCancel(ctx)
		var all sync.WaitGroup
		for server, up := range st.Upstreams {
			all.Go(func() { g.watchOne(round, st, server, up) })
		}
		select {
		case <-ctx.Done():
		case <-g.reloaded:
		}
		end()
		all.Wait()
	}
}

// watchRest is the least time between two readings that nobody asked for: an
// upstream may announce changes without end.
const watchRest = time.Second

func (g *Gate) watchOne(ctx context.Context, st *State, server string, up Upstream) {
	seen, pause := uint64(0), watchRest // nothing was read of any process
	for {
		gen, err := up.Await(ctx, seen)
		if err != nil {
			return
		}
		if _, err := g.catalogue(ctx, st, server, watchRest); err == nil {
			seen, pause = gen, watchRest
		} else if ctx.Err() == nil {
			g.log.Warn("the upstream's tools can't be listed", "server", server, "error", err)
			pause = min(2*pause, time.Minute)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}
