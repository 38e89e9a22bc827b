package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/webhook"
)

// what is the title, or the tool where there is none.
func what(a webhook.Approval) string {
	if a.Title != "" {
		return a.Title
	}
	return a.Server + "/" + a.Tool
}

// stamp is the moment that matters next for an approval.
func stamp(a webhook.Approval) string {
	switch {
	case a.State == approvals.Pending:
		return moment(a.Deadline)
	case a.State == approvals.Approved && a.ClaimBy != nil:
		return moment(*a.ClaimBy)
	default:
		return "-"
	}
}

func moment(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// show prints one approval for a person: everything that would run, nothing cut.
func show(term terminal, a webhook.Approval) error {
	var b strings.Builder
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%-10s %s\n", name, value)
		}
	}
	line("approval", a.ID)
	line("state", string(a.State))
	line("", a.Summary)
	line("what", what(a))
	line("tool", a.Server+"/"+a.Tool)
	line("tier", a.Tier)
	line("who", a.Actor)
	line("why", strings.Join(a.Rules, "; "))
	for _, r := range a.Requirements {
		line("route", fmt.Sprintf("%s: %d of %s, until %s", r.Route, r.Quorum, strings.Join(r.Approvers, ", "), moment(r.Deadline)))
	}
	for _, v := range a.Votes {
		line("vote", fmt.Sprintf("%s by %s at %s (%s)", v.Verdict, v.Person, moment(v.At), v.Source))
	}
	line("reason", a.Reason)
	line("digest", a.Digest)
	b.WriteString("\narguments\n")
	b.WriteString(a.View.Text)
	b.WriteString("\n")
	for _, m := range a.View.Masked {
		fmt.Fprintf(&b, "masked: %s (%s, %d bytes, digest %s)\n", m.Pointer, m.Type, m.Len, m.Digest)
	}
	for _, w := range a.View.Warnings {
		fmt.Fprintf(&b, "note: %s\n", w)
	}
	for _, m := range a.View.Missing {
		fmt.Fprintf(&b, "not shown: %s\n", m)
	}
	_, err := fmt.Fprint(term.out, b.String())
	return err
}
