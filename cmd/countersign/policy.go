package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/server/policy"
)

type policyCmd struct {
	Test    policyTestCmd    `cmd:"" help:"Judge a policy's own cases. Needs nothing but the file."`
	Explain policyExplainCmd `cmd:"" help:"Judge one call and print what every rule said. No argument's value is printed."`
	Diff    policyDiffCmd    `cmd:"" help:"Judge calls under two policies and print what comes out differently."`
	Draft   policyDraftCmd   `cmd:"" help:"Write a starting policy from the tools that an upstream lists."`
	Report  policyReportCmd  `cmd:"" help:"Count from ledger files what was asked, would have been asked, and was refused."`
	Pin     policyPinCmd     `cmd:"" help:"Write down what the upstreams and their tools are, or compare."`
	Restore policyRestoreCmd `cmd:"" help:"List the policies that were loaded, or put one back into the policy file."`
}

// readPolicy reads a policy alone, without what a configuration says beside it.
func readPolicy(name string) (*policy.Set, error) {
	b, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading the policy: there is no %s; countersign policy draft UPSTREAM writes one to begin with", name)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the policy: %w", err)
	}
	return policy.Parse(name, b)
}

// readCall reads a call to judge from a file, or from standard input.
func readCall(term terminal, name string) (policy.Facts, error) {
	in := term.in
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return policy.Facts{}, fmt.Errorf("reading the call: %w", err)
		}
		defer f.Close()
		in = f
	}
	most := int64(action.DefaultLimits.Bytes)
	b, err := io.ReadAll(io.LimitReader(in, most+1))
	switch {
	case err != nil:
		return policy.Facts{}, fmt.Errorf("reading the call: %w", err)
	case int64(len(b)) > most:
		return policy.Facts{}, errors.New("the call is larger than any that the gate takes")
	}
	return policy.ParseCall(name, b)
}

// or is s, or what stands for nothing.
func or(s, nothing string) string {
	if strings.TrimSpace(s) == "" {
		return nothing
	}
	return s
}
