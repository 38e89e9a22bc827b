package gate

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/server/pins"
)

// CollectTool is the gate's own tool. An upstream's tool of this name is hidden.
const CollectTool = "countersign_collect"

const collectDefinition = `{"name":"countersign_collect","title":"Collect an approved call","description":"` +
	`Waits for the approval of a call that you made before, and returns that call's result once a person has approved it. ` +
	`Use the approval_id from the pending result. It runs the call that was approved, at most once; calling it again returns the same result. ` +
	`It approves nothing.","inputSchema":{"type":"object","properties":{"approval_id":{"type":"string","description":"` +
	`The id from the pending result."}},"required":["approval_id"],"additionalProperties":false},` +
	`"annotations":{"readOnlyHint":false,"destructiveHint":false,"idempotentHint":true,"openWorldHint":false}}`

// collect waits for an approval of the same actor, as one more waiter. Another
// actor's approval is answered like one that does not exist.
func (k *call) collect(ctx context.Context) Answer {
	k.c.Tool = CollectTool
	id, ok := approvalID(k.c)
	if !ok {
		return k.refuse(ctx, refusal{code: codeParams, reason: "bad_arguments", message: sayCollectArgs})
	}
	if k.g.isClosing() {
		return k.refuse(ctx, refusal{code: codeInternal, reason: "stopping", message: sayStopping})
	}
	var p approvals.Parked
	err := k.g.insist(ctx, func(ctx context.Context) (err error) {
		p, err = k.g.store.Load(ctx, id, k.c.Actor)
		return err
	})
	switch {
	case err == nil:
	case errors.Is(err, approvals.NotFound):
		return k.refuse(ctx, refusal{code: codeParams, reason: "unknown_approval", message: sayUnknownID})
	case errors.Is(err, approvals.Forged):
		// The refusal is this call's; whose record it was must be told too.
		if err := k.g.write(ctx, forgedRecord(id)); err != nil {
			return k.noLedger(err)
		}
		return k.refuse(ctx, refusal{code: codeInternal, reason: "forged", message: sayForgedRecord})
	default:
		k.g.log.Warn("an approval could not be loaded", "error", err)
		return k.refuse(ctx, refusal{code: codeInternal, reason: "store_unavailable", message: sayNoStore})
	}
	if err := k.g.write(ctx, k.decision("allow", "collect")); err != nil {
		return k.noLedger(err)
	}
	if err := k.attach(ctx, id); err != nil {
		return k.noLedger(err)
	}
	k.g.countCollect(id)
	return k.hold(ctx, p.Ticket)
}

// approvalID reads the one argument.
func approvalID(c action.Call) (string, bool) {
	var raw json.RawMessage
	for name, value := range action.Fields(c.Args) {
		if name != "approval_id" {
			return "", false
		}
		raw = value
	}
	id, ok := action.Text(raw)
	return id, ok && pins.Plausible(id) && len(id) <= 128 // of the characters that a tool's name has
}
