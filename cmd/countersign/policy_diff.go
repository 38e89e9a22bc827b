package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/countersign-mcp/countersign/server/policy"
	"github.com/countersign-mcp/countersign/server/redact"
)

type policyDiffCmd struct {
	Old      string   `arg:"" name:"OLD" help:"The policy as it is." type:"path"`
	New      string   `arg:"" name:"NEW" help:"The policy as it is to be." type:"path"`
	Calls    []string `arg:"" optional:"" name:"CALL" help:"Calls to judge under both, as for policy explain."`
	Upstream string   `help:"What the names of a version 1 policy belong to." placeholder:"NAME"`
	JSON     bool     `help:"Print JSON."`
}

// Help says what is compared, and lists the exit codes.
func (policyDiffCmd) Help() string {
	return "Judges the cases of both files and the calls given under both policies, and prints only what comes out differently: " +
		"calls, tools that are listed differently, routes and other settings that differ. A rule that no case and no call meets is not seen. " +
		"Exit code: 0 nothing differs, 1 something does, 2 they could not be compared, 4 usage."
}

// Run compares.
func (c policyDiffCmd) Run(term terminal) error {
	d, err := c.compare(term)
	if err != nil {
		fmt.Fprintln(term.err, "countersign:", err)
		return exitError(exitBroken)
	}
	show := printDifference
	if c.JSON {
		show = func(w io.Writer, d policy.Difference) error {
			enc := json.NewEncoder(w)
			enc.SetEscapeHTML(false)
			return enc.Encode(d)
		}
	}
	if err := show(term.out, d); err != nil {
		return fmt.Errorf("writing the difference: %w", err)
	}
	if !d.Same() {
		return exitError(exitFailed)
	}
	return nil
}

func (c policyDiffCmd) compare(term terminal) (policy.Difference, error) {
	var none policy.Difference
	before, err := readPolicy(c.Old)
	if err != nil {
		return none, err
	}
	after, err := readPolicy(c.New)
	if err != nil {
		return none, err
	}
	var calls []policy.Named
	servers := map[string]bool{}
	for _, name := range c.Calls {
		f, err := readCall(term, name)
		if err != nil {
			return none, err
		}
		calls = append(calls, policy.Named{Name: name, Facts: f})
		servers[f.Call.Server] = true
	}
	for _, set := range []*policy.Set{before, after} {
		for _, s := range set.Servers() {
			servers[s] = true
		}
	}
	if c.Upstream != "" {
		servers = map[string]bool{c.Upstream: true}
	}
	for _, of := range []struct {
		name string
		set  *policy.Set
	}{{c.Old, before}, {c.New, after}} {
		if of.set.Version() == 1 && len(servers) != 1 {
			return none, fmt.Errorf("%s is of version 1, whose names belong to one upstream; name it with --upstream", of.name)
		}
		if err := of.set.Bind(slices.Sorted(maps.Keys(servers))); err != nil {
			return none, fmt.Errorf("%s: %w", of.name, err)
		}
	}
	return policy.Compare(before, after, calls), nil
}

func printDifference(out io.Writer, d policy.Difference) error {
	var text bytes.Buffer
	w := tabwriter.NewWriter(&text, 0, 4, 2, ' ', 0)
	if len(d.Calls) > 0 {
		fmt.Fprintln(w, "calls:")
	}
	for _, c := range d.Calls {
		fmt.Fprintf(w, "  %s (%s)\n", redact.Visible(c.Name), redact.Visible(c.Tool))
		became(w, "effect", c.Old.Effect, c.New.Effect)
		became(w, "by", strings.Join(c.Old.By, ", "), strings.Join(c.New.By, ", "))
		became(w, "asks on", strings.Join(c.Old.Routes, ", "), strings.Join(c.New.Routes, ", "))
		became(w, "tier", c.Old.Tier, c.New.Tier)
	}
	if len(d.Tools) > 0 {
		fmt.Fprintln(w, "tools:")
	}
	for _, t := range d.Tools {
		fmt.Fprintf(w, "  %s\n", t.Tool)
		became(w, "listed", yesNo(t.Old.Shown), yesNo(t.New.Shown))
		became(w, "effect", t.Old.Effect, t.New.Effect)
		became(w, "tier", t.Old.Tier, t.New.Tier)
		became(w, "route", t.Old.Route, t.New.Route)
	}
	if len(d.Routes) > 0 {
		fmt.Fprintln(w, "routes:")
	}
	for i, r := range d.Routes {
		if i == 0 || d.Routes[i-1].Route != r.Route {
			fmt.Fprintf(w, "  %s\n", r.Route)
		}
		became(w, r.Key, r.Old, r.New)
	}
	if len(d.Settings) > 0 {
		fmt.Fprintln(w, "settings:")
	}
	for _, s := range d.Settings {
		became(w, redact.Visible(s.Key), s.Old, s.New)
	}
	if d.Same() {
		fmt.Fprintf(w, "Nothing differs for %d calls.\n", d.Judged)
	}
	if err := w.Flush(); err != nil { // into memory it can't fail
		return err
	}
	_, err := out.Write(text.Bytes())
	return err
}

func yesNo(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}

// became prints what has changed, and nothing of what has not.
func became(w io.Writer, what, was, is string) {
	if was != is {
		fmt.Fprintf(w, "    %s\t%s → %s\n", what, or(redact.Visible(was), "none"), or(redact.Visible(is), "none"))
	}
}
