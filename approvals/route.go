package approvals

import (
	"slices"
	"time"
)

// Route says who is asked, where, and for how long. Policies define routes by
// name.
type Route struct {
	Name           string
	Channels       []string
	Approvers      []string // people ids, "group:NAME", "slack-group:S…"
	Quorum         int      // people needed; at least 1
	Timeout        time.Duration
	AllowRequester bool
	Links          string // "" or "approve"
	Run            string // "" or "on_approve"
	OnCancel       string // "" or "withdraw"
}

// SameAs tells whether an approval given under r still fits other: the same
// name, approvers, quorum and allow_requester.
func (r Route) SameAs(other Route) bool {
	return r.Name == other.Name && r.Quorum == other.Quorum && r.AllowRequester == other.AllowRequester &&
		slices.Equal(slices.Sorted(slices.Values(r.Approvers)), slices.Sorted(slices.Values(other.Approvers)))
}

// Requirement is a route as it was when the call was parked: one list of people
// who must agree.
type Requirement struct {
	Route          string        `json:"route"`
	Approvers      []string      `json:"approvers"`
	Quorum         int           `json:"quorum"`
	AllowRequester bool          `json:"allow_requester"`
	Timeout        time.Duration `json:"timeout"`
	Deadline       time.Time     `json:"deadline"` // by the store's clock, set at the park
	Excluded       []string      `json:"excluded"` // people who may not approve: the requester and the owners
}

// Require makes the requirement of a route for a call by these people.
func (r Route) Require(excluded []string) Requirement {
	return Requirement{
		Route: r.Name, Approvers: slices.Clone(r.Approvers), Quorum: max(r.Quorum, 1),
		AllowRequester: r.AllowRequester, Timeout: r.Timeout, Excluded: slices.Clone(excluded),
	}
}

// MembershipAge is how old a membership may be when a vote is judged.
const MembershipAge = 60 * time.Second

// Memberships are the groups that a person was seen in.
type Memberships struct {
	Groups []string  // "group:ops", "slack-group:S0ONCALL"
	AsOf   time.Time // when this was true; older than MembershipAge counts for nothing
}

// Apart is the time between two readings of this machine's clock: by the wall clock
// or by the monotonic one, whichever says more. The one may be set, and the other
// does not count the time that the machine was suspended.
func Apart(a, b time.Time) time.Duration {
	return max(b.Sub(a).Abs(), b.Round(0).Sub(a.Round(0)).Abs())
}

// Standing is what a person may do under a requirement.
type Standing struct {
	MayApprove, MayDeny bool
	Why                 Conflict // NotEligible or SelfApproval when MayApprove is false
}

// Eligible is the only judge of who may vote: click, callback, page and the
// operators' API all end here. An empty approver list means nobody. Someone
// excluded may still deny when they are on the route.
func Eligible(req Requirement, person string, m Memberships, now time.Time) Standing {
	if person == "" || !onRoute(req, person, m, now) {
		return Standing{Why: NotEligible}
	}
	if !req.AllowRequester && slices.Contains(req.Excluded, person) {
		return Standing{MayDeny: true, Why: SelfApproval}
	}
	return Standing{MayApprove: true, MayDeny: true}
}

func onRoute(req Requirement, person string, m Memberships, now time.Time) bool {
	if slices.Contains(req.Approvers, person) {
		return true
	}
	if Apart(m.AsOf, now) > MembershipAge {
		return false
	}
	return slices.ContainsFunc(m.Groups, func(g string) bool { return slices.Contains(req.Approvers, g) })
}
