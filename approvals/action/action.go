// Package action holds what a caller asks for: the strict reading of a JSON-RPC
// message, a tool call with its exact argument bytes, and the envelope that
// binds an approval to that call by two digests.
//
// This package is the only reader of a stranger's JSON-RPC in the project
// ([Parse]). What it accepts has one meaning for every decoder: no duplicate
// names, no names that differ only by case, no invalid UTF-8, no trailing bytes.
package action

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
)

// Actor is who makes a call, as the edge established it.
type Actor struct {
	ID     string   // "ana@acme.test"; never empty
	Roles  []string // from the token and the policy
	Owners []string // ids of people answerable for a service actor; they count as requesters
	Auth   string   // how ID was established: "token" or "none:stdio"
}

// Call is one tools/call, as it will be judged, shown, parked and forwarded.
// The byte slices are the caller's own bytes and are never changed.
type Call struct {
	Server  string          // upstream name from the configuration
	Tool    string          // the upstream's own name for the tool
	Args    json.RawMessage // params.arguments as sent; `{}` when absent
	Meta    json.RawMessage // params._meta without the gate's own and the era's members; nil when nothing is left
	Extra   json.RawMessage // an object of the other members of params; nil when there are none
	Actor   Actor
	Session string // MCP session id; empty when the era has none
	// Workflow is _meta["countersign/workflow"], an id that a client may give to
	// calls that belong together.
	Workflow string
	// IdemKey is _meta["countersign/idempotency-key"]; it keeps two deliberate
	// identical calls apart.
	IdemKey   string
	Version   string          // the caller's MCP protocol version
	RequestID json.RawMessage // the JSON-RPC id as sent
}

// Digest is a plain SHA-256. It stays in the process: of low-entropy arguments a
// plain digest can be guessed. What is written or shown is a MAC over Bytes
// (keys.Ring). A Digest therefore has no text form.
type Digest struct{ sum [sha256.Size]byte }

// Sum is the digest of a domain string, a zero byte and the parts' bytes; each
// part is preceded by its length, so no two lists of parts share a digest.
func Sum(domain string, parts ...[]byte) Digest {
	h := sha256.New()
	h.Write([]byte(domain))
	h.Write([]byte{0})
	for _, p := range parts {
		fmt.Fprintf(h, "%d:", len(p))
		h.Write(p)
	}
	var d Digest
	h.Sum(d.sum[:0])
	return d
}

// Bytes is for MAC input and for values that are sealed at once.
func (d Digest) Bytes() []byte { return d.sum[:] }

// Hex is for values that are sealed at once, and for digests of things that are
// no one's secret (a policy file, a tool's definition).
func (d Digest) Hex() string { return hex.EncodeToString(d.sum[:]) }

// ParseDigest reads what Hex wrote.
func ParseDigest(s string) (Digest, error) {
	var d Digest
	if len(s) != 2*sha256.Size {
		return d, errors.New("action: a digest is 64 hex digits")
	}
	if _, err := hex.Decode(d.sum[:], []byte(s)); err != nil {
		return Digest{}, errors.New("action: a digest is 64 hex digits")
	}
	return d, nil
}

// IsZero tells whether no digest was set.
func (d Digest) IsZero() bool { return d == Digest{} }

// String hides the digest.
func (d Digest) String() string { return "<digest>" }

// Format hides the digest from every verb.
func (d Digest) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("<digest>")) }

// LogValue hides the digest.
func (d Digest) LogValue() slog.Value { return slog.StringValue("<digest>") }

// MarshalText refuses: a plain digest is never written by an encoder.
func (d Digest) MarshalText() ([]byte, error) {
	return nil, errors.New("action: a plain digest is not for writing; use a keyed one")
}
