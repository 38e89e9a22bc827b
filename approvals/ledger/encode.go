package ledger

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"time"
)

// object writes one canonical JSON object. Members must be added in the byte
// order of their keys; zero values are left out.
type object struct {
	b     []byte
	began bool
}

func begin(b []byte) object { return object{b: append(b, '{')} }

func (o *object) end() []byte { return append(o.b, '}') }

func (o *object) key(k string) {
	if o.began {
		o.b = append(o.b, ',')
	}
	o.began = true
	o.b = append(o.b, '"')
	o.b = append(o.b, k...)
	o.b = append(o.b, '"', ':')
}

func (o *object) text(k, v string) {
	if v == "" {
		return
	}
	o.key(k)
	o.b = appendText(o.b, v)
}

func (o *object) number(k string, v int64) {
	if v == 0 {
		return
	}
	o.key(k)
	o.b = strconv.AppendInt(o.b, v, 10)
}

func (o *object) yes(k string, v bool) {
	if v {
		o.key(k)
		o.b = append(o.b, "true"...)
	}
}

func (o *object) texts(k string, v []string) {
	list(o, k, v, appendText)
}

func (o *object) count(k string, v uint64) {
	if v == 0 {
		return
	}
	o.key(k)
	o.b = strconv.AppendUint(o.b, v, 10)
}

func (o *object) moment(k string, t time.Time) {
	if t.IsZero() {
		return
	}
	o.key(k)
	o.b = append(o.b, '"')
	o.b = t.UTC().AppendFormat(o.b, time.RFC3339Nano)
	o.b = append(o.b, '"')
}

// appendText writes a JSON string. Validation has seen to it that s is UTF-8
// without control characters, so two escapes are enough.
func appendText(b []byte, s string) []byte {
	b = append(b, '"')
	for i := range len(s) {
		if s[i] == '"' || s[i] == '\\' {
			b = append(b, '\\')
		}
		b = append(b, s[i])
	}
	return append(b, '"')
}

// list writes an array member.
func list[T any](o *object, k string, items []T, element func([]byte, T) []byte) {
	if len(items) == 0 {
		return
	}
	o.key(k)
	o.b = append(o.b, '[')
	for i, it := range items {
		if i > 0 {
			o.b = append(o.b, ',')
		}
		o.b = element(o.b, it)
	}
	o.b = append(o.b, ']')
}

// appendLine writes r's line with its newline and sets r.SHA256 from
// r.PrevSHA256 and everything else.
func appendLine(b []byte, r *Record) []byte {
	start := len(b)
	o := begin(b)
	r.upTo(&o)
	cut := len(o.b) // where the sha256 member goes
	r.from(&o)
	o.b = o.end()

	h := sha256.New()
	h.Write([]byte(r.PrevSHA256))
	h.Write(o.b[start:])
	r.SHA256 = hex.EncodeToString(h.Sum(nil))

	member := `,"sha256":"` + r.SHA256 + `"`
	tail := string(o.b[cut:])
	o.b = append(o.b[:cut], member...)
	o.b = append(o.b, tail...)
	return append(o.b, '\n')
}

// upTo writes the members that sort before sha256.
func (r *Record) upTo(o *object) {
	o.text("actor", r.Actor)
	if r.Approval != nil {
		o.key("approval")
		o.b = r.Approval.append(o.b)
	}
	o.text("args_digest", r.ArgsDigest)
	o.text("auth", r.Auth)
	o.text("boot", r.Boot)
	o.text("display_digest", r.DisplayDigest)
	o.number("duration_ms", r.DurationMS)
	o.text("envelope_digest", r.EnvelopeDigest)
	o.text("error_type", r.ErrorType)
	o.text("event", string(r.Event))
	o.count("event_seq", r.EventSeq)
	o.text("file", r.File)
	o.text("head", r.HeadHash)
	o.texts("labels", r.Labels)
	o.text("manifest_digest", r.ManifestDigest)
	if r.Observe != nil {
		o.key("observe")
		o.b = r.Observe.append(o.b)
	}
	o.yes("observed", r.Observed)
	o.text("operation_id", r.OperationID)
	o.text("outcome", r.Outcome)
	o.text("person", r.Person)
	o.text("policy_digest", r.PolicyDigest)
	o.text("prev_sha256", r.PrevSHA256)
	o.text("protocol_version", r.ProtocolVersion)
	o.text("reason", r.Reason)
	o.count("records", r.Records)
	o.text("request_id", r.RequestID)
	o.text("result_digest", r.ResultDigest)
	list(o, "routes", r.Routes, appendRoute)
	list(o, "rules", r.Rules, appendRule)
	o.count("seq", r.Seq)
	o.text("server", r.Server)
	o.text("session", r.Session)
}

// from writes the members that sort after sha256.
func (r *Record) from(o *object) {
	o.text("status", r.Status)
	o.text("tier", r.Tier)
	o.text("to", r.To)
	o.text("tool", r.Tool)
	o.text("tool_digest", r.ToolDigest)
	o.number("torn_bytes", r.TornBytes)
	o.moment("ts", r.Time)
	o.number("v", int64(r.Version))
	o.text("was_digest", r.WasDigest)
	o.text("workflow", r.Workflow)
}

func appendRule(b []byte, r Rule) []byte {
	o := begin(b)
	o.text("effect", r.Effect)
	o.text("id", r.ID)
	return o.end()
}

func (v *Observe) append(b []byte) []byte {
	o := begin(b)
	o.moment("until", v.Until)
	o.texts("upstreams", v.Upstreams)
	return o.end()
}

func (a *Approval) append(b []byte) []byte {
	o := begin(b)
	o.text("by", a.By)
	o.text("cause", a.Cause)
	o.moment("expires", a.ExpiresAt)
	o.text("id", a.ID)
	list(&o, "routes", a.Routes, appendRoute)
	o.text("state", a.State)
	list(&o, "votes", a.Votes, appendVote)
	return o.end()
}

func appendRoute(b []byte, r Route) []byte {
	o := begin(b)
	o.text("name", r.Name)
	o.number("quorum", int64(r.Quorum))
	return o.end()
}

func appendVote(b []byte, v Vote) []byte {
	o := begin(b)
	o.moment("at", v.At)
	o.text("person", v.Person)
	o.text("refused", v.Refused)
	o.text("route", v.Route)
	o.text("source", v.Source)
	o.text("verdict", v.Verdict)
	return o.end()
}
