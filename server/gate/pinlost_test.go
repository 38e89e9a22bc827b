package gate

import (
	"slices"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
)

// A store that lost its pins, and in which somebody pinned what came next, changes
// nothing for who remembers: the tool is held, and the first pin is written again.
func TestALostPinIsNotReplacedInSilence(t *testing.T) {
	b := newBench(t)
	b.pinned(Pins{FirstUse: true})
	if !slices.Contains(b.shows(), "cancel_order") {
		t.Fatal("it is not listed")
	}
	was, err := b.store.Pins(t.Context(), "desk")
	if err != nil {
		t.Fatal(err)
	}
	b.mini.Del("{countersign}:pn:desk")
	s := b.fileOf(changedTools).Servers["desk"]
	d, _ := s.Tool("cancel_order")
	if err := b.store.Pin(t.Context(), "desk", nil, approvals.Pin{
		Tool: d.Name, Digest: d.Digest, Definition: d.Raw, Identity: s.Identity, Rev: 1, At: time.Now().UTC(),
	}); err != nil {
		t.Fatal(err)
	}
	b.dir.SetTools(changedTools)
	b.reread()
	if slices.Contains(b.shows(), "cancel_order") {
		t.Error("another definition took the place of the pinned one in silence")
	}
	wantRefusal(t, b.do(ana, "cancel_order", `{"id":"1"}`), codeParams, "tool_changed")
	b.eventually("the first pin is written again", func() bool {
		got, err := b.store.Pins(t.Context(), "desk")
		return err == nil && got.Tools["cancel_order"].Digest == was.Tools["cancel_order"].Digest && got.Tools["cancel_order"].Rev == 2
	})
}

// A store that lost its pins, or was given older ones, is told them again by who
// remembers.
func TestALostPinIsWrittenAgain(t *testing.T) {
	b := newBench(t)
	b.pinned(Pins{FirstUse: true})
	b.shows()
	was, err := b.mini.DB(0).HKeys("{countersign}:pn:desk")
	if err != nil || len(was) == 0 {
		t.Fatalf("%v %v", was, err)
	}
	old := b.mini.HGet("{countersign}:pn:desk", "p:cancel_order")
	b.dir.SetTools(changedTools)
	b.reread()
	b.shows()
	b.agree(b.asksOnce(), "ben")
	for name, harm := range map[string]func(){
		"deleted":  func() { b.mini.Del("{countersign}:pn:desk") },
		"put back": func() { b.mini.HSet("{countersign}:pn:desk", "p:cancel_order", old) },
		"garbage":  func() { b.mini.HSet("{countersign}:pn:desk", "p:cancel_order", "garbage") },
	} {
		t.Run(name, func(t *testing.T) {
			harm()
			b.reread()
			if !slices.Contains(b.shows(), "cancel_order") {
				t.Error("it is held")
			}
			b.eventually("it is written again", func() bool {
				got, err := b.store.Pins(t.Context(), "desk")
				return err == nil && got.Tools["cancel_order"].Rev == 2
			})
		})
	}
}

// A pin that does not open, and that nobody remembers, is no invitation to take
// what comes: the tool is held.
func TestAForgedPinHolds(t *testing.T) {
	b := newBench(t)
	b.pinned(Pins{FirstUse: true})
	b.mini.HSet("{countersign}:pn:desk", "p:echo", "garbage")
	wantRefusal(t, b.do(ana, "echo", `{}`), codeParams, "tool_not_pinned")
	b.agree(b.asksOnce(), "ben")
	if s := read(t, b.do(ana, "echo", `{}`)); s.IsError {
		t.Error(s)
	}
}
