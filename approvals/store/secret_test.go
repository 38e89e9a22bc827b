package store

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/keys"
)

// dump gives everything that Redis holds for the namespace, names included.
func (p *place) dump(t *testing.T) string {
	t.Helper()
	ctx := t.Context()
	var b strings.Builder
	names, err := p.raw.Keys(ctx, string(p.k)+"*").Result()
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	for _, k := range names {
		kind := p.raw.Type(ctx, k).Val()
		var v any
		switch kind {
		case "string":
			v = p.raw.Get(ctx, k).Val()
		case "hash":
			v = p.raw.HGetAll(ctx, k).Val()
		case "set":
			v = p.raw.SMembers(ctx, k).Val()
		case "zset":
			v = p.raw.ZRangeWithScores(ctx, k, 0, -1).Val()
		case "stream":
			v = p.raw.XRange(ctx, k, "-", "+").Val()
		default:
			t.Fatalf("%s is a %s", k, kind)
		}
		fmt.Fprintf(&b, "%s %v\n", k, v)
	}
	return b.String()
}

// Arguments, titles, views, comments, results and links are put through every
// place of the store; nothing of them may be readable in Redis.
func TestNothingReadableIsInRedis(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		ctx := t.Context()
		running(t, p.Store)
		hints := p.raw.Subscribe(ctx, p.k.wakeChannel())
		defer hints.Close()
		if _, err := hints.Receive(ctx); err != nil {
			t.Fatal(err)
		}
		const canary = "CANARY7c1f"
		r := request(`{"password":"`+canary+`args"}`, func(r *approvals.Park) {
			r.Title = canary + "title"
			r.View = approvals.View{Text: canary + "text", Summary: canary + "summary", Warnings: []string{canary + "warning"}}
			r.Rules = []string{canary + "rule"}
			r.Envelope.Call.Meta = json.RawMessage(`{"m":"` + canary + `meta"}`)
			r.Envelope.Call.IdemKey = canary + "idem"
			r.Envelope.Call.Session = canary + "session"
		})
		id := r.Envelope.OperationID
		p.park(t, r)
		token, err := p.NewLink(ctx, id, "ben", time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		v := vote(id, "ben", approvals.Approve, func(v *approvals.Vote) { v.Reason = canary + "comment" })
		p.decide(t, v)
		refused := vote(id, "eve", approvals.Deny, func(v *approvals.Vote) { v.Reason = canary + "refused" })
		_, err = p.Decide(ctx, refused)
		want(t, err, approvals.NotEligible)
		g := p.claim(t, r, "n")
		if _, err := p.Finish(ctx, g, approvals.Outcome{State: approvals.Succeeded, Kept: &approvals.Kept{Result: json.RawMessage(`"` + canary + `result"`)}}); err != nil {
			t.Fatal(err)
		}
		other := request(`"`+canary+`2"`, func(r *approvals.Park) { r.Title = canary })
		p.approved(t, other)
		if _, err := p.End(ctx, other.Envelope.OperationID, approvals.Revoked, "", "ben", canary+"why"); err != nil {
			t.Fatal(err)
		}
		all := p.dump(t)
		if !strings.Contains(all, id) || !strings.Contains(all, "cancel_order") {
			t.Fatal("the dump is not one")
		}
		digest, match := r.Envelope.Digest(), r.Envelope.Match()
		for what, secret := range map[string]string{
			"a value": canary, "a link's token": token,
			"the plain digest": digest.Hex(), "the plain match key": match.Hex(),
			"the plain digest in base64": base64.RawURLEncoding.EncodeToString(digest.Bytes()),
			"the plain digest's bytes":   string(digest.Bytes()),
			"a value in hex":             hex.EncodeToString([]byte(canary)),
			"a value in base64":          base64.StdEncoding.EncodeToString([]byte(canary))[:12],
		} {
			if strings.Contains(all, secret) {
				t.Errorf("%s is in Redis", what)
			}
		}
		for range 3 {
			m, err := hints.ReceiveMessage(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(m.Payload, canary) {
				t.Errorf("a hint says %q", m.Payload)
			}
		}
	})
}

// A key is rotated while calls wait: they are found, decided, claimed and
// collected under the new ring, and not at all without the old key.
func TestRotation(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		old, next := keys.NewSecret(), keys.NewSecret()
		ring := func(current keys.Secret, previous ...keys.Secret) func(*Options) {
			r, err := keys.NewRing(current, previous...)
			if err != nil {
				t.Fatal(err)
			}
			return func(o *Options) { o.Ring = r }
		}
		before := &place{Store: p.another(t, ring(old)), raw: p.raw}
		after := &place{Store: p.another(t, ring(next, old)), raw: p.raw}
		later := p.another(t, ring(next))
		r := request(`{"a":1}`)
		tk := before.park(t, r)
		token, err := before.NewLink(t.Context(), tk.ID, "ben", time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		got, fresh, err := after.Park(t.Context(), request(`{"a":1}`))
		if err != nil || fresh || got.ID != tk.ID {
			t.Fatalf("the twin under the old key: fresh %v, %v", fresh, err)
		}
		if id, person, err := after.Link(t.Context(), token); err != nil || id != tk.ID || person != "ben" {
			t.Fatalf("the link: %v", err)
		}
		after.decide(t, vote(tk.ID, "ben", approvals.Approve))
		if err := before.Recount(before.load(t, tk.ID)); err == nil {
			t.Error("a vote under an unknown key counts")
		}
		if _, err := later.Ticket(t.Context(), tk.ID); err == nil {
			t.Error("read without its key")
		}
		if err := after.Recount(after.load(t, tk.ID)); err != nil {
			t.Fatal(err)
		}
		after.claim(t, r, "n")
	})
}

func TestLinks(t *testing.T) {
	p := onMini(t)
	start := time.UnixMilli(time.Now().UnixMilli())
	p.at(start)
	ctx := t.Context()
	token, err := p.NewLink(ctx, "op", "ben", time.Minute)
	if err != nil || len(token) != 43 {
		t.Fatalf("%q, %v", token, err)
	}
	if id, person, err := p.Link(ctx, token); err != nil || id != "op" || person != "ben" {
		t.Fatalf("%s %s %v", id, person, err)
	}
	for _, bad := range []string{"", "x", token + "A", token[:42], strings.Repeat("A", 43), token[:42] + "="} {
		_, _, err := p.Link(ctx, bad)
		want(t, err, approvals.NotFound)
	}
	// An entry that another hand wrote, or moved, is nobody's.
	other, err := p.NewLink(ctx, "op2", "cleo", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	key := func(token string) string { return p.k.link(p.opt.Ring.MAC(keys.LinkHash, []byte(token))) }
	stolen := p.raw.Get(ctx, key(other)).Val()
	mine := p.raw.Get(ctx, key(token)).Val()
	for _, v := range []string{stolen, "op ben", ""} {
		p.raw.Set(ctx, key(token), v, 0)
		_, _, err := p.Link(ctx, token)
		want(t, err, approvals.Forged)
	}
	p.raw.Set(ctx, key(token), mine, 0) // without its time to live
	p.at(start.Add(time.Minute - time.Millisecond))
	if _, _, err := p.Link(ctx, token); err != nil {
		t.Fatal(err)
	}
	p.at(start.Add(time.Minute))
	_, _, err = p.Link(ctx, token)
	want(t, err, approvals.NotFound)
}
