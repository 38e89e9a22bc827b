package gate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/approvals/ledger"
	"github.com/countersign-mcp/countersign/server/policy"
	"github.com/countersign-mcp/countersign/server/provenance"
)

// believe reads what the client says of its values, by how far its actor is
// trusted.
func (k *call) believe() *refusal {
	if k.req.Provenance == nil {
		return nil
	}
	c, err := provenance.ParseClaim(k.req.Provenance, k.c.Args)
	if err != nil {
		k.g.log.Debug("a claim of provenance is refused", "operation", k.op, "error", err)
		return &refusal{code: codeParams, reason: "malformed", message: sayBadClaim(err)}
	}
	c = c.As(k.st.Policy.TrustsLabels(k.c.Actor.ID))
	k.claimed, k.evidence = c.Labels, c.Evidence
	return nil
}

// carries is what the call's session carries at this moment, as labels of the
// pointer "". Under a policy that no label makes a difference to it is nothing,
// and the store is not asked.
func (g *Gate) carries(ctx context.Context, st *State, c action.Call) map[string][]string {
	if !st.Policy.UsesLabels() {
		return nil
	}
	labels := g.sessions.Labels(ctx, c.Actor.ID, c.Session)
	if st.narrow(c.Version, c.Session) {
		labels = provenance.Union(map[string][]string{"": labels},
			map[string][]string{"": g.sessions.Labels(ctx, c.Actor.ID, "")})[""]
	}
	g.flushLater()
	if len(labels) == 0 {
		return nil
	}
	return map[string][]string{"": labels}
}

// taint makes the call's session carry what it is about to be given.
//
// It is done before the call is forwarded, and not when the result is there:
// whatever the upstream sends from then on, progress and errors too, finds the
// session labelled, and so does a process that goes on after a crash at any
// point. A call that then can't be sent has labelled its session for nothing,
// which is the safe side.
func (g *Gate) taint(ctx context.Context, c action.Call, labels []string) {
	g.mark(ctx, c.Actor.ID, c.Session, c.Version, labels)
	g.flushLater()
}

// mark labels a session, and the actor beside it where the session may see less
// than its client does.
func (g *Gate) mark(ctx context.Context, actor, session, version string, labels []string) {
	g.sessions.Add(ctx, actor, session, labels)
	if g.state.Load().narrow(version, session) {
		g.sessions.Add(ctx, actor, "", labels)
	}
}

// narrow tells whether a session may see less than its client does. An older client
// has a session at each path that it uses: what it reads from one upstream it can
// give to another in a session that never saw it. So with several upstreams such
// sessions carry what their actor carries.
func (s *State) narrow(version, session string) bool {
	return len(s.Upstreams) > 1 && session != "" && version < modernVersion
}

// modernVersion is the first version of MCP without sessions: what a client names
// there itself is one for all paths.
const modernVersion = "2026-07-28"

// given is what the result of a call makes a session carry.
func (s *State) given(server, tool string, labels map[string][]string) []string {
	if !s.Policy.UsesLabels() {
		return nil
	}
	return provenance.Carried(s.Policy.Produces(server, tool), labels)
}

// believed are facts as this policy trusts whoever gave them: a word that was taken
// while its actor was trusted counts as anybody's under a policy that doesn't.
func (s *State) believed(f policy.Facts) policy.Facts {
	if !s.Policy.TrustsLabels(f.Call.Actor.ID) {
		f.Labels, f.Evidence = provenance.Doubt(f.Labels), nil
	}
	return f
}

// relabel makes the session of an allowed call carry what its tool produces by the
// policy of this moment, before anything of the result is handed out: it may have
// been loaded while the call ran.
func (k *call) relabel() {
	if st := k.g.state.Load(); st != k.st && k.labelled.Swap(st) != st {
		k.g.taint(k.g.life, k.c, st.given(k.c.Server, k.c.Tool, k.claimed))
	}
}

// gift is what a run gives to whoever is handed something of it.
type gift struct {
	server, tool string
	labels       map[string][]string // of the call's values
	gives        []string            // by the policy under which it began
}

// label makes the session of an approved call carry what its result brings, and
// takes the last look at what it carries by itself: the call is not judged by what
// it brings.
func (g *Gate) label(c *claimed, r *run) {
	st, e := g.state.Load(), &c.parked.Envelope
	c.labels = provenance.Union(c.labels, g.carries(g.life, st, e.Call))
	r.gives.Store(&gift{e.Call.Server, e.Call.Tool, provenance.Union(e.Provenance, c.labels), c.gives})
	g.taint(g.life, e.Call, c.gives)
}

// ofTwin are the labels of this call, where it waits for an approval that the same
// call has parked before: whoever makes it again may know more of its values.
func (k *call) ofTwin() map[string][]string {
	if !k.also {
		return nil
	}
	return k.labels
}

// hear makes the session of a caller who is handed a result of an approved call
// carry what that result brings: whoever collects it in another session has read
// it there.
func (k *call) hear(ctx context.Context, labels []string) {
	if len(labels) > 0 && !slices.Equal(labels, k.heard) {
		k.g.taint(ctx, k.c, labels)
		k.heard = labels
	}
}

// hearRun is hear for what a run gives while it goes on, and at its end.
func (k *call) hearRun(ctx context.Context, r *run) {
	if g := r.gives.Load(); g != nil {
		labels := slices.Concat(g.gives, k.g.state.Load().given(g.server, g.tool, provenance.Union(g.labels, k.ofTwin())))
		slices.Sort(labels)
		k.hear(ctx, slices.Compact(labels))
	}
}

// hearKept is hear for a result that was kept.
func (k *call) hearKept(ctx context.Context, p approvals.Parked) {
	k.hear(ctx, k.g.state.Load().given(p.Server, p.Tool, provenance.Union(p.Envelope.Provenance, k.ofTwin())))
}

// flushLater goes on writing labels that the store could not be given, until it
// has them or the gate is closed.
func (g *Gate) flushLater() {
	if g.sessions.Pending() == 0 || !g.flushing.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer g.flushing.Store(false)
		for pause := time.Second; ; pause = min(2*pause, provenance.FlushEvery) {
			select {
			case <-g.life.Done():
				return
			case <-time.After(pause):
			}
			if g.sessions.Flush(g.life) == nil {
				return
			}
		}
	}()
}

// grown are the facts of an approved call with all that is known now of where its
// values come from: what was known when it was parked, what its session carries
// since, and what a caller who made the same call again says of it.
func grown(f policy.Facts, more ...map[string][]string) policy.Facts {
	f.Labels = provenance.Union(append(more, f.Labels)...)
	return f
}

// sure tells whether a session's labels, as just read, are all it needs to carry:
// what the store itself has said need not be written again.
func (g *Gate) sure(read, needed []string) bool {
	if slices.Contains(read, provenance.Unknown) {
		return len(needed) == 0
	}
	return !slices.ContainsFunc(needed, func(l string) bool { return !slices.Contains(read, l) })
}

// flushLast is the last try to write labels, when the gate is closed.
func (g *Gate) flushLast(ctx context.Context) {
	n := g.sessions.Pending()
	if n == 0 {
		return
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
	defer cancel()
	if err := g.sessions.Flush(last); err != nil {
		g.log.Error("labels of sessions could not be stored before the end, and are forgotten", "sessions", n)
	}
}

// Recall labels again the sessions that dead processes of this directory labelled
// within the time that labels are kept: one that died while the store could not be
// reached took what it could not write with it, but for its ledger. Call it before
// the first call is served; Recover does the same for processes that die later.
func (g *Gate) Recall(ctx context.Context) error {
	if g.adopt == nil || !g.state.Load().Policy.UsesLabels() {
		return nil
	}
	dead, err := g.adopt()
	errs := []error{err}
	for _, d := range dead {
		errs = append(errs, g.recall(ctx, d))
		d.Release()
	}
	return errors.Join(errs...)
}

// recall does it for one ledger, once.
func (g *Gate) recall(ctx context.Context, d *ledger.Dead) error {
	if _, done := g.recovery.recalled.Load(d.ID); done || !g.state.Load().Policy.UsesLabels() {
		return nil
	}
	type session struct{ actor, name, version string }
	carried := map[session][]string{}
	err := d.Labelled(time.Now().Add(-provenance.TTL), func(r ledger.Record) {
		s := session{r.Actor, r.Session, r.ProtocolVersion}
		for _, l := range r.Labels {
			if !slices.Contains(carried[s], l) {
				carried[s] = append(carried[s], l)
			}
		}
	})
	for s, labels := range carried {
		g.mark(ctx, s.actor, s.name, s.version, labels)
	}
	g.flushLater()
	if err != nil {
		return fmt.Errorf("reading the labels of sessions from %s: %w", d.ID, err)
	}
	g.recovery.recalled.Store(d.ID, true)
	return nil
}
