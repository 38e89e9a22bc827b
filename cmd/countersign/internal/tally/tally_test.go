package tally

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-mcp/countersign/approvals/ledger"
)

var noon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

type script struct {
	*Tally
	at time.Time
}

func begin(span Span, zone *time.Location) *script { return &script{New(span, zone), noon} }

func (s *script) add(r ledger.Record) {
	r.Time = s.at
	s.Add(r)
}

func (s *script) decision(op, actor, tool, outcome string, change ...func(*ledger.Record)) {
	r := ledger.Record{
		Event: ledger.Decision, OperationID: op, Actor: actor, Server: "desk", Tool: tool, Outcome: outcome,
		PolicyDigest: "p1", Rules: []ledger.Rule{{ID: "tier:x", Effect: outcome}},
	}
	if outcome == ledger.Review {
		r.EnvelopeDigest = "k.mac"
	}
	for _, c := range change {
		c(&r)
	}
	s.add(r)
}

func because(reason string) func(*ledger.Record) {
	return func(r *ledger.Record) { r.Reason = reason }
}

func observed(r *ledger.Record) {
	r.Observed, r.Routes = true, []ledger.Route{{Name: "default", Quorum: 1}}
}

// Each call is counted once, as what it came to.
func TestEachCallIsCountedOnce(t *testing.T) {
	s := begin(Span{}, time.UTC)
	s.add(ledger.Record{Event: ledger.PolicyLoaded, PolicyDigest: "p1", Observe: &ledger.Observe{Upstreams: []string{"desk"}, Until: noon}})
	s.add(ledger.Record{Event: ledger.PolicyLoaded, PolicyDigest: "p1", Observe: &ledger.Observe{Upstreams: []string{"desk"}, Until: noon}})
	s.decision("1", "ana", "look", ledger.Allow)
	s.add(ledger.Record{Event: ledger.ExecStart, OperationID: "1"})
	s.add(ledger.Record{Event: ledger.Result, OperationID: "1", Status: ledger.StatusOK})
	s.decision("2", "ana", "cancel", ledger.Allow, observed)
	s.decision("3", "bot", "cancel", ledger.Allow, observed, because("requester_unknown"))
	// Parked, decided, run.
	s.decision("4", "ana", "cancel", ledger.Review)
	s.add(ledger.Record{Event: ledger.ApprovalRequested, OperationID: "4"})
	s.add(ledger.Record{Event: ledger.ExecStart, OperationID: "4", EnvelopeDigest: "k.mac"})
	s.add(ledger.Record{Event: ledger.Result, OperationID: "4", Status: ledger.StatusOK, EnvelopeDigest: "k.mac"})
	// Parked and, its claim won, not run after all: people were asked.
	s.decision("5", "ana", "cancel", ledger.Review)
	s.add(ledger.Record{Event: ledger.Result, OperationID: "5", Status: ledger.StatusNotRun, ErrorType: "policy_changed", EnvelopeDigest: "k.mac"})
	// The same call again.
	s.decision("6", "ana", "cancel", ledger.Review)
	s.add(ledger.Record{Event: ledger.Attached, OperationID: "6", To: "4"})
	// Could not be parked.
	s.decision("7", "bot", "cancel", ledger.Review)
	s.add(ledger.Record{Event: ledger.Result, OperationID: "7", Status: ledger.StatusNotRun, ErrorType: "too_many_pending"})
	// Judged by a policy that was replaced meanwhile: it begins again, as 5.
	s.decision("7b", "ana", "cancel", ledger.Review)
	s.add(ledger.Record{Event: ledger.Result, OperationID: "7b", Status: ledger.StatusNotRun, ErrorType: "policy_changed"})
	s.decision("8", "bot", "rm", ledger.Deny, because("unlisted"))
	s.decision("9", "bot", "cancel", ledger.Deny)
	s.decision("10", "ana", "countersign_collect", ledger.Allow, because("collect"))

	got := s.Report()
	want := Counts{Allowed: 1, WouldAsk: 1, WouldRefuse: 1, Asked: 2, Joined: 1, Refused: 3}
	if diff := cmp.Diff(want, got.Total); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]Row{
		{"desk/cancel", Counts{WouldAsk: 1, WouldRefuse: 1, Asked: 2, Joined: 1, Refused: 2}},
		{"desk/look", Counts{Allowed: 1}}, {"desk/rm", Counts{Refused: 1}},
	}, got.Tools); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]Row{
		{"ana", Counts{Allowed: 1, WouldAsk: 1, Asked: 2, Joined: 1}}, {"bot", Counts{WouldRefuse: 1, Refused: 3}},
	}, got.Actors); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]Row{{"12:00", want}}, got.Hours); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]Reason{
		{"policy_denied", 1, 0}, {"requester_unknown", 1, 1}, {"too_many_pending", 1, 0}, {"unlisted", 1, 0},
	}, got.Reasons); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]Row{{"default", Counts{WouldAsk: 1, WouldRefuse: 1}}}, got.Routes); diff != "" {
		t.Error(diff)
	}
	if len(got.Watches) != 1 || len(got.Policies) != 1 || got.Peak == nil || got.Peak.Questions != 3 || !got.Peak.Hour.Equal(noon) {
		t.Errorf("%+v", got)
	}
	if len(s.open) != 2 { // 4 and 5: nothing more can move them
		t.Errorf("%d calls are kept", len(s.open))
	}
}

// Days and hours are those of the zone, and only what lies in the span counts. A
// call belongs to when it was decided, whenever it is known what it came to.
func TestSpanAndZone(t *testing.T) {
	zone := time.FixedZone("five and a half", 19800)
	s := begin(Span{From: noon, To: noon.Add(2 * time.Hour)}, zone)
	for _, at := range []time.Duration{-1, 0, time.Hour, 2*time.Hour - 1, 2 * time.Hour} {
		s.at = noon.Add(at)
		s.decision(at.String(), "ana", "cancel", ledger.Review)
	}
	s.at = noon.Add(3 * time.Hour)
	s.add(ledger.Record{Event: ledger.Attached, OperationID: "1h59m59.999999999s", To: "x"})
	s.add(ledger.Record{Event: ledger.Attached, OperationID: "-1ns", To: "x"})
	got := s.Report()
	if diff := cmp.Diff(Counts{Asked: 2, Joined: 1}, got.Total); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]Row{{"17:00", Counts{Asked: 1}}, {"18:00", Counts{Asked: 1}}, {"19:00", Counts{Joined: 1}}}, got.Hours); diff != "" {
		t.Error(diff)
	}
	if got.Peak.Questions != 1 || got.Peak.Hour.Hour() != 17 || got.Peak.Hour.Minute() != 0 {
		t.Errorf("%+v", got.Peak)
	}
	if !got.First.Equal(noon) || !got.Last.Equal(noon.Add(2*time.Hour-1)) {
		t.Errorf("%s to %s", got.First, got.Last)
	}
	if empty := begin(Span{}, zone).Report(); empty.Peak != nil || empty.Tools == nil || empty.Total.Calls() != 0 {
		t.Errorf("%+v", empty)
	}
}

// A person with several names counts once, with all their calls; an actor behind
// whom nobody is known counts as itself.
func TestPeople(t *testing.T) {
	s := New(Span{}, time.UTC)
	for _, r := range []ledger.Record{
		{Actor: "ana@acme.test", Person: "ana"}, {Actor: "ana-bot", Person: "ana"}, {Actor: "cron"},
	} {
		r.Event, r.Outcome, r.Time = ledger.Decision, ledger.Allow, time.Unix(0, 0)
		s.Add(r)
	}
	got := s.Report()
	if diff := cmp.Diff([]Row{{"ana", Counts{Allowed: 2}}, {"cron", Counts{Allowed: 1}}}, got.People); diff != "" {
		t.Error(diff)
	}
	if len(got.Actors) != 3 {
		t.Errorf("actors: %v", got.Actors)
	}
}
