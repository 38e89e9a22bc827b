package main

import (
	"fmt"

	"github.com/countersign-mcp/countersign/cmd/countersign/internal/config"
	"github.com/countersign-mcp/countersign/cmd/countersign/internal/daemon"
)

type checkCmd struct{}

// Help says how far it goes.
func (checkCmd) Help() string {
	return "Reads the configuration and the files that it names. Notes are of what holds and is probably not meant; " +
		"they don't change the exit code. `countersign doctor` also looks at Redis, upstreams and Slack."
}

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
