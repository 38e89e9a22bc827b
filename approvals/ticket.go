package approvals

import (
	"strings"
	"time"
)

// Ticket is what everybody outside the gate may know of an approval. It has no
// field that could hold raw arguments: View is what the one function in redact
// made of them.
type Ticket struct {
	ID    string
	State State
	Cause string // see the Cause constants; may be empty
	Rev   uint64 // counts what a card or a caller could see change

	Server, Tool, Tier string
	Title              string // as shown; masked and escaped
	View               View
	Bound              string // keyed digest of the envelope: what messages carry and callbacks return
	ShownDigest        string // keyed digest of title and view

	Actor     string // who asked
	ActorAuth string
	Requester string   // the person behind Actor; empty when unmapped
	Rules     []string // why it needs a yes: rule ids and their words

	Requirements []Requirement
	Channels     []string // "slack:C…", "ticket:NAME", "link:PERSON"; each once, in the routes' order
	Links        string   // "approve" where every route lets a link alone approve
	Run          string   // "" (when collected) or "on_approve"
	OnCancel     string   // "" or "withdraw"

	Votes  []Cast
	By     string // who brought the present state about: a person, an actor or "" for the clock
	Reason string // that person's words, on one line; may be empty

	CreatedAt time.Time
	Deadline  time.Time // of pending: the earliest of the requirements'
	DecidedAt time.Time
	ClaimBy   time.Time // an approved call not claimed by then has lapsed
	EndedAt   time.Time

	Refs     []Ref     // messages that exist
	Troubles []Trouble // channels that could not be told, the last try each
}

// Delivered tells whether at least one message is known to exist.
func (t Ticket) Delivered() bool { return len(t.Refs) > 0 }

// View is what a person is shown of a call. It is made once, when the call is
// parked, and stored; its digest is on the ledger.
type View struct {
	// Text is the arguments, one pretty-printed JSON object, masked, with
	// invisible characters as ⟦U+XXXX⟧. Members of the request beside the
	// arguments follow under a heading of their own.
	Text     string   `json:"text"`
	Summary  string   `json:"summary,omitempty"` // the first arguments on one line, for a title that has no template
	Masked   []Mask   `json:"masked,omitempty"`
	Warnings []string `json:"warnings,omitempty"` // e.g. "2 invisible characters are shown as ⟦U+202E⟧"
	Missing  []string `json:"missing,omitempty"`  // why the view is not the whole; empty when it is
}

// Complete tells whether Text shows all that would run.
func (v View) Complete() bool { return len(v.Missing) == 0 && v.Text != "" }

// Mask is a value that was not shown.
type Mask struct {
	Pointer string `json:"pointer"` // RFC 6901, for people: what can't be seen in it is shown by its code
	Type    string `json:"type"`    // string, number, object, …; or what a masked part of a string looks like: JWT
	Len     int    `json:"len"`     // bytes of its JSON, or of the part as it stands in the string
	Digest  string `json:"digest"`  // keyed
}

// shortDigest is how much of a digest people are shown: enough to compare by eye.
const shortDigest = 12

// Short is the beginning of the digest, without its key's id. It is the same where
// the value is the same, and tells nothing else of it; empty when there is none.
func (m Mask) Short() string {
	_, mac, _ := strings.Cut(m.Digest, ".")
	return mac[:min(len(mac), shortDigest)]
}

// Ref is a message that was posted.
type Ref struct {
	Channel string `json:"channel"`       // as in Ticket.Channels
	ID      string `json:"id"`            // the channel's own: "C0…/1712.000100" for Slack
	Rev     uint64 `json:"rev"`           // the record's version that it shows
	URL     string `json:"url,omitempty"` // where a person finds it
}

// Trouble is a delivery that failed.
type Trouble struct {
	Channel string    `json:"channel"`
	Reason  string    `json:"reason"` // from a closed set: notifier.Reason
	Final   bool      `json:"final"`  // not tried again
	Tries   int       `json:"tries"`
	At      time.Time `json:"at"`
	// Rev is the record's version that could not be shown: a final failure
	// holds for that version only.
	Rev uint64 `json:"rev,omitempty"`
	// Next is the earliest moment of the next try. It is kept so that a restart
	// does not forget the schedule.
	Next time.Time `json:"next,omitzero"`
}

// Mark is what a notifier writes beside the record. It moves no Rev.
type Mark struct {
	Channel string
	Ref     *Ref     // the message as it is now
	Trouble *Trouble // nil clears it
	Attempt string   // a post that may have happened: set before, cleared by Ref
	Gone    string   // the id of a message that no longer exists
}

// Cast is a vote as it is stored and shown.
type Cast struct {
	Requirement string    `json:"requirement"` // route name
	Person      string    `json:"person"`
	Verdict     Verdict   `json:"verdict"`
	Source      string    `json:"source"` // "slack:U…", "callback:NAME", "link", "admin"
	At          time.Time `json:"at"`
	// ClaimBy is the latest moment of a claim that this vote allows.
	ClaimBy time.Time `json:"claim_by"`
	MAC     string    `json:"mac"`
}

// Verdict is a person's answer. The zero value is a no.
type Verdict int

// The verdicts.
const (
	Deny Verdict = iota
	Approve
)

func (v Verdict) String() string {
	if v == Approve {
		return "approve"
	}
	return "deny"
}

// ParseVerdict accepts exactly "approve" and "deny"; everything else is not an
// answer.
func ParseVerdict(s string) (Verdict, bool) {
	switch s {
	case "approve":
		return Approve, true
	case "deny":
		return Deny, true
	}
	return Deny, false
}
