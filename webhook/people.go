package webhook

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
)

// merge puts the configured groups of a person beside the ones that were looked
// up. What was looked up counts only while it is fresh; the configuration is
// always as of now.
func merge(roster *approvals.Roster, person string, seen approvals.Memberships, now time.Time) approvals.Memberships {
	static := roster.Groups(person)
	if len(seen.Groups) == 0 || approvals.Apart(seen.AsOf, now) > approvals.MembershipAge {
		return approvals.Memberships{Groups: static, AsOf: now}
	}
	all := slices.Concat(static, seen.Groups, roster.Through(seen.Groups))
	slices.Sort(all)
	return approvals.Memberships{Groups: slices.Compact(all), AsOf: seen.AsOf}
}

// memberships are the groups that matter for a person's vote on t. Slack is asked
// only when a route names a Slack group and the configuration alone doesn't put
// the person on every route. With an error the memberships are the configured
// ones.
func (s *Server) memberships(ctx context.Context, person string, t approvals.Ticket) (approvals.Memberships, error) {
	roster, now := s.cfg.Roster(), s.now()
	static := merge(roster, person, approvals.Memberships{}, now)
	ask := false
	for _, req := range t.Requirements {
		on := approvals.Eligible(req, person, static, now).MayDeny
		ask = ask || (!on && len(roster.SlackGroups(req.Approvers)) > 0)
	}
	if !ask || s.cfg.Directory == nil {
		return static, nil
	}
	ctx, cancel := context.WithTimeout(ctx, directoryTime)
	defer cancel()
	seen, err := s.cfg.Directory.Memberships(ctx, person)
	if err != nil {
		return static, err
	}
	return merge(roster, person, seen, s.now()), nil
}

// standing is the best of what a person may do under any requirement of t. It is
// for what a page offers; the vote is judged again where it is counted.
func standing(t approvals.Ticket, person string, m approvals.Memberships, now time.Time) approvals.Standing {
	best := approvals.Standing{Why: approvals.NotEligible}
	for _, req := range t.Requirements {
		st := approvals.Eligible(req, person, m, now)
		if st.MayApprove {
			return st
		}
		if st.MayDeny {
			best = st
		}
	}
	return best
}

// castBy finds a person's stored vote with this verdict.
func castBy(t approvals.Ticket, person string, v approvals.Verdict) bool {
	return slices.ContainsFunc(t.Votes, func(c approvals.Cast) bool { return c.Person == person && c.Verdict == v })
}

// voters lists who gave this answer, each once, in the order of the votes.
func voters(t approvals.Ticket, v approvals.Verdict) string {
	var names []string
	for _, c := range t.Votes {
		if c.Verdict == v && !slices.Contains(names, c.Person) {
			names = append(names, c.Person)
		}
	}
	if len(names) == 0 && t.By != "" {
		names = []string{t.By}
	}
	return strings.Join(names, " and ")
}
