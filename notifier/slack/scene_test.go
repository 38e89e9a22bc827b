package slack

import (
	"bytes"
	"encoding/json"
	"flag"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/keys"
	"github.com/countersign-mcp/countersign/notifier"
	"github.com/countersign-mcp/countersign/notifier/slacktest"
)

var update = flag.Bool("update", false, "write the golden files")

const testChannel = "C0APPROVALS"

var day = time.Date(2026, 5, 4, 13, 50, 0, 0, time.UTC)

// scene is a Slack with people, and the channel under test pointed at it.
type scene struct {
	*Slack
	fake   *slacktest.Slack
	roster *approvals.Roster
	log    *bytes.Buffer
}

func newScene(t *testing.T, change func(*Config), opts ...slacktest.Option) *scene {
	t.Helper()
	fake := slacktest.New(t, opts...)
	for _, u := range []string{"U0ANA", "U0BEN", "U0CAT", "U0NOBODY"} {
		fake.AddUser(slacktest.User{ID: u})
	}
	fake.AddUserGroup(slacktest.UserGroup{ID: "S0ONCALL", Members: []string{"U0CAT"}})
	fake.AddChannel(slacktest.Channel{ID: testChannel})
	roster := testRoster(t)
	sc := &scene{fake: fake, roster: roster, log: &bytes.Buffer{}}
	cfg := Config{
		BotToken: fake.BotToken, APIURL: fake.URL(), Ring: testRing(t),
		Roster:    func() *approvals.Roster { return sc.roster },
		Approvers: func() []string { return []string{"group:ops", "slack-group:S0ONCALL"} },
		Settle:    time.Nanosecond, Timeout: 5 * time.Second,
		Log: slog.New(slog.NewTextHandler(sc.log, nil)),
	}
	if change != nil {
		change(&cfg)
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	sc.Slack = s
	t.Cleanup(s.Close)
	return sc
}

func testRoster(t *testing.T) *approvals.Roster {
	t.Helper()
	r, err := approvals.NewRoster([]approvals.Person{
		{ID: "ana", Actors: []string{"ana@acme.test"}, Slack: "U0ANA"},
		{ID: "ben", Slack: "U0BEN"},
		{ID: "cat", Slack: "U0CAT"},
		{ID: "dan"}, // not in Slack
	}, map[string][]string{"ops": {"ben", "slack-group:S0ONCALL"}, "desk": {"ana"}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func testRing(t *testing.T) *keys.Ring {
	t.Helper()
	secret, err := keys.ParseSecret("AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=")
	if err != nil {
		t.Fatal(err)
	}
	ring, err := keys.NewRing(secret)
	if err != nil {
		t.Fatal(err)
	}
	return ring
}

// pending is a parked call as the store would hand it out.
func pending() approvals.Ticket {
	return approvals.Ticket{
		ID: "apr_7QK2M4", State: approvals.Pending, Rev: 1,
		Server: "orders", Tool: "cancel_order", Tier: "destructive",
		Title: "Cancel order 1042",
		View: approvals.View{
			Text:    "{\n  \"card\": \"•••\",\n  \"order_id\": \"1042\",\n  \"reason\": \"customer asked\"\n}",
			Summary: "order_id=1042",
			Masked:  []approvals.Mask{{Pointer: "/card", Type: "string", Len: 18, Digest: "k1.Zm9vYmFyYmF6cXV4"}},
		},
		Bound: "k1.Zm9v", Actor: "ana@acme.test", Requester: "ana",
		Rules: []string{"tier:destructive: asks a person"},
		Requirements: []approvals.Requirement{{
			Route: "default", Approvers: []string{"group:ops", "ben", "dan", "slack-group:S0ONCALL"}, Quorum: 1,
			Deadline: day.Add(15 * time.Minute), Excluded: []string{"ana"},
		}},
		Channels:  []string{"slack:" + testChannel},
		CreatedAt: day, Deadline: day.Add(15 * time.Minute),
	}
}

func (sc *scene) message(t approvals.Ticket) notifier.Message {
	return notifier.Message{Channel: "slack:" + testChannel, Ticket: t}
}

func cast(person string, v approvals.Verdict) approvals.Cast {
	return approvals.Cast{Requirement: "default", Person: person, Verdict: v, At: day.Add(time.Minute)}
}

// settled gives the ticket of every state, by name.
func settled() map[string]approvals.Ticket {
	out := map[string]approvals.Ticket{}
	add := func(name string, s approvals.State, change func(*approvals.Ticket)) {
		t := pending()
		t.State, t.Rev = s, 5
		t.EndedAt = day.Add(2 * time.Minute)
		if change != nil {
			change(&t)
		}
		out[name] = t
	}
	yes := func(t *approvals.Ticket) {
		t.Votes = []approvals.Cast{cast("ben", approvals.Approve)}
		t.DecidedAt, t.ClaimBy = day.Add(time.Minute), day.Add(61*time.Minute)
		t.By = "ben"
	}
	add("approved", approvals.Approved, func(t *approvals.Ticket) { yes(t); t.EndedAt = time.Time{} })
	add("approved_on_approve", approvals.Approved, func(t *approvals.Ticket) { yes(t); t.Run = "on_approve" })
	add("executing", approvals.Executing, yes)
	add("succeeded", approvals.Succeeded, yes)
	add("failed", approvals.Failed, yes)
	add("not_run", approvals.NotRun, func(t *approvals.Ticket) { yes(t); t.Cause = approvals.CauseNotSent })
	add("unknown", approvals.Unknown, func(t *approvals.Ticket) { yes(t); t.Cause = approvals.CauseNoAnswer })
	add("resolved", approvals.Succeeded, func(t *approvals.Ticket) {
		yes(t)
		t.Cause, t.By, t.Reason = approvals.CauseResolved, "cat", "seen in the order desk"
	})
	add("denied", approvals.Denied, func(t *approvals.Ticket) {
		t.Votes = []approvals.Cast{cast("ben", approvals.Deny)}
		t.By, t.Reason, t.DecidedAt = "ben", "not <!channel> today", day.Add(time.Minute)
	})
	add("expired", approvals.Expired, nil)
	add("undelivered", approvals.Expired, func(t *approvals.Ticket) { t.Cause = approvals.CauseUndelivered })
	add("withdrawn", approvals.Withdrawn, func(t *approvals.Ticket) { t.By = "ana@acme.test" })
	add("void", approvals.Void, func(t *approvals.Ticket) { yes(t); t.Cause = approvals.CauseTool })
	add("lapsed", approvals.Lapsed, yes)
	add("revoked", approvals.Revoked, func(t *approvals.Ticket) { yes(t); t.By, t.Reason = "cat", "wrong order" })
	return out
}

// drawn is a card as it goes over the wire, readable.
func drawn(t *testing.T, c card) string {
	t.Helper()
	b, err := json.MarshalIndent(map[string]any{"text": c.text, "blocks": c.blocks}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b) + "\n"
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; write it with -update", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs (-want +got):\n%s", file, diff)
	}
}
