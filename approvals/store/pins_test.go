package store

import (
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/approvals/keys"
)

// pinOf is a pin of a tool whose definition is told apart by word.
func pinOf(tool, word string, rev uint64) approvals.Pin {
	def := json.RawMessage(`{"description":"<` + word + `>","name":"` + tool + `"}`)
	return approvals.Pin{
		Tool: tool, Definition: def, Digest: action.Sum("test", def), Identity: action.Sum("server"),
		Rev: rev, At: time.UnixMilli(1_700_000_000_000).UTC(),
	}
}

func (p *place) pinned(t testing.TB, server string) approvals.Pins {
	t.Helper()
	got, err := p.Pins(t.Context(), server)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestPinsAreKeptAsTheyWere(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		if got := p.pinned(t, "desk"); len(got.Tools)+len(got.Forged)+len(got.Refused) != 0 {
			t.Fatalf("pins of nothing: %+v", got)
		}
		one := pinOf("cancel_order", "one", 1)
		one.Over, one.Approval, one.By = action.Sum("file"), "op-7", "ben"
		if err := p.Pin(t.Context(), "desk", nil, one, pinOf("get_order", "one", 1)); err != nil {
			t.Fatal(err)
		}
		got := p.pinned(t, "desk")
		back := got.Tools["cancel_order"]
		var def struct{ Name, Description string }
		if err := json.Unmarshal(back.Definition, &def); err != nil || def.Description != "<one>" {
			t.Errorf("the definition came back as %s", back.Definition)
		}
		back.Definition = one.Definition
		if d := cmp.Diff(one, back, cmp.Comparer(func(a, b action.Digest) bool { return a == b })); d != "" {
			t.Error(d)
		}
		if len(got.Tools) != 2 || len(p.pinned(t, "other").Tools) != 0 {
			t.Errorf("%d pins, and another server has some", len(got.Tools))
		}
	})
}

// A pin goes over an older one alone, and all of a set or none.
func TestAPinGoesOnlyOverAnOlderOne(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		pin := func(ps ...approvals.Pin) error { return p.Pin(t.Context(), "desk", nil, ps...) }
		steps := []struct {
			name string
			pins []approvals.Pin
			want error
		}{
			{"where there is none", []approvals.Pin{pinOf("a", "one", 1)}, nil},
			{"the same again", []approvals.Pin{pinOf("a", "one", 1)}, nil},
			{"another of the same age", []approvals.Pin{pinOf("a", "two", 1)}, approvals.Moved},
			{"another beside one that may not", []approvals.Pin{pinOf("b", "one", 1), pinOf("a", "two", 1)}, approvals.Moved},
			{"a newer one", []approvals.Pin{pinOf("a", "two", 2)}, nil},
			{"the older one again", []approvals.Pin{pinOf("a", "one", 1)}, approvals.Moved},
		}
		for _, s := range steps {
			if err := pin(s.pins...); !errors.Is(err, s.want) {
				t.Fatalf("%s: %v", s.name, err)
			}
		}
		got := p.pinned(t, "desk")
		if len(got.Tools) != 1 || got.Tools["a"].Digest != pinOf("a", "two", 2).Digest {
			t.Errorf("pinned: %+v", got.Tools)
		}
	})
}

// Several processes pin the first thing they saw at the same time: one of them
// wins, and the others are told.
func TestOneFirstSightWins(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		words := []string{"one", "two", "three", "four"}
		errs := make([]error, len(words))
		var all sync.WaitGroup
		for i, w := range words {
			s := p.another(t)
			all.Go(func() { errs[i] = s.Pin(t.Context(), "desk", nil, pinOf("a", w, 1), pinOf("b", w, 1)) })
		}
		all.Wait()
		got, won := p.pinned(t, "desk").Tools, 0
		for i, err := range errs {
			switch {
			case err == nil:
				won++
				for _, tool := range []string{"a", "b"} {
					if got[tool].Digest != pinOf(tool, words[i], 1).Digest {
						t.Errorf("%s won and %s is another's", words[i], tool)
					}
				}
			case !errors.Is(err, approvals.Moved):
				t.Errorf("%s: %v", words[i], err)
			}
		}
		if won != 1 {
			t.Errorf("%d won", won)
		}
	})
}

// A pin under a claim is written while the claim stands, and not after: what a
// dead process had sent changes nothing once its claim is settled.
func TestPinsUnderAClaim(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		r := request(`1`)
		p.approved(t, r)
		g := p.claim(t, r, "n1")
		other := g
		other.Nonce = "n2"
		want(t, p.Pin(t.Context(), "desk", &other, pinOf("a", "one", 1)), approvals.AlreadyUsed)
		if err := p.Pin(t.Context(), "desk", &g, pinOf("a", "one", 1)); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Finish(t.Context(), g, approvals.Outcome{State: approvals.NotRun}); err != nil {
			t.Fatal(err)
		}
		want(t, p.Pin(t.Context(), "desk", &g, pinOf("a", "two", 2)), approvals.AlreadyUsed)
		want(t, p.Pin(t.Context(), "desk", &approvals.Grant{ID: "op-none", Nonce: "n1"}, pinOf("a", "two", 2)), approvals.AlreadyUsed)
		if got := p.pinned(t, "desk").Tools["a"]; got.Digest != pinOf("a", "one", 1).Digest {
			t.Errorf("pinned %+v", got)
		}
	})
}

// Whoever writes to Redis without a key makes no pin: what they put there is told
// as forged and is never a match.
func TestARedisWriterForgesAPin(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		for _, server := range []string{"desk", "other"} {
			if err := p.Pin(t.Context(), server, nil, pinOf("a", server, 1), pinOf("b", server, 1)); err != nil {
				t.Fatal(err)
			}
		}
		value := func(server, field string) string { return p.raw.HGet(t.Context(), p.k.pins(server), field).Val() }
		strange := openStore(t, Options{URL: p.opt.URL, Embedded: p.opt.Embedded, Namespace: "strange", Ring: testRing, Log: p.opt.Log})
		if err := strange.Pin(t.Context(), "desk", nil, pinOf("a", "desk", 1)); err != nil {
			t.Fatal(err)
		}
		ours := value("desk", "p:a")
		for name, forged := range map[string]string{
			"garbage":             "garbage",
			"nothing":             "",
			"a plain pin":         `{"digest":"` + pinOf("a", "desk", 1).Digest.Hex() + `","rev":1}`,
			"another tool's":      value("desk", "p:b"),
			"another server's":    value("other", "p:a"),
			"another namespace's": p.raw.HGet(t.Context(), strange.k.pins("desk"), "p:a").Val(),
			"one byte turned":     ours[:len(ours)-1] + string(ours[len(ours)-1]^1),
			"another purpose's":   string(testRing.Seal(keys.Record, []byte(`{}`), p.pinBound("desk", "p:a")...)),
			"a refusal's":         string(testRing.Seal(keys.PinSeal, []byte(`{}`), p.pinBound("desk", "d:a")...)),
		} {
			t.Run(name, func(t *testing.T) {
				if err := p.raw.HSet(t.Context(), p.k.pins("desk"), "p:a", forged).Err(); err != nil {
					t.Fatal(err)
				}
				got := p.pinned(t, "desk")
				if _, ok := got.Tools["a"]; ok || !slices.Equal(got.Forged, []string{"a"}) {
					t.Errorf("it counts: %+v, forged %v", got.Tools["a"], got.Forged)
				}
				if _, ok := got.Tools["b"]; !ok {
					t.Error("the others are gone with it")
				}
			})
		}
		// Whoever knows what is right may put it in place of it.
		if err := p.Pin(t.Context(), "desk", nil, pinOf("a", "desk", 1)); err != nil {
			t.Fatal(err)
		}
		if got := p.pinned(t, "desk"); len(got.Forged) != 0 || len(got.Tools) != 2 {
			t.Errorf("still forged: %+v", got)
		}
	})
}

func TestRefusalsOfPins(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		no, other := action.Sum("change one"), action.Sum("change two")
		for range 2 {
			if err := p.RefusePins(t.Context(), "desk", []action.Digest{no}, "op-1", "ben"); err != nil {
				t.Fatal(err)
			}
		}
		if got := p.pinned(t, "desk"); !got.Refused[no] || got.Refused[other] || len(got.Tools) != 0 {
			t.Errorf("%+v", got)
		}
		if got := p.pinned(t, "other"); got.Refused[no] {
			t.Error("it counts for another server")
		}
		// A refusal that was moved to another change, or made up, is none.
		v := p.raw.HGet(t.Context(), p.k.pins("desk"), "d:"+no.Hex()).Val()
		p.raw.HSet(t.Context(), p.k.pins("desk"), "d:"+other.Hex(), v, "d:"+no.Hex(), "made up")
		if got := p.pinned(t, "desk"); len(got.Refused) != 0 {
			t.Errorf("%+v", got)
		}
		if err := p.RefusePins(t.Context(), "desk", []action.Digest{no}, "op-1", "ben"); err != nil {
			t.Fatal(err)
		}
		if got := p.pinned(t, "desk"); !got.Refused[no] {
			t.Error("the real one does not go over the made up one")
		}
	})
}

// Pins made under an older key are read, and are under the current one from then
// on, so that the older may go.
func TestPinsOutliveARotation(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		if err := p.Pin(t.Context(), "desk", nil, pinOf("a", "one", 1)); err != nil {
			t.Fatal(err)
		}
		oldKey, newKey := keys.NewSecret(), keys.NewSecret()
		ring := func(current keys.Secret, previous ...keys.Secret) func(*Options) {
			r, err := keys.NewRing(current, previous...)
			if err != nil {
				t.Fatal(err)
			}
			return func(o *Options) { o.Ring = r }
		}
		before := p.another(t, ring(oldKey))
		if err := before.Pin(t.Context(), "desk", nil, pinOf("a", "one", 1)); err != nil {
			t.Fatal(err) // over one that it can't open
		}
		if err := before.RefusePins(t.Context(), "desk", []action.Digest{action.Sum("change")}, "op-1", "ben"); err != nil {
			t.Fatal(err)
		}
		between := p.another(t, ring(newKey, oldKey))
		if got, err := between.Pins(t.Context(), "desk"); err != nil || len(got.Tools) != 1 {
			t.Fatalf("%+v %v", got, err)
		}
		after := p.another(t, ring(newKey))
		if got, err := after.Pins(t.Context(), "desk"); err != nil || got.Tools["a"].Digest != pinOf("a", "one", 1).Digest || !got.Refused[action.Sum("change")] {
			t.Errorf("%+v %v", got, err)
		}
		if got, err := before.Pins(t.Context(), "desk"); err != nil || len(got.Forged) != 1 {
			t.Errorf("a ring without the key opens it: %+v %v", got, err)
		}
	})
}

// A key of another kind in the place of the pins is an error, never "none".
func TestPinsBehindAKeyOfAnotherKind(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		if err := p.raw.Set(t.Context(), p.k.pins("desk"), "x", 0).Err(); err != nil {
			t.Fatal(err)
		}
		_, err := p.Pins(t.Context(), "desk")
		want(t, err, approvals.StoreUnavailable)
		want(t, p.Pin(t.Context(), "desk", nil, pinOf("a", "one", 1)), approvals.StoreUnavailable)
	})
}
