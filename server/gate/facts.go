package gate

import (
	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/server/policy"
)

// facts are what this call is judged by.
func (k *call) facts() policy.Facts {
	return policy.Facts{Call: k.c, Labels: k.labels, Evidence: k.evidence}
}

// factsOf are what an approved call is judged by again: what was known of it when
// it was parked, and by whom it is called now.
func factsOf(c action.Call, e action.Envelope) policy.Facts {
	return policy.Facts{Call: c, Labels: e.Provenance, Evidence: e.Evidence}
}
