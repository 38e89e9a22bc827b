package action

import (
	"encoding/json"
	"fmt"
)

// Limits bound what Parse reads. The zero value means the defaults.
type Limits struct {
	Bytes int // of the whole message; default 4 MiB
	Depth int // of nesting; default 32
}

// DefaultLimits are the documented sizes.
var DefaultLimits = Limits{Bytes: 4 << 20, Depth: 32}

// Kind says what a frame is.
type Kind int

// The kinds of frame.
const (
	Request Kind = iota + 1
	Notification
	Response
)

// Frame is one JSON-RPC 2.0 message, split in one pass. All slices point into
// the message that was parsed.
type Frame struct {
	Kind   Kind
	ID     json.RawMessage // as sent: a string or an integer; nil for a notification
	Method string          // empty for a response
	Params json.RawMessage // an object as sent; nil when absent
	Result json.RawMessage // of a response
	Error  json.RawMessage // of a response

	// The members of Params that a gate decides on, found in the same pass.
	Name string          // params.name when it is a string
	Args json.RawMessage // params.arguments as sent; nil when absent
	Meta json.RawMessage // params._meta as sent; nil when absent
}

// Malformed says why a message was refused. Code is the JSON-RPC error code to
// answer with: -32700 (not JSON as we accept it), -32600 (not a JSON-RPC
// request), -32602 (params or a tool call's members of the wrong shape).
// ID is the message's id when it could be read, else nil (answer with null).
type Malformed struct {
	Code   int
	Reason string
	ID     json.RawMessage
}

func (m *Malformed) Error() string { return fmt.Sprintf("malformed message: %s", m.Reason) }
