package demo

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/countersign-mcp/countersign/approvals/ledger"
)

// evidence is what the ledger says of one operation, and whether the files are
// whole.
type evidence struct {
	records []ledger.Record
	reports []ledger.Report
}

func readEvidence(dir, operation string) (evidence, error) {
	files, err := ledger.Files(dir)
	if err != nil {
		return evidence{}, err
	}
	var e evidence
	for _, f := range files {
		rep, err := ledger.ReadFile(f, func(r ledger.Record) error {
			if r.OperationID == operation || r.To == operation || r.Approval != nil && r.Approval.ID == operation {
				e.records = append(e.records, r)
			}
			return nil
		})
		if err != nil {
			return evidence{}, err
		}
		e.reports = append(e.reports, rep)
	}
	return e, nil
}

// ended tells whether the approval's own end is on the ledger: its events are
// copied a moment after they happen.
func (e evidence) ended() bool {
	for _, r := range e.records {
		if r.Event != ledger.ApprovalResolved || r.Approval == nil {
			continue
		}
		switch r.Approval.State {
		case "pending", "approved", "executing":
		default:
			return true
		}
	}
	return false
}

// showLedger prints what the ledger says of the operation.
func (p Parts) showLedger(ctx context.Context, operation string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	e, err := readEvidence(p.LedgerDir, operation)
	for err == nil && !e.ended() && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
		e, err = readEvidence(p.LedgerDir, operation)
	}
	if err != nil {
		return fmt.Errorf("reading the ledger: %w", err)
	}
	if len(e.records) == 0 {
		return fmt.Errorf("the ledger in %s says nothing of %s", p.LedgerDir, operation)
	}
	p.say("\nThe ledger says:")
	p.sayRecords(e.records)
	for _, rep := range e.reports {
		if rep.Kind != ledger.OK {
			return fmt.Errorf("the ledger does not verify: %s", rep)
		}
		p.say("Each record carries the hash of the one before it: %s, %d records, verified.", filepath.Base(rep.File), rep.Records)
	}
	return nil
}

// sayRecords prints a line for each record. What is the same again is not
// printed again but counted at the end of the line.
func (p Parts) sayRecords(records []ledger.Record) {
	for i := 0; i < len(records); {
		text, same := ledgerText(records[i]), 1
		for i+same < len(records) && ledgerText(records[i+same]) == text {
			same++
		}
		often := ""
		if same > 1 {
			often = fmt.Sprintf(" (%d times)", same)
		}
		p.say("  %3d  %s  %s%s", records[i].Seq, records[i].Time.Format("15:04:05.000"), text, often)
		i += same
	}
}

// ledgerText is one record for people: what, and how it came out.
func ledgerText(r ledger.Record) string {
	var facts []string
	add := func(s string) {
		if s != "" {
			facts = append(facts, s)
		}
	}
	add(r.Outcome)
	for _, rule := range r.Rules {
		add("by " + rule.ID)
	}
	add(r.Reason)
	if r.Event == ledger.Attached {
		add("waits for the same approval")
	}
	if a := r.Approval; a != nil {
		add(a.State)
		add(a.Cause)
		for _, v := range a.Votes {
			add(voteText(v))
		}
	}
	add(r.Status)
	return strings.TrimRight(fmt.Sprintf("%-18s  %s", r.Event, strings.Join(facts, "; ")), " ")
}

func voteText(v ledger.Vote) string {
	who := v.Person
	if who == "" {
		who = "somebody unknown"
	}
	text := who + ": " + v.Verdict + ", " + v.Source
	if v.Refused != "" {
		text += ", refused: " + v.Refused
	}
	return text
}
