package notifier

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
)

// Channel posts and edits messages in one kind of place.
//
// Deliver brings one message to Message.Ticket.Rev and returns its reference,
// with that version as Ref.Rev. Without a Message.Ref it posts. It sends nothing
// twice by itself: no retries inside, and when Message.Attempt is set it first
// looks for the message of an earlier post and adopts it (returning its
// reference with Rev 0; the dispatcher asks for the edit next). A zero Ref and no error mean that there is no message and
// none is needed.
//
// Every error is a *Fail. No error and no log line holds a secret, an argument
// or a URL with a token. Deliver is called concurrently for different approvals
// and ends soon after ctx does.
type Channel interface {
	Deliver(ctx context.Context, m Message) (approvals.Ref, error)
}

// Pacer is a Channel that may not be sent posts faster than one in Pace, for
// each Message.Channel.
type Pacer interface {
	Pace() time.Duration
}

// Message is what a channel is asked to show.
type Message struct {
	Channel string // as in Ticket.Channels: "slack:C…", "ticket:NAME", "link:PERSON"
	Ticket  approvals.Ticket
	Ref     *approvals.Ref // the message that exists; nil: post one
	// Attempt names an earlier post that may have happened; empty when there was
	// none. See Since.
	Attempt string
	// Find asks for a lookup only: the message of Attempt is adopted when it
	// exists, and nothing is posted when it doesn't.
	Find bool
}

// Since is the moment before the first post that may have happened, by the clock
// of the process that made it; the zero time when there was none.
func (m Message) Since() time.Time { first, _ := attemptTimes(m.Attempt); return first }

// Latest is the moment before the last post that may have happened. A service
// that has only just taken a message may not show it yet.
func (m Message) Latest() time.Time { _, last := attemptTimes(m.Attempt); return last }

// newAttempt names a post that is about to be tried. It keeps the time of the
// earliest one whose fate is not known, and differs from every other attempt:
// an attempt that a process knows to have failed is told apart from another
// process's.
func newAttempt(open string, now time.Time) string {
	first, _ := attemptTimes(open)
	if first.IsZero() {
		first = now
	}
	var nonce [8]byte
	rand.Read(nonce[:])
	return fmt.Sprintf("%d-%d.%s", first.UnixMilli(), now.UnixMilli(), hex.EncodeToString(nonce[:]))
}

func attemptTimes(attempt string) (first, last time.Time) {
	times, _, _ := strings.Cut(attempt, ".")
	a, b, _ := strings.Cut(times, "-")
	from, err := strconv.ParseInt(a, 10, 64)
	if err != nil {
		return first, last
	}
	first = time.UnixMilli(from)
	to, err := strconv.ParseInt(b, 10, 64)
	if err != nil {
		return first, first
	}
	return first, time.UnixMilli(to)
}

// Reason says why a delivery failed. The set is closed: it is stored, shown to
// the waiting caller and counted.
type Reason string

// The reasons.
const (
	RateLimited   Reason = "rate_limited"   // the service asked for a pause
	Unreachable   Reason = "unreachable"    // no answer, or the service's own failure
	Auth          Reason = "auth"           // the credentials were refused
	NoChannel     Reason = "channel"        // the place doesn't exist, is archived, or we are not in it
	Payload       Reason = "payload"        // the message was refused as it is
	Gone          Reason = "message_gone"   // the message to be edited no longer exists
	Rejected      Reason = "rejected"       // refused for another reason
	NotConfigured Reason = "not_configured" // nothing serves this channel
	GaveUp        Reason = "gave_up"        // tried to the end of the schedule
	Internal      Reason = "internal"       // an error of our own
)

// Reasons lists every reason once.
func Reasons() []Reason {
	return []Reason{RateLimited, Unreachable, Auth, NoChannel, Payload, Gone, Rejected, NotConfigured, GaveUp, Internal}
}

// Fail is why a delivery failed.
type Fail struct {
	Reason Reason
	After  time.Duration // not before; 0 leaves it to the schedule
	// Final: trying again can't help until the approval changes, or until a person
	// puts it right; see Schedule.Mend.
	Final bool
	// Maybe is set when a post may have happened all the same.
	Maybe bool
	// Unsent is set when this delivery posted nothing itself; an earlier one
	// may have (Maybe).
	Unsent bool
	// Detail is for the log: a word from a vendor's closed list or a status.
	// It never holds anything that was sent.
	Detail string
}

func (f *Fail) Error() string {
	if f.Detail == "" {
		return "notifier: " + string(f.Reason)
	}
	return "notifier: " + string(f.Reason) + ": " + f.Detail
}

// Channels finds a Channel by its full name ("ticket:jira") or its kind
// ("slack").
type Channels map[string]Channel

// Find returns the channel that serves name; nil when there is none.
func (c Channels) Find(name string) Channel {
	if ch, ok := c[name]; ok {
		return ch
	}
	kind, _, _ := strings.Cut(name, ":")
	return c[kind]
}
