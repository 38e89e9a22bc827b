package gate

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
)

// saying is testTools in which two tools say other things of themselves.
func saying(echo, cancel string) string {
	return strings.NewReplacer(`"Reads."`, quoted(echo), `"Cancels."`, quoted(cancel)).Replace(testTools)
}

func quoted(s string) string { return string(quote(s)) }

// An upstream that says something else each second has people asked once a minute,
// whichever gates look, and then for what it says at that time.
func TestPeopleAreAskedOnceAMinute(t *testing.T) {
	b := onFirstUse(t)
	r := b.replica().pinned(Pins{FirstUse: true})
	look := func(tools string) {
		b.dir.SetTools(tools)
		for _, p := range []*bench{b, r} {
			p.reread()
			p.shows()
			p.idle()
		}
	}
	look(saying("Reads.", "Cancels one."))
	first := b.asksOnce()
	for _, cancel := range []string{"Cancels two.", "Cancels.", "Cancels one.", "Cancels.", "Cancels three.", "Cancels four."} {
		look(saying("Reads.", cancel))
		if got := b.own(approvals.Pending); len(got) != 0 {
			t.Fatalf("%s: asked again:\n%s", cancel, got[0].View.Text)
		}
	}
	if got := b.ticket(first.ID); got.State != approvals.Withdrawn {
		t.Errorf("the first is %s", got.State)
	}
	b.mini.FastForward(time.Minute)
	b.lookLater(b.watchman("desk"), false, 0) // again, in case a reading is not yet due
	b.reread()
	b.shows()
	second := b.asksOnce()
	if !strings.Contains(second.View.Text, "Cancels four.") {
		t.Errorf("asks for\n%s", second.View.Text)
	}
	// A call of a held tool asks no sooner either.
	look(saying("Reads.", "Cancels five."))
	wantRefusal(t, b.do(ana, "cancel_order", `{}`), codeParams, "tool_changed")
	b.idle()
	if got := b.own(approvals.Pending); len(got) != 0 {
		t.Errorf("asked again:\n%s", got[0].View.Text)
	}
}

// What is not asked for at once is asked for later, though nobody lists or calls.
func TestWhatWasPutOffIsAskedForByItself(t *testing.T) {
	b := onFirstUse(t)
	b.change(saying("Reads.", "Cancels one."))
	b.asksOnce()
	b.change(saying("Reads.", "Cancels two."))
	w := b.watchman("desk")
	b.eventually("it is put off", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.due
	})
	b.mini.FastForward(time.Minute)
	w.mu.Lock()
	w.due = false // as if the minute were over
	w.mu.Unlock()
	b.lookLater(w, false, 0)
	if got := b.asksOnce(); !strings.Contains(got.View.Text, "Cancels two.") {
		t.Errorf("asks for\n%s", got.View.Text)
	}
}

// A no to one tool stays one while others go on changing.
func TestWhatWasDeniedIsLeftOutOfTheNext(t *testing.T) {
	b := onFirstUse(t)
	b.change(saying("Reads all.", "Cancels all."))
	tk := b.asksOnce()
	b.vote(tk, "ben", approvals.Deny, "no")
	b.eventually("the no is kept", func() bool {
		got, err := b.store.Pins(t.Context(), "desk")
		return err == nil && len(got.Refused) == 2
	})
	later := b.replica().pinned(Pins{FirstUse: true})
	b.dir.SetTools(saying("Reads more.", "Cancels all."))
	for _, p := range []*bench{b, later} {
		p.nextTurn()
		p.idle()
		next := p.asksOnce()
		if !strings.Contains(next.View.Text, "Reads more.") || strings.Contains(next.View.Text, "cancel_order") {
			t.Errorf("asks for\n%s", next.View.Text)
		}
	}
	b.dir.SetTools(saying("Reads all.", "Cancels other."))
	b.nextTurn()
	b.eventually("it is asked for", func() bool {
		got := b.own(approvals.Pending)
		return len(got) == 1 && strings.Contains(got[0].View.Text, "Cancels other.") && !strings.Contains(got[0].View.Text, "echo")
	})
}

// One tool that is long keeps nobody from being asked about the others, and one
// that is longer than any request is not asked for.
func TestALongDefinitionComesLast(t *testing.T) {
	b := onFirstUse(t)
	parks := 0
	b.calls.on("Park", func(real func() error) error { parks++; return real() })
	b.change(saying("Reads all.", strings.Repeat("Cancels. ", mostAsked/8)))
	tk := b.asksOnce()
	if !strings.Contains(tk.View.Text, "tool changed: echo") || strings.Contains(tk.View.Text, "cancel_order") ||
		!strings.Contains(tk.View.Text, "1 more tools are held") {
		t.Fatalf("asks for\n%.500s", tk.View.Text)
	}
	b.vote(tk, "ben", approvals.Deny, "no")
	b.eventually("the no is kept", func() bool {
		got, err := b.store.Pins(t.Context(), "desk")
		return err == nil && len(got.Refused) == 1
	})
	b.nextTurn()
	tk = b.asksOnce()
	if strings.Contains(tk.View.Text, "echo") || !strings.Contains(tk.View.Text, "cancel_order") || !tk.View.Complete() {
		t.Fatalf("asks for\n%.500s", tk.View.Text)
	}
	b.change(saying("Reads all.", strings.Repeat("Cancels. ", (1<<20)/8)))
	b.nextTurn()
	b.idle()
	if got := b.own(approvals.Pending); len(got) != 0 || parks != 2 {
		t.Errorf("%d are asked for after %d tries", len(got), parks)
	}
	if slices.Contains(b.shows(), "cancel_order") {
		t.Error("it is not held")
	}
}
