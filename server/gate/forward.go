package gate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/approvals/ledger"
	"github.com/countersign-mcp/countersign/server/policy"
	"github.com/countersign-mcp/countersign/server/upstream"
)

// permit is the leave to forward one call once. leaveFor alone makes it, so that
// nothing reaches an upstream without the third check.
type permit struct {
	up     Upstream
	call   action.Call
	before time.Time // not a byte may be written after it; zero: at any time
	gen    uint64    // of the upstream whose definition was compared; zero: none was
}

// leaveFor is the third check: it asks the state of this moment, not the one
// that the call came in under.
func (g *Gate) leaveFor(f policy.Facts, by grounds, before time.Time) (permit, error) {
	c := f.Call
	st := g.state.Load()
	if by.won == nil {
		// A caller that nobody agreed to is judged as this state knows it, without
		// the roles that the one before gave.
		if !st.admits(f.Call.Actor) {
			return permit{}, fmt.Errorf("the caller's token is not valid any more: %w", errNotNow)
		}
		f.Call.Actor.Roles = st.roles(f.Call.Actor)
	}
	if err := g.gates.last(st, st.believed(f), by, g.now()); err != nil {
		return permit{}, err
	}
	up := st.Upstreams[c.Server]
	if up == nil {
		return permit{}, fmt.Errorf("upstream %s is gone: %w", c.Server, errNotNow)
	}
	if by.won != nil && up != by.won.up {
		return permit{}, fmt.Errorf("upstream %s was replaced: %w", c.Server, errNotNow)
	}
	p := permit{up: up, call: c, before: before}
	if by.won != nil {
		p.gen = by.won.cat.gen
	}
	return p, nil
}

// outcome is what came of forwarding. Exactly one of result, fault and err is
// set, but for a call that was never forwarded, which has a status alone.
type outcome struct {
	result    json.RawMessage
	fault     *upstream.Fault
	err       error // wraps upstream.ErrNotSent or upstream.ErrLost
	status    string
	errorType string
	took      time.Duration
	at        time.Time // when it was read
}

const statusNotRun = ledger.StatusNotRun

// forward sends the call's bytes and waits for the answer.
func (g *Gate) forward(ctx context.Context, p permit, progress func([]byte)) outcome {
	begun := time.Now()
	r := upstream.Request{Method: "tools/call", Params: compose(p.call), Before: p.before, Generation: p.gen}
	if progress != nil {
		r.Progress = func(params json.RawMessage) { progress(params) }
	}
	res, err := p.up.Do(ctx, r)
	out := outcome{result: res, took: time.Since(begun), at: time.Now().UTC()}
	var fault *upstream.Fault
	switch {
	case err == nil && isError(res):
		out.status, out.errorType = ledger.StatusToolError, "tool_error"
	case err == nil:
		out.status = ledger.StatusOK
	case errors.As(err, &fault):
		out.fault, out.status, out.errorType = fault, ledger.StatusProtocolError, fmt.Sprintf("rpc_%d", fault.Code)
	case errors.Is(err, upstream.ErrNotSent):
		out.err, out.status, out.errorType = err, ledger.StatusNotRun, "not_sent"
		if errors.Is(err, upstream.ErrTooLate) {
			out.errorType = "overslept"
		}
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		out.err, out.status, out.errorType = err, ledger.StatusTimeout, "timeout"
	default:
		// Also an error that says neither: what is not known to be unsent may
		// have run.
		out.err, out.status, out.errorType = err, ledger.StatusUnknown, "no_answer"
	}
	if out.err != nil {
		g.log.Warn("no answer from the upstream", "server", p.call.Server, "status", out.status, "error", out.err)
	}
	return out
}

// compose makes the params of tools/call. Arguments, _meta and the other members
// go in as they came.
func compose(c action.Call) json.RawMessage {
	var b bytes.Buffer
	b.WriteString(`{"name":`)
	b.Write(quote(c.Tool))
	b.WriteString(`,"arguments":`)
	if len(bytes.TrimSpace(c.Args)) == 0 {
		b.WriteString(`{}`)
	} else {
		b.Write(c.Args)
	}
	extra := c.Extra
	for _, taken := range []string{"name", "arguments", "_meta"} {
		extra = action.DropMember(extra, taken) // the edge took them out; never twice
	}
	if inner := bytes.TrimSpace(extra); len(inner) > 2 && inner[0] == '{' {
		if inner = bytes.TrimSpace(inner[1 : len(inner)-1]); len(inner) > 0 {
			b.WriteByte(',')
			b.Write(inner)
		}
	}
	if len(bytes.TrimSpace(c.Meta)) > 0 {
		b.WriteString(`,"_meta":`)
		b.Write(c.Meta)
	}
	b.WriteByte('}')
	return b.Bytes()
}

// isError tells whether a tool's result says that it failed.
func isError(result json.RawMessage) bool {
	raw, _ := action.Member(result, "isError")
	return string(bytes.TrimSpace(raw)) == "true"
}
