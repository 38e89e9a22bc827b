package main

import (
	"fmt"

	"github.com/countersign-mcp/countersign/cmd/countersign/internal/config"
	"github.com/countersign-mcp/countersign/cmd/countersign/internal/daemon"
)

type checkCmd struct{}

// Run reads the configuration and the policy, and says what is wrong with them.
func (checkCmd) Run(term terminal, c *common) error {
	cfg, err := config.Load(c.Config)
	if err != nil {
		return err
	}
	policy, err := daemon.Check(cfg)
	if err != nil {
		return err
	}
	for _, w := range policy.Warnings() {
		fmt.Fprintf(term.err, "countersign: note: %s: %s\n", cfg.PolicyPath(), w)
	}
	_, err = fmt.Fprintf(term.out, "%s and %s are well formed. Policy digest %s.\n", c.Config, cfg.PolicyPath(), policy.Digest().Hex()[:12])
	return err
}
