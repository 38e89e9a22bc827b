package daemon

import (
	"context"
	"maps"
	"slices"

	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/server/policy"
)

// checklist are the six things that whoever adopts a gate has to be able to say.
// Each says what this configuration can say of it.
var checklist = []func(p *patient) Finding{
	throughTheGate, identitiesPinned, provenanceKnown, reviewBound, auditLinked, policiesRecorded,
}

func lookAtChecklist(_ context.Context, p *patient) []Finding {
	var found []Finding
	for _, item := range checklist {
		found = append(found, item(p))
	}
	return append(found, unasked(p)...)
}

// throughTheGate: the gate is the one parent of what it starts; what else an
// agent has is not for it to see.
func throughTheGate(p *patient) Finding {
	const what = "privileged calls go through the gate only: "
	if p.policy != nil && p.policy.Observation().Until.After(p.Now()) {
		return warn("take observe out when the report says what you want", what+"they do, but for now some run without the yes that they need")
	}
	return fine(what + "it alone speaks to the processes it starts; see that agents have no credentials or servers of their own for the same systems")
}

func identitiesPinned(p *patient) Finding {
	const what = "identities are pinned: "
	switch {
	case p.cfg.PinsPath() == "" || p.cfg.Pins.FirstUse:
		return warn("set pins.file, then run countersign policy pin", what+"as first seen, which nobody has agreed on")
	case p.NoStart:
		return warn("leave --no-start out", what+"in a file that was not compared with the servers")
	case p.pinned != Fine:
		return warn("see the section pins", what+"not all servers are what was agreed on")
	}
	return fine(what + "every server and tool is what the file of pins says")
}

func provenanceKnown(p *patient) Finding {
	const what = "provenance is available to rules: "
	if p.policy == nil || !p.policy.UsesLabels() {
		return warn("see the five rules in deploy/examples, or mark what tools return with produces: retrieved",
			what+"it would be, and no rule asks where a value comes from")
	}
	return fine(what + "labels of arguments and sessions; what nobody labelled counts as unknown")
}

func reviewBound(p *patient) Finding {
	const what = "a review is bound to the exact call: "
	if p.policy == nil || !p.policy.Reviews() {
		return warn("let the calls that matter be reviewed", what+"it would be, and no call is ever reviewed")
	}
	return fine(what + "arguments, tool definition, server, actor and policy are in the digest that people answer to")
}

func auditLinked(p *patient) Finding {
	const what = "the audit links planning, decision, execution and result: "
	a := p.audit
	switch {
	case a == nil || a.starts == 0:
		return fine(what + "nothing has run yet")
	case a.unlinked > 0:
		return fail("keep the ledger and find out how", what+"%s started without a decision before it", count(a.unlinked, "call", "calls"))
	}
	text := what + "each of %s has its decision; %s no result yet"
	args := []any{count(a.starts, "started call", "started calls"), count(len(a.started), "call has", "calls have")}
	if n := a.elsewhere(); n > 0 {
		text += "; %s decided through a gate with another ledger"
		args = append(args, count(n, "was", "were"))
	}
	if a.workflows == 0 {
		text += "; no caller names a session or workflow, so what they were planned in is not known"
	}
	return fine(text, args...)
}

func policiesRecorded(p *patient) Finding {
	const what = "policy versions are recorded and reversible: "
	if p.policy == nil {
		return fail("put the policy right", what+"the file does not load")
	}
	digest := p.policy.Digest().Hex()
	switch {
	case p.audit == nil || p.audit.last == "":
		return fine(what + "the first start records this one")
	case p.audit.last != digest:
		return warn("send the gate SIGHUP, or put the file back with countersign policy restore", what+"the file is not the policy that was loaded last, %.12s", p.audit.last)
	}
	recorded := count(len(p.audit.policies), "version is", "versions are")
	if !p.kept(digest) {
		return warn("keep the policy file under version control", what+"%s on the ledger; this one is not kept in data_dir", recorded)
	}
	return fine(what+"%s on the ledger, and countersign policy restore puts this one back", recorded)
}

// unasked are the tools that change something and run without a yes: nothing
// checks afterwards what came of them, and a repeat runs again.
func unasked(p *patient) []Finding {
	if p.policy == nil {
		return nil
	}
	var names []string
	for _, server := range slices.Sorted(maps.Keys(p.servers)) {
		for _, tool := range p.servers[server].names() {
			v := p.policy.Judge(policy.Facts{Call: action.Call{Server: server, Tool: tool, Args: []byte(`{}`)}})
			if v.Tier != "" && v.Tier != "read" && v.Effect == policy.Allow {
				names = append(names, server+"/"+tool)
			}
		}
	}
	if len(names) == 0 {
		return nil
	}
	return []Finding{warn("make them destructive, or say tiers: {write: review}",
		"tools that change something run without a yes; the gate checks no outcome and keeps no repeat of these from running again: %s", listed(names))}
}
