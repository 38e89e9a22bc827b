package main

import (
	"context"
	"os"

	"github.com/countersign-mcp/countersign/cmd/countersign/internal/config"
	"github.com/countersign-mcp/countersign/cmd/countersign/internal/daemon"
)

// hangup are the signals that ask for a reload. They are caught before anything is
// read: one that comes while a gate starts is about files that it may have read
// already.
type hangup struct {
	signals <-chan os.Signal
	forget  func()
}

func catchHangups() hangup {
	ch, forget := hangups()
	return hangup{ch, forget}
}

// reload has a daemon read its configuration again at each of them, from now on,
// until stop is called. The daemon tells how a reload went. stop waits for none that
// still reads: a daemon that was stopped takes nothing over.
func (h hangup) reload(ctx context.Context, d *daemon.Daemon) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-h.signals:
				_ = d.Reload(ctx) // it is logged, counted and on the ledger
			}
		}
	}()
	return cancel
}

// again reads the configuration once more, from where it was read first.
func (c *common) again() (*config.Config, error) { return config.Load(c.Config) }
