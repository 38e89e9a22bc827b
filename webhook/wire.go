package webhook

import (
	"time"

	"github.com/countersign-mcp/countersign/approvals"
)

// Approval is an approval as the operators' API writes it. It is masked as
// everything outside the gate is.
type Approval struct {
	ID    string          `json:"id"`
	State approvals.State `json:"state"`
	Cause string          `json:"cause,omitempty"`
	Rev   uint64          `json:"rev"`

	Server string         `json:"server"`
	Tool   string         `json:"tool"`
	Tier   string         `json:"tier,omitempty"`
	Title  string         `json:"title"`
	View   approvals.View `json:"view"`
	// Complete is false when View is not all that would run.
	Complete bool   `json:"complete"`
	Digest   string `json:"digest"` // keyed; give it back with a decision

	Actor     string   `json:"actor"`
	ActorAuth string   `json:"actor_auth,omitempty"`
	Requester string   `json:"requester,omitempty"`
	Rules     []string `json:"rules,omitempty"`

	Requirements []ApprovalRequirement `json:"requirements"`
	Channels     []string              `json:"channels"`
	Links        string                `json:"links,omitempty"`
	Run          string                `json:"run,omitempty"`
	OnCancel     string                `json:"on_cancel,omitempty"`

	Votes  []ApprovalVote `json:"votes"`
	By     string         `json:"by,omitempty"`
	Reason string         `json:"reason,omitempty"`

	CreatedAt time.Time  `json:"created_at"`
	Deadline  time.Time  `json:"deadline"`
	DecidedAt *time.Time `json:"decided_at,omitempty"`
	ClaimBy   *time.Time `json:"claim_by,omitempty"`
	EndedAt   *time.Time `json:"ended_at,omitempty"`

	Messages []approvals.Ref     `json:"messages"`
	Troubles []approvals.Trouble `json:"troubles,omitempty"`
	// Summary is one sentence about where it stands.
	Summary string `json:"summary"`
}

// ApprovalRequirement is one route that must agree.
type ApprovalRequirement struct {
	Route          string    `json:"route"`
	Approvers      []string  `json:"approvers"`
	Quorum         int       `json:"quorum"`
	AllowRequester bool      `json:"allow_requester"`
	Excluded       []string  `json:"excluded,omitempty"`
	Deadline       time.Time `json:"deadline"`
}

// ApprovalVote is a vote that was counted.
type ApprovalVote struct {
	Route   string    `json:"route"`
	Person  string    `json:"person"`
	Verdict string    `json:"verdict"`
	Source  string    `json:"source"`
	At      time.Time `json:"at"`
}

// ApprovalList is the answer to a list.
type ApprovalList struct {
	Approvals []Approval `json:"approvals"`
}

func wire(t approvals.Ticket) Approval {
	a := Approval{
		ID: t.ID, State: t.State, Cause: t.Cause, Rev: t.Rev, Server: t.Server, Tool: t.Tool, Tier: t.Tier,
		Title: titleOf(t), View: t.View, Complete: t.View.Complete(), Digest: t.Bound,
		Actor: t.Actor, ActorAuth: t.ActorAuth, Requester: t.Requester, Rules: t.Rules,
		Requirements: []ApprovalRequirement{}, Channels: append([]string{}, t.Channels...), Links: t.Links, Run: t.Run, OnCancel: t.OnCancel,
		Votes: []ApprovalVote{}, By: t.By, Reason: t.Reason,
		CreatedAt: t.CreatedAt.UTC(), Deadline: t.Deadline.UTC(), DecidedAt: set(t.DecidedAt), ClaimBy: set(t.ClaimBy), EndedAt: set(t.EndedAt),
		Messages: append([]approvals.Ref{}, t.Refs...), Troubles: t.Troubles, Summary: sayState(t),
	}
	for _, r := range t.Requirements {
		a.Requirements = append(a.Requirements, ApprovalRequirement{r.Route, r.Approvers, r.Quorum, r.AllowRequester, r.Excluded, r.Deadline.UTC()})
	}
	for _, v := range t.Votes {
		a.Votes = append(a.Votes, ApprovalVote{v.Requirement, v.Person, v.Verdict.String(), v.Source, v.At.UTC()})
	}
	return a
}

func set(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
