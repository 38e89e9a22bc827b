package gate

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/ledger"
	"github.com/countersign-mcp/countersign/server/policy"
	"github.com/countersign-mcp/countersign/server/upstream"
)

// otherTools is testTools with another description of each tool that these tests
// call.
var otherTools = strings.Replace(changedTools, "Reads.", "Reads all.", 1)

// announce lists other tools and has the upstream say so.
func (b *bench) announce(tools string) {
	b.dir.SetTools(tools)
	was := b.up.Generation()
	if _, err := b.up.Do(b.t.Context(), upstream.Request{Method: "tools/call", Params: json.RawMessage(`{"name":"announce_it","arguments":{}}`)}); err != nil {
		b.t.Error(err)
	}
	b.eventually("the change is heard", func() bool { return b.up.Generation() != was })
}

// What is pinned, and what is announced, between the comparison of a call's tool and
// the moment at which the call leaves: it is compared once more.
func TestACallOnItsWayMeetsAChange(t *testing.T) {
	meanwhile := map[string]func(b *bench){
		"a reload with other pins":     func(b *bench) { b.pinned(Pins{File: b.fileOf(otherTools)}) },
		"a reload without these pins":  func(b *bench) { b.pinned(Pins{}) },
		"an announced change":          func(b *bench) { b.announce(otherTools) },
		"a reload with the same pins":  func(b *bench) { b.pinned(Pins{File: b.fileOf(testTools)}) },
		"an announcement of no change": func(b *bench) { b.announce(testTools) },
	}
	for name, change := range meanwhile {
		for _, tool := range []string{"echo", "cancel_order"} {
			t.Run(name+", "+tool, func(t *testing.T) {
				b := onFirstUse(t)
				var once sync.Once
				b.book.at(ledger.ExecStart, func(ledger.Record) { once.Do(func() { change(b) }) })
				var a Answer
				if tool == "echo" {
					a = b.do(ana, tool, `{}`)
				} else {
					ch, tk := b.parked(req(ana, tool, `{}`))
					b.vote(tk, "ben", approvals.Approve, "")
					a = <-ch
				}
				ran := slices.DeleteFunc(b.dir.Calls(), func(c string) bool { return strings.HasPrefix(c, "announce") })
				if fits := strings.Contains(name, "same") || strings.Contains(name, "no change"); fits {
					if s := read(t, a); s.IsError || len(ran) != 1 {
						t.Errorf("%v, ran %v", s, ran)
					}
					return
				}
				if len(ran) != 0 {
					t.Errorf("ran %v", ran)
				}
				if tool == "echo" && (a.Error == nil || a.Error.Code != codeParams) {
					t.Errorf("%+v", a)
				}
			})
		}
	}
}

// A call that came in before a reload has its list compared with the pins of then.
// That comparison counts for no call of the state after it.
func TestAComparisonOfTheStateBeforeIsNotKept(t *testing.T) {
	b := onFirstUse(t)
	file := b.fileOf(otherTools)
	b.reread()
	judge := b.gates.call
	var once sync.Once
	b.gates.call = func(st *State, f policy.Facts) policy.Verdict {
		once.Do(func() { b.pinned(Pins{File: file}) })
		return judge(st, f)
	}
	for range 2 {
		wantRefusal(t, b.do(ana, "echo", `{}`), codeParams, "tool_changed")
	}
	if calls := b.dir.Calls(); calls != nil {
		t.Errorf("ran %v", calls)
	}
}

// An upstream that answers two readings at once with two definitions has one of them
// pinned, whether the store can be told or not.
func TestOfTwoFirstSightsAtOnceOneHolds(t *testing.T) {
	down := func() error { return approvals.StoreUnavailable }
	for name, pin := range map[string]func(real func() error, inner bool) error{
		"the store is away":               func(func() error, bool) error { return down() },
		"it goes away for the one":        func(real func() error, inner bool) error { return either(inner, real, down)() },
		"it is there again for the other": func(real func() error, inner bool) error { return either(inner, down, real)() },
		"it is there":                     func(real func() error, _ bool) error { return real() },
		"it takes one, and the reply is lost": func(real func() error, inner bool) error {
			return either(inner, real, func() error { _ = real(); return down() })()
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			st := b.state.Load()
			var second *catalogue
			var tries atomic.Int64
			b.calls.on("Pin", func(real func() error) error {
				try := tries.Add(1)
				if try == 1 {
					b.dir.SetTools(otherTools)
					var err error
					if second, err = b.catalogue(t.Context(), st, "desk", 0); err != nil {
						t.Error(err)
					}
				}
				return pin(real, try == 2)
			})
			first, err := b.catalogue(t.Context(), st, "desk", 0)
			if err != nil || second == nil {
				t.Fatal(err)
			}
			if first.offers("echo") == second.offers("echo") {
				t.Errorf("the first is offered: %v, the second: %v", first.offers("echo"), second.offers("echo"))
			}
		})
	}
}

func either[T any](one bool, a, b T) T {
	if one {
		return a
	}
	return b
}

// A tool that can't be pinned is not run unpinned.
func TestWhatCannotBePinnedIsHeld(t *testing.T) {
	b := newBench(t)
	b.calls.on("Pin", func(func() error) error { return approvals.Moved })
	wantRefusal(t, b.do(ana, "echo", `{}`), codeParams, "tool_not_pinned")
	b.calls.on("Pin", func(real func() error) error { return real() })
	b.reread()
	if s := read(t, b.do(ana, "echo", `{}`)); s.IsError {
		t.Error(s)
	}
}
