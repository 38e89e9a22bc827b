package action

import "bytes"

// EnvelopeVersion is the version of the envelope's form that this build writes.
const EnvelopeVersion = 1

// Envelope is the action that an approval is bound to. It is fixed when the call
// is parked, and sealed in the store; approvers see its keyed digest.
//
// Version 1 of the form carries every field below, also those that are still
// empty: a field that gets a meaning later changes no older digest. A new field
// needs a new version.
type Envelope struct {
	V           int    // version of this form; 0 means EnvelopeVersion
	OperationID string // drawn at ingress by the parking call; also the approval id
	Call        Call

	Tier       string
	ServerID   Digest // identity of the upstream: command or URL, environment names, server info
	ServerName string // the upstream's own name and version, from its handshake
	Manifest   Digest // of all the server's tools
	ToolDef    Digest // of the called tool's definition
	Policy     Digest // of the policy that judged
	Rules      []string
	Routes     []string
	Provenance map[string][]string // JSON pointer → labels
	Evidence   []string            // keyed digests of what was looked up before asking
}

const (
	matchDomain    = "countersign/match/v1"
	envelopeDomain = "countersign/envelope/v1"
)

// Digest binds an approval to everything in the envelope, the exact bytes of
// arguments, meta and extra included.
func (e *Envelope) Digest() Digest {
	return Sum(envelopeDomain, e.Match().Bytes(), e.Encode())
}

// Match finds the parked call of a repeated one: the same actor, server, tool,
// arguments (in canonical form) and idempotency key, and nothing else.
func (e *Envelope) Match() Digest {
	c := &e.Call
	args := c.Args
	if len(bytes.TrimSpace(args)) == 0 {
		args = []byte("{}")
	}
	form, kind := []byte(args), "raw"
	if canon, err := Canonical(args); err == nil {
		form, kind = canon, "canonical"
	}
	return Sum(matchDomain, []byte(c.Actor.ID), []byte(c.Server), []byte(c.Tool), []byte(kind), form, []byte(c.IdemKey))
}
