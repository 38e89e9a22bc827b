package store

import (
	"context"
	"fmt"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/action"
)

// End ends an approval without a run: Withdrawn from pending and approved, Revoked
// from approved. by is the actor or person who does it, "" for
// the gate itself. Whether by may do it is for the caller to judge (Eligible for
// a revocation). The same end by the same one again is no error.
//
// The ticket is returned also with a Conflict when the record exists:
// AlreadyDecided, IsExpired, IsLapsed and the other ends.
func (s *Store) End(ctx context.Context, id string, to approvals.State, cause, by, why string) (approvals.Ticket, error) {
	switch to {
	case approvals.Withdrawn:
		return s.end(ctx, id, to, ",pending,approved,", cause, by, why)
	case approvals.Revoked:
		return s.end(ctx, id, to, ",approved,", cause, by, why)
	}
	return approvals.Ticket{}, fmt.Errorf("ending: %q is no such end", to)
}

// Void ends an approval, pending or approved, that no longer fits. policy is the
// digest of the one by which it does not: Behind when the newest generation is of
// another, for it may fit there. The rest is as with End.
func (s *Store) Void(ctx context.Context, id, cause string, policy action.Digest) (approvals.Ticket, error) {
	return s.end(ctx, id, approvals.Void, ",pending,approved,", cause, "", "", s.judgedBy(policy)...)
}

func (s *Store) end(ctx context.Context, id string, to approvals.State, from, cause, by, why string, judged ...any) (approvals.Ticket, error) {
	r, _, err := s.read(ctx, id)
	if err != nil {
		return approvals.Ticket{}, fmt.Errorf("ending: %w", err)
	}
	words, err := s.sealReason(id, r.Bound, why)
	if err != nil {
		return approvals.Ticket{}, err
	}
	args := []any{id, s.k.wakeChannel(), ms(s.opt.Retain), ms(s.opt.ResultTTL), string(to), cause, by, words, r.Deadline, from}
	rep, err := s.run(ctx, s.sc.end, s.k.moving(id, r.Actor, s.k.generation()), append(args, judged...)...)
	switch {
	case err != nil:
		return approvals.Ticket{}, fmt.Errorf("ending: %w", err)
	case rep.code == "ok":
		return s.Ticket(ctx, id)
	case rep.code == "due":
		if err := s.tick(ctx, id); err != nil {
			return approvals.Ticket{}, fmt.Errorf("ending: %w", err)
		}
		return s.ended(ctx, id)
	case rep.code == "late":
		return s.ended(ctx, id)
	case rep.code == "behind":
		return approvals.Ticket{}, s.behind("ending", rep)
	case rep.code == "gone":
		return approvals.Ticket{}, fmt.Errorf("ending: approval %s: %w", id, approvals.NotFound)
	}
	return approvals.Ticket{}, unexpected("ending", rep)
}

// ended gives the ticket with the conflict that its state is.
func (s *Store) ended(ctx context.Context, id string) (approvals.Ticket, error) {
	t, err := s.Ticket(ctx, id)
	if err != nil {
		return t, err
	}
	return t, fmt.Errorf("approval %s is %s: %w", id, t.State, tooLate(t.State))
}

// Resolve is a person's word on a call of unknown outcome: it ran (Succeeded,
// its result not known) or it did not (NotRun). AlreadyDecided, with the ticket,
// when the record is not unknown. The same word by the same person again is no
// error.
func (s *Store) Resolve(ctx context.Context, id string, ran bool, by, note string) (approvals.Ticket, error) {
	to := approvals.NotRun
	if ran {
		to = approvals.Succeeded
	}
	r, _, err := s.read(ctx, id)
	if err != nil {
		return approvals.Ticket{}, fmt.Errorf("resolving: %w", err)
	}
	words, err := s.sealReason(id, r.Bound, note)
	if err != nil {
		return approvals.Ticket{}, err
	}
	rep, err := s.run(ctx, s.sc.resolve, s.k.moving(id, r.Actor, s.k.ownedBy(r.fields["own"])),
		id, s.k.wakeChannel(), ms(s.opt.Retain), ms(s.opt.ResultTTL), string(to), by, words, ms(s.opt.ResultTTL))
	switch {
	case err != nil:
		return approvals.Ticket{}, fmt.Errorf("resolving: %w", err)
	case rep.code == "ok":
		return s.Ticket(ctx, id)
	case rep.code == "late":
		return s.ended(ctx, id)
	case rep.code == "gone":
		return approvals.Ticket{}, fmt.Errorf("resolving: approval %s: %w", id, approvals.NotFound)
	}
	return approvals.Ticket{}, unexpected("resolving", rep)
}
