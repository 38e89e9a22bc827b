package gate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/server/policy"
)

// JSON-RPC error codes of the gate's own answers.
const (
	codeParams   = -32602 // a refusal: the call as it stands will not run
	codeInternal = -32603 // something that the call needs is not there
)

// metaApproval is the member of a result's _meta that says where an approval
// stands.
const metaApproval = "countersign/approval"

// refusal is a no before anything was parked.
type refusal struct {
	code    int
	reason  string // for the caller, from a closed set
	rule    string // id of the rule that said no, where one may be told; of a schema, its keyword
	pointer string // into the arguments, where they don't fit the schema
	message string
	detail  string        // for the ledger alone, where it may know more
	after   time.Duration // when the same call may be made again; 0 when that is not known
}

func (r refusal) answer() Answer {
	data := json.RawMessage(`{}`)
	data = action.SetMember(data, "reason", quote(r.reason))
	if r.rule != "" {
		data = action.SetMember(data, "rule", quote(r.rule))
	}
	if r.pointer != "" {
		data = action.SetMember(data, "pointer", quote(r.pointer))
	}
	if r.after > 0 {
		data = action.SetMember(data, "retry_after_ms", strconv.AppendInt(nil, r.after.Milliseconds()+1, 10))
	}
	return Answer{Error: &Error{Code: r.code, Message: r.message, Data: data}}
}

// noSuchTool is the same for a tool that does not exist and for one that is
// hidden; only the ledger knows which.
func noSuchTool(detail string) refusal {
	return refusal{code: codeParams, reason: "unknown_tool", message: sayNoSuchTool, detail: detail}
}

// denied tells which rule said no: the tool is listed, so there is nothing to
// hide.
func denied(v policy.Verdict) refusal {
	r := refusal{code: codeParams, reason: "policy_denied", message: sayDenied}
	if why := carried(v); len(why) > 0 {
		r.rule = why[0].ID
		if why[0].Text != "" {
			r.message = fmt.Sprintf(sayDeniedFor, why[0].Text)
		}
	}
	return r
}

// result makes an isError result of one text.
func result(text string, meta json.RawMessage) Answer {
	var b bytes.Buffer
	b.WriteString(`{"content":[{"type":"text","text":`)
	b.Write(quote(text))
	b.WriteString(`}],"isError":true`)
	if meta != nil {
		b.WriteString(`,"_meta":{"` + metaApproval + `":`)
		b.Write(meta)
		b.WriteByte('}')
	}
	b.WriteByte('}')
	return Answer{Result: b.Bytes()}
}

// unknownAnswer is for a call without an approval whose outcome is not known.
func unknownAnswer(text string) Answer { return result(sayNotArguments+" "+text, nil) }

// standing is the content of _meta["countersign/approval"].
func standing(id, status string, expires time.Time, retry time.Duration) json.RawMessage {
	m := json.RawMessage(`{}`)
	m = action.SetMember(m, "id", quote(id))
	m = action.SetMember(m, "status", quote(status))
	if !expires.IsZero() {
		m = action.SetMember(m, "expires_at", quote(stamp(expires)))
	}
	if retry > 0 {
		m = action.SetMember(m, "retry_after_ms", strconv.AppendInt(nil, retry.Milliseconds(), 10))
	}
	return m
}

// status is how callers are told an approval stands: its state, but that an
// expiry which nobody heard of has a name of its own.
func status(t approvals.Ticket) string {
	if t.State == approvals.Expired && t.Cause == approvals.CauseUndelivered {
		return approvals.CauseUndelivered
	}
	return string(t.State)
}

// waits is the pending result.
func (g *Gate) waits(t approvals.Ticket, why *stuck) Answer {
	expires, retry := t.Deadline, 5*time.Second
	switch t.State {
	case approvals.Approved:
		expires = t.ClaimBy
	case approvals.Executing:
		expires = time.Time{}
	}
	collects := g.collected(t.ID)
	if collects >= 2 {
		retry = time.Minute
	}
	text := sayWaits(t, why, !g.set.NoCollect, collects)
	return result(text, standing(t.ID, status(t), expires, retry))
}

// ends is the answer of an approval that is over and has no result to give.
func (g *Gate) ends(t approvals.Ticket) Answer { return g.lost(t, status(t), sayEnd(t)) }

// lost is an answer without a result, in the form that the configuration asks
// for.
func (g *Gate) lost(t approvals.Ticket, status, words string) Answer {
	text, where := sayNotArguments+" "+words, standing(t.ID, status, time.Time{}, 0)
	if !g.set.RefuseAsError {
		return result(text, where)
	}
	data := action.SetMember(json.RawMessage(`{}`), "reason", quote(status))
	return Answer{Error: &Error{Code: codeParams, Message: text, Data: action.SetMember(data, metaApproval, where)}}
}

// kept is an upstream's error as it was kept.
func kept(raw json.RawMessage) *Error {
	e := &Error{Raw: raw}
	var told struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	}
	if json.Unmarshal(raw, &told) == nil {
		e.Code, e.Message = told.Code, told.Message
	}
	return e
}

// marked says of an answer that it was handed out before: in _meta and in one
// more text block. No other byte changes, and an error is left as it is.
func marked(a Answer, t approvals.Ticket, at time.Time) Answer {
	if a.Error != nil || len(a.Result) == 0 || bytes.TrimSpace(a.Result)[0] != '{' {
		return a
	}
	meta, ok := action.Member(a.Result, "_meta")
	if !ok || len(meta) == 0 || meta[0] != '{' {
		meta = json.RawMessage(`{}`)
	}
	meta = action.SetMember(meta, metaApproval, standing(t.ID, status(t), time.Time{}, 0))
	out := action.SetMember(a.Result, "_meta", meta)
	if content, ok := action.Member(out, "content"); ok {
		if c := bytes.TrimSpace(content); len(c) >= 2 && c[0] == '[' {
			out = action.SetMember(out, "content", appendText(c, sayAgain(at)))
		}
	}
	return Answer{Result: out}
}

// appendText adds a text block to a content array.
func appendText(array []byte, text string) json.RawMessage {
	block := slices.Concat([]byte(`{"type":"text","text":`), quote(text), []byte(`}]`))
	inner := bytes.TrimRight(array[:len(array)-1], " \t\r\n")
	if len(inner) > 1 {
		inner = append(slices.Clone(inner), ',')
	}
	return slices.Concat(inner, block)
}

func stamp(t time.Time) string { return t.UTC().Truncate(time.Second).Format(time.RFC3339) }
