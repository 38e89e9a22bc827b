package main

import (
	"context"
	"sync"

	"github.com/countersign-mcp/countersign/cmd/countersign/internal/config"
	"github.com/countersign-mcp/countersign/cmd/countersign/internal/daemon"
)

// reloading has a daemon read its configuration again at each SIGHUP, from start
// on, until stop is called. The daemon tells how a reload went.
type reloading struct {
	cancel context.CancelFunc
	done   sync.WaitGroup
}

func reloadOnHangup(ctx context.Context, d *daemon.Daemon) *reloading {
	ctx, cancel := context.WithCancel(ctx)
	r := &reloading{cancel: cancel}
	ch, forget := hangups()
	r.done.Go(func() {
		defer forget()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ch:
				_ = d.Reload(ctx) // it is logged, counted and on the ledger
			}
		}
	})
	return r
}

func (r *reloading) stop() {
	r.cancel()
	r.done.Wait()
}

// again reads the configuration once more, from where it was read first.
func (c *common) again() (*config.Config, error) { return config.Load(c.Config) }
