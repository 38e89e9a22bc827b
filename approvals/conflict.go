package approvals

import (
	"errors"
	"time"
)

// Conflict is a refusal that somebody decides on: a typed error. Compare with
// errors.Is.
type Conflict string

// The conflicts.
const (
	NotFound         Conflict = "not_found" // also: another actor's approval
	AlreadyDecided   Conflict = "already_decided"
	IsExpired        Conflict = "expired"
	IsLapsed         Conflict = "lapsed"
	IsWithdrawn      Conflict = "withdrawn"
	IsVoid           Conflict = "void"
	IsRevoked        Conflict = "revoked"
	AlreadyUsed      Conflict = "already_used"
	NotEligible      Conflict = "not_eligible"
	SelfApproval     Conflict = "self_approval"
	AlreadyVoted     Conflict = "already_voted"
	StoreUnavailable Conflict = "store_unavailable"
	Moved            Conflict = "moved"         // Rev moved between Load and Claim; load again
	Behind           Conflict = "policy_behind" // another process has loaded another policy since
	TooMany          Conflict = "too_many"
	// Why there is no room for a new approval; see NoRoom.
	TooManyPending      Conflict = "too_many_pending"
	TooManyPendingInAll Conflict = "too_many_pending_in_all"
	TooManyNew          Conflict = "too_many_new"
	TooManyNewInAll     Conflict = "too_many_new_in_all"
	ReviewClosed        Conflict = "review_closed" // people denied too many of the actor's in a row
	Forged              Conflict = "forged"        // a stored value does not verify
	WrongDigest         Conflict = "wrong_digest"
)

func (c Conflict) Error() string { return "approvals: " + string(c) }

// AsConflict finds the Conflict in err, if there is one.
func AsConflict(err error) (Conflict, bool) {
	var c Conflict
	ok := errors.As(err, &c)
	return c, ok
}

// NoRoom is the refusal of a new approval because of a cap or of a Closing. It is
// certain that nothing was kept.
type NoRoom struct {
	Why   Conflict
	After time.Duration // when there may be room again; 0 when that is not known
}

func (e *NoRoom) Error() string { return e.Why.Error() }

// Unwrap is the Conflict.
func (e *NoRoom) Unwrap() error { return e.Why }
