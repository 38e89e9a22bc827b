package daemon

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/ledger"
)

// stream gives its events out once and keeps what was done.
type stream struct {
	events []approvals.Event
	done   []string
}

func (s *stream) Events(context.Context, string, int, time.Duration) ([]approvals.Event, []string, error) {
	var ids []string
	for _, e := range s.events {
		ids = append(ids, e.ID+"-entry")
	}
	return s.events, ids, nil
}

func (s *stream) EventsDone(_ context.Context, ids ...string) error {
	s.done = append(s.done, ids...)
	return nil
}

// Somebody who can write to Redis puts things on the event stream that are no
// events of ours. The others are on the ledger all the same, the strange ones by
// their number, and nothing is given out again for ever.
func TestStrangeEventsHoldNothingUp(t *testing.T) {
	for name, strange := range map[string]approvals.Event{
		"no state":        {Kind: "state", ID: "cs_x", State: "allowed"},
		"no kind":         {Kind: "approve everything", ID: "cs_x"},
		"no id":           {Kind: "requested"},
		"prose as id":     {Kind: "requested", ID: "ignore all previous events"},
		"a line's end":    {Kind: "requested", ID: "cs_x\n{}"},
		"no verdict":      {Kind: "vote", ID: "cs_x", Person: "ana", Verdict: "maybe"},
		"prose as cause":  {Kind: "state", ID: "cs_x", State: approvals.Denied, Cause: "because I say so"},
		"prose as digest": {Kind: "requested", ID: "cs_x", Bound: "not a digest"},
	} {
		t.Run(name, func(t *testing.T) {
			strange.Seq = 2
			s := &stream{events: []approvals.Event{
				{Seq: 1, Kind: "requested", ID: "cs_1", State: approvals.Pending, Actor: "ana@acme.test"},
				strange,
				{Seq: 3, Kind: "state", ID: "cs_1", State: approvals.Approved, Person: "olga"},
			}}
			l, err := ledger.Open(filepath.Join(t.TempDir(), "ledger"), ledger.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			var approved []string
			c := &clerk{
				store: s, ledger: l, consumer: "c", log: slog.New(slog.DiscardHandler),
				approved: func(_ context.Context, id string) { approved = append(approved, id) },
			}
			if err := c.step(t.Context()); err != nil {
				t.Fatal(err)
			}
			if len(s.done) != 3 {
				t.Errorf("%d of 3 events are done", len(s.done))
			}
			if !slices.Equal(approved, []string{"cs_1"}) {
				t.Errorf("approved: %v", approved)
			}
			got := map[uint64]ledger.Event{}
			rep, err := ledger.ReadFile(l.Path(), func(r ledger.Record) error {
				if r.EventSeq > 0 {
					got[r.EventSeq] = r.Event
				}
				return nil
			})
			if err != nil || rep.Kind != ledger.OK {
				t.Fatalf("%+v, %v", rep, err)
			}
			if got[1] != ledger.ApprovalRequested || got[2] != ledger.Malformed || got[3] != ledger.ApprovalResolved {
				t.Errorf("on the ledger: %v", got)
			}
		})
	}
}

// A ledger that can't be written keeps the events on the stream.
func TestEventsWaitForTheLedger(t *testing.T) {
	s := &stream{events: []approvals.Event{{Seq: 1, Kind: "requested", ID: "cs_1", State: approvals.Pending}}}
	l, err := ledger.Open(filepath.Join(t.TempDir(), "ledger"), ledger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	c := &clerk{store: s, ledger: l, consumer: "c", log: slog.New(slog.DiscardHandler)}
	if err := c.step(t.Context()); err == nil {
		t.Error("no error from a closed ledger")
	}
	if len(s.done) != 0 {
		t.Error("an event is gone that is on no ledger")
	}
}

// That an actor's way to new approvals was closed is on the ledger: whose it is, who
// said the last no, to which call, how many were in the row, and until when.
func TestAClosingIsOnTheLedger(t *testing.T) {
	until := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s := &stream{events: []approvals.Event{{Seq: 1, Kind: "review_closed", ID: "cs_1", Actor: "bot@acme.test", Person: "olga", Source: "slack:U1", Row: 5, Until: until}}}
	l, err := ledger.Open(filepath.Join(t.TempDir(), "ledger"), ledger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	c := &clerk{store: s, ledger: l, consumer: "c", log: slog.New(slog.DiscardHandler)}
	if err := c.step(t.Context()); err != nil {
		t.Fatal(err)
	}
	var got []ledger.Record
	if _, err := ledger.ReadFile(l.Path(), func(r ledger.Record) error { got = append(got, r); return nil }); err != nil {
		t.Fatal(err)
	}
	r := got[len(got)-1]
	if r.Event != ledger.ReviewClosed || r.OperationID != "cs_1" || r.Actor != "bot@acme.test" || r.Reason != "denials_5" ||
		r.Approval == nil || r.Approval.By != "olga" || !r.Approval.ExpiresAt.Equal(until) || r.EventSeq != 1 {
		t.Errorf("%+v, %+v", r, r.Approval)
	}
}
