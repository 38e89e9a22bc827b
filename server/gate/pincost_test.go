package gate

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
)

// lists counts how often the upstream was asked for its tools.
func (b *bench) lists() int {
	return len(slices.DeleteFunc(b.dir.Lines("frames.log"), func(f string) bool { return !strings.Contains(f, `"tools/list"`) }))
}

// What an upstream is asked beside the calls: for allowed ones nothing while its list
// is young enough, for a reviewed one twice, before it is parked and before it runs.
func TestHowOftenAnUpstreamIsAskedForItsList(t *testing.T) {
	b := newBench(t).pinned(Pins{FirstUse: true, MaxAge: time.Hour})
	b.shows()
	was := b.lists()
	for range 5 {
		if s := read(t, b.do(ana, "echo", `{}`)); s.IsError {
			t.Fatal(s)
		}
	}
	if got := b.lists() - was; got != 0 {
		t.Errorf("%d lists for five allowed calls", got)
	}
	was = b.lists()
	ch, tk := b.parked(req(ana, "cancel_order", `{}`))
	b.vote(tk, "ben", approvals.Approve, "")
	if s := read(t, <-ch); s.IsError {
		t.Fatal(s)
	}
	if got := b.lists() - was; got != 2 {
		t.Errorf("%d lists for a reviewed call", got)
	}
}

// With a young list an allowed call asks the store for no pin.
func TestAnAllowedCallNeedsNoStoreForItsPins(t *testing.T) {
	b := newBench(t).pinned(Pins{FirstUse: true, MaxAge: time.Hour})
	b.shows()
	b.idle()
	for _, method := range []string{"Pins", "Pin"} {
		b.calls.on(method, func(func() error) error {
			t.Errorf("%s was asked for", method)
			return errors.Join(approvals.StoreUnavailable, errors.New("down"))
		})
	}
	for range 3 {
		if s := read(t, b.do(ana, "echo", `{}`)); s.IsError {
			t.Fatal(s)
		}
	}
}
