package gate

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/server/pins"
	"github.com/countersign-mcp/countersign/server/upstream"
)

func TestAChangedToolIsHeldAndTheOthersGoOn(t *testing.T) {
	b := newBench(t)
	before := b.shows()
	b.dir.SetTools(changedTools)
	b.reread()
	want := slices.DeleteFunc(slices.Clone(before), func(n string) bool { return n == "cancel_order" })
	if d := cmp.Diff(want, b.shows()); d != "" {
		t.Error(d)
	}
	wantRefusal(t, b.do(ana, "cancel_order", `{"order":"1"}`), codeParams, "tool_changed")
	if s := read(t, b.do(ana, "echo", `{}`)); s.IsError {
		t.Error("another tool is held with it")
	}
	if d := cmp.Diff([]string{"echo {}"}, b.dir.Calls()); d != "" {
		t.Error(d)
	}
	b.idle()
	if got := b.changes(); !slices.Contains(got, "changed cancel_order") || !slices.Contains(got, "first_use echo") || slices.Contains(got, "changed echo") {
		t.Errorf("the ledger says %v", got)
	}
	if got := b.own(approvals.Pending); len(got) != 0 {
		t.Errorf("somebody is asked without a route: %v", got)
	}
	b.dir.SetTools(testTools) // it is again what it was
	b.reread()
	if d := cmp.Diff(before, b.shows()); d != "" {
		t.Error(d)
	}
}

// The first thing that happens is a call: its tool is compared all the same, be
// the call allowed or reviewed.
func TestACallWithoutAListIsCompared(t *testing.T) {
	for tool, was := range map[string]string{"cancel_order": "Cancels.", "echo": "Reads."} {
		t.Run(tool, func(t *testing.T) {
			b := newBench(t)
			b.pinned(Pins{File: b.fileOf(testTools)})
			b.dir.SetTools(strings.Replace(testTools, was, "Does more.", 1))
			wantRefusal(t, b.do(ana, tool, `{}`), codeParams, "tool_changed")
			if calls := b.dir.Calls(); calls != nil {
				t.Errorf("ran %v", calls)
			}
		})
	}
}

func TestTheFileRules(t *testing.T) {
	without := strings.Replace(testTools, ` {"name":"echo_note","inputSchema":{"type":"object"}},`, "", 1)
	order := `[{"inputSchema":{"type":"object"},"annotations":{"title":"E","readOnlyHint":false},"x-future":{"n":9007199254740993},"description":"Reads.","name":"echo"},` +
		strings.SplitN(testTools, "\n", 3)[2]
	tests := []struct {
		name     string
		pins     func(b *bench) Pins
		tools    string
		tool     string
		held     string // reason; "" where it runs
		recorded string
	}{
		{"as in the file", func(b *bench) Pins { return Pins{File: b.fileOf(testTools)} }, testTools, "echo_note", "", ""},
		{"keys and tools in another order", func(b *bench) Pins { return Pins{File: b.fileOf(testTools)} }, order, "echo", "", ""},
		{"not in the file", func(b *bench) Pins { return Pins{File: b.fileOf(without)} }, testTools, "echo_note", "tool_not_pinned", "not_pinned echo_note"},
		{"not in the file, and first use is meant", func(b *bench) Pins { return Pins{File: b.fileOf(without), FirstUse: true} }, testTools, "echo_note", "", "first_use echo_note"},
		{"in the file, and first use is meant", func(b *bench) Pins { return Pins{File: b.fileOf(testTools), FirstUse: true} },
			strings.Replace(testTools, `"echo_note",`, `"echo_note","title":"x",`, 1), "echo_note", "tool_changed", "changed echo_note"},
		{"another server's pins", func(b *bench) Pins {
			f := b.fileOf(testTools)
			s := f.Servers["desk"]
			delete(f.Servers, "desk")
			f.Servers["other"] = s
			return Pins{File: f}
		}, testTools, "echo_note", "tool_not_pinned", "not_pinned echo_note"},
		{"the same tools of another server", func(b *bench) Pins {
			f := b.fileOf(testTools)
			s := f.Servers["desk"]
			s.Identity = pins.Manifest(nil)
			f.Servers["desk"] = s
			return Pins{File: f}
		}, testTools, "echo_note", "tool_changed", "server_changed echo_note"},
		{"nothing was chosen", func(*bench) Pins { return Pins{} }, testTools, "echo_note", "tool_not_pinned", "not_pinned echo_note"},
		{"a pinned tool is gone", func(b *bench) Pins { return Pins{File: b.fileOf(testTools)} }, without, "echo", "", "removed echo_note"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t)
			b.pinned(tt.pins(b))
			b.dir.SetTools(tt.tools)
			a := b.do(ana, tt.tool, `{}`)
			if tt.held != "" {
				wantRefusal(t, a, codeParams, tt.held)
			} else if s := read(t, a); s.IsError {
				t.Error(s)
			}
			if listed := slices.Contains(b.shows(), tt.tool); listed != (tt.held == "") {
				t.Errorf("listed: %v", listed)
			}
			b.idle()
			if got := b.changes(); tt.recorded != "" && !slices.Contains(got, tt.recorded) {
				t.Errorf("the ledger says %v, want %s", got, tt.recorded)
			} else if tt.recorded == "" && len(got) != 0 {
				t.Errorf("the ledger says %v", got)
			}
		})
	}
}

// What was seen first in the days of first use counts for nothing once a file
// rules; what a person agreed to does.
func TestAFileEndsFirstUse(t *testing.T) {
	b := newBench(t)
	b.pinned(Pins{FirstUse: true})
	b.shows()
	b.pinned(Pins{File: &pins.File{}})
	wantRefusal(t, b.do(ana, "echo", `{}`), codeParams, "tool_not_pinned")
	b.agree(b.asksOnce(), "ben")
	if s := read(t, b.do(ana, "echo", `{}`)); s.IsError {
		t.Error(s)
	}
	// A file that was written since goes before what was agreed on the one before.
	b.pinned(Pins{File: b.fileOf(strings.Replace(testTools, "Reads.", "Reads all.", 1))})
	wantRefusal(t, b.do(ana, "echo", `{}`), codeParams, "tool_changed")
}

func TestAChangeVoidsWhatWaits(t *testing.T) {
	b := newBench(t)
	_, pending := b.parked(req(ana, "cancel_order", `{"order":"1"}`))
	lazy := b.abandoned(req(ana, "cancel_order", `{"order":"2"}`))
	_, other := b.parked(req(ana, "gone_order", `{}`))
	b.vote(lazy, "ben", approvals.Approve, "")
	b.dir.SetTools(changedTools)
	b.reread()
	b.shows()
	for _, tk := range []approvals.Ticket{pending, lazy} {
		b.eventually("it is void", func() bool { return b.ticket(tk.ID).State == approvals.Void })
		if got := b.ticket(tk.ID); got.Cause != approvals.CauseTool {
			t.Errorf("void because of %s", got.Cause)
		}
	}
	b.idle()
	if got := b.ticket(other.ID); got.State != approvals.Pending {
		t.Errorf("a call of another tool is %s", got.State)
	}
}

// Nothing is void on the word of memory: the store may know of an agreement that
// this process does not.
func TestNothingIsVoidBeforeThePinsWereRead(t *testing.T) {
	b := newBench(t)
	b.pinned(Pins{FirstUse: true})
	b.shows()
	r := b.replica().pinned(Pins{FirstUse: true})
	b.dir.SetTools(changedTools)
	b.reread()
	b.shows()
	b.agree(b.asksOnce(), "ben")
	ch, tk := b.parked(req(ana, "cancel_order", `{"order":"1"}`)) // on what was agreed to
	// The replica knows of the first definition alone, if of any.
	r.calls.on("Pins", func(func() error) error { return approvals.StoreUnavailable })
	r.board.remember("desk", true, approvals.Pin{Tool: "cancel_order", Digest: pins.Manifest(nil), Rev: 1})
	r.reread()
	if slices.Contains(r.shows(), "cancel_order") {
		t.Error("memory does not hold it")
	}
	b.vote(tk, "ben", approvals.Approve, "")
	if s := read(t, <-ch); s.IsError {
		t.Errorf("the replica's memory ended it: %v", s)
	}
	r.calls.on("Pins", func(real func() error) error { return real() })
	r.board.rest(time.Time{})
	r.reread()
	if !slices.Contains(r.shows(), "cancel_order") {
		t.Error("the replica does not learn what was agreed to")
	}
}

// A reviewed call is bound to the server too: the same tools of another one are
// not what people agreed to.
func TestTheClaimComparesTheServer(t *testing.T) {
	b := newBench(t)
	b.pinned(Pins{FirstUse: true})
	ch, tk := b.parked(req(ana, "cancel_order", `{"order":"1"}`))
	other, err := upstream.New(upstream.Config{Name: "desk", Command: b.dir.Command(), Env: b.dir.Env("MORE", "1"), StopGrace: time.Second}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { other.Close() })
	st := b.stateOf(pinPolicy)
	st.Upstreams["desk"] = other
	b.Load(st)
	b.vote(tk, "ben", approvals.Approve, "")
	b.wantVoid(ch, tk, approvals.CauseTool)
	wantRefusal(t, b.do(ana, "echo", `{}`), codeParams, "tool_changed")
}

func TestNamesThatAreNoTools(t *testing.T) {
	evil := []string{
		"re\u200bad_it", "re\u00adad_it", "ec\u043do_note", "\u0435cho", "echo\u202e", "e\u0301cho", "\uff45cho", "echo\u00a0note", "echo note", "echo\tnote",
		"countersign/definitions", "countersign_collect", strings.Repeat("e", 257),
	}
	var list []map[string]any
	policy := "version: 2\ntools: {'desk/*': read}\nroutes: {definitions: {channels: [link:ben], approvers: [ben]}}\n"
	for _, n := range evil {
		list = append(list, map[string]any{"name": n})
	}
	for _, n := range []string{"read_file", "Read_File", "write_file", "fine_echo"} { // two of one name but for capitals
		list = append(list, map[string]any{"name": n})
	}
	raw, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t, settings(func(s *Settings) {}))
	b.dir.SetTools(string(raw))
	for name, p := range map[string]Pins{"first use": {FirstUse: true}, "a file that has them": {File: b.fileOf(string(raw))}} {
		t.Run(name, func(t *testing.T) {
			b.with(policy, p)
			if d := cmp.Diff([]string{"write_file", "fine_echo"}, b.shows()); d != "" {
				t.Error(d)
			}
			for _, n := range append(evil, "read_file", "Read_File", "READ_FILE", "fine_Echo", "desk__fine_echo") {
				if n == CollectTool {
					continue // the gate's own
				}
				wantRefusal(t, b.do(ana, n, `{}`), codeParams, "unknown_tool")
			}
		})
	}
	if calls := b.dir.Calls(); calls != nil {
		t.Errorf("ran %v", calls)
	}
}

func TestNobodyCallsAsTheGateItself(t *testing.T) {
	b := newBench(t)
	who := ana
	who.ID = approvals.GateActor
	for _, tool := range []string{"echo", "cancel_order", CollectTool, definitionsTool} {
		wantRefusal(t, b.do(who, tool, `{"approval_id":"cs_1"}`), codeParams, "reserved_actor")
	}
	if calls := b.dir.Calls(); calls != nil {
		t.Errorf("ran %v", calls)
	}
}

// Without the store, the file and memory decide, and what is seen first holds in
// this process until it can be written.
func TestPinsWithoutTheStore(t *testing.T) {
	b := newBench(t)
	down := func(func() error) error { return errors.Join(approvals.StoreUnavailable, errors.New("down")) }
	b.calls.on("Pins", down)
	b.calls.on("Pin", down)
	if s := read(t, b.do(ana, "echo", `{}`)); s.IsError {
		t.Fatal(s)
	}
	b.dir.SetTools(strings.Replace(testTools, "Reads.", "Reads all.", 1))
	b.reread()
	wantRefusal(t, b.do(ana, "echo", `{}`), codeParams, "tool_changed")
	b.dir.SetTools(testTools)
	b.reread()
	if s := read(t, b.do(ana, "echo", `{}`)); s.IsError {
		t.Fatal(s)
	}
	up := func(real func() error) error { return real() }
	b.calls.on("Pins", up)
	b.calls.on("Pin", up)
	b.eventually("the pins are written", func() bool {
		got, err := b.store.Pins(t.Context(), "desk")
		return err == nil && len(got.Tools) > 0
	})
	// Another process starts, and sees another definition first: it is a change.
	b.dir.SetTools(strings.Replace(testTools, "Reads.", "Reads all.", 1))
	r := b.replica()
	wantRefusal(t, r.do(ana, "echo", `{}`), codeParams, "tool_changed")
}

// A first sight that could not be written is no pin once the store has another.
func TestAnotherFirstSightWasThereBefore(t *testing.T) {
	b := newBench(t)
	b.shows()
	r := b.replica()
	down := func(func() error) error { return approvals.StoreUnavailable }
	r.calls.on("Pins", down)
	r.calls.on("Pin", down)
	b.dir.SetTools(strings.Replace(testTools, "Reads.", "Reads all.", 1))
	if s := read(t, r.do(ana, "echo", `{}`)); s.IsError {
		t.Fatal(s)
	}
	r.calls.on("Pins", func(real func() error) error { return real() })
	r.calls.on("Pin", func(real func() error) error { return real() })
	r.eventually("it is held", func() bool {
		r.board.rest(time.Time{})
		r.reread()
		return !slices.Contains(r.shows(), "echo")
	})
}

// A change that is announced is noticed although nobody calls.
func TestAnAnnouncedChangeIsNoticed(t *testing.T) {
	b := newBench(t)
	b.pinned(Pins{FirstUse: true})
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() { defer close(over); b.Watch(ctx) }()
	defer func() { cancel(); <-over }()
	if err := b.up.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.eventually("the first list is pinned", func() bool { return slices.Contains(b.changes(), "first_use echo") })
	b.dir.SetTools(changedTools)
	if _, err := b.up.Do(t.Context(), upstream.Request{Method: "tools/call", Params: json.RawMessage(`{"name":"announce_it","arguments":{}}`)}); err != nil {
		t.Fatal(err)
	}
	tk := b.asksOnce()
	if tk.Server != "desk" {
		t.Errorf("asks for %s", tk.Server)
	}
}

// An allowed call goes to the process that listed its tool. A new process may have
// another tool of the name.
func TestAnAllowedCallGoesToTheProcessThatListedIt(t *testing.T) {
	b := newBench(t)
	b.pinned(Pins{FirstUse: true})
	b.do(ana, "echo", `{"n":1}`)
	b.do(ana, "crash_read", `{}`)
	if s := read(t, b.do(ana, "echo", `{"n":2}`)); s.IsError {
		t.Errorf("an unchanged tool of a new process: %v", s)
	}
	b.do(ana, "crash_read", `{}`)
	b.dir.SetTools(strings.Replace(testTools, "Reads.", "Reads all.", 1))
	wantRefusal(t, b.do(ana, "echo", `{"n":3}`), codeParams, "tool_changed")
	want := []string{`echo {"n":1}`, `crash_read {}`, `echo {"n":2}`, `crash_read {}`}
	if d := cmp.Diff(want, b.dir.Calls()); d != "" {
		t.Error(d)
	}
}
