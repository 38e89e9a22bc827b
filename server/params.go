package server

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode"

	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/server/gate"
)

// Members of _meta that are ours. Everything under the prefix is taken out of
// what an upstream sees.
const (
	ownPrefix    = "countersign/"
	metaIdemKey  = "countersign/idempotency-key"
	metaWorkflow = "countersign/workflow"
	metaSession  = "countersign/session"
	metaClaim    = "countersign/provenance"
	ownMax       = 256 // bytes of one of their values
)

// parts are a request's params, split into what belongs to the call, to the era,
// to the stream and to the gate.
type parts struct {
	meta     json.RawMessage // what is left for the upstream; nil when nothing
	extra    json.RawMessage // the other members of params; nil when none
	token    json.RawMessage // progressToken as sent; nil when none
	idemKey  string
	workflow string
	session  string          // the client's own name for what belongs together
	claim    json.RawMessage // of provenance, as sent; the gate reads it
}

// split takes a request's params apart. What it hands on keeps its bytes.
func split(f action.Frame) (parts, *gate.Error) {
	var p parts
	for name, raw := range action.Fields(f.Meta) {
		switch {
		case name == metaProgress:
			if !tokenShaped(raw) {
				return p, failure(codeInvalidParams, "progressToken is neither a string nor a number")
			}
			p.token = raw
		case strings.HasPrefix(name, ownPrefix):
			if err := p.own(name, raw); err != nil {
				return p, err
			}
		}
	}
	if meta := action.DropMembers(f.Meta, notForUpstream); !emptyObject(meta) {
		p.meta = meta
	}
	extra := action.DropMembers(f.Params, func(name string) bool {
		return name == "arguments" || name == "name" || name == "_meta"
	})
	if !emptyObject(extra) {
		p.extra = extra
	}
	return p, nil
}

// notForUpstream tells whether a member of _meta is the era's, the stream's or
// ours.
func notForUpstream(name string) bool {
	switch name {
	case metaVersion, metaClientInfo, metaCapabilities, metaLogLevel, metaProgress:
		return true
	}
	return strings.HasPrefix(name, ownPrefix)
}

func (p *parts) own(name string, raw json.RawMessage) *gate.Error {
	var to *string
	switch name {
	case metaIdemKey:
		to = &p.idemKey
	case metaWorkflow:
		to = &p.workflow
	case metaSession:
		to = &p.session
	case metaClaim:
		p.claim = raw
		return nil
	default:
		return nil
	}
	v, ok := action.Text(raw)
	if !ok || v == "" || len(v) > ownMax {
		return failure(codeInvalidParams, name+" is a string of 1 to 256 bytes")
	}
	if name == metaSession && strings.ContainsFunc(v, unicode.IsControl) {
		return failure(codeInvalidParams, name+" has a control character")
	}
	*to = v
	return nil
}

func tokenShaped(raw json.RawMessage) bool {
	if len(raw) == 0 {
		return false
	}
	c := raw[0]
	return c == '"' || c == '-' || ('0' <= c && c <= '9')
}

func emptyObject(obj json.RawMessage) bool {
	obj = bytes.TrimSpace(obj)
	if len(obj) == 0 {
		return true
	}
	return len(obj) >= 2 && obj[0] == '{' && len(bytes.TrimSpace(obj[1:len(obj)-1])) == 0
}

// listParams are the params of tools/list as an upstream may see them.
func listParams(f action.Frame, p parts) json.RawMessage {
	if f.Params == nil {
		return nil
	}
	if p.meta != nil {
		return action.SetMember(f.Params, "_meta", p.meta)
	}
	return action.DropMember(f.Params, "_meta")
}

// finishResult gives an older upstream's result what a 2026-07-28 client needs.
// All other bytes stay.
func finishResult(method string, a gate.Answer) gate.Answer {
	if a.Error != nil || len(a.Result) == 0 {
		return a
	}
	if _, ok := action.Member(a.Result, "resultType"); !ok {
		a.Result = action.SetMember(a.Result, "resultType", json.RawMessage(`"complete"`))
	}
	if method == methodList {
		// The list is one actor's and the policy may change at any time.
		a.Result = action.SetMember(a.Result, "ttlMs", json.RawMessage("0"))
		a.Result = action.SetMember(a.Result, "cacheScope", json.RawMessage(`"private"`))
	}
	return a
}
