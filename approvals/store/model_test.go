package store

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/action"
)

// thing is what the model knows of an approval.
type thing struct {
	req     approvals.Park
	state   approvals.State
	trail   []approvals.State
	dl      time.Time
	claimBy time.Time
	lease   time.Time
	keep    time.Time
	yes     map[string]bool
	nonce   string
	claims  int
	byHand  bool // resolved by a person
}

func (x *thing) to(s approvals.State) {
	if s != x.state {
		x.trail = append(x.trail, s)
	}
	x.state = s
}

// model is the store as one would describe it, and the store beside it.
type model struct {
	p      *place
	lose   *loser
	now    time.Time
	things map[string]*thing
	twins  map[string]string
	newest action.Digest // the policy that was published last
	known  bool          // one was
}

const quorum = 2

var modelPolicies = []action.Digest{action.Sum("policy", []byte("a")), action.Sum("policy", []byte("b"))}

// policy draws the one that a caller judged by, and tells whether it is not the
// newest.
func (m *model) policy(t *rapid.T) (d action.Digest, behind bool) {
	d = rapid.SampledFrom(modelPolicies).Draw(t, "policy")
	return d, m.known && d != m.newest
}

func (m *model) publish(t *rapid.T) {
	d, _ := m.policy(t)
	nonce := newID()
	err := m.do(t, func() error {
		now, _, err := m.p.Publish(t.Context(), d, nonce)
		if err == nil && now.Policy != d.Hex() {
			t.Fatalf("published %s, and %s is the newest", d.Hex(), now.Policy)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	m.newest, m.known = d, true
}

// forget plays a server that lost the generation: nobody is the newest then.
func (m *model) forget(t *rapid.T) {
	m.p.raw.Del(t.Context(), m.p.k.generation())
	m.newest = action.Digest{}
}

func (m *model) clock(t time.Time) {
	m.now = t
	m.p.at(t)
}

// expire does to the model what the clock has decided, for one record.
func (m *model) expire(x *thing) {
	switch {
	case x.state == approvals.Pending && !m.now.Before(x.dl):
		x.to(approvals.Expired)
		x.keep = m.now.Add(5 * time.Minute)
	case x.state == approvals.Approved && !m.now.Before(x.claimBy):
		x.to(approvals.Lapsed)
	case x.state == approvals.Executing && !m.now.Before(x.lease):
		x.to(approvals.Unknown)
	}
}

// do runs a store call, sometimes twice and sometimes with a lost reply, until
// it has an answer. The answer to the first and to the last must be the same.
func (m *model) do(t *rapid.T, call func() error) error {
	if n := rapid.IntRange(-8, 4).Draw(t, "lose the reply of command"); n > 0 {
		m.lose.arm(n, rapid.Bool().Draw(t, "carried out"))
	}
	var err error
	for range 3 {
		if err = call(); !errors.Is(err, approvals.StoreUnavailable) {
			break
		}
	}
	m.lose.disarm()
	if rapid.IntRange(0, 3).Draw(t, "double") == 0 {
		if again := call(); (again == nil) != (err == nil) {
			t.Fatalf("the first answer was %v, the second is %v", err, again)
		}
	}
	return err
}

func (m *model) any(t *rapid.T) (string, *thing) {
	if len(m.things) == 0 {
		t.Skip("nothing is parked")
	}
	id := rapid.SampledFrom(slices.Sorted(maps.Keys(m.things))).Draw(t, "id")
	return id, m.things[id]
}

func (m *model) park(t *rapid.T) {
	args := rapid.SampledFrom([]string{"1", "2", "3"}).Draw(t, "args")
	r := request(args, func(r *approvals.Park) {
		r.Requirements[0].Quorum = quorum
		if args != "1" {
			r.Run = "on_approve"
		}
		r.Caps = approvals.Caps{Parked: 1e6, NewPerHour: 1e6, Total: 1e6}
	})
	var behind bool
	r.Envelope.Policy, behind = m.policy(t)
	wantFresh := true
	if x := m.things[m.twins[args]]; x != nil {
		m.expire(x)
		switch x.state {
		case approvals.Pending, approvals.Approved, approvals.Executing, approvals.Unknown:
			wantFresh = false
		default:
			wantFresh = !m.now.Before(x.keep)
		}
	}
	var got approvals.Ticket
	var fresh bool
	err := m.do(t, func() (err error) {
		got, fresh, err = m.p.Park(t.Context(), r)
		return err
	})
	if behind && wantFresh {
		if !errors.Is(err, approvals.Behind) {
			t.Fatalf("park %s by an older policy: fresh %v, %v", args, fresh, err)
		}
		return
	}
	if err != nil || fresh != wantFresh {
		t.Fatalf("park %s: fresh %v, want %v, %v", args, fresh, wantFresh, err)
	}
	if !fresh {
		if got.ID != m.twins[args] {
			t.Fatalf("park %s: attached to %s, want %s", args, got.ID, m.twins[args])
		}
		return
	}
	m.twins[args] = got.ID
	m.things[got.ID] = &thing{
		req: r, state: approvals.Pending, trail: []approvals.State{approvals.Pending},
		dl: m.now.Add(15 * time.Minute), yes: map[string]bool{},
	}
}

func (m *model) decide(t *rapid.T) {
	id, x := m.any(t)
	person := rapid.SampledFrom([]string{"ben", "cleo", "ana", "eve"}).Draw(t, "person")
	verdict := rapid.SampledFrom([]approvals.Verdict{approvals.Approve, approvals.Approve, approvals.Approve, approvals.Deny}).Draw(t, "verdict")
	v := vote(id, person, verdict)
	var want approvals.Conflict
	switch late := x.state != approvals.Pending; {
	case person == "eve":
		want = approvals.NotEligible
	case person == "ana" && verdict == approvals.Approve:
		want = approvals.SelfApproval
	case late:
		want = tooLate(x.state)
	case !m.now.Before(x.dl):
		m.expire(x)
		want = approvals.IsExpired
	case verdict == approvals.Deny:
		x.to(approvals.Denied)
		x.keep = m.now.Add(time.Hour)
	case x.yes[person]:
		want = approvals.AlreadyVoted
	default:
		x.yes[person] = true
		if by := m.now.Add(time.Hour); by.After(x.claimBy) {
			x.claimBy = by
		}
		if len(x.yes) == quorum {
			x.to(approvals.Approved)
		}
	}
	err := m.do(t, func() error { _, err := m.p.Decide(t.Context(), v); return err })
	if got, _ := approvals.AsConflict(err); got != want {
		t.Fatalf("decide: %v, want %q", err, want)
	}
}

func (m *model) claim(t *rapid.T) {
	id, x := m.any(t)
	nonce := rapid.SampledFrom([]string{"n1", "n2"}).Draw(t, "nonce")
	tk, err := m.p.Ticket(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	policy, behind := m.policy(t)
	var want approvals.Conflict
	switch {
	case x.state == approvals.Executing && nonce == x.nonce:
		x.lease = m.now.Add(30 * time.Second)
	case x.state != approvals.Approved:
		want = notClaimable(x.state)
	case !m.now.Before(x.claimBy):
		m.expire(x)
		want = approvals.IsLapsed
	case behind:
		want = approvals.Behind
	default:
		x.to(approvals.Executing)
		x.nonce, x.lease, x.claims = nonce, m.now.Add(30*time.Second), x.claims+1
	}
	err = m.do(t, func() error {
		_, err := m.p.Claim(t.Context(), id, tk.Rev, x.req.Envelope.Digest(), nonce, policy)
		return err
	})
	if got, _ := approvals.AsConflict(err); got != want {
		t.Fatalf("claim: %v, want %q", err, want)
	}
}

func (m *model) finish(t *rapid.T) {
	id, x := m.any(t)
	nonce := rapid.SampledFrom([]string{"n1", "n2"}).Draw(t, "nonce")
	to := rapid.SampledFrom([]approvals.State{approvals.Succeeded, approvals.Failed, approvals.NotRun, approvals.Unknown}).Draw(t, "outcome")
	ok := false
	switch {
	case x.nonce != nonce: // not its claim, or none
	case x.state == to && (to == approvals.Unknown || !x.byHand):
		ok = true
	case x.state == approvals.Executing || x.state == approvals.Unknown:
		ok = true
		x.to(to)
		if to == approvals.Succeeded || to == approvals.Failed {
			x.keep = m.now.Add(time.Hour)
		}
	}
	err := m.do(t, func() error {
		_, err := m.p.Finish(t.Context(), approvals.Grant{ID: id, Nonce: nonce}, approvals.Outcome{State: to})
		return err
	})
	if (err == nil) != ok {
		t.Fatalf("finish as %s in %s: %v", to, x.state, err)
	}
}

func (m *model) end(t *rapid.T) {
	id, x := m.any(t)
	to := rapid.SampledFrom([]approvals.State{approvals.Withdrawn, approvals.Void, approvals.Revoked}).Draw(t, "end")
	open := x.state == approvals.Approved || x.state == approvals.Pending && to != approvals.Revoked
	if open {
		m.expire(x)
	}
	policy, behind := m.policy(t)
	behind = behind && to == approvals.Void
	ok := x.state == to || open && !behind && (x.state == approvals.Approved || x.state == approvals.Pending)
	if ok {
		x.to(to)
	}
	err := m.do(t, func() error {
		if to == approvals.Void {
			_, err := m.p.Void(t.Context(), id, "", policy)
			return err
		}
		_, err := m.p.End(t.Context(), id, to, "", "x", "")
		return err
	})
	if (err == nil) != ok {
		t.Fatalf("end as %s: %v; the model has %s", to, err, x.state)
	}
}

func (m *model) resolve(t *rapid.T) {
	id, x := m.any(t)
	ran := rapid.Bool().Draw(t, "ran")
	to := approvals.NotRun
	if ran {
		to = approvals.Succeeded
	}
	ok := x.state == approvals.Unknown || x.byHand && x.state == to
	if x.state == approvals.Unknown {
		x.to(to)
		x.byHand = true
		if ran {
			x.keep = m.now.Add(time.Hour)
		}
	}
	err := m.do(t, func() error { _, err := m.p.Resolve(t.Context(), id, ran, "ben", ""); return err })
	if (err == nil) != ok {
		t.Fatalf("resolve: %v in %s", err, x.state)
	}
}

func (m *model) sweep(t *rapid.T) {
	for _, x := range m.things {
		m.expire(x)
	}
	if err := m.do(t, func() error { _, err := m.p.Sweep(t.Context(), 1000); return err }); err != nil {
		t.Fatal(err)
	}
}

func (m *model) pass(t *rapid.T) {
	steps := []time.Duration{time.Millisecond, 29 * time.Second, 31 * time.Second, 6 * time.Minute, 16 * time.Minute, time.Hour, -time.Millisecond, -10 * time.Minute}
	m.clock(m.now.Add(rapid.SampledFrom(steps).Draw(t, "time passes")))
}

// check compares everything.
func (m *model) check(t *rapid.T) {
	ctx := t.Context()
	pending, toRun := map[string]bool{}, map[string]bool{}
	for id, x := range m.things {
		tk, err := m.p.Ticket(ctx, id)
		if err != nil || tk.State != x.state {
			t.Fatalf("%s is %s, the model has %s, %v", id, tk.State, x.state, err)
		}
		if x.claims > 1 {
			t.Fatalf("%s was claimed %d times", id, x.claims)
		}
		_, err = m.p.raw.ZScore(ctx, m.p.k.due(), id).Result()
		if timed := !errors.Is(err, redis.Nil); timed != (x.state != approvals.Unknown) {
			t.Fatalf("%s (%s) has a timer: %v", id, x.state, timed)
		}
		if x.state == approvals.Pending {
			pending[id] = true
		}
		if x.state == approvals.Approved {
			if x.req.Run == "on_approve" {
				toRun[id] = true
			}
			if err := m.p.recount(tk); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, c := range map[string]struct {
		ids  []string
		want map[string]bool
	}{
		"pend":  {m.p.raw.ZRange(ctx, m.p.k.pending(), 0, -1).Val(), pending},
		"ap":    {m.p.raw.SMembers(ctx, m.p.k.parkedBy("ana@acme.test")).Val(), pending},
		"torun": {m.p.raw.ZRange(ctx, m.p.k.toRun(), 0, -1).Val(), toRun},
	} {
		if len(c.ids) != len(c.want) || slices.ContainsFunc(c.ids, func(id string) bool { return !c.want[id] }) {
			t.Fatalf("%s has %v, the model %v", name, c.ids, c.want)
		}
	}
}

// trails checks the event stream: numbers without gaps, and each approval's
// states in the model's order, each a step that the state machine has.
func (m *model) trails(t *rapid.T) {
	msgs, err := m.p.raw.XRange(t.Context(), m.p.k.events(), "-", "+").Result()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]approvals.State{}
	for i, msg := range msgs {
		e := event(msg)
		if e.Seq != uint64(i+1) {
			t.Fatalf("event %d has the number %d", i+1, e.Seq)
		}
		if e.Kind == "requested" || e.Kind == "state" {
			got[e.ID] = append(got[e.ID], e.State)
		}
	}
	for id, x := range m.things {
		if !slices.Equal(got[id], x.trail) {
			t.Fatalf("%s went %v, the model %v", id, got[id], x.trail)
		}
		for i := 1; i < len(x.trail); i++ {
			if !x.trail[i-1].May(x.trail[i]) {
				t.Fatalf("%s went from %s to %s", id, x.trail[i-1], x.trail[i])
			}
		}
	}
}

// The store behaves like the model under any order of calls, with calls doubled,
// replies lost, scripts forgotten and the clock set back.
func TestModel(t *testing.T) {
	mini := miniredis.RunT(t)
	o := options("redis://"+mini.Addr(), true)
	raw := redis.NewClient(&redis.Options{Addr: mini.Addr(), Protocol: 2})
	t.Cleanup(func() { raw.Close() })
	rapid.Check(t, func(rt *rapid.T) {
		mini.FlushAll()
		s, err := Open(rt.Context(), o)
		if err != nil {
			rt.Fatal(err)
		}
		defer s.Close()
		m := &model{
			p: &place{Store: s, raw: raw, mini: mini, opt: o}, lose: &loser{},
			things: map[string]*thing{}, twins: map[string]string{},
		}
		s.rdb.AddHook(m.lose)
		m.clock(time.UnixMilli(1_900_000_000_000))
		rt.Repeat(map[string]func(*rapid.T){
			"park": m.park, "park2": m.park, "decide": m.decide, "decide2": m.decide, "decide3": m.decide, "claim": m.claim,
			"claim2": m.claim, "finish": m.finish, "end": m.end, "resolve": m.resolve, "sweep": m.sweep, "pass": m.pass,
			"publish": m.publish, "forget": m.forget,
			"flush": func(rt *rapid.T) { raw.ScriptFlush(rt.Context()) },
			"":      m.check,
		})
		m.trails(rt)
	})
}

// The states that the model test walks through are all the states there are.
func TestEveryStateHasAConflict(t *testing.T) {
	for _, s := range approvals.States() {
		if s == approvals.Pending {
			continue
		}
		if c := tooLate(s); c == "" {
			t.Errorf("no conflict for a late vote in %s", s)
		}
		if c := notClaimable(s); c == "" || (s != approvals.Approved && strings.Contains(fmt.Sprint(c), "moved")) {
			t.Errorf("a claim in %s is refused as %q", s, c)
		}
	}
}
