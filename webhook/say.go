package webhook

import (
	"time"

	"github.com/countersign-mcp/countersign/approvals"
)

// What people are told. Each sentence is true at the moment it is said, and says
// whether anything was recorded.
const (
	sayUnknownButton = "This button is of a version that is not in use any more, or not one of ours. Nothing was recorded."
	sayForeignButton = "This button was not made by this Countersign, or its key was retired. Nothing was recorded."
	sayGone          = "This request is not known any more. Nothing was recorded."
	sayWrongPlace    = "This button does not belong to this channel. Nothing was recorded."
	sayStranger      = "Your Slack account is not one of the people configured here, so your click was not counted."
	sayNotAllowed    = "Your Slack account may not answer: guests, bots, deactivated accounts and people of other workspaces can't. Your click was not counted."
	sayNoLookup      = "It could not be checked who you are, so your click was not counted. Try again in a moment."
	sayUncertain     = "It is not certain that your answer was recorded. Look at the message; if it has not changed in a moment, click again."
	sayNotReady      = "Countersign is still starting, so your click was not counted. Try again in a moment."
)

// sayConflict explains why a vote changed nothing. The state is taken from t
// where the conflict leaves it open.
func sayConflict(c approvals.Conflict, t approvals.Ticket) string {
	switch c {
	case approvals.NotFound:
		return sayGone
	case approvals.AlreadyVoted:
		return "You have already answered this request; your first answer stands."
	case approvals.NotEligible:
		return "You are not among the people who may answer this request, so your answer was not counted."
	case approvals.SelfApproval:
		return "You asked for this call, or answer for the account that did: somebody else must approve it. You may deny it."
	case approvals.WrongDigest:
		return "What you were shown is not what is waiting here, so your answer was not counted."
	case approvals.Forged:
		return "The stored request does not verify, so your answer was not counted. Tell whoever runs Countersign."
	case approvals.IsExpired:
		return "This request expired before it was decided. It did not run, and your answer changed nothing."
	case approvals.StoreUnavailable:
		return sayUncertain
	}
	return sayState(t) + " Your answer changed nothing."
}

// sayState is one sentence about where a request stands.
func sayState(t approvals.Ticket) string {
	switch t.State {
	case approvals.Pending:
		return "It waits for an answer until " + clock(t.Deadline) + "."
	case approvals.Approved:
		return "It was approved" + by(voters(t, approvals.Approve)) + " and has not run yet."
	case approvals.Denied:
		return "It was denied" + by(voters(t, approvals.Deny)) + " and will not run."
	case approvals.Expired:
		if t.Cause == approvals.CauseUndelivered {
			return "It expired before anybody could be told of it, and did not run."
		}
		return "It expired without a decision and did not run."
	case approvals.Withdrawn:
		return "It was withdrawn" + by(t.By) + " and did not run."
	case approvals.Void:
		return "It is void" + void(t.Cause) + " and did not run."
	case approvals.Lapsed:
		return "It was approved" + by(voters(t, approvals.Approve)) + ", but nobody collected it in time; it did not run."
	case approvals.Revoked:
		return "Its approval was taken back" + by(t.By) + "; it did not run."
	case approvals.Executing:
		return "It was approved" + by(voters(t, approvals.Approve)) + " and is running."
	case approvals.Succeeded:
		return "It was approved" + by(voters(t, approvals.Approve)) + " and has run."
	case approvals.Failed:
		return "It was approved" + by(voters(t, approvals.Approve)) + " and has run; the tool reported an error."
	case approvals.NotRun:
		return "It was approved" + by(voters(t, approvals.Approve)) + ", but could not be started; it did not run."
	case approvals.Unknown:
		return "It was approved" + by(voters(t, approvals.Approve)) + ", and it is not known whether it ran. It is not run again by itself."
	}
	return "Its state is " + string(t.State) + "."
}

func void(cause string) string {
	switch cause {
	case approvals.CausePolicy:
		return " because the policy changed"
	case approvals.CauseTool:
		return " because the tool changed"
	case approvals.CauseLabels:
		return " because more is known now of where its values come from"
	case approvals.CauseForged:
		return " because its stored votes do not verify"
	case approvals.CauseActor:
		return " because its caller may no longer make this call"
	}
	return ""
}

func by(names string) string {
	if names == "" {
		return ""
	}
	return " by " + names
}

func clock(t time.Time) string {
	if t.IsZero() {
		return "its deadline"
	}
	return t.UTC().Format("2006-01-02 15:04 UTC")
}
