package store

import (
	"errors"
	"fmt"

	"github.com/countersign-mcp/countersign/approvals"
)

// unavailable wraps every failure to get an answer. What was asked may have
// happened.
func unavailable(doing string, err error) error {
	var r *Refusal
	if errors.As(err, &r) || errors.Is(err, approvals.StoreUnavailable) {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return fmt.Errorf("%s: %w: %w", doing, approvals.StoreUnavailable, err)
}

// forged wraps what does not verify.
func forged(id, what string) error {
	return fmt.Errorf("approval %s: %s: %w", id, what, approvals.Forged)
}

// tooLate says why a record in state s takes no vote and can't be ended.
func tooLate(s approvals.State) approvals.Conflict {
	switch s {
	case approvals.Expired:
		return approvals.IsExpired
	case approvals.Lapsed:
		return approvals.IsLapsed
	case approvals.Withdrawn:
		return approvals.IsWithdrawn
	case approvals.Void:
		return approvals.IsVoid
	case approvals.Revoked:
		return approvals.IsRevoked
	}
	return approvals.AlreadyDecided
}

// notClaimable says why a record in state s can't be claimed.
func notClaimable(s approvals.State) approvals.Conflict {
	switch s {
	case approvals.Executing, approvals.Succeeded, approvals.Failed, approvals.NotRun, approvals.Unknown:
		return approvals.AlreadyUsed
	case approvals.Pending:
		return approvals.Moved // the caller judged another version
	}
	return tooLate(s)
}

// unexpected is a reply that no script gives. "broken" names a key of another
// type: somebody else writes into this namespace.
func unexpected(doing string, r reply) error {
	if r.code == "broken" {
		return fmt.Errorf("%s: %w: the key %s holds something else", doing, approvals.StoreUnavailable, r.text)
	}
	return fmt.Errorf("%s: %w: reply %q", doing, approvals.StoreUnavailable, r.code)
}
