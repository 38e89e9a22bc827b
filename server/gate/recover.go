package gate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/ledger"
)

// recovery is what this process remembers of dead ones, since their ledgers are
// taken again and again.
type recovery struct {
	recalled sync.Map // ledger id → true: its sessions were labelled again
	unknown  sync.Map // approval id → true: the ledger says that nobody can know
	recorded sync.Map // approval id → how its claim is settled: on our ledger, and not yet in the store
}

// Recover settles the claims of processes that died. It takes their ledgers and
// ends each claim by what is in them: without an exec_start the call never left,
// with one alone nobody can know, with a result its end is known and its body
// lost. With an error some are left; call it again.
func (g *Gate) Recover(ctx context.Context) error {
	if g.adopt == nil {
		return nil
	}
	dead, err := g.adopt()
	errs := []error{err}
	for _, d := range dead {
		errs = append(errs, g.recall(ctx, d))
		if err := g.settle(ctx, d); err != nil {
			errs = append(errs, fmt.Errorf("settling the claims of %s: %w", d.ID, err))
		}
		d.Release()
	}
	return errors.Join(errs...)
}

func (g *Gate) settle(ctx context.Context, d *ledger.Dead) error {
	grants, err := g.store.Claims(ctx, d.ID)
	if err != nil {
		return err
	}
	// An unknown outcome waits for a person, and Recover comes again and again. A
	// dead process's ledger says the same each time, and may be long.
	grants = slices.DeleteFunc(grants, func(c approvals.Grant) bool {
		_, told := g.recovery.unknown.Load(c.ID)
		return told && c.Ticket.State == approvals.Unknown
	})
	if len(grants) == 0 {
		return nil
	}
	ids := make([]string, len(grants))
	for i, c := range grants {
		ids[i] = c.ID
	}
	if err := d.Load(ids...); err != nil {
		return err
	}
	var errs []error
	for _, grant := range grants {
		errs = append(errs, g.settleOne(ctx, d, grant))
	}
	return errors.Join(errs...)
}

func (g *Gate) settleOne(ctx context.Context, d *ledger.Dead, grant approvals.Grant) error {
	end, status := verdictOf(d, grant.ID)
	if ours(grant.Ticket.Actor, grant.Ticket.Tool) {
		if end.State == approvals.Unknown {
			var err error
			if end, status, err = g.settleOwn(ctx, grant); err != nil {
				return err
			}
		}
		if end.Cause == approvals.CauseBodyLost {
			end.Cause = "" // its result is the pins
		}
	}
	if end.State == approvals.Unknown && grant.Ticket.State == approvals.Unknown {
		g.recovery.unknown.Store(grant.ID, true)
		g.recovery.recorded.Delete(grant.ID)
		return nil // settled before, and it waits for a person
	}
	if err := g.recordRecovery(ctx, d, grant, end, status); err != nil {
		return err
	}
	err := g.insist(ctx, func(ctx context.Context) error {
		_, err := g.store.Finish(ctx, grant, end)
		return err
	})
	if err == nil || isFinal(err) {
		g.recovery.recorded.Delete(grant.ID)
	}
	if isFinal(err) {
		g.log.Warn("a claim of a dead process is settled already", "approval", grant.ID, "error", err)
		return nil
	}
	if err == nil {
		g.log.Info("a claim of a dead process was settled", "approval", grant.ID, "state", end.State)
	}
	return err
}

// recordRecovery writes how a claim is settled, before it is. A store that can't be
// told has it tried again, and the record is there already then.
func (g *Gate) recordRecovery(ctx context.Context, d *ledger.Dead, grant approvals.Grant, end approvals.Outcome, status string) error {
	now := string(end.State) + " " + end.Cause
	if before, ok := g.recovery.recorded.Load(grant.ID); ok && before == now {
		return nil
	}
	r := ledger.Record{
		Event: ledger.Recovered, OperationID: grant.ID, Status: status, ErrorType: end.Cause, File: d.ID,
		Server: ledger.Clean(grant.Ticket.Server), Tool: ledger.Clean(grant.Ticket.Tool),
		Actor:    ledger.Clean(grant.Ticket.Actor),
		Approval: &ledger.Approval{ID: grant.ID, State: string(end.State), Cause: end.Cause},
	}
	if err := g.write(ctx, r); err != nil {
		return err
	}
	g.recovery.recorded.Store(grant.ID, now)
	return nil
}

// verdictOf says what a dead process's ledger knows of a claim.
func verdictOf(d *ledger.Dead, id string) (approvals.Outcome, string) {
	if end, ok := d.Result(id); ok {
		status := end.Status
		switch status {
		case ledger.StatusOK:
			return approvals.Outcome{State: approvals.Succeeded, Cause: approvals.CauseBodyLost}, status
		case ledger.StatusToolError, ledger.StatusProtocolError:
			return approvals.Outcome{State: approvals.Failed, Cause: approvals.CauseBodyLost}, status
		case ledger.StatusNotRun:
			return approvals.Outcome{State: approvals.NotRun, Cause: cmp.Or(end.ErrorType, approvals.CauseNotSent)}, status
		}
		return approvals.Outcome{State: approvals.Unknown, Cause: approvals.CauseNoAnswer}, status
	}
	if !d.Started(id) {
		return approvals.Outcome{State: approvals.NotRun, Cause: approvals.CauseNeverStarted}, ledger.StatusNotRun
	}
	return approvals.Outcome{State: approvals.Unknown, Cause: approvals.CauseOwnerLost}, ledger.StatusUnknown
}
