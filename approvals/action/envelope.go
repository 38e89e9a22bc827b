package action

import "encoding/json"

// Envelope is the action that an approval is bound to. It is fixed when the call
// is parked, and sealed in the store; approvers see its keyed digest.
//
// Version 1 of the canonical form carries every field below, also those that
// are still empty: a field that gets a meaning later changes no older digest.
type Envelope struct {
	OperationID string // drawn at ingress by the parking call; also the approval id
	Call        Call

	Tier        string
	ServerID    Digest // identity of the upstream: command or URL, environment names, server info
	Manifest    Digest // of all the server's tools
	Tool        Digest // of the called tool's definition
	Policy      Digest // of the policy that judged
	ServerName  string // the upstream's own name and version, from its handshake
	Rules       []string
	Routes      []string
	Provenance  map[string][]string // JSON pointer → labels
	Evidence    []string            // keyed digests of what was looked up before asking
	ParkedProto int                 // version of this form; 1
}

// Marshal and Unmarshal are in canonical.go: the sealed form is the canonical
// form plus the exact bytes of arguments, meta and extra.
var _ = json.RawMessage(nil)
