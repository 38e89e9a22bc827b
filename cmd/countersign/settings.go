package main

import (
	"fmt"

	"github.com/countersign-mcp/countersign/cmd/countersign/internal/config"
)

type configCmd struct {
	Defaults bool `help:"Print every key with its default." required:""`
}

// Run prints the reference file.
func (configCmd) Run(term terminal) error {
	_, err := fmt.Fprint(term.out, config.Reference())
	return err
}
