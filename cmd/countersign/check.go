package main

import (
	"fmt"

	"github.com/countersign-mcp/countersign/cmd/countersign/internal/config"
	"github.com/countersign-mcp/countersign/cmd/countersign/internal/daemon"
)

type checkCmd struct{}

// Run reads the configuration, the policy and the pins, and says what is wrong with
// them.
func (checkCmd) Run(term terminal, c *common) error {
	cfg, err := config.Load(c.Config)
	if err != nil {
		return err
	}
	policy, err := daemon.Check(cfg)
	if err != nil {
		return err
	}
	notes(term, cfg.PolicyPath()+": ", policy.Warnings())
	held, err := daemon.PinNotes(cfg, policy)
	if err != nil {
		return err
	}
	notes(term, "", held)
	_, err = fmt.Fprintf(term.out, "%s and %s are well formed. Policy digest %s.\n", c.Config, cfg.PolicyPath(), policy.Digest().Hex()[:12])
	return err
}
