package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/countersign-mcp/countersign/cmd/countersign/internal/daemon"
)

type doctorCmd struct {
	JSON    bool `help:"Print JSON."`
	Strict  bool `help:"End with 1 where something is warned of."`
	NoStart bool `help:"Don't start the upstreams: their tools and pins are not looked at."`
}

// Help says what it touches, and lists the exit codes.
func (doctorCmd) Help() string {
	return "It may run beside a gate: it takes no lock and no port, posts nothing and changes nothing. " +
		"It starts a process of each upstream for as long as it takes to list its tools, and asks Slack who the app is. No secret is printed. " +
		"Exit code: 0 nothing fails, 1 warnings (with --strict), 2 something fails, 4 usage."
}

// Run looks at everything and prints what was found.
func (c doctorCmd) Run(ctx context.Context, term terminal, common *common) error {
	d := daemon.Diagnose(ctx, daemon.Checkup{Config: common.Config, Version: version(), NoStart: c.NoStart})
	if err := c.print(term.out, d); err != nil {
		return fmt.Errorf("writing the findings: %w", err)
	}
	switch level := d.Level(); {
	case level == daemon.Fail:
		return exitError(exitBroken)
	case level == daemon.Warn && c.Strict:
		return exitError(exitFailed)
	}
	return nil
}

func (c doctorCmd) print(w io.Writer, d daemon.Diagnosis) error {
	if c.JSON {
		return printJSON(w, d)
	}
	var page strings.Builder
	counts := map[daemon.Level]int{}
	for _, s := range d {
		fmt.Fprintf(&page, "%s\n", s.Name)
		for _, f := range s.Findings {
			counts[f.Level]++
			fmt.Fprintf(&page, "  %-4s  %s\n", f.Level, f.Text)
			if f.Do != "" {
				fmt.Fprintf(&page, "        -> %s\n", f.Do)
			}
		}
	}
	fmt.Fprintf(&page, "%d ok, %d to look at, %d to put right.\n", counts[daemon.Fine], counts[daemon.Warn], counts[daemon.Fail])
	_, err := io.WriteString(w, page.String())
	return err
}

func printJSON(w io.Writer, d daemon.Diagnosis) error {
	type section struct {
		daemon.Section
		Level daemon.Level `json:"level"`
	}
	out := struct {
		Level    daemon.Level `json:"level"`
		Sections []section    `json:"sections"`
	}{Level: d.Level()}
	for _, s := range d {
		out.Sections = append(out.Sections, section{s, s.Level()})
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(out)
}
