package ledger

import "time"

// Version is the format of the records that this package writes.
const Version = 1

// Genesis is the prev_sha256 of a file's first record.
const Genesis = "0000000000000000000000000000000000000000000000000000000000000000"

// Event says what a record tells of. The set is closed.
type Event string

// The events.
const (
	// Opened is the first record of every file, written by Open itself.
	Opened Event = "opened"

	Decision  Event = "decision"   // what the policy said to a call; before anything moves
	Attached  Event = "attached"   // this call waits for the approval in To
	ExecStart Event = "exec_start" // about to be forwarded; with the votes and what was shown
	Result    Event = "result"     // what came back; Status says how it ended
	Cancelled Event = "cancelled"  // the caller gave up
	Recovered Event = "recovered"  // settled after a crash, or a torn file that was found

	ApprovalRequested Event = "approval_requested"
	ApprovalVote      Event = "approval_vote"
	ApprovalResolved  Event = "approval_resolved" // every later state of an approval
	VoteRefused       Event = "vote_refused"
	// ReviewClosed: people said no to an actor's calls so often in a row that no new
	// ones of it are put before them for a while.
	ReviewClosed Event = "review_closed"

	PolicyLoaded    Event = "policy_loaded"
	PolicyRejected  Event = "policy_rejected"
	ManifestChanged Event = "manifest_changed"
	Malformed       Event = "malformed" // a request that could not be read as one
	RedactionError  Event = "redaction_error"
	Head            Event = "head"       // another file's head, seen at that moment
	Checkpoint      Event = "checkpoint" // this file's head was anchored elsewhere
)

// Outcomes of a decision, and effects of a rule.
const (
	Allow  = "allow"
	Deny   = "deny"
	Review = "review"
)

// Statuses of a result (and of a recovered execution).
const (
	StatusOK            = "ok"             // the tool answered
	StatusToolError     = "tool_error"     // the tool answered isError
	StatusProtocolError = "protocol_error" // a JSON-RPC error came back
	StatusNotRun        = "not_run"        // provably never sent
	StatusTimeout       = "timeout"        // sent; no answer within the time: it may have run
	StatusUnknown       = "unknown"        // sent; no answer was read: it may have run
)

// Record is one line. Fields that are empty are left out, apart from those that
// Append fills. Nothing in it may hold an argument's value, a rendered title or
// a stranger's words: arguments appear as keyed digests only, errors as their
// type. Text that a stranger chose (a request id, a tool's name) goes through
// [Clean] first; Append refuses what Clean would change.
type Record struct {
	// Filled by Append.
	Version    int       `json:"v"`
	Seq        uint64    `json:"seq"` // from 1 in each file, without gaps
	Time       time.Time `json:"ts"`  // UTC, RFC 3339 with nanoseconds
	Boot       string    `json:"boot"`
	PrevSHA256 string    `json:"prev_sha256"`
	SHA256     string    `json:"sha256"`

	Event Event `json:"event"`

	// OperationID joins all records of one call. Where a call attaches to an
	// approval, To is that approval's id, which is its parking call's
	// OperationID.
	OperationID string `json:"operation_id"`
	To          string `json:"to"`
	RequestID   string `json:"request_id"` // the JSON-RPC id as sent, quotes included

	Actor           string `json:"actor"`
	Auth            string `json:"auth"`   // how the actor was established
	Person          string `json:"person"` // of a decision: whom the configuration knows behind the actor
	Session         string `json:"session"`
	Workflow        string `json:"workflow"`
	Server          string `json:"server"`
	Tool            string `json:"tool"`
	Tier            string `json:"tier"`
	ProtocolVersion string `json:"protocol_version"`

	PolicyDigest   string `json:"policy_digest"`
	ManifestDigest string `json:"manifest_digest"`
	ToolDigest     string `json:"tool_digest"`
	WasDigest      string `json:"was_digest"` // of a manifest_changed: the tool's definition that was pinned
	// Keyed digests ("<key id>.<mac>"): of low-entropy arguments a plain one
	// could be guessed.
	EnvelopeDigest string `json:"envelope_digest"`
	ArgsDigest     string `json:"args_digest"`
	DisplayDigest  string `json:"display_digest"` // of what the approvers saw
	ResultDigest   string `json:"result_digest"`

	Outcome string `json:"outcome"` // of a decision: Allow, Deny or Review
	Reason  string `json:"reason"`  // a code such as "unlisted" or "frozen", never prose
	Rules   []Rule `json:"rules"`
	// Labels are words of a closed set. In a decision they say where the values of
	// the call come from, and not which; in an exec_start what the session carries
	// from then on.
	Labels []string `json:"labels"`

	// Observed is said of a decision to allow what the policy would have asked
	// people about, on an upstream where nobody is asked yet. Rules then are those
	// that would have asked, Routes where, and Reason, if there is one, why the
	// call would have been refused instead of parked.
	Observed bool    `json:"observed"`
	Routes   []Route `json:"routes"`
	// Observe is what a loaded policy says of upstreams where nobody is asked yet.
	Observe *Observe `json:"observe"`

	Approval *Approval `json:"approval"`

	Status     string `json:"status"`
	ErrorType  string `json:"error_type"` // a type or code, never a message
	DurationMS int64  `json:"duration_ms"`

	// EventSeq is the number of the store's event that this record copies.
	EventSeq uint64 `json:"event_seq"`

	// About another file (opened, recovered, head, checkpoint): its name, its
	// whole records, its last hash, and the bytes after its last newline. In a
	// malformed summary, Records is how many messages it stands for.
	File      string `json:"file"`
	Records   uint64 `json:"records"`
	HeadHash  string `json:"head"`
	TornBytes int64  `json:"torn_bytes"`
}

// Rule is a reason of a decision.
type Rule struct {
	ID     string `json:"id"`
	Effect string `json:"effect"` // Allow, Deny or Review
}

// Observe names upstreams on which nobody is asked until a moment.
type Observe struct {
	Upstreams []string  `json:"upstreams"`
	Until     time.Time `json:"until"`
}

// Approval is what a record knows of the approval it concerns.
type Approval struct {
	ID        string    `json:"id"`
	State     string    `json:"state"`
	Cause     string    `json:"cause"`
	By        string    `json:"by"` // a person or an actor; empty for the clock
	Routes    []Route   `json:"routes"`
	Votes     []Vote    `json:"votes"`
	ExpiresAt time.Time `json:"expires"`
}

// Route is one list of people who had to agree.
type Route struct {
	Name   string `json:"name"`
	Quorum int    `json:"quorum"`
}

// Vote is one person's answer.
type Vote struct {
	Route   string    `json:"route"`
	Person  string    `json:"person"`
	Verdict string    `json:"verdict"` // "approve" or "deny"
	Source  string    `json:"source"`  // "slack:U…", "callback:NAME", "link", "admin"
	At      time.Time `json:"at"`
	Refused string    `json:"refused"` // why it did not count
}
