package store

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/keys"
)

// voteMAC is what ties a vote to everything it was given for.
func (s *Store) voteMAC(id, bound string, q approvals.Requirement, c approvals.Cast) string {
	return s.opt.Ring.MAC(keys.VoteMAC, s.voteFields(id, bound, q, c)...)
}

func (s *Store) voteFields(id, bound string, q approvals.Requirement, c approvals.Cast) [][]byte {
	whole, err := json.Marshal(q)
	if err != nil {
		panic("store: a requirement can't be written: " + err.Error()) // strings, numbers and a time
	}
	when := func(t time.Time) []byte { return strconv.AppendInt(nil, t.UnixMilli(), 10) }
	return [][]byte{
		[]byte("vote/v1"), []byte(s.opt.Namespace), []byte(id), []byte(bound), whole,
		[]byte(c.Requirement), []byte(c.Person), []byte(c.Verdict.String()), []byte(c.Source),
		when(q.Deadline), when(c.ClaimBy), when(c.At),
	}
}

// Recount counts the votes that verify. Every requirement must have its quorum
// of people who could approve, each counted once, and the claim deadline must be
// the one that the last of these votes allowed; the envelope must be the one
// they voted on. No vote may stand there that does not verify: it would be taken
// for somebody's yes by whoever reads the ticket. Forged if not. It touches no
// network.
func (s *Store) Recount(p approvals.Parked) error {
	digest := p.Envelope.Digest()
	if p.Envelope.OperationID != p.ID || !s.opt.Ring.Verify(keys.Bound, p.Bound, digest.Bytes()) {
		return forged(p.ID, "the call is not the one that was voted on")
	}
	return s.recount(p.Ticket)
}

func (s *Store) recount(t approvals.Ticket) error {
	if len(t.Requirements) == 0 {
		return forged(t.ID, "it asks for nobody's yes")
	}
	for _, c := range t.Votes {
		if !slices.ContainsFunc(t.Requirements, func(q approvals.Requirement) bool { return s.counts(t, q, c) }) {
			return forged(t.ID, "a vote does not verify")
		}
	}
	var claimBy time.Time
	for _, q := range t.Requirements {
		people := map[string]bool{}
		for _, c := range t.Votes {
			if !s.counts(t, q, c) {
				continue
			}
			people[c.Person] = true
			if c.ClaimBy.After(claimBy) {
				claimBy = c.ClaimBy
			}
		}
		if len(people) < q.Quorum || q.Quorum < 1 {
			return forged(t.ID, "the votes that verify are not enough for route "+q.Route)
		}
	}
	if !t.ClaimBy.Equal(claimBy) {
		return forged(t.ID, "the claim deadline is not the one of its votes")
	}
	return nil
}

// counts tells whether a stored vote is a true yes under a requirement. Group
// membership was judged when the vote was made, which its MAC vouches for;
// exclusion is judged again.
func (s *Store) counts(t approvals.Ticket, q approvals.Requirement, c approvals.Cast) bool {
	return c.Requirement == q.Route && c.Verdict == approvals.Approve && c.Person != "" &&
		(q.AllowRequester || !slices.Contains(q.Excluded, c.Person)) &&
		c.At.Before(q.Deadline) &&
		s.opt.Ring.Verify(keys.VoteMAC, c.MAC, s.voteFields(t.ID, t.Bound, q, c)...)
}

// validVote refuses what no caller should send.
func validVote(v approvals.Vote) error {
	switch {
	case v.ID == "" || v.Nonce == "" || v.Source == "":
		return errors.New("deciding: id, nonce and source are needed")
	case v.Verdict != approvals.Approve && v.Verdict != approvals.Deny:
		return errors.New("deciding: the verdict is neither approve nor deny")
	}
	return nil
}
