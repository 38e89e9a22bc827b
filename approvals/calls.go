package approvals

import (
	"encoding/json"
	"time"

	"github.com/countersign-mcp/countersign/approvals/action"
)

// Park is what the gate asks the store to keep. One atomic step writes the
// record, its sealed parts and the outbox entry.
type Park struct {
	// Nonce makes the request safe to send twice: a second Park with the same
	// nonce returns what the first one made.
	Nonce    string
	Envelope action.Envelope // its OperationID becomes the approval's id

	Title        string
	View         View
	Requester    string // person behind the actor
	Requirements []Requirement
	Channels     []string
	Links        string
	Run          string
	OnCancel     string
	Rules        []string
	Caps         Caps
	Closing      Closing // the zero value: denials of this call close nothing, and it is never refused for others
	// AttachOnly finds the twin of a call that was parked before and makes
	// nothing new: without a twin Park answers NotFound.
	AttachOnly bool
}

// Caps bound what may wait. They are checked inside the park's atomic step.
type Caps struct {
	Parked     int // pending approvals of one actor; default 20
	NewPerHour int // new approvals of one actor in an hour; default 60
	Total      int // pending approvals in all; default 10000
	NewInAll   int // new approvals of all actors in an hour; 0 is no cap
}

// DefaultCaps hold where a policy says nothing else.
var DefaultCaps = Caps{Parked: 20, NewPerHour: 60, Total: 10000}

// Closing is when people have said no often enough. Every denial of an actor's
// approval that makes Denials of them in a row, with no approval in between, closes
// the actor's way to new approvals for so long. Only a person's vote that makes an
// approval denied counts, once for each approval; what expires, is withdrawn or void
// neither counts nor ends the row. Joining what waits already, and running what was
// approved, go on.
type Closing struct {
	Denials int // 0: never
	For     time.Duration
}

// DefaultClosing holds where a policy says nothing else.
var DefaultClosing = Closing{Denials: 5, For: 15 * time.Minute}

// LongestClosing bounds Closing.For.
const LongestClosing = 24 * time.Hour

// Parked is an approval with what only the gate may hold: the opened envelope
// with the exact bytes, and the kept result.
type Parked struct {
	Ticket
	Envelope action.Envelope
	Result   *Kept // nil when none is kept
}

// Kept is a finished call's answer. Exactly one of Result and Error is set.
type Kept struct {
	Result json.RawMessage `json:"result,omitempty"`
	Error  json.RawMessage `json:"error,omitempty"` // the JSON-RPC error member as sent
	At     time.Time       `json:"at"`              // when it was read from the upstream
}

// Vote is one verified person's answer, or a refusal that is to be recorded.
type Vote struct {
	ID          string // approval
	Nonce       string // makes the vote safe to send twice
	Person      string
	Memberships Memberships
	Verdict     Verdict
	Source      string // "slack:U…", "callback:NAME", "link", "admin"
	Reason      string // the person's words; may be empty
	// Bound is the keyed digest that the message carried and the answer
	// returned; a vote for another digest is refused. Empty only where the
	// source carries none (admin).
	Bound string
	// Refused is set when the request was genuine but its sender may not vote:
	// it is recorded as an event and changes nothing.
	Refused Conflict
	// Link marks a vote by a link alone: it approves only where Ticket.Links
	// says so.
	Link bool
}

// Grant is a won claim. Whoever holds it may forward the call once.
type Grant struct {
	ID     string
	Nonce  string
	Owner  string // the claimer's ledger file id
	Fence  uint64 // grows with every claim of the namespace
	Lease  time.Duration
	Ticket Ticket
}

// Outcome is how an execution ended.
type Outcome struct {
	State State  // Succeeded, Failed, NotRun or Unknown
	Cause string // see the Cause constants
	Kept  *Kept  // sealed and kept for result_ttl; nil when there is none or it is too big
}

// Event is a line of the store's canonical stream: one per thing that happened,
// numbered without gaps from 1 in a namespace. It holds nothing readable of the
// arguments.
type Event struct {
	Seq    uint64    `json:"seq"`
	At     time.Time `json:"at"`
	Kind   string    `json:"kind"` // "requested", "vote", "vote_refused", "state", "review_closed", "head"
	ID     string    `json:"id"`
	State  State     `json:"state,omitempty"`
	Cause  string    `json:"cause,omitempty"`
	Person string    `json:"person,omitempty"`
	Actor  string    `json:"actor,omitempty"`
	Source string    `json:"source,omitempty"`
	Route  string    `json:"route,omitempty"`
	// Verdict is "approve" or "deny" for votes.
	Verdict string `json:"verdict,omitempty"`
	Refused string `json:"refused,omitempty"`
	Bound   string `json:"bound,omitempty"`
	Shown   string `json:"shown,omitempty"`
	Server  string `json:"server,omitempty"`
	Tool    string `json:"tool,omitempty"`
	// Of "review_closed": how many denials in a row, and when new approvals of the
	// actor are taken again. ID is the approval of the last denial.
	Row   int       `json:"row,omitempty"`
	Until time.Time `json:"until,omitzero"`
	Text  string    `json:"text,omitempty"` // of "head": file id, count and hash of a ledger file
}

// Nudge is an entry of the outbox: "look at this approval again".
type Nudge struct {
	EntryID string // of the stream; for Done
	ID      string // approval
}
