package gate

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/ledger"
	"github.com/countersign-mcp/countersign/server/pins"
)

// pinPolicy is testPolicy with a route for changed definitions.
const pinPolicy = testPolicy + `  definitions: {channels: [link:ben], approvers: [ben, cleo], allow_requester: false}
`

// changedTools is testTools with another description of cancel_order.
var changedTools = strings.Replace(testTools, "Cancels.", "Cancels, and tells nobody.", 1)

// pinned loads pinPolicy with these pins.
func (b *bench) pinned(p Pins) *bench {
	b.t.Helper()
	b.with(pinPolicy, p)
	return b
}

func (b *bench) with(policy string, p Pins) {
	b.t.Helper()
	st := b.stateOf(policy)
	st.Pins = p
	b.Load(st)
}

// fileOf is a file of pins that has these tools of the bench's upstream.
func (b *bench) fileOf(tools string) *pins.File {
	b.t.Helper()
	if err := b.up.Start(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	var raw []json.RawMessage
	if err := json.Unmarshal([]byte(tools), &raw); err != nil {
		b.t.Fatal(err)
	}
	s := pins.Server{Identity: b.up.Identity()}
	for _, r := range raw {
		d, err := pins.Define(r)
		if err != nil {
			b.t.Fatal(err)
		}
		s.Tools = append(s.Tools, d)
	}
	slices.SortFunc(s.Tools, func(a, b pins.Tool) int { return strings.Compare(a.Name, b.Name) })
	return &pins.File{Servers: map[string]pins.Server{"desk": s}}
}

// shows lists what an actor is shown.
func (b *bench) shows() []string {
	b.t.Helper()
	return names(b.t, b.Tools(b.t.Context(), "desk", ana, nil))
}

// reread makes the next list be a fresh one.
func (b *bench) reread() { b.listings.Clear() }

// own lists the gate's own requests in a state.
func (b *bench) own(state approvals.State) []approvals.Ticket {
	b.t.Helper()
	got, err := b.store.List(b.t.Context(), []approvals.State{state}, 1000)
	if err != nil {
		b.t.Fatal(err)
	}
	return slices.DeleteFunc(got, func(t approvals.Ticket) bool { return !ours(t.Actor, t.Tool) })
}

// asksOnce waits until the gate asks, and for nothing but one thing.
func (b *bench) asksOnce() approvals.Ticket {
	b.t.Helper()
	b.eventually("the gate asks", func() bool { return len(b.own(approvals.Pending)) > 0 })
	b.idle()
	got := b.own(approvals.Pending)
	if len(got) != 1 {
		b.t.Fatalf("%d requests are pending", len(got))
	}
	return got[0]
}

// idle waits until everything that was noticed was seen to.
func (b *bench) idle() {
	b.t.Helper()
	w := b.watchman("desk")
	b.eventually("nothing is left to be seen to", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return !w.busy
	})
}

// agree is a person's yes and the run after it.
func (b *bench) agree(t approvals.Ticket, people ...string) {
	b.t.Helper()
	for _, p := range people {
		b.vote(t, p, approvals.Approve, "")
	}
	if err := b.RunApproved(b.t.Context(), t.ID); err != nil {
		b.t.Fatal(err)
	}
}

// changes lists what the ledgers say of changed tools, as "kind tool".
func (b *bench) changes() []string {
	b.t.Helper()
	var out []string
	for _, r := range b.records() {
		if r.Event == ledger.ManifestChanged {
			out = append(out, r.Reason+" "+r.Tool)
		}
	}
	return out
}
