package approvals

import "time"

// Generation is the policy by which all processes that share a store are to judge:
// the one that was loaded last by any of them.
type Generation struct {
	N      uint64 // grows by one with every change; 0 when there is none
	Policy string // the policy's digest, in hex
	At     time.Time
}
