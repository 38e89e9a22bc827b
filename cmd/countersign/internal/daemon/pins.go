package daemon

import (
	"context"
	"errors"
	"fmt"

	"github.com/countersign-mcp/countersign/cmd/countersign/internal/config"
	"github.com/countersign-mcp/countersign/server/gate"
	"github.com/countersign-mcp/countersign/server/pins"
)

// loadPins reads what the upstreams' tools are compared with. Where nothing is
// said, what is seen first is taken for right.
func loadPins(cfg *config.Config) (gate.Pins, error) {
	p := gate.Pins{FirstUse: cfg.Pins.FirstUse, MaxAge: cfg.Pins.MaxAge, AskEvery: cfg.Pins.AskEvery}
	path := cfg.PinsPath()
	if path == "" {
		p.FirstUse = true
		return p, nil
	}
	file, err := pins.Load(path)
	if errors.Is(err, pins.ErrNoFile) {
		return p, fmt.Errorf("%w; write it with: countersign policy pin", err)
	}
	if err != nil {
		return p, err
	}
	p.File = file
	return p, nil
}

// watchTools notices other tool definitions while nobody calls.
func (d *Daemon) watchTools(ctx context.Context) error {
	d.gate.Watch(ctx)
	return nil
}

// sayPins tells at the start what was not chosen.
func (d *Daemon) sayPins() {
	if d.cfg.Pins.File == "" && !d.cfg.Pins.FirstUse {
		d.log.Warn("tool definitions are pinned as first seen; set pins.file, look at what is pinned, and keep it: countersign policy pin")
	}
}
