package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/countersign-mcp/countersign/approvals/ledger"
	"github.com/countersign-mcp/countersign/cmd/countersign/internal/tally"
	"github.com/countersign-mcp/countersign/server/redact"
)

type policyReportCmd struct {
	JSON  bool     `help:"Print JSON."`
	From  string   `help:"Count from this day or time on." placeholder:"WHEN"`
	To    string   `help:"Count what was before this day or time." placeholder:"WHEN"`
	Zone  string   `help:"Time zone of days and hours: UTC, Local or a name such as Europe/Berlin." default:"UTC"`
	Files []string `arg:"" name:"FILE" help:"Ledger files (.jsonl), or directories of them." type:"path"`
}

// Help says what the columns are, and lists the exit codes.
func (policyReportCmd) Help() string {
	return `WHEN is a day such as 2026-12-31, or a time such as 2026-12-31T18:00:00Z. ` +
		`Each call is counted once, by what was decided. "Would ask" and "would refuse" are calls that ran because the policy only observes. ` +
		`"Joined" is the same call again while it waited or its end was remembered: nobody was asked twice. ` +
		`The chain of each file is verified; what stands after the first wrong line is not counted. ` +
		`Exit code: 0 all files hold, 1 tampered with, 3 a torn last line (a crash), 4 usage.`
}

// Run counts all files into one report.
func (c policyReportCmd) Run(term terminal) error {
	counted, zone, err := c.tally()
	if err != nil {
		return usage(term, err)
	}
	files, err := ledgerFiles(c.Files)
	if err != nil {
		return usage(term, err)
	}
	var verified []ledger.Report
	for _, f := range files {
		rep, err := ledger.ReadFile(f, func(r ledger.Record) error {
			counted.Add(r)
			return nil
		})
		if err != nil {
			return usage(term, err)
		}
		verified = append(verified, rep)
	}
	if err := c.print(term.out, verified, counted.Report(), zone); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	if code := ledger.ExitCode(verified); code != exitOK {
		return exitError(code)
	}
	return nil
}

func (c policyReportCmd) tally() (*tally.Tally, *time.Location, error) {
	zone, err := time.LoadLocation(c.Zone)
	if err != nil {
		return nil, nil, fmt.Errorf("--zone %s is not known here; write UTC, Local or a name such as Europe/Berlin", c.Zone)
	}
	var span tally.Span
	if span.From, err = when("--from", c.From, zone); err != nil {
		return nil, nil, err
	}
	if span.To, err = when("--to", c.To, zone); err != nil {
		return nil, nil, err
	}
	if !span.To.IsZero() && !span.From.Before(span.To) {
		return nil, nil, fmt.Errorf("--from is not before --to: there is nothing to count")
	}
	return tally.New(span, zone), zone, nil
}

// when reads a day, which begins at midnight of the zone, or a time with its own.
func when(flag, text string, zone *time.Location) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if t, err := time.ParseInLocation(time.DateOnly, text, zone); err == nil {
		return t, nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	return time.Time{}, fmt.Errorf("%s %q is neither a day such as 2026-12-31 nor a time such as 2026-12-31T18:00:00Z", flag, text)
}

func (c policyReportCmd) print(out io.Writer, files []ledger.Report, r tally.Report, zone *time.Location) error {
	if c.JSON {
		enc := json.NewEncoder(out)
		enc.SetEscapeHTML(false)
		return enc.Encode(struct {
			Files []ledger.Report `json:"files"`
			tally.Report
		}{files, r})
	}
	var page bytes.Buffer
	for _, f := range files {
		fmt.Fprintf(&page, "%s\n", redact.Visible(f.String()))
	}
	head(&page, r, zone)
	if r.Total.Calls() > 0 {
		tables(&page, r)
	}
	for line := range strings.Lines(page.String()) {
		if _, err := fmt.Fprintln(out, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}

func head(w io.Writer, r tally.Report, zone *time.Location) {
	const minute = "2006-01-02 15:04"
	for _, o := range r.Watches {
		fmt.Fprintf(w, "A policy observed %s until %s.\n", redact.Visible(strings.Join(o.Upstreams, ", ")), o.Until.In(zone).Format(minute))
	}
	if r.Total.Calls() == 0 {
		fmt.Fprintln(w, "No call was decided in this time.")
		return
	}
	fmt.Fprintf(w, "Calls from %s to %s (%s), under %s.\n", r.First.In(zone).Format(minute), r.Last.In(zone).Format(minute), r.Zone,
		some(len(r.Policies), "policy", "policies"))
	if r.Peak != nil {
		fmt.Fprintf(w, "Most questions in one hour: %d (%s).\n", r.Peak.Questions, r.Peak.Hour.Format(minute))
	}
}

func some(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprint(n, " ", many)
}

func tables(page io.Writer, r tally.Report) {
	w := tabwriter.NewWriter(page, 0, 4, 2, ' ', 0)
	fmt.Fprintf(w, "\n\tcalls\tallowed\twould ask\twould refuse\tasked\tjoined\trefused\n")
	row(w, tally.Row{Name: "in all", Counts: r.Total})
	for _, t := range []struct {
		what string
		rows []tally.Row
	}{{"tool", r.Tools}, {"person", r.People}, {"hour of the day", r.Hours}, {"rule", r.Rules}} {
		fmt.Fprintf(w, "\t\t\t\t\t\t\t\nby %s\t\t\t\t\t\t\t\n", t.what)
		for _, one := range t.rows {
			one.Name = "  " + or(redact.Visible(one.Name), "(none)")
			row(w, one)
		}
	}
	_ = w.Flush() // into memory: it can't fail
	if len(r.Reasons) == 0 {
		return
	}
	fmt.Fprintf(w, "\nrefused because\tcalls\tof them ran, observed\n")
	for _, one := range r.Reasons {
		fmt.Fprintf(w, "  %s\t%d\t%d\n", redact.Visible(one.Reason), one.Calls, one.Observed)
	}
	_ = w.Flush()
}

func row(w io.Writer, r tally.Row) {
	fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\n", r.Name, r.Calls(), r.Allowed, r.WouldAsk, r.WouldRefuse, r.Asked, r.Joined, r.Refused)
}
