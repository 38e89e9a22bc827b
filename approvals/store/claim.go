package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/approvals/keys"
)

// Claim takes an approved call, once for all processes. rev and d are what the
// caller judged: Moved when the record has changed since, WrongDigest when it is
// bound to another call. The votes are counted again ([Store.Recount]) and the
// claim deadline is the one that they allow. policy is the digest of the one by
// which the caller found the call fit. The same nonce gets the same claim again,
// with a new lease.
//
// Errors: Behind when the newest generation is of another policy; AlreadyUsed, IsLapsed and the other ends, Forged, NotFound;
// StoreUnavailable never means "not claimed": repeat with the same nonce.
func (s *Store) Claim(ctx context.Context, id string, rev uint64, d action.Digest, nonce string, policy action.Digest) (approvals.Grant, error) {
	if id == "" || nonce == "" || s.opt.Owner == "" {
		return approvals.Grant{}, errors.New("claiming: id, nonce and the store's owner are needed")
	}
	r, _, err := s.read(ctx, id)
	if err != nil {
		return approvals.Grant{}, fmt.Errorf("claiming: %w", err)
	}
	if !s.opt.Ring.Verify(keys.Bound, r.Bound, d.Bytes()) {
		return approvals.Grant{}, fmt.Errorf("claiming: approval %s: %w", id, approvals.WrongDigest)
	}
	switch state := r.ticket.State; {
	case state == approvals.Executing && r.fields["cn"] == nonce: // our own claim, whose answer was lost
	case state != approvals.Approved:
		return approvals.Grant{}, fmt.Errorf("claiming: approval %s: %w", id, notClaimable(state))
	default:
		if err := s.recount(r.ticket); err != nil {
			return approvals.Grant{}, fmt.Errorf("claiming: %w", err)
		}
	}
	args := []any{
		id, s.k.wakeChannel(), ms(s.opt.Retain), ms(s.opt.ResultTTL), nonce, s.opt.Owner, ms(s.opt.Lease),
		rev, r.Bound, r.ticket.ClaimBy.UnixMilli(),
	}
	rep, err := s.sendClaim(ctx, s.k.moving(id, r.Actor, s.k.fence(), s.k.ownedBy(s.opt.Owner), s.k.generation()),
		append(args, s.judgedBy(policy)...)...)
	if err != nil {
		return approvals.Grant{}, fmt.Errorf("claiming: %w", err)
	}
	return s.claimed(ctx, id, nonce, rep)
}

// claimed turns the script's word into a grant.
func (s *Store) claimed(ctx context.Context, id, nonce string, rep reply) (approvals.Grant, error) {
	no := func(c approvals.Conflict) (approvals.Grant, error) {
		return approvals.Grant{}, fmt.Errorf("claiming: approval %s: %w", id, c)
	}
	switch rep.code {
	case "ok":
		fence, err := strconv.ParseUint(rep.text, 10, 64)
		if err != nil {
			return approvals.Grant{}, unexpected("claiming", rep)
		}
		t, err := s.Ticket(ctx, id)
		if err != nil {
			return approvals.Grant{}, fmt.Errorf("claimed, but: %w", err)
		}
		return approvals.Grant{ID: id, Nonce: nonce, Owner: s.opt.Owner, Fence: fence, Lease: s.opt.Lease, Ticket: t}, nil
	case "moved":
		return no(approvals.Moved)
	case "late":
		return no(notClaimable(approvals.State(rep.text)))
	case "due":
		if err := s.tick(ctx, id); err != nil {
			return approvals.Grant{}, fmt.Errorf("claiming: %w", err)
		}
		return no(approvals.IsLapsed)
	case "behind":
		return approvals.Grant{}, s.behind("claiming", rep)
	case "digest":
		return approvals.Grant{}, forged(id, "its digest was changed")
	case "gone":
		return no(approvals.NotFound)
	}
	return approvals.Grant{}, unexpected("claiming", rep)
}

// sendClaim runs the claim and, where replicas must have it, waits for them on
// the same connection. That client never retries by itself: a retry on another
// connection must run the script again, which writes, before it may WAIT.
func (s *Store) sendClaim(ctx context.Context, ks []string, args ...any) (reply, error) {
	if s.opt.WaitReplicas == 0 {
		return s.run(ctx, s.sc.claim, ks, args...)
	}
	if err := s.ready(ctx); err != nil {
		return reply{}, unavailable("claim", err)
	}
	c := s.claimer
	if cc, ok := c.(*redis.ClusterClient); ok { // WAIT has no key: the slot's own node must get it
		node, err := cc.MasterForKey(ctx, ks[0])
		if err != nil {
			return reply{}, unavailable("claim", err)
		}
		c = node
	}
	pipe := c.Pipeline()
	ran := pipe.Eval(ctx, s.sc.claim.text, ks, args...)
	waited := redis.NewIntCmd(ctx, "wait", s.opt.WaitReplicas, ms(s.opt.WaitTimeout))
	_ = pipe.Process(ctx, waited)
	if _, err := pipe.Exec(ctx); err != nil {
		return reply{}, unavailable("claim", err)
	}
	rep, err := parseReply(ran.Val())
	if err != nil {
		return reply{}, unavailable("claim", err)
	}
	if got := waited.Val(); rep.code == "ok" && got < int64(s.opt.WaitReplicas) {
		return reply{}, unavailable("claim", fmt.Errorf("%d of %d replicas confirmed it", got, s.opt.WaitReplicas))
	}
	return rep, nil
}

// Renew extends the lease of a claim from now. AlreadyUsed when the claim is not
// the grant's any more: its owner must not begin anything under it.
func (s *Store) Renew(ctx context.Context, g approvals.Grant) error {
	rep, err := s.run(ctx, s.sc.renew, []string{s.k.record(g.ID), s.k.due()}, g.ID, g.Nonce, ms(s.opt.Lease))
	switch {
	case err != nil:
		return fmt.Errorf("renewing: %w", err)
	case rep.code == "ok":
		return nil
	case rep.code == "late":
		return fmt.Errorf("renewing: approval %s is %s: %w", g.ID, rep.text, approvals.AlreadyUsed)
	case rep.code == "gone":
		return fmt.Errorf("renewing: approval %s: %w", g.ID, approvals.NotFound)
	}
	return unexpected("renewing", rep)
}

// Finish writes what came of a claim, with its sealed answer, in one step. It is
// accepted from executing and from unknown, only with the claim's nonce, and
// again for the same outcome. An answer over [MaxResult] is not kept; the cause
// says so. AlreadyUsed when the claim is not the grant's, AlreadyDecided (with
// the ticket) when it has ended otherwise.
func (s *Store) Finish(ctx context.Context, g approvals.Grant, o approvals.Outcome) (approvals.Ticket, error) {
	if !approvals.Executing.May(o.State) {
		return approvals.Ticket{}, fmt.Errorf("finishing: %q is no outcome", o.State)
	}
	r, _, err := s.read(ctx, g.ID)
	if err != nil {
		return approvals.Ticket{}, fmt.Errorf("finishing: %w", err)
	}
	sealed, cause, err := s.sealResult(r, o)
	if err != nil {
		return approvals.Ticket{}, fmt.Errorf("finishing: %w", err)
	}
	rep, err := s.run(ctx, s.sc.finish, s.k.moving(g.ID, r.Actor, s.k.result(g.ID), s.k.ownedBy(r.fields["own"])),
		g.ID, s.k.wakeChannel(), ms(s.opt.Retain), ms(s.opt.ResultTTL), g.Nonce, string(o.State), cause,
		ms(s.opt.ResultTTL), sealed)
	switch {
	case err != nil:
		return approvals.Ticket{}, fmt.Errorf("finishing: %w", err)
	case rep.code == "ok":
		return s.Ticket(ctx, g.ID)
	case rep.code == "late" && r.fields["cn"] == g.Nonce:
		return s.with(ctx, g.ID, approvals.AlreadyDecided)
	case rep.code == "late":
		return s.with(ctx, g.ID, approvals.AlreadyUsed)
	case rep.code == "gone":
		return approvals.Ticket{}, fmt.Errorf("finishing: approval %s: %w", g.ID, approvals.NotFound)
	}
	return approvals.Ticket{}, unexpected("finishing", rep)
}

// sealResult seals an answer that is to be kept.
func (s *Store) sealResult(r *record, o approvals.Outcome) (sealed []byte, cause string, err error) {
	if o.Kept == nil || (o.State != approvals.Succeeded && o.State != approvals.Failed) {
		return []byte{}, o.Cause, nil
	}
	plain, err := encodeKept(*o.Kept)
	if err != nil {
		return nil, "", fmt.Errorf("writing the result: %w", err)
	}
	if len(plain) > MaxResult {
		return []byte{}, approvals.CauseResultTooBig, nil
	}
	sealed, err = s.seal(keys.Result, r.fixed.ID, "result", r.Bound, plain)
	return sealed, o.Cause, err
}

// Claims lists the claims that a ledger file holds and that are not settled:
// executing, and unknown since the lease ended. A recovery settles them with
// [Store.Finish] by the nonce that is only in the record. A record that does not
// open is left out and logged: it must not keep the others from being settled.
func (s *Store) Claims(ctx context.Context, owner string) ([]approvals.Grant, error) {
	if err := s.ready(ctx); err != nil {
		return nil, unavailable("listing claims", err)
	}
	ids, err := s.rdb.SMembers(ctx, s.k.ownedBy(owner)).Result()
	if err != nil {
		return nil, unavailable("listing claims", err)
	}
	var out []approvals.Grant
	for _, id := range ids {
		r, _, err := s.read(ctx, id)
		switch {
		case errors.Is(err, approvals.NotFound):
			continue
		case errors.Is(err, approvals.Forged):
			s.opt.Log.Error("a claim can't be settled: its record does not verify", "approval", id, "error", err)
			continue
		case err != nil:
			return out, fmt.Errorf("listing claims: %w", err)
		}
		if st := r.ticket.State; (st != approvals.Executing && st != approvals.Unknown) || r.fields["own"] != owner {
			continue
		}
		out = append(out, approvals.Grant{
			ID: id, Nonce: r.fields["cn"], Owner: owner, Fence: uint64(r.number("fence")), Lease: s.opt.Lease, Ticket: r.ticket,
		})
	}
	return out, nil
}
