package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/action"
)

// scene is where a store method is tried: one approval of its own.
type scene struct {
	p  *place
	r  approvals.Park
	id string
	v  approvals.Vote
	g  approvals.Grant
}

// op is a store method with what comes before it, and what must be so after it,
// however often its replies were lost.
type op struct {
	before func(t *testing.T, s *scene)
	do     func(t *testing.T, s *scene) error
	after  []string // kinds of the events, in order
	state  approvals.State
}

func noPrep(*testing.T, *scene) {}

func (s *scene) approve(t *testing.T) { s.p.approved(t, s.r) }

func lostOps() map[string]op {
	parked := func(t *testing.T, s *scene) { s.p.park(t, s.r) }
	approved := func(t *testing.T, s *scene) { s.approve(t) }
	claimed := func(t *testing.T, s *scene) { s.approve(t); s.g = s.p.claim(t, s.r, "n1") }
	unknown := func(t *testing.T, s *scene) {
		claimed(t, s)
		if _, err := s.p.Finish(t.Context(), s.g, approvals.Outcome{State: approvals.Unknown}); err != nil {
			t.Fatal(err)
		}
	}
	err2 := func(_ any, err error) error { return err }
	kept := &approvals.Kept{Result: json.RawMessage(`{}`)}
	return map[string]op{
		"Park": {noPrep, func(t *testing.T, s *scene) error {
			_, fresh, err := s.p.Park(t.Context(), s.r)
			if err == nil && !fresh {
				return errors.New("a park that was made is told as attached")
			}
			return err
		}, []string{"requested"}, approvals.Pending},
		"Decide": {parked, func(t *testing.T, s *scene) error { return err2(s.p.Decide(t.Context(), s.v)) },
			[]string{"requested", "vote", "approved"}, approvals.Approved},
		"Decide no": {parked, func(t *testing.T, s *scene) error {
			v := s.v
			v.Verdict, v.Reason = approvals.Deny, "no"
			return err2(s.p.Decide(t.Context(), v))
		}, []string{"requested", "vote", "denied"}, approvals.Denied},
		"Decide refused": {parked, func(t *testing.T, s *scene) error {
			v := s.v
			v.Person = "eve"
			if _, err := s.p.Decide(t.Context(), v); !errors.Is(err, approvals.NotEligible) {
				return err
			}
			return nil
		}, []string{"requested", "vote_refused"}, approvals.Pending},
		"Claim": {approved, func(t *testing.T, s *scene) error {
			g, err := s.p.Claim(t.Context(), s.id, 2, s.r.Envelope.Digest(), "n1", noPolicy)
			if err == nil && g.Fence == 0 {
				return errors.New("no fence")
			}
			return err
		}, []string{"requested", "vote", "approved", "executing"}, approvals.Executing},
		"Renew": {claimed, func(t *testing.T, s *scene) error { return s.p.Renew(t.Context(), s.g) },
			[]string{"requested", "vote", "approved", "executing"}, approvals.Executing},
		"Finish": {claimed, func(t *testing.T, s *scene) error {
			return err2(s.p.Finish(t.Context(), s.g, approvals.Outcome{State: approvals.Succeeded, Kept: kept}))
		}, []string{"requested", "vote", "approved", "executing", "succeeded"}, approvals.Succeeded},
		"Finish unknown": {claimed, func(t *testing.T, s *scene) error {
			return err2(s.p.Finish(t.Context(), s.g, approvals.Outcome{State: approvals.Unknown, Cause: approvals.CauseNoAnswer}))
		}, []string{"requested", "vote", "approved", "executing", "unknown"}, approvals.Unknown},
		"Finish after unknown": {unknown, func(t *testing.T, s *scene) error {
			return err2(s.p.Finish(t.Context(), s.g, approvals.Outcome{State: approvals.Failed, Kept: kept}))
		}, []string{"requested", "vote", "approved", "executing", "unknown", "failed"}, approvals.Failed},
		"End": {approved, func(t *testing.T, s *scene) error {
			return err2(s.p.End(t.Context(), s.id, approvals.Revoked, "", "ben", "wait"))
		}, []string{"requested", "vote", "approved", "revoked"}, approvals.Revoked},
		"Void": {approved, func(t *testing.T, s *scene) error { return err2(s.p.Void(t.Context(), s.id, "policy", noPolicy)) },
			[]string{"requested", "vote", "approved", "void"}, approvals.Void},
		"Generation": {noPrep, func(t *testing.T, s *scene) error { return err2(s.p.Generation(t.Context())) }, nil, ""},
		"Resolve": {unknown, func(t *testing.T, s *scene) error {
			return err2(s.p.Resolve(t.Context(), s.id, true, "ben", "it is there"))
		}, []string{"requested", "vote", "approved", "executing", "unknown", "succeeded"}, approvals.Succeeded},
		"Mark": {parked, func(t *testing.T, s *scene) error {
			return s.p.Mark(t.Context(), s.id, approvals.Mark{Channel: "slack:C1", Ref: &approvals.Ref{Channel: "slack:C1", ID: "x"}})
		}, []string{"requested"}, approvals.Pending},
		"Lease": {parked, func(t *testing.T, s *scene) error {
			ok, err := s.p.Lease(t.Context(), s.id, "me", time.Minute)
			if err == nil && !ok {
				return errors.New("the lease that was given is told as another's")
			}
			return err
		}, []string{"requested"}, approvals.Pending},
		"Unlease": {parked, func(t *testing.T, s *scene) error { return s.p.Unlease(t.Context(), s.id, "me") }, []string{"requested"}, approvals.Pending},
		"Sweep":   {parked, func(t *testing.T, s *scene) error { return err2(s.p.Sweep(t.Context(), 100)) }, []string{"requested"}, approvals.Pending},
		"Ticket":  {parked, func(t *testing.T, s *scene) error { return err2(s.p.Ticket(t.Context(), s.id)) }, []string{"requested"}, approvals.Pending},
		"Attempt": {parked, func(t *testing.T, s *scene) error { return err2(s.p.Attempt(t.Context(), s.id, "x")) }, []string{"requested"}, approvals.Pending},
		"Claims":  {claimed, func(t *testing.T, s *scene) error { return err2(s.p.Claims(t.Context(), "file-a")) }, []string{"requested", "vote", "approved", "executing"}, approvals.Executing},
		"List":    {parked, func(t *testing.T, s *scene) error { return err2(s.p.List(t.Context(), nil, 10)) }, []string{"requested"}, approvals.Pending},
		"Alive":   {parked, func(t *testing.T, s *scene) error { return s.p.Alive(t.Context()) }, []string{"requested"}, approvals.Pending},
		"IsAlive": {parked, func(t *testing.T, s *scene) error { return err2(s.p.NotifierAlive(t.Context())) }, []string{"requested"}, approvals.Pending},
		"NewLink": {parked, func(t *testing.T, s *scene) error { return err2(s.p.NewLink(t.Context(), s.id, "ben", time.Hour)) }, []string{"requested"}, approvals.Pending},
		"Head":    {noPrep, func(t *testing.T, s *scene) error { return s.p.Head(t.Context(), s.r.Nonce, "file 3 abc") }, []string{"head"}, ""},
		"Labels":  {noPrep, func(t *testing.T, s *scene) error { return err2(s.p.Labels(t.Context(), "ana@acme.test", s.id)) }, nil, ""},
		"AddLabels": {noPrep, func(t *testing.T, s *scene) error {
			got, err := s.p.AddLabels(t.Context(), "ana@acme.test", s.id, []string{"session:retrieved"})
			if err == nil && len(got) != 1 {
				return fmt.Errorf("the session carries %v", got)
			}
			return err
		}, nil, ""},
		"Load": {parked, func(t *testing.T, s *scene) error {
			return err2(s.p.Load(t.Context(), s.id, action.Actor{ID: "ana@acme.test"}))
		}, []string{"requested"}, approvals.Pending},
		"Pin": {noPrep, func(t *testing.T, s *scene) error {
			return s.p.Pin(t.Context(), s.id, nil, pinOf("cancel_order", "one", 1), pinOf("get_order", "one", 1))
		}, nil, ""},
		"Pin under a claim": {claimed, func(t *testing.T, s *scene) error {
			return s.p.Pin(t.Context(), s.id, &s.g, pinOf("cancel_order", "one", 1))
		}, []string{"requested", "vote", "approved", "executing"}, approvals.Executing},
		"Pins": {noPrep, func(t *testing.T, s *scene) error { return err2(s.p.Pins(t.Context(), s.id)) }, nil, ""},
		"TurnToAsk": {noPrep, func(t *testing.T, s *scene) error {
			mine := approvals.Turn{ID: "op-1", Change: action.Sum("change")}
			got, err := s.p.TurnToAsk(t.Context(), s.id, mine, time.Minute)
			if err == nil && (got.ID != mine.ID || got.Change != mine.Change) {
				return fmt.Errorf("the turn is %+v", got)
			}
			return err
		}, nil, ""},
		"RefusePins": {noPrep, func(t *testing.T, s *scene) error {
			return s.p.RefusePins(t.Context(), s.id, []action.Digest{action.Sum("change")}, "op-1", "ben")
		}, nil, ""},
		"Nudges and Done": {parked, func(t *testing.T, s *scene) error {
			ns, err := s.p.Nudges(t.Context(), "c", 10, 0)
			for _, n := range ns {
				err = errors.Join(err, s.p.Done(t.Context(), n))
			}
			return err
		}, []string{"requested"}, approvals.Pending},
	}
}

// heldBy is the grant of a claim as a recovery finds it.
func (p *place) heldBy(t *testing.T, id string) approvals.Grant {
	t.Helper()
	held, err := p.Claims(t.Context(), "file-a")
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(held, func(g approvals.Grant) bool { return g.ID == id })
	if i < 0 {
		t.Fatalf("the claim of %s is not listed", id)
	}
	return held[i]
}

// Every command of every method is lost in turn, unsent and carried out. The
// caller sees StoreUnavailable, does the same again, and the effect is there
// exactly once.
func TestLostReplies(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		lose := &loser{}
		p.rdb.AddHook(lose)
		p.stream.AddHook(lose)
		p.claimer.AddHook(lose)
		for name, o := range lostOps() {
			for _, sent := range []bool{false, true} {
				struck := true
				for n := 1; struck; n++ {
					if n > 40 {
						t.Fatalf("%s: no end of commands", name)
					}
					label := fmt.Sprintf("%s, command %d, carried out %v", name, n, sent)
					id := newID()
					r := request(`"`+id+`"`, func(r *approvals.Park) {
						r.Envelope.OperationID, r.Caps = id, approvals.Caps{Parked: 1e6, NewPerHour: 1e6, Total: 1e6}
					})
					s := &scene{p: p, r: r, id: id, v: vote(id, "ben", approvals.Approve)}
					o.before(t, s)
					lose.arm(n, sent)
					err := o.do(t, s)
					struck = lose.disarm()
					if err != nil && !struck {
						t.Fatalf("%s: %v", label, err)
					}
					if err != nil && !errors.Is(err, approvals.StoreUnavailable) {
						t.Fatalf("%s: the loss is told as %v", label, err)
					}
					if err := o.do(t, s); err != nil {
						t.Fatalf("%s: again: %v", label, err)
					}
					if o.state != "" {
						wantState(t, p.ticket(t, id), o.state)
					}
					if o.state == approvals.Executing { // so that Claims has one to read each time
						if _, err := p.Finish(t.Context(), p.heldBy(t, id), approvals.Outcome{State: approvals.NotRun}); err != nil {
							t.Fatal(err)
						}
						o.after = append(slices.Clip(o.after[:4]), "not_run")
					}
					mine := slices.DeleteFunc(p.events(t), func(e approvals.Event) bool { return e.ID != id && e.ID != "" })
					if d := cmp.Diff(o.after, kinds(mine)); d != "" {
						t.Fatalf("%s: the events: %s", label, d)
					}
				}
			}
		}
	})
}

// A nudge whose delivery got lost is given out by the next call.
func TestALostDeliveryComesAgain(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		lose := &loser{}
		if ns, err := p.Nudges(t.Context(), "c", 10, 0); err != nil || len(ns) != 0 {
			t.Fatalf("%v, %v", ns, err)
		}
		r := request(`1`)
		p.park(t, r)
		p.stream.AddHook(lose)
		lose.arm(1, true) // it takes what is new; what is pending was just read
		_, err := p.Nudges(t.Context(), "c", 10, 0)
		if !lose.disarm() || !errors.Is(err, approvals.StoreUnavailable) {
			t.Fatalf("the delivery was not lost: %v", err)
		}
		ns, err := p.Nudges(t.Context(), "c", 10, 0)
		if err != nil || len(ns) != 1 || ns[0].ID != r.Envelope.OperationID {
			t.Fatalf("got %v, %v", ns, err)
		}
		if again, err := p.Nudges(t.Context(), "c", 10, 0); err != nil || len(again) != 0 {
			t.Fatalf("what is in hand is given out again: %v, %v", again, err)
		}
		if err := p.Done(t.Context(), ns[0]); err != nil {
			t.Fatal(err)
		}
		if n := p.raw.XLen(t.Context(), p.k.outbox()).Val(); n != 0 {
			t.Fatalf("%d entries are left", n)
		}
	})
}

// What is pending for a consumer is not read for each delivery, and a loss that
// the client library hid from us is found by a later look.
func TestWhatIsPendingIsReadNowAndThen(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		reads := &pendingReads{}
		p.stream.AddHook(reads)
		take := func() []approvals.Nudge {
			t.Helper()
			ns, err := p.Nudges(t.Context(), "c", 1, 0)
			if err != nil {
				t.Fatal(err)
			}
			return ns
		}
		for i := range 20 {
			p.park(t, request(fmt.Sprint(i), loose))
			if len(take()) != 1 {
				t.Fatal("a nudge is missing")
			}
		}
		if n := reads.n.Load(); n > 5 { // one a second
			t.Errorf("read %d times for 20 deliveries", n)
		}
		r := request(`"lost"`, loose)
		p.park(t, r)
		hidden := p.raw.XReadGroup(t.Context(), &redis.XReadGroupArgs{
			Group: nudgeGroup, Consumer: "c", Streams: []string{p.k.outbox(), ">"}, Count: 1, Block: -1,
		})
		if err := hidden.Err(); err != nil {
			t.Fatal(err)
		}
		ns, err := p.Nudges(t.Context(), "c", 10, 20*time.Second)
		if err != nil || len(ns) != 1 || ns[0].ID != r.Envelope.OperationID {
			t.Fatalf("got %v, %v", ns, err)
		}
	})
}

// pendingReads counts the reads of what is pending.
type pendingReads struct{ n atomic.Int64 }

func (h *pendingReads) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *pendingReads) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); cmd.Name() == "xreadgroup" && args[len(args)-1] != ">" {
			h.n.Add(1)
		}
		return next(ctx, cmd)
	}
}

func (h *pendingReads) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
