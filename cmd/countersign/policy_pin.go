package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/countersign-mcp/countersign/cmd/countersign/internal/config"
	"github.com/countersign-mcp/countersign/server/pins"
	"github.com/countersign-mcp/countersign/server/redact"
)

type policyPinCmd struct {
	Upstreams []string `arg:"" optional:"" name:"UPSTREAM" help:"Upstreams to pin; all unless named."`
	Diff      bool     `help:"Write nothing; print what differs from the file."`
	Out       string   `help:"Pins file, instead of the configuration's pins.file." placeholder:"FILE" type:"path"`
	JSON      bool     `help:"Print JSON."`
}

// Help says what is done, and lists the exit codes.
func (policyPinCmd) Help() string {
	return "Starts the configured upstreams, lists their tools, and writes what they are to the file of pins. No tool is run. " +
		"Entries of upstreams that are not named stay as they are. " +
		"Exit code: 0 written, or with --diff nothing differs; 1 nothing could be written, or with --diff something differs; 2 --diff could not compare; 4 usage."
}

// Run pins, or compares.
func (c policyPinCmd) Run(ctx context.Context, term terminal, common *common) error {
	same, err := c.run(ctx, term, common)
	switch {
	case err != nil && c.Diff:
		fmt.Fprintln(term.err, "countersign:", err)
		return exitError(exitBroken)
	case err != nil:
		return err
	case c.Diff && !same:
		return exitError(exitFailed)
	}
	return nil
}

func (c policyPinCmd) run(ctx context.Context, term terminal, common *common) (same bool, err error) {
	cfg, err := config.Load(common.Config)
	if err != nil {
		return false, err
	}
	path := cfg.PinsPath()
	if c.Out != "" {
		path = c.Out
	}
	if path == "" {
		return false, fmt.Errorf("pins.file is not set; add `pins: {file: pins.json}` to %s, or name a file with --out", common.Config)
	}
	names, err := c.names(cfg)
	if err != nil {
		return false, err
	}
	if _, _, err := oldPins(path); err != nil { // before the upstreams are started for nothing
		return false, err
	}
	found, err := readUpstreams(ctx, term, common, cfg, names)
	if err != nil {
		return false, err
	}
	report, err := c.pin(path, found)
	if err != nil {
		return false, err
	}
	report.note(term.err, cfg)
	if c.JSON {
		return report.same(), report.json(term.out)
	}
	return report.same(), report.text(term.out)
}

// names are the upstreams that are meant, in order.
func (c policyPinCmd) names(cfg *config.Config) ([]string, error) {
	known := slices.Sorted(maps.Keys(cfg.Upstreams))
	if len(c.Upstreams) == 0 {
		return known, nil
	}
	for _, name := range c.Upstreams {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("%s is no configured upstream; configured are: %s", redact.Visible(name), strings.Join(known, ", "))
		}
	}
	names := slices.Sorted(slices.Values(c.Upstreams))
	return slices.Compact(names), nil
}

// oldPins is the file as it is; without one it has no entries.
func oldPins(path string) (*pins.File, bool, error) {
	f, err := pins.Load(path)
	if errors.Is(err, pins.ErrNoFile) {
		return &pins.File{Servers: map[string]pins.Server{}}, false, nil
	}
	return f, err == nil, err
}

// pin puts what was found into the file. The file is read as late as possible:
// somebody may have pinned another upstream meanwhile.
func (c policyPinCmd) pin(path string, found []pinned) (*pinReport, error) {
	old, exists, err := oldPins(path)
	if err != nil {
		return nil, err
	}
	report := &pinReport{path: path, old: old, fresh: !exists, found: found}
	if c.Diff {
		return report, nil
	}
	file := &pins.File{Servers: maps.Clone(old.Servers)}
	for _, p := range found {
		file.Servers[p.name] = p.server
	}
	b, err := file.Encode()
	if err != nil {
		return nil, err
	}
	was, err := old.Encode()
	if err != nil {
		return nil, err
	}
	if exists && bytes.Equal(b, was) {
		return report, nil
	}
	if err := replaceFile(path, b); err != nil {
		return nil, fmt.Errorf("writing the pins: %w", err)
	}
	report.written = true
	return report, nil
}
