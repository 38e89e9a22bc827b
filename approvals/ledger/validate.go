package ledger

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	maxText  = 1024    // bytes of one value
	maxItems = 256     // rules, routes or votes of one record
	maxLine  = 1 << 20 // bytes of one line; a reader refuses a longer one
)

// Invalid says which field of a record can't be written as it is. It is the
// caller's mistake: the ledger itself is well, and nothing was written.
type Invalid struct {
	Field  string // JSON name
	Reason string
}

func (e *Invalid) Error() string {
	return fmt.Sprintf("ledger record: %s %s", e.Field, e.Reason)
}

var (
	events = []Event{
		Decision, Attached, ExecStart, Result, Cancelled, Recovered,
		ApprovalRequested, ApprovalVote, ApprovalResolved, VoteRefused, ReviewClosed,
		PolicyLoaded, PolicyRejected, ManifestChanged, Malformed, RedactionError, Head, Checkpoint,
	}
	effects  = []string{Allow, Deny, Review}
	verdicts = []string{"approve", "deny"}
	statuses = []string{StatusOK, StatusToolError, StatusProtocolError, StatusNotRun, StatusTimeout, StatusUnknown}
	states   = []string{
		"pending", "approved", "denied", "expired", "withdrawn", "void", "lapsed", "revoked",
		"executing", "succeeded", "failed", "not_run", "unknown",
	}
)

// check refuses a record that must not be written.
func (r *Record) check() error {
	if !slices.Contains(events, r.Event) {
		return &Invalid{"event", fmt.Sprintf("is %q, not one of the events", r.Event)}
	}
	if err := r.checkNeeds(); err != nil {
		return err
	}
	if err := r.checkTexts(); err != nil {
		return err
	}
	if r.DurationMS < 0 || r.TornBytes < 0 {
		return &Invalid{"duration_ms", "is negative"}
	}
	if len(r.Rules) > maxItems {
		return &Invalid{"rules", "has too many entries"}
	}
	for _, rule := range r.Rules {
		if !slices.Contains(effects, rule.Effect) {
			return &Invalid{"rules.effect", "is not allow, deny or review"}
		}
		if err := text("rules.id", rule.ID); err != nil {
			return err
		}
	}
	if err := r.checkObserved(); err != nil {
		return err
	}
	if len(r.Labels) > maxItems {
		return &Invalid{"labels", "has too many entries"}
	}
	for _, l := range r.Labels {
		if l == "" {
			return &Invalid{"labels", "has an empty one"}
		}
		if err := word("labels", l); err != nil {
			return err
		}
	}
	if r.Approval != nil {
		return r.Approval.check()
	}
	return nil
}

// checkObserved refuses what would read as an observation and is none.
func (r *Record) checkObserved() error {
	if r.Observed && (r.Event != Decision || r.Outcome != Allow) {
		return &Invalid{"observed", "stands where nothing was allowed"}
	}
	if len(r.Routes) > maxItems {
		return &Invalid{"routes", "has too many entries"}
	}
	for _, route := range r.Routes {
		if err := text("routes.name", route.Name); err != nil {
			return err
		}
	}
	if r.Observe == nil {
		return nil
	}
	if len(r.Observe.Upstreams) > maxItems {
		return &Invalid{"observe.upstreams", "has too many entries"}
	}
	for _, name := range r.Observe.Upstreams {
		if err := text("observe.upstreams", name); err != nil {
			return err
		}
	}
	return nil
}

// checkNeeds refuses a record that does not say what its event is for.
func (r *Record) checkNeeds() error {
	switch r.Event {
	case Decision, Attached, ExecStart, Result:
		if r.OperationID == "" {
			return &Invalid{"operation_id", "is missing"}
		}
	}
	switch {
	case r.Event == Decision && r.Outcome == "":
		return &Invalid{"outcome", "is missing"}
	case r.Event == Attached && r.To == "":
		return &Invalid{"to", "is missing"}
	case r.Event == Result && r.Status == "":
		return &Invalid{"status", "is missing"}
	}
	if r.Outcome != "" && !slices.Contains(effects, r.Outcome) {
		return &Invalid{"outcome", "is not allow, deny or review"}
	}
	if r.Status != "" && !slices.Contains(statuses, r.Status) {
		return &Invalid{"status", "is not one of the statuses"}
	}
	return nil
}

func (r *Record) checkTexts() error {
	for _, f := range []struct{ name, value string }{
		{"request_id", r.RequestID},
		{"actor", r.Actor},
		{"auth", r.Auth},
		{"person", r.Person},
		{"session", r.Session},
		{"workflow", r.Workflow},
		{"server", r.Server},
		{"tool", r.Tool},
		{"tier", r.Tier},
		{"protocol_version", r.ProtocolVersion},
		{"file", r.File},
	} {
		if err := text(f.name, f.value); err != nil {
			return err
		}
	}
	for _, f := range []struct{ name, value string }{
		{"operation_id", r.OperationID},
		{"to", r.To},
		{"policy_digest", r.PolicyDigest},
		{"manifest_digest", r.ManifestDigest},
		{"tool_digest", r.ToolDigest},
		{"was_digest", r.WasDigest},
		{"envelope_digest", r.EnvelopeDigest},
		{"args_digest", r.ArgsDigest},
		{"display_digest", r.DisplayDigest},
		{"result_digest", r.ResultDigest},
		{"reason", r.Reason},
		{"error_type", r.ErrorType},
		{"head", r.HeadHash},
	} {
		if err := word(f.name, f.value); err != nil {
			return err
		}
	}
	return nil
}

func (a *Approval) check() error {
	if a.ID == "" {
		return &Invalid{"approval.id", "is missing"}
	}
	if err := word("approval.id", a.ID); err != nil {
		return err
	}
	if a.State != "" && !slices.Contains(states, a.State) {
		return &Invalid{"approval.state", "is not one of the states"}
	}
	if err := word("approval.cause", a.Cause); err != nil {
		return err
	}
	if err := text("approval.by", a.By); err != nil {
		return err
	}
	if len(a.Routes) > maxItems || len(a.Votes) > maxItems {
		return &Invalid{"approval", "has too many routes or votes"}
	}
	for _, r := range a.Routes {
		if err := text("approval.routes.name", r.Name); err != nil {
			return err
		}
	}
	for _, v := range a.Votes {
		if err := v.check(); err != nil {
			return err
		}
	}
	return nil
}

func (v Vote) check() error {
	if !slices.Contains(verdicts, v.Verdict) {
		return &Invalid{"approval.votes.verdict", "is not approve or deny"}
	}
	for _, f := range []struct{ name, value string }{
		{"approval.votes.route", v.Route},
		{"approval.votes.person", v.Person},
		{"approval.votes.source", v.Source},
	} {
		if err := text(f.name, f.value); err != nil {
			return err
		}
	}
	return word("approval.votes.refused", v.Refused)
}

// text accepts what a line can hold unescaped.
func text(name, v string) error {
	switch {
	case len(v) > maxText:
		return &Invalid{name, fmt.Sprintf("is longer than %d bytes", maxText)}
	case !utf8.ValidString(v):
		return &Invalid{name, "is not UTF-8"}
	case strings.ContainsFunc(v, unicode.IsControl):
		return &Invalid{name, "has a control character"}
	}
	return nil
}

// word accepts ids, digests and codes: no blanks, nothing that could be prose.
func word(name, v string) error {
	if len(v) > 256 {
		return &Invalid{name, "is longer than 256 bytes"}
	}
	for i := range len(v) {
		c := v[i]
		if c <= ' ' || c >= 0x7f || c == '"' || c == '\\' {
			return &Invalid{name, "is not an id, digest or code"}
		}
	}
	return nil
}

// Clean makes a stranger's text fit for a record: control characters and bytes
// that are not UTF-8 become ⟦U+XXXX⟧ and ⟦0xXX⟧, and what is longer than 256 bytes is cut
// at a character, with its length said. Text that needs neither comes back
// unchanged.
func Clean(s string) string {
	const keep = 256
	if len(s) <= keep && text("", s) == nil {
		return s
	}
	var b strings.Builder
	for i, c := range s {
		if b.Len() >= keep {
			fmt.Fprintf(&b, "…(%d of %d bytes)", i, len(s))
			break
		}
		_, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case c == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, "⟦0x%02X⟧", s[i])
		case unicode.IsControl(c):
			fmt.Fprintf(&b, "⟦U+%04X⟧", c)
		default:
			b.WriteRune(c)
		}
	}
	return b.String()
}
