package e2e

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countersign-mcp/countersign/cmd/countersign/internal/e2e/testservers"
)

// forger is somebody who can write into Redis and has no key of ours.
type forger struct {
	*rig
	ctx context.Context
	db  *redis.Client
	c   *testservers.HTTP
	g   *gate
}

// newForger starts a gate that answers before anybody clicks, so that records
// lie in Redis with nobody waiting.
func newForger(t *testing.T, o rigOptions) *forger {
	o.Hold = time.Second
	r := newRig(t, o)
	g := r.start("a", "")
	return &forger{rig: r, ctx: within(t, 120*time.Second), db: r.redis.Client(), g: g, c: g.client(testservers.Legacy)}
}

func (f *forger) key(kind, id string) string { return "{" + f.namespace + "}:" + kind + ":" + id }

// park leaves a pending record behind.
func (f *forger) park(n int) string {
	f.t.Helper()
	res := await(f.t, call(f.c, testservers.Do{N: n}, testservers.Extra{}))
	if res.Approval().Status != "pending" {
		f.t.Fatalf("not parked: %s %s", res.Result, res.Error)
	}
	return res.Approval().ID
}

// agreed leaves an approved record behind that nobody has collected.
func (f *forger) agreed(n int) string {
	f.t.Helper()
	id := f.park(n)
	f.vote(id, "approve", "--yes")
	if st := f.get("a", id, "st"); st != "approved" {
		f.t.Fatalf("%s is %s", id, st)
	}
	return id
}

func (f *forger) vote(id string, verdict ...string) {
	f.t.Helper()
	if out, code := f.g.operate(append(verdict, id)...); code != 0 {
		f.t.Fatalf("%v: exit %d: %s", verdict, code, out)
	}
}

func (f *forger) get(kind, id, field string) string {
	f.t.Helper()
	v, err := f.db.HGet(f.ctx, f.key(kind, id), field).Result()
	if err != nil {
		f.t.Fatalf("reading %s of %s: %v", field, id, err)
	}
	return v
}

func (f *forger) set(id string, pairs ...any) {
	f.t.Helper()
	if err := f.db.HSet(f.ctx, f.key("a", id), pairs...).Err(); err != nil {
		f.t.Fatal(err)
	}
}

// flip changes one byte in the middle of a field.
func (f *forger) flip(id, field string) {
	f.t.Helper()
	b := []byte(f.get("a", id, field))
	b[len(b)/2] ^= 1
	f.set(id, field, string(b))
}

// approve writes what an approved record has, as the scripts would, with votes or
// without.
func (f *forger) approve(id string, votes map[string]string) {
	f.t.Helper()
	until := strconv.FormatInt(time.Now().Add(time.Hour).UnixMilli(), 10)
	f.set(id, "st", "approved", "cb", until, "vc", until, "dat", strconv.FormatInt(time.Now().UnixMilli(), 10))
	for field, v := range votes {
		f.set(id, field, v)
	}
	f.db.ZAdd(f.ctx, "{"+f.namespace+"}:due", redis.Z{Score: float64(time.Now().Add(time.Hour).UnixMilli()), Member: id})
}

func (f *forger) votesOf(id string) map[string]string {
	f.t.Helper()
	all, err := f.db.HGetAll(f.ctx, f.key("a", id)).Result()
	if err != nil {
		f.t.Fatal(err)
	}
	votes := map[string]string{}
	for field, v := range all {
		if strings.HasPrefix(field, "v:") {
			votes[field] = v
		}
	}
	return votes
}

func (f *forger) collect(id string) testservers.Reply {
	f.t.Helper()
	res, err := f.c.Call(f.ctx, "countersign_collect", json.RawMessage(`{"approval_id":`+quoted(id)+`}`), testservers.Extra{})
	if err != nil {
		f.t.Fatal(err)
	}
	return res
}

// untouched comes for a call in every way there is, and fails if it ran or
// looked like a success.
func (f *forger) untouched(n int, id string) {
	f.t.Helper()
	for range 2 {
		if res := f.collect(id); !res.IsError() && res.Error == nil {
			f.t.Errorf("collecting gave: %s", res.Result)
		}
	}
	if res := await(f.t, call(f.c, testservers.Do{N: n}, testservers.Extra{})); !res.IsError() && res.Error == nil {
		f.t.Errorf("calling again gave: %s", res.Result)
	}
	if got := f.ran(n); got != 0 {
		f.t.Errorf("it ran %d times", got)
	}
}

// blamed fails unless the ledger says of an approval that it was forged.
func (f *forger) blamed(id string) {
	f.t.Helper()
	for _, rec := range f.records() {
		if rec["operation_id"] == id && rec["event"] == "vote_refused" && rec["reason"] == "forged" {
			return
		}
	}
	f.t.Errorf("the ledger does not say that %s was forged", id)
}

// dump is every key of one approval, to be put back later.
func (f *forger) dump(id string) map[string]string {
	f.t.Helper()
	out := map[string]string{}
	for _, kind := range []string{"a", "v", "p", "r"} {
		if b, err := f.db.Dump(f.ctx, f.key(kind, id)).Result(); err == nil {
			out[f.key(kind, id)] = b
		}
	}
	return out
}

func (f *forger) restore(kept map[string]string) {
	f.t.Helper()
	for key, b := range kept {
		if err := f.db.RestoreReplace(f.ctx, key, 0, b).Err(); err != nil {
			f.t.Fatal(err)
		}
	}
}

type forgery struct {
	name   string
	agreed bool // a person agreed before
	blame  bool // the ledger must say forged
	forge  func(f *forger, n int, id string)
	status string // that a collect must give; "" is any that is no success
}

// Who can write to Redis can break an approval and can't make one: whatever is
// done to a record, its call does not run.
func TestForgedRecord(t *testing.T) {
	t.Parallel()
	cases := []forgery{
		{"approved without votes", false, true, func(f *forger, _ int, id string) { f.approve(id, nil) }, "void"},
		{"another record's votes", false, true, func(f *forger, n int, id string) {
			f.approve(id, f.votesOf(f.agreed(n+1000)))
		}, "void"},
		{"a vote made up", false, true, func(f *forger, n int, id string) {
			votes := f.votesOf(f.agreed(n + 1000))
			for field, v := range votes {
				votes[field] = strings.Replace(v, `"person":"olga"`, `"person":"oskar"`, 1)
			}
			f.approve(id, votes)
		}, "void"},
		{"a no turned into a yes", false, true, func(f *forger, _ int, id string) {
			f.vote(id, "deny")
			votes := f.votesOf(id)
			for field, v := range votes {
				votes[field] = strings.Replace(v, `"verdict":0`, `"verdict":1`, 1)
				if votes[field] == v {
					f.t.Fatalf("no verdict in %s", v)
				}
			}
			f.approve(id, votes)
		}, "void"},
		{"a no forgotten", false, true, func(f *forger, _ int, id string) {
			f.vote(id, "deny")
			f.approve(id, nil)
		}, "void"},
		{"requirements bent", true, true, func(f *forger, _ int, id string) { f.flip(id, "f") }, ""},
		{"digest bent", true, true, func(f *forger, _ int, id string) { f.flip(id, "b") }, ""},
		{"call bent", true, true, func(f *forger, _ int, id string) {
			b, _ := f.db.Get(f.ctx, f.key("p", id)).Bytes()
			b[len(b)/2] ^= 1
			f.db.Set(f.ctx, f.key("p", id), b, 0)
		}, ""},
		{"view bent", true, true, func(f *forger, _ int, id string) {
			b, _ := f.db.Get(f.ctx, f.key("v", id)).Bytes()
			b[len(b)/2] ^= 1
			f.db.Set(f.ctx, f.key("v", id), b, 0)
		}, ""},
		{"claim deadline moved", true, true, func(f *forger, _ int, id string) {
			f.set(id, "cb", strconv.FormatInt(time.Now().Add(100*time.Hour).UnixMilli(), 10))
		}, "void"},
		{"vote's deadline moved", true, true, func(f *forger, _ int, id string) {
			later := time.Now().Add(100 * time.Hour).Truncate(time.Millisecond)
			for field, v := range f.votesOf(id) {
				var cast map[string]any
				if err := json.Unmarshal([]byte(v), &cast); err != nil {
					f.t.Fatal(err)
				}
				cast["claim_by"] = later.UTC().Format(time.RFC3339Nano)
				f.set(id, field, quoted(cast))
			}
			f.set(id, "cb", strconv.FormatInt(later.UnixMilli(), 10))
		}, "void"},
		{"call of another record", true, true, func(f *forger, n int, id string) {
			other := f.agreed(n + 1000)
			b, _ := f.db.Get(f.ctx, f.key("p", other)).Result()
			f.db.Set(f.ctx, f.key("p", id), b, 0)
		}, ""},
		{"two records swapped", true, true, func(f *forger, n int, id string) {
			other := f.agreed(n + 1000)
			mine, theirs := f.dump(id), f.dump(other)
			swapped := map[string]string{}
			for _, kind := range []string{"a", "v", "p"} {
				swapped[f.key(kind, id)] = theirs[f.key(kind, other)]
				swapped[f.key(kind, other)] = mine[f.key(kind, id)]
			}
			f.restore(swapped)
			f.untouched(n+1000, other)
		}, ""},
		{"record deleted", true, false, func(f *forger, _ int, id string) { f.db.Del(f.ctx, f.key("a", id)) }, ""},
		{"call deleted", true, true, func(f *forger, _ int, id string) { f.db.Del(f.ctx, f.key("p", id)) }, ""},
		{"no state", true, true, func(f *forger, _ int, id string) { f.set(id, "st", "allowed") }, ""},
	}
	f := newForger(t, rigOptions{})
	together(t, cases, func(tc forgery) string { return tc.name }, func(t *testing.T, i int, tc forgery) {
		f := &forger{rig: f.rig.on(t), ctx: f.ctx, db: f.db, c: f.c, g: f.g}
		n, id := 1+i, ""
		if tc.agreed {
			id = f.agreed(n)
		} else {
			id = f.park(n)
		}
		tc.forge(f, n, id)
		if tc.status != "" {
			if res := f.collect(id); res.Approval().Status != tc.status {
				t.Errorf("collecting gave %s %s", res.Result, res.Error)
			}
		}
		f.untouched(n, id)
		if tc.blame {
			f.blamed(id)
		}
	})
	f.verify()
}

// A used approval that is put back as it was before it ran is refused by the
// process whose ledger knows the start.
func TestRestoredRecordIsUsed(t *testing.T) {
	t.Parallel()
	f := newForger(t, rigOptions{})
	id := f.agreed(1)
	before := f.dump(id)
	if res := f.collect(id); res.IsError() || res.Result == nil {
		t.Fatalf("collecting gave %s %s", res.Result, res.Error)
	}
	for range 3 {
		f.restore(before)
		if res := f.collect(id); !res.IsError() || res.Approval().Status != "void" {
			t.Errorf("collecting the restored one gave %s %s", res.Result, res.Error)
		}
		f.restore(before)
		if res := await(t, call(f.c, testservers.Do{N: 1}, testservers.Extra{})); !res.IsError() {
			t.Errorf("calling again gave %s", res.Result)
		}
	}
	if n := f.ran(1); n != 1 {
		t.Errorf("it ran %d times", n)
	}
	f.verify()
}

// Time in Redis can't be stretched by writing numbers: the deadline that counts
// is the sealed one, the claim's is in the votes.
func TestStretchedTime(t *testing.T) {
	t.Parallel()
	f := newForger(t, rigOptions{Timeout: 4 * time.Second, ClaimTTL: 2 * time.Second})
	later := time.Now().Add(time.Hour).UnixMilli()
	stretch := func(id string, fields ...string) {
		for _, field := range fields {
			f.set(id, field, strconv.FormatInt(later, 10))
		}
		f.db.ZAdd(f.ctx, "{"+f.namespace+"}:due", redis.Z{Score: float64(later), Member: id})
		for _, kind := range []string{"a", "v", "p"} {
			f.db.Persist(f.ctx, f.key(kind, id))
		}
	}
	late := f.park(1)
	ts := f.cardOf(1).TS
	stretch(late, "dl")
	lapsing := f.agreed(2)
	stretch(lapsing, "cb", "vc")
	f.passed(4000 * time.Millisecond)
	f.whispered(f.click(olgaSlack, ts, "approve"), "expired")
	f.untouched(1, late)
	f.untouched(2, lapsing)
	f.verify()
}

// passed waits for Redis's own clock.
func (f *forger) passed(d time.Duration) {
	f.t.Helper()
	start, err := f.db.Time(f.ctx).Result()
	if err != nil {
		f.t.Fatal(err)
	}
	for now := start; now.Sub(start) < d; {
		time.Sleep(20 * time.Millisecond) // a clock can only be read again
		if now, err = f.db.Time(f.ctx).Result(); err != nil {
			f.t.Fatal(err)
		}
	}
}

// An index entry leads nobody to another call, and a kept result of one call is
// never another's answer.
func TestMisledLookups(t *testing.T) {
	t.Parallel()
	f := newForger(t, rigOptions{})
	pending := f.park(1)
	other := f.agreed(2)
	if err := f.db.Set(f.ctx, f.get("a", pending, "ix"), other, 0).Err(); err != nil {
		t.Fatal(err)
	}
	if res := await(t, call(f.c, testservers.Do{N: 1}, testservers.Extra{})); !res.IsError() && res.Error == nil {
		t.Errorf("the misled call got %s", res.Result)
	}
	if f.ran(1) != 0 || f.ran(2) != 0 {
		t.Errorf("ran: %v", f.upstream.Executions())
	}

	three, four := f.agreed(3), f.agreed(4)
	f.collect(three)
	f.collect(four)
	b, err := f.db.Get(f.ctx, f.key("r", four)).Bytes()
	if err != nil {
		t.Fatal(err)
	}
	f.db.Set(f.ctx, f.key("r", three), b, 0)
	if res := f.collect(three); strings.Contains(string(res.Result), "n=4") {
		t.Errorf("collecting 3 gave the result of 4: %s", res.Result)
	}
	if f.ran(3) != 1 || f.ran(4) != 1 {
		t.Errorf("ran: %v", f.upstream.Executions())
	}
	// A copy of the actor's name beside the record is no right to collect it.
	five := f.agreed(5)
	f.set(five, "ac", "bot@acme.test")
	res, err := f.g.client(testservers.Legacy, botToken).Call(f.ctx, "countersign_collect", json.RawMessage(`{"approval_id":`+quoted(five)+`}`), testservers.Extra{})
	if err != nil || res.Reason() != "unknown_approval" || f.ran(5) != 0 {
		t.Errorf("%v: the other actor got %s %s", err, res.Result, res.Error)
	}
	f.verify()
}
