package gate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/approvals/fault"
	"github.com/countersign-mcp/countersign/approvals/keys"
	"github.com/countersign-mcp/countersign/approvals/ledger"
	"github.com/countersign-mcp/countersign/server/redact"
)

// review parks a call that people have to agree to, and waits with it.
func (k *call) review(ctx context.Context) Answer {
	who, no := k.askable()
	if no != nil {
		return k.refuse(ctx, *no)
	}
	told, err := k.notifierAlive(ctx)
	if err != nil {
		k.g.log.Warn("the store can't be asked for living notifiers", "error", err)
		return k.refuse(ctx, refusal{code: codeInternal, reason: "store_unavailable", message: sayNoStore})
	}
	p := k.parking(who)
	p.AttachOnly = !told // nobody could be told of a new one; one that was told is still found
	d := k.decision("review", "")
	d.EnvelopeDigest = k.g.ring.MAC(keys.Bound, digestOf(p.Envelope))
	if err := k.g.write(ctx, d); err != nil {
		return k.noLedger(err)
	}
	fault.Point("park.before")
	t, fresh, err := k.parkWithin(ctx, p)
	if err != nil {
		if again, ok := k.rejudged(ctx, err); ok {
			return again
		}
		return k.notParked(err)
	}
	fault.Point("park.after")
	if !fresh {
		if err := k.attach(ctx, t.ID); err != nil {
			return k.noLedger(err)
		}
	}
	k.also = !fresh // what is known of this call holds for the parked one too
	return k.hold(ctx, t)
}

// askable refuses what people can't be asked about, by what the call is alone.
func (k *call) askable() (people, *refusal) {
	who, no := k.requester()
	if no == nil {
		no = k.tooBig()
	}
	if no == nil {
		no = k.badArguments()
	}
	return who, no
}

func digestOf(e action.Envelope) []byte { return e.Digest().Bytes() }

// park sends the request until its reply is known, with one nonce: a lost reply
// does not park twice. The error is errUnclear where the call may be parked all the
// same.
func (k *call) park(ctx context.Context, p approvals.Park) (t approvals.Ticket, fresh bool, err error) {
	clear := true
	err = k.g.insist(ctx, func(ctx context.Context) error {
		t, fresh, err = k.g.store.Park(ctx, p)
		full := (*approvals.NoRoom)(nil)
		clear = clear && (err == nil || errors.As(err, &full) || errors.Is(err, approvals.NotFound) || errors.Is(err, approvals.Behind))
		return err
	})
	if err != nil && !clear {
		err = fmt.Errorf("%w: %w", errUnclear, err)
	}
	return t, fresh, err
}

var errUnclear = errors.New("it may be parked")

// attach records that this call waits for an approval that another one parked.
func (k *call) attach(ctx context.Context, id string) error {
	r := k.record(ledger.Attached)
	r.To = id
	return k.g.write(ctx, r)
}

// people are those whom a call counts as asked by.
type people struct {
	requester string   // the person behind the actor; "" when unmapped
	excluded  []string // who may not approve: the requester and the owners
}

func (s *State) people(a action.Actor) people {
	p := people{requester: s.Roster.ByActor(a.ID)}
	if p.requester != "" {
		p.excluded = append(p.excluded, p.requester)
	}
	for _, o := range a.Owners {
		if o != "" && !slices.Contains(p.excluded, o) {
			p.excluded = append(p.excluded, o)
		}
	}
	return p
}

// requester refuses a call whose requester can't be kept from approving it,
// because nobody knows who that is.
func (k *call) requester() (people, *refusal) {
	p := k.st.people(k.c.Actor)
	if len(p.excluded) > 0 {
		return p, nil
	}
	for _, r := range k.verdict.Routes {
		if !r.AllowRequester {
			return p, &refusal{code: codeParams, reason: "requester_unknown", message: sayRequester}
		}
	}
	return p, nil
}

func (k *call) tooBig() *refusal {
	// All that is kept and shown counts, not the arguments alone.
	if len(k.c.Args)+len(k.c.Meta)+len(k.c.Extra)+len(k.c.RequestID) > k.g.set.ReviewArgs {
		return &refusal{code: codeParams, reason: "arguments_too_big",
			message: fmt.Sprintf(sayTooBig, k.g.set.ReviewArgs)}
	}
	return nil
}

func (k *call) notifierAlive(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	return k.g.store.NotifierAlive(ctx)
}

// parking is what the store is asked to keep: the envelope, and what people are
// shown of it.
func (k *call) parking(who people) approvals.Park {
	up := k.st.Upstreams[k.c.Server]
	info := up.Info()
	e := action.Envelope{
		V: action.EnvelopeVersion, OperationID: k.op, Call: k.c, Tier: k.verdict.Tier,
		ServerID: k.cat.identity, ServerName: strings.TrimSpace(info.Name + " " + info.Version),
		Manifest: k.cat.manifest, ToolDef: k.tool.Digest, Policy: k.verdict.Policy,
		Provenance: k.labels, Evidence: k.evidence,
	}
	p := approvals.Park{
		Nonce: k.op, Requester: who.requester, Caps: k.st.Policy.Caps(k.g.set.Caps), Closing: k.st.Policy.Closing(),
		Links: every(k.verdict.Routes, "approve", func(r approvals.Route) string { return r.Links }),
		Run:   every(k.verdict.Routes, runOnApprove, func(r approvals.Route) string { return r.Run }),
	}
	for _, why := range carried(k.verdict) {
		e.Rules = append(e.Rules, why.ID)
		p.Rules = append(p.Rules, why.ID+": "+why.Text)
	}
	for _, r := range k.verdict.Routes {
		e.Routes = append(e.Routes, r.Name)
		p.Requirements = append(p.Requirements, r.Require(who.excluded))
		for _, ch := range r.Channels {
			if !slices.Contains(p.Channels, ch) {
				p.Channels = append(p.Channels, ch)
			}
		}
		if r.OnCancel == withdraw { // one route that wants it is enough: it runs less, never more
			p.OnCancel = withdraw
		}
	}
	p.Envelope = e
	show := k.st.Policy.Rules(k.c.Server, k.c.Tool)
	schema, _ := action.Member(k.tool.Raw, "inputSchema")
	rules := redact.Rules{Keys: show.Keys, Pointers: show.Pointers, Title: show.Title, Schema: schema}
	p.Title, p.View = redact.Render(k.c, rules, func(b []byte) string { return k.g.ring.MAC(keys.Value, b) })
	p.View.Warnings = append(p.View.Warnings, k.doubts()...)
	return p
}

const (
	withdraw     = "withdraw"
	runOnApprove = "on_approve"
)

// every is want where each route has it, else "".
func every(routes []approvals.Route, want string, of func(approvals.Route) string) string {
	for _, r := range routes {
		if of(r) != want {
			return ""
		}
	}
	if len(routes) == 0 {
		return ""
	}
	return want
}

// notParked says why a call could not be parked. The decision is on the ledger
// already, so what follows is written as the call's end; but only where it is sure
// that nothing waits. A park without a clear reply may be there, and be run for
// whoever asks again: a "not run" of its operation would then be a lie, and
// recovery would believe it.
func (k *call) notParked(err error) Answer {
	no := refusal{code: codeInternal, reason: "store_unavailable", message: sayNoStore}
	if over := (*overLimit)(nil); errors.As(err, &over) {
		no = over.no
	}
	if full := (*approvals.NoRoom)(nil); errors.As(err, &full) {
		no = noRoom(full)
	} else if c, ok := approvals.AsConflict(err); ok {
		switch c {
		case approvals.NotFound: // nothing to attach to, and nobody to tell of a new one
			no = refusal{code: codeParams, reason: "no_notifier", message: sayNoNotifier}
		case approvals.Behind:
			no = refusal{code: codeInternal, reason: string(approvals.Behind), message: sayBehind}
		case approvals.StoreUnavailable:
		default:
			no = refusal{code: codeInternal, reason: string(c), message: sayNotParked}
		}
	}
	k.g.log.Warn("a call could not be parked", "operation", k.op, "reason", no.reason, "error", err)
	if errors.Is(err, errUnclear) {
		return no.answer()
	}
	if err := k.g.writeLate(k.result(outcome{status: statusNotRun, errorType: no.reason})); err != nil {
		return k.noLedger(err)
	}
	return no.answer()
}
