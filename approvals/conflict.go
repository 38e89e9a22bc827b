package approvals

import "errors"

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
	PolicyChanged    Conflict = "policy_changed"
	ToolChanged      Conflict = "tool_changed"
	StoreUnavailable Conflict = "store_unavailable"
	Moved            Conflict = "moved" // Rev moved between Load and Claim; load again
	TooMany          Conflict = "too_many"
	Forged           Conflict = "forged" // a stored value does not verify
	WrongDigest      Conflict = "wrong_digest"
)

func (c Conflict) Error() string { return "approvals: " + string(c) }

// AsConflict finds the Conflict in err, if there is one.
func AsConflict(err error) (Conflict, bool) {
	var c Conflict
	ok := errors.As(err, &c)
	return c, ok
}
