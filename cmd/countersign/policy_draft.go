package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/countersign-mcp/countersign/cmd/countersign/internal/config"
	"github.com/countersign-mcp/countersign/cmd/countersign/internal/draft"
)

type policyDraftCmd struct {
	Upstream string `arg:"" name:"UPSTREAM" help:"The configured upstream to draft for."`
}

// Help says what is done.
func (policyDraftCmd) Help() string {
	return "Starts the upstream, lists its tools, and writes a commented policy to standard output. No tool is run. " +
		"What the server says of its tools is quoted and makes none of them freer. " +
		"Exit code: 0 written, 1 not, 4 usage."
}

// Run drafts.
func (c policyDraftCmd) Run(ctx context.Context, term terminal, common *common) error {
	cfg, err := config.Load(common.Config)
	if err != nil {
		return err
	}
	if _, known := cfg.Upstreams[c.Upstream]; !known {
		return fmt.Errorf("%s has no upstream called %q; it has: %s", common.Config, c.Upstream, or(strings.Join(slices.Sorted(maps.Keys(cfg.Upstreams)), ", "), "none"))
	}
	found, err := readUpstream(ctx, term, common, cfg, c.Upstream)
	if err != nil {
		return err
	}
	up := draft.Upstream{Name: c.Upstream, Says: strings.TrimSpace(found.server.Name + " " + found.server.Version), Notes: found.notes}
	for _, t := range found.server.Tools {
		up.Tools = append(up.Tools, draft.Tool{Name: t.Name, Raw: t.Raw})
	}
	if len(up.Tools) == 0 {
		return fmt.Errorf("%s lists no tool, so there is nothing to draft", c.Upstream)
	}
	return draft.Write(term.out, up)
}
