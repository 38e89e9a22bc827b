package gate

import (
	"encoding/json"
	"time"

	"github.com/countersign-mcp/countersign/approvals/action"
)

// Request is one tools/call as the edge hands it over.
type Request struct {
	Front string // upstream name from the URL path; "" for the front that serves all
	Name  string // tool name as sent
	// Call is complete but for Server and Tool, which the gate fills.
	Call   action.Call
	Client string // clientInfo.name; may be empty
	// Provenance is the client's claim as sent; nil when it makes none.
	Provenance json.RawMessage
	// Tell may be nil. It is called from one goroutine at a time and never after
	// Call has returned.
	Tell func(Update)
}

// Update is news of a call that is not answered yet.
type Update struct {
	// Waiting is a sentence: the call is parked or held. It is set once or more.
	Waiting string
	Left    time.Duration // until the approval ends by itself
	// Progress is the params of an upstream's notifications/progress as sent;
	// the edge puts the client's own token into it.
	Progress json.RawMessage
}

// Answer is what goes back. Exactly one of Result and Error is set.
type Answer struct {
	Result json.RawMessage
	Error  *Error
}

// Error is a JSON-RPC error.
type Error struct {
	Code    int
	Message string
	Data    json.RawMessage
	// Raw is an upstream's error member as sent. When it is set it is passed
	// through unchanged and the other fields only describe it.
	Raw json.RawMessage
}

// Info is what an upstream said of itself in its handshake.
type Info struct {
	Name         string // "" when the front serves several upstreams
	Version      string
	Instructions string
}
