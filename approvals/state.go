package approvals

import "slices"

// State is where an approval stands. doc.go has the transitions.
type State string

// The states.
const (
	Pending   State = "pending"
	Approved  State = "approved"
	Denied    State = "denied"
	Expired   State = "expired"
	Withdrawn State = "withdrawn"
	Void      State = "void"
	Lapsed    State = "lapsed"
	Revoked   State = "revoked"
	Executing State = "executing"
	Succeeded State = "succeeded"
	Failed    State = "failed"
	NotRun    State = "not_run"
	Unknown   State = "unknown"
)

var next = map[State][]State{
	Pending:   {Approved, Denied, Expired, Withdrawn, Void},
	Approved:  {Executing, Lapsed, Void, Withdrawn, Revoked},
	Executing: {Succeeded, Failed, NotRun, Unknown},
	Unknown:   {Succeeded, Failed, NotRun},
}

// States lists every state once.
func States() []State {
	return []State{
		Pending, Approved, Denied, Expired, Withdrawn, Void, Lapsed, Revoked,
		Executing, Succeeded, Failed, NotRun, Unknown,
	}
}

// May tells whether a record may go from s to t.
func (s State) May(t State) bool { return slices.Contains(next[s], t) }

// Over tells whether nothing more can happen to a record by itself: every state
// but pending, approved, executing and unknown.
func (s State) Over() bool { return len(next[s]) == 0 }

// Causes that a Ticket may carry beside its state.
const (
	CauseUndelivered   = "undelivered"    // expired, and no message had reached anyone
	CausePolicy        = "policy_changed" // void
	CauseTool          = "tool_changed"   // void
	CauseForged        = "forged"         // void: the stored votes don't verify
	CauseActor         = "actor_changed"  // void: the actor may no longer call this
	CauseLabels        = "labels_changed" // void: more is known of where the call's values come from
	CauseNeverStarted  = "never_started"  // not_run: the owner died before it wrote exec_start
	CauseUnclearClaim  = "unclear_claim"  // not_run: the store gave no clear reply to the claim, so nothing was started
	CauseOverslept     = "overslept"      // not_run: the owner slept past its lease before forwarding
	CauseNotSent       = "not_sent"       // not_run: the upstream could not be reached at all
	CauseOwnerLost     = "owner_lost"     // unknown: the lease ended and the owner did not return
	CauseNoAnswer      = "no_answer"      // unknown: sent, and no answer was read
	CauseLedger        = "ledger"         // unknown or not_run: a ledger record could not be written
	CauseResolved      = "resolved"       // a person said what happened
	CauseBodyLost      = "body_lost"      // succeeded or failed: the result is known, its body is not
	CauseResultTooBig  = "result_too_big" // succeeded or failed: the body was handed out once and not kept
	CauseResultExpired = "result_expired" // succeeded or failed: the body was kept and is gone
)
