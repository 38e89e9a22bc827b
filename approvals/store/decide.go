package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/fault"
)

// decideRounds bounds how often a vote is sent again because the clock reading
// it was made by had grown old on the way.
const decideRounds = 4

// Decide takes a verified person's vote. It is the one place where eligibility
// is judged: for every requirement of the sealed record, at this moment, with a
// membership no older than [approvals.MembershipAge].
//
// The ticket is returned also with a Conflict when the record exists. A refused
// vote (not eligible, self-approval, another digest, too late, or Vote.Refused)
// is on the event stream, the first 20 of a person, and changes nothing. Errors: NotEligible, SelfApproval,
// WrongDigest, AlreadyVoted, AlreadyDecided, IsExpired and the other ends,
// NotFound, Forged, StoreUnavailable (repeat with the same nonce).
func (s *Store) Decide(ctx context.Context, v approvals.Vote) (approvals.Ticket, error) {
	if err := validVote(v); err != nil {
		return approvals.Ticket{}, err
	}
	for range decideRounds {
		r, now, err := s.read(ctx, v.ID)
		if err != nil {
			return approvals.Ticket{}, fmt.Errorf("deciding: %w", err)
		}
		if v.Refused != "" {
			return s.refuse(ctx, r, v, v.Refused)
		}
		if r.fields["n:"+v.Nonce] == v.Verdict.String()+":"+v.Person {
			return r.ticket, nil // the same vote again
		}
		b, why := s.judge(r, v, now)
		if why != "" {
			return s.refuse(ctx, r, v, why)
		}
		t, again, err := s.cast(ctx, r, v, b)
		if !again {
			return t, err
		}
	}
	return approvals.Ticket{}, unavailable("deciding", fmt.Errorf("the way to the server is too slow"))
}

// rowMemory is how long after the last denial a row of them is remembered.
const rowMemory = 24 * time.Hour

// ballot is what one person's vote comes to: an entry per requirement, nil where
// they have no say.
type ballot struct {
	at, claimBy time.Time
	casts       []*approvals.Cast
}

// judge says which votes this is, or why it is none.
func (s *Store) judge(r *record, v approvals.Vote, now time.Time) (ballot, approvals.Conflict) {
	if v.Bound != r.Bound && (v.Bound != "" || strings.HasPrefix(v.Source, "callback:")) {
		return ballot{}, approvals.WrongDigest
	}
	if v.Link && v.Verdict == approvals.Approve && r.Links != "approve" {
		return ballot{}, approvals.NotEligible
	}
	b := ballot{at: now, claimBy: now.Add(s.opt.ClaimTTL.Truncate(time.Millisecond)), casts: make([]*approvals.Cast, len(r.Requirements))}
	why, some := approvals.NotEligible, false
	for i, q := range r.Requirements {
		// The membership's age is of this machine's clock, which also stamped it.
		st := approvals.Eligible(q, v.Person, v.Memberships, time.Now())
		if st.Why == approvals.SelfApproval {
			why = approvals.SelfApproval
		}
		if (v.Verdict == approvals.Approve && !st.MayApprove) || !st.MayDeny {
			continue
		}
		c := &approvals.Cast{Requirement: q.Route, Person: v.Person, Verdict: v.Verdict, Source: v.Source, At: b.at, ClaimBy: b.claimBy}
		c.MAC = s.voteMAC(v.ID, r.Bound, q, *c)
		b.casts[i], some = c, true
	}
	if !some {
		return ballot{}, why
	}
	return b, ""
}

// cast sends a ballot. again says that its clock reading was too old.
func (s *Store) cast(ctx context.Context, r *record, v approvals.Vote, b ballot) (t approvals.Ticket, again bool, err error) {
	reason, err := s.sealReason(v.ID, r.Bound, v.Reason)
	if err != nil {
		return t, false, err
	}
	args := []any{
		v.ID, s.k.wakeChannel(), ms(s.opt.Retain), ms(s.opt.ResultTTL), b.at.UnixMilli(), r.Deadline,
		b.claimBy.UnixMilli(), v.Nonce, v.Person, v.Verdict.String(), r.Bound, ms(s.opt.DenyTTL), v.Source,
		reason, r.Denials, r.CloseMS, r.Actor, ms(rowMemory) + r.CloseMS, len(r.Requirements),
	}
	for i, q := range r.Requirements {
		text := []byte{}
		if c := b.casts[i]; c != nil {
			if text, err = json.Marshal(c); err != nil {
				return t, false, fmt.Errorf("deciding: writing the vote: %w", err)
			}
		}
		args = append(args, q.Route, q.Quorum, text)
	}
	rep, err := s.run(ctx, s.sc.decide, s.k.moving(v.ID, r.Actor, s.k.denials(r.Actor)), args...)
	if err != nil {
		return t, false, fmt.Errorf("deciding: %w", err)
	}
	switch rep.code {
	case "ok":
		fault.Point("decide.after")
		t, err := s.Ticket(ctx, v.ID)
		return t, false, err
	case "skew":
		return t, true, nil
	case "dup":
		t, err := s.with(ctx, v.ID, approvals.AlreadyVoted)
		return t, false, err
	case "due":
		if err := s.tick(ctx, v.ID); err != nil {
			return t, false, fmt.Errorf("deciding: %w", err)
		}
		t, err := s.refuse(ctx, r, v, approvals.IsExpired)
		return t, false, err
	case "late":
		t, err := s.refuse(ctx, r, v, tooLate(approvals.State(rep.text)))
		return t, false, err
	case "digest":
		return t, false, forged(v.ID, "its digest was changed")
	case "gone":
		return t, false, fmt.Errorf("deciding: approval %s: %w", v.ID, approvals.NotFound)
	}
	return t, false, unexpected("deciding", rep)
}

// refusalsKept is how many refused votes of one person on one record are put on
// the event stream; later ones are only counted.
const refusalsKept = 20

// refuse records a refused vote and returns the ticket with why.
func (s *Store) refuse(ctx context.Context, r *record, v approvals.Vote, why approvals.Conflict) (approvals.Ticket, error) {
	rep, err := s.run(ctx, s.sc.refuse, s.k.moving(v.ID, r.Actor, s.k.refused(v.ID)),
		v.ID, s.k.wakeChannel(), ms(s.opt.Retain), ms(s.opt.ResultTTL),
		v.Nonce, v.Person, v.Source, v.Verdict.String(), string(why), refusalsKept)
	switch {
	case err != nil:
		return approvals.Ticket{}, fmt.Errorf("recording a refused vote: %w", err)
	case rep.code == "gone":
		return approvals.Ticket{}, fmt.Errorf("approval %s: %w", v.ID, approvals.NotFound)
	case rep.code != "ok":
		return approvals.Ticket{}, unexpected("recording a refused vote", rep)
	}
	return s.with(ctx, v.ID, why)
}

// with reads the ticket as it is now and gives it with a conflict.
func (s *Store) with(ctx context.Context, id string, why approvals.Conflict) (approvals.Ticket, error) {
	t, err := s.Ticket(ctx, id)
	if err != nil {
		return t, err
	}
	return t, fmt.Errorf("approval %s: %w", id, why)
}
