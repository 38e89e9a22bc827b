package gate

import (
	"context"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/approvals/keys"
	"github.com/countersign-mcp/countersign/approvals/ledger"
	"github.com/countersign-mcp/countersign/server/provenance"
)

// ledgerTimeout bounds one append. A disk that takes longer is as good as none.
const ledgerTimeout = 10 * time.Second

// write appends records. An error means that nothing may happen on the strength
// of them.
func (g *Gate) write(ctx context.Context, recs ...ledger.Record) error {
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	_, err := g.ledger.Append(ctx, recs...)
	return err
}

// writeLate appends what has happened already, whoever has stopped waiting.
func (g *Gate) writeLate(recs ...ledger.Record) error {
	return g.write(context.Background(), recs...)
}

// base is what every record of this call says.
func (g *Gate) base(event ledger.Event, op string, c action.Call) ledger.Record {
	return ledger.Record{
		Event: event, OperationID: op, RequestID: ledger.Clean(string(c.RequestID)),
		Actor: ledger.Clean(c.Actor.ID), Auth: ledger.Clean(c.Actor.Auth),
		Session: ledger.Clean(c.Session), Workflow: ledger.Clean(c.Workflow),
		Server: ledger.Clean(c.Server), Tool: ledger.Clean(c.Tool),
		ProtocolVersion: ledger.Clean(c.Version),
	}
}

func (k *call) record(event ledger.Event) ledger.Record {
	c := k.c
	if c.Tool == "" { // refused before anybody looked for the tool, or not one of an upstream
		c.Tool = k.req.Name
		if server, tool, ok := k.st.resolve(k.req.Front, k.req.Name); ok && k.g.usable(tool) {
			c.Server, c.Tool = server, tool
		}
	}
	r := k.g.base(event, k.op, c)
	r.Tier = ledger.Clean(k.verdict.Tier)
	return r
}

// decision is the record that comes before anything else.
func (k *call) decision(outcome, reason string) ledger.Record {
	r := k.record(ledger.Decision)
	r.Outcome, r.Reason = outcome, reason
	for _, why := range carried(k.verdict) {
		r.Rules = append(r.Rules, ledger.Rule{ID: ledger.Clean(why.ID), Effect: why.Effect.String()})
	}
	if k.st.Policy != nil {
		r.PolicyDigest = k.st.Policy.Digest().Hex()
	}
	if k.cat != nil {
		r.ManifestDigest, r.ToolDigest = k.cat.manifest.Hex(), k.tool.Digest.Hex()
	}
	r.Person = ledger.Clean(k.st.Roster.ByActor(k.c.Actor.ID))
	r.ArgsDigest = k.g.argsDigest(k.c)
	r.Labels = provenance.Names(k.labels)
	return r
}

// start is the record before the bytes of an allowed call leave. gives is what its
// session carries from then on.
func (k *call) start(gives []string) ledger.Record {
	r := k.record(ledger.ExecStart)
	r.Labels = gives
	r.ArgsDigest = k.g.argsDigest(k.c)
	return r
}

func (k *call) result(o outcome) ledger.Record { return k.g.ended(k.record(ledger.Result), o) }

// ended completes a result's record.
func (g *Gate) ended(r ledger.Record, o outcome) ledger.Record {
	r.Status, r.ErrorType, r.DurationMS = o.status, o.errorType, o.took.Milliseconds()
	switch {
	case o.result != nil:
		r.ResultDigest = g.ring.MAC(keys.Result, o.result)
	case o.fault != nil:
		r.ResultDigest = g.ring.MAC(keys.Result, o.fault.Raw)
	}
	return r
}

// argsDigest is keyed: of arguments that can be guessed, a plain digest tells
// them.
func (g *Gate) argsDigest(c action.Call) string {
	canon, err := action.Canonical(c.Args)
	if err != nil {
		canon = c.Args
	}
	return g.ring.MAC(keys.Args, canon)
}

// claimRecord is a record of the approved call p, whoever claims it: it carries
// the parking call's operation id, which is the approval's.
func (g *Gate) claimRecord(event ledger.Event, p approvals.Parked) ledger.Record {
	r := g.base(event, p.Envelope.OperationID, p.Envelope.Call)
	r.Tier = ledger.Clean(p.Envelope.Tier)
	r.EnvelopeDigest, r.DisplayDigest = p.Bound, p.ShownDigest
	r.ArgsDigest = g.argsDigest(p.Envelope.Call)
	return r
}

// approvalOf is what the ledger keeps of an approval: who said yes, on which
// routes.
func approvalOf(t approvals.Ticket) *ledger.Approval {
	a := &ledger.Approval{ID: t.ID, State: string(t.State), Cause: t.Cause, By: ledger.Clean(t.By), ExpiresAt: t.Deadline}
	for _, q := range t.Requirements {
		a.Routes = append(a.Routes, ledger.Route{Name: ledger.Clean(q.Route), Quorum: q.Quorum})
	}
	for _, v := range t.Votes {
		a.Votes = append(a.Votes, ledger.Vote{
			Route: ledger.Clean(v.Requirement), Person: ledger.Clean(v.Person), Verdict: v.Verdict.String(),
			Source: ledger.Clean(v.Source), At: v.At,
		})
	}
	return a
}
