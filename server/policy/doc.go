// Package policy decides on tool calls. A [Set] is one loaded policy file; it is
// read once, and never changes after [Set.Bind], so it may be used by many
// goroutines at once.
//
// The file is read strictly: what is not understood is an error with its line,
// never skipped. [Set.Judge] combines what it finds as deny over review over
// allow; a tool that is not listed is denied, and so is everything that can't be
// judged. What an upstream says about its own tools (annotations) has no part in
// a decision. [Set.Explain] is the same judgement with all its steps, [Set.Test]
// judges the file's own cases, and a [Limiter] counts what [Set.Limits] limit.
//
// [Set.Shows] answers another question, whether a tool may be listed, by a walk
// of its own: a fault in one of the two gates is not a fault in the other.
package policy

import (
	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/action"
)

// Effect is what a rule says about a call. The zero value denies; a lower value
// beats a higher one.
type Effect int

// The effects.
const (
	Deny Effect = iota
	Review
	Allow
)

func (e Effect) String() string {
	switch e {
	case Allow:
		return "allow"
	case Review:
		return "review"
	}
	return "deny"
}

// Facts are what a call is judged on. Whoever fills them in vouches for them:
// roles, labels and evidence are taken as given.
type Facts struct {
	Call action.Call

	// Labels say where the values of the arguments come from, by JSON pointer
	// (RFC 6901); "" is the session. A value without a label counts as "unknown".
	Labels map[string][]string
	// Evidence names what was looked up before the call.
	Evidence []string
}

// Reason is one thing that spoke for an effect. ID is the id of a rule (also when
// it could not be judged, which denies), "tool:PATTERN", "args:/pointer",
// "tier:NAME" or "unlisted". Text is for people, and never holds a value of the
// call.
type Reason struct {
	ID     string
	Effect Effect
	Text   string
}

// Unlisted is the id of the reason for a tool that no entry lists.
const Unlisted = "unlisted"

// Verdict is a judgement. Its zero value denies.
type Verdict struct {
	Effect  Effect
	Tier    string            // empty in version 1 and for what isn't listed
	Reasons []Reason          // never empty; those that carry the effect come first
	Routes  []approvals.Route // of a review: every one of them must agree
	Policy  action.Digest     // of the policy that judged
	// Hurried is set where a rule denies because it was not judged in time: the
	// machine was busy, and the same call may be judged otherwise later.
	Hurried bool
}

// Display is what a policy says about showing a call: its part of redact.Rules.
type Display struct {
	Keys     []string // names that are masked beside the built-in ones
	Pointers []string // JSON pointers (RFC 6901) that are masked
	Title    string   // template with {field}; empty when there is none
}
