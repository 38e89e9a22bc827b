package approvals

import (
	"encoding/json"
	"time"

	"github.com/countersign-mcp/countersign/approvals/action"
)

// GateActor is the actor of the gate's own requests. No caller can have the id.
const GateActor = "countersign"

// Pin is what one tool of an upstream was found or agreed to be while the gate
// ran. It stands beside the file of pins, which is written by hand and wins where
// it was changed since.
type Pin struct {
	Tool       string          // the upstream's own name
	Digest     action.Digest   // of the definition
	Definition json.RawMessage // whole, so that a later change can be shown as what was and what is
	Identity   action.Digest   // of the server that it was agreed for
	// Over is the digest of the file's pin that this one was agreed in place of;
	// zero where the file had none. Once the file's pin is another, this one no
	// longer counts.
	Over     action.Digest
	Rev      uint64 // from 1; each pin of a tool has a higher one than the pin before
	Approval string // by which it was agreed; empty where it was the first that was seen
	By       string // the last person who agreed; empty likewise
	At       time.Time
}

// Pins are the pins of one upstream that were made at run time.
type Pins struct {
	Tools map[string]Pin
	// Forged are the tools whose pin does not open: it was written by another
	// hand, or under a key that is gone. What it said is not known.
	Forged []string
	// Refused are the changes that people said no to, by their digest.
	Refused map[action.Digest]bool
}

// Turn is the right to ask people for one change of an upstream's tools: whoever has
// it asks, and for a while nobody asks for another one.
type Turn struct {
	ID     string        // of the request
	Change action.Digest // that is asked for
	Left   time.Duration // until the next turn
}
