package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/keys"
)

const labeller = "ana@acme.test"

func (p *place) add(t testing.TB, session string, labels ...string) []string {
	t.Helper()
	got, err := p.AddLabels(t.Context(), labeller, session, labels)
	if err != nil {
		t.Fatalf("AddLabels: %v", err)
	}
	return got
}

func (p *place) carries(t testing.TB, session string, want ...string) {
	t.Helper()
	got, err := p.Labels(t.Context(), labeller, session)
	if err != nil || !slices.Equal(got, want) {
		t.Fatalf("the session carries %v (%v), want %v", got, err, want)
	}
}

func (p *place) labelKeys(t testing.TB) []string {
	t.Helper()
	ks, err := p.raw.Keys(t.Context(), string(p.k)+"lb:*").Result()
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(ks)
	return ks
}

func TestLabelsAreAddedUpBySession(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		p.carries(t, "s1")
		if ks := p.labelKeys(t); len(ks) != 0 {
			t.Fatalf("asking wrote %v", ks)
		}
		if got := p.add(t, "s1", "session:retrieved"); !slices.Equal(got, []string{"session:retrieved"}) {
			t.Fatalf("got %v", got)
		}
		p.add(t, "s1", "session:model", "session:retrieved")
		p.carries(t, "s1", "session:model", "session:retrieved")
		p.carries(t, "s2")
		p.carries(t, "")
		if got, err := p.Labels(t.Context(), "eve@acme.test", "s1"); err != nil || len(got) != 0 {
			t.Fatalf("another actor's session of the same name carries %v, %v", got, err)
		}
		// What is cut differently is another session.
		if got, err := p.Labels(t.Context(), labeller+"s", "1"); err != nil || len(got) != 0 {
			t.Fatalf("it carries %v, %v", got, err)
		}
		q := p.another(t)
		if got, err := q.Labels(t.Context(), labeller, "s1"); err != nil || len(got) != 2 {
			t.Fatalf("another process sees %v, %v", got, err)
		}
		other := p.another(t, func(o *Options) { o.Namespace += "-other" })
		if got, err := other.Labels(t.Context(), labeller, "s1"); err != nil || len(got) != 0 {
			t.Fatalf("another namespace sees %v, %v", got, err)
		}
	})
}

// Nothing readable of actor, session or label is in Redis, and names can't be
// guessed without the key.
func TestLabelsAreSealed(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		p.add(t, "my-session", "session:retrieved")
		ks := p.labelKeys(t)
		if len(ks) != 1 {
			t.Fatalf("keys %v", ks)
		}
		fields, err := p.raw.HGetAll(t.Context(), ks[0]).Result()
		if err != nil || len(fields) != 1 {
			t.Fatalf("%v, %v", fields, err)
		}
		for name, value := range fields {
			for _, word := range []string{"ana", "my-session", "retrieved"} {
				if strings.Contains(ks[0]+" "+name+" "+value, word) {
					t.Errorf("%q is readable in %s %s %q", word, ks[0], name, value)
				}
			}
		}
		if !strings.HasPrefix(ks[0], "{"+p.opt.Namespace+"}:") {
			t.Errorf("%s is in another slot", ks[0])
		}
	})
}

// Many who add at once lose nothing of each other.
func TestLabelsAddedAtOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		q := p.another(t)
		var wg sync.WaitGroup
		var want []string
		for i := range 24 {
			l := fmt.Sprintf("session:l%02d", i)
			want = append(want, l)
			s := p.Store
			if i%2 == 1 {
				s = q
			}
			wg.Go(func() {
				got, err := s.AddLabels(t.Context(), labeller, "s", []string{l})
				if err != nil || !slices.Contains(got, l) {
					t.Errorf("%s: %v, %v", l, got, err)
				}
			})
		}
		wg.Wait()
		p.carries(t, "s", want...)
	})
}

func TestLabelsEndADayAfterTheirLastUse(t *testing.T) {
	p := onMini(t)
	p.add(t, "s", "session:retrieved")
	for range 3 { // used each time shortly before its end
		p.mini.FastForward(approvals.LabelsTTL - 2*time.Minute)
		p.carries(t, "s", "session:retrieved")
	}
	p.mini.FastForward(approvals.LabelsTTL + time.Second)
	p.carries(t, "s")

	r := onRedis(t)
	r.add(t, "s", "session:retrieved")
	key := r.labelKeys(t)[0]
	r.raw.PExpire(t.Context(), key, time.Hour)
	r.carries(t, "s", "session:retrieved")
	if left := r.raw.PTTL(t.Context(), key).Val(); left < approvals.LabelsTTL-time.Minute || left > approvals.LabelsTTL {
		t.Errorf("asked for, it is kept for %v", left)
	}
	before := r.raw.Info(t.Context(), "commandstats").Val()
	for range 5 {
		r.carries(t, "s", "session:retrieved")
	}
	if a, b := calls(before, "pexpire"), calls(r.raw.Info(t.Context(), "commandstats").Val(), "pexpire"); a != b {
		t.Errorf("asking again at once wrote %d times", b-a)
	}
}

// What another hand wrote is never taken for a label, and is told.
func TestForgedLabels(t *testing.T) {
	bend := map[string]func(t *testing.T, p *place, key string, fields map[string]string){
		"garbage": func(t *testing.T, p *place, key string, fields map[string]string) {
			for f := range fields {
				p.raw.HSet(t.Context(), key, f, "garbage")
			}
		},
		"a field more": func(t *testing.T, p *place, key string, fields map[string]string) {
			for _, v := range fields {
				p.raw.HSet(t.Context(), key, "x", v)
			}
		},
		"swapped values": func(t *testing.T, p *place, key string, fields map[string]string) {
			var names, values []string
			for f, v := range fields {
				names, values = append(names, f), append(values, v)
			}
			p.raw.HSet(t.Context(), key, names[0], values[1], names[1], values[0])
		},
		"another session's": func(t *testing.T, p *place, key string, _ map[string]string) {
			p.add(t, "other", "session:user")
			for _, k := range p.labelKeys(t) {
				if k != key {
					for f, v := range p.raw.HGetAll(t.Context(), k).Val() {
						p.raw.HSet(t.Context(), key, f, v)
					}
				}
			}
		},
		"another key's": func(t *testing.T, p *place, key string, fields map[string]string) {
			stranger, err := keys.NewRing(keys.NewSecret())
			if err != nil {
				t.Fatal(err)
			}
			for f := range fields {
				mac := strings.TrimPrefix(key, string(p.k)+"lb:")
				p.raw.HSet(t.Context(), key, f, stranger.Seal(keys.Labels, []byte("session:user"), p.labelPlace(mac, f)...))
			}
		},
		"another type": func(t *testing.T, p *place, key string, _ map[string]string) {
			p.raw.Del(t.Context(), key)
			p.raw.Set(t.Context(), key, "x", 0)
		},
		"too much": func(t *testing.T, p *place, key string, _ map[string]string) {
			for i := range 100 {
				p.raw.HSet(t.Context(), key, fmt.Sprint("f", i), "x")
			}
		},
	}
	for name, do := range bend {
		t.Run(name, func(t *testing.T) {
			everywhere(t, func(t *testing.T, p *place) {
				p.add(t, "s", "session:retrieved", "session:model")
				key := p.labelKeys(t)[0]
				do(t, p, key, p.raw.HGetAll(t.Context(), key).Val())
				got, err := p.Labels(t.Context(), labeller, "s")
				if !errors.Is(err, approvals.Forged) {
					t.Fatalf("not told: %v, %v", got, err)
				}
				if slices.Contains(got, "session:user") {
					t.Fatalf("a forged label is believed: %v", got)
				}
				if name == "a field more" || name == "another session's" {
					if !slices.Equal(got, []string{"session:model", "session:retrieved"}) {
						t.Errorf("those that verify did not come along: %v", got)
					}
				}
				if name == "garbage" || name == "swapped values" { // writing them again mends them
					if got := p.add(t, "s", "session:model", "session:retrieved"); len(got) != 2 {
						t.Errorf("after a new write %v", got)
					}
				}
			})
		})
	}
}

// A session's labels survive the change of the key, also after the old key is
// gone, if the session was used in between.
func TestLabelsAcrossARotation(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		first, second := keys.NewSecret(), keys.NewSecret()
		ring := func(current keys.Secret, previous ...keys.Secret) func(*Options) {
			return func(o *Options) {
				r, err := keys.NewRing(current, previous...)
				if err != nil {
					t.Fatal(err)
				}
				o.Ring = r
			}
		}
		old, both, ahead, fresh := p.another(t, ring(first)), p.another(t, ring(second, first)), p.another(t, ring(first, second)), p.another(t, ring(second))
		has := func(s *Store, want ...string) {
			t.Helper()
			got, err := s.Labels(t.Context(), labeller, "s")
			if err != nil || cmp.Diff(want, got) != "" {
				t.Fatalf("%v, %v, want %v", got, err, want)
			}
		}
		if _, err := old.AddLabels(t.Context(), labeller, "s", []string{"session:retrieved"}); err != nil {
			t.Fatal(err)
		}
		got, err := both.AddLabels(t.Context(), labeller, "s", []string{"session:model"})
		if err != nil || !slices.Equal(got, []string{"session:model", "session:retrieved"}) {
			t.Fatalf("%v, %v", got, err)
		}
		has(ahead, "session:model", "session:retrieved") // it writes with the old key still
		has(both, "session:model", "session:retrieved")
		has(fresh, "session:model", "session:retrieved")
	})
}

// calls counts a command in a server's statistics.
func calls(stats, command string) (n int) {
	_, rest, ok := strings.Cut(stats, "cmdstat_"+command+":calls=")
	if !ok {
		return 0
	}
	_, _ = fmt.Sscanf(rest, "%d", &n)
	return n
}

// A question whose context has ended is unavailable, not "nothing".
func TestLabelsWithoutAnAnswer(t *testing.T) {
	p := onMini(t)
	p.add(t, "s", "session:retrieved")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := p.Labels(ctx, labeller, "s"); !errors.Is(err, approvals.StoreUnavailable) || got != nil {
		t.Errorf("%v, %v", got, err)
	}
	p.mini.SetError("LOADING the dataset")
	if got, err := p.Labels(t.Context(), labeller, "s"); !errors.Is(err, approvals.StoreUnavailable) || got != nil {
		t.Errorf("%v, %v", got, err)
	}
	p.mini.SetError("")
	p.carries(t, "s", "session:retrieved")
}
