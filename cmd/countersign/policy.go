package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/cmd/countersign/internal/config"
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

type policyTestCmd struct {
	Files []string `arg:"" name:"FILE" help:"Policy files." type:"path"`
}

// Help lists the exit codes.
func (policyTestCmd) Help() string {
	return "Limits, people and channels are not asked; a case's roles and labels are taken as given. " +
		"Exit code: 0 all cases come out as they say, 1 one does not or a file does not load, 4 usage."
}

// Run prints each case that does not come out as it says, and counts.
func (c policyTestCmd) Run(term terminal) error {
	failed := false
	for _, name := range c.Files {
		ok, err := testPolicy(term, name)
		if err != nil {
			fmt.Fprintln(term.err, "countersign:", err)
		}
		failed = failed || !ok || err != nil
	}
	if failed {
		return exitError(exitFailed)
	}
	return nil
}

func testPolicy(term terminal, name string) (ok bool, err error) {
	set, err := readPolicy(name)
	if err != nil {
		return false, err
	}
	notes(term, name, set)
	right := 0
	for _, r := range set.Test() {
		if len(r.Problems) == 0 {
			right++
			continue
		}
		fmt.Fprintf(term.out, "%s:%d: %s\n", name, r.Line, r.Name)
		for _, p := range r.Problems {
			fmt.Fprintf(term.out, "    %s\n", p)
		}
	}
	if set.Cases() == 0 {
		_, err = fmt.Fprintf(term.out, "%s loads, and has no cases.\n", name)
		return true, err
	}
	_, err = fmt.Fprintf(term.out, "%s: %d of %d cases come out as they say.\n", name, right, set.Cases())
	return right == set.Cases(), err
}

func readPolicy(name string) (*policy.Set, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("reading the policy: %w", err)
	}
	return policy.Parse(name, b)
}

// notes prints what loads and is probably not meant.
func notes(term terminal, name string, set *policy.Set) {
	for _, w := range set.Warnings() {
		fmt.Fprintf(term.err, "countersign: note: %s: %s\n", name, w)
	}
}

type policyExplainCmd struct {
	Policy string `help:"Policy file, instead of the configuration's." placeholder:"FILE" type:"path"`
	JSON   bool   `help:"Print JSON."`
	Call   string `arg:"" name:"CALL" help:"The call: a JSON file, or - for standard input."`
}

// Help shows a call.
func (policyExplainCmd) Help() string {
	return `A call is {"tool": "UPSTREAM/TOOL", "args": {…}}, and if it matters "actor", "roles", "labels", "session", "workflow" and "evidence", as in a policy's cases.`
}

// Run explains one judgement. The exit code is not the verdict's.
func (c policyExplainCmd) Run(term terminal, common *common) error {
	facts, err := readCall(term, c.Call)
	if err != nil {
		return err
	}
	set, err := c.set(common, &facts)
	if err != nil {
		return err
	}
	e := explain(set, facts, time.Now())
	if c.JSON {
		return e.json(term.out)
	}
	return e.text(term.out)
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

// set is the policy, bound. The roles that it gives to the call's actor are added
// to those of the call, as the gate does.
func (c policyExplainCmd) set(common *common, f *policy.Facts) (*policy.Set, error) {
	a := &f.Call.Actor
	if c.Policy != "" {
		set, err := readPolicy(c.Policy)
		if err != nil {
			return nil, err
		}
		a.Roles = set.Roles(a.Roles, a.ID, nil)
		return set, set.Bind(append(set.Observation().Upstreams, f.Call.Server))
	}
	cfg, err := config.Load(common.Config)
	if err != nil {
		return nil, fmt.Errorf("%w\nWithout a configuration, name a policy: --policy FILE", err)
	}
	set, err := readPolicy(cfg.PolicyPath())
	if err != nil {
		return nil, err
	}
	roster, err := cfg.Roster()
	if err != nil {
		return nil, err
	}
	a.Roles = set.Roles(a.Roles, a.ID, roster.Groups(roster.ByActor(a.ID)))
	if err := set.Bind(slices.Sorted(maps.Keys(cfg.Upstreams))); err != nil {
		return nil, fmt.Errorf("%s: %w", cfg.PolicyPath(), err)
	}
	return set, nil
}

// or is s, or what stands for nothing.
func or(s, nothing string) string {
	if strings.TrimSpace(s) == "" {
		return nothing
	}
	return s
}
