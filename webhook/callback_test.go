package webhook

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
)

func (w *world) decision(v approvals.Verdict, actor string) Decision {
	return Decision{ApprovalID: theID, Verdict: v, Digest: "k1.bound", Actor: actor, Reason: "canary-reason"}
}

func (w *world) postHook(hookID string, body []byte) answerOf {
	w.t.Helper()
	h, err := SignStandard(hookSecret, hookID, w.clock.now(), body)
	if err != nil {
		w.t.Fatal(err)
	}
	h.Set("Content-Type", "application/json")
	return w.send(w.request("POST", w.site.URL+"/callbacks/jira", body, h))
}

func TestCallbackTakenAndAgain(t *testing.T) {
	w := newWorld(t)
	body := w.decision(approvals.Approve, "acc-ana").Body(w.clock.now())
	if a := w.postHook("msg_1", body); a.status != 202 {
		t.Fatal(a)
	}
	v := w.desk.votes[0]
	if v.Person != "ana" || v.Source != "callback:jira" || v.Bound != "k1.bound" || v.Reason != "canary-reason" {
		t.Fatalf("%+v", v)
	}
	if a := w.postHook("msg_1", body); a.status != 200 {
		t.Fatal("the same webhook-id again: ", a)
	}
	if a := w.postHook("msg_2", body); a.status != 200 {
		t.Fatal("the same person's same decision: ", a)
	}
	for i, d := range []Decision{w.decision(approvals.Deny, "acc-ana"), w.decision(approvals.Approve, "acc-carol"), w.decision(approvals.Deny, "acc-carol")} {
		a := w.postHook(fmt.Sprintf("msg_o%d", i), d.Body(w.clock.now()))
		mustProblem(t, a, 409)
		if !strings.Contains(a.body, `"conflict":"already_decided"`) || !strings.Contains(a.body, `"state":"approved"`) {
			t.Fatal(a.body)
		}
	}
	// The id of a decision that was taken, with another decision in it.
	mustProblem(t, w.postHook("msg_1", w.decision(approvals.Deny, "acc-ana").Body(w.clock.now())), 409)
	if got := w.desk.ticket(); got.State != approvals.Approved || len(got.Votes) != 1 {
		t.Fatalf("%s, %d votes", got.State, len(got.Votes))
	}
}

// A webhook-id that comes again with another answer is another answer: a no must
// not get lost behind an earlier yes.
func TestCallbackIDUsedForASecondAnswer(t *testing.T) {
	w := newWorld(t)
	w.desk.set(func(t *approvals.Ticket) { t.Requirements[0].Quorum = 2 })
	if a := w.postHook("msg_1", w.decision(approvals.Approve, "acc-ana").Body(w.clock.now())); a.status != 202 {
		t.Fatal(a)
	}
	if a := w.postHook("msg_1", w.decision(approvals.Deny, "acc-ana").Body(w.clock.now())); a.status != 202 {
		t.Fatal(a)
	}
	if got := w.desk.ticket(); got.State != approvals.Denied {
		t.Fatal(got.State)
	}
}

func TestCallbackAnswers(t *testing.T) {
	rows := []struct {
		name    string
		d       func(*Decision)
		ticket  func(*approvals.Ticket)
		dir     func(*directory)
		status  int
		refused approvals.Conflict
	}{
		{name: "by a group of Slack", d: func(d *Decision) { d.Actor = "acc-carol" }, status: 202},
		{name: "deny by the requester", d: func(d *Decision) { d.Actor, d.Verdict = "acc-bob", approvals.Deny }, status: 202},
		{name: "approve by the requester", d: func(d *Decision) { d.Actor = "acc-bob" }, status: 403},
		{name: "somebody not on the route", d: func(d *Decision) { d.Actor = "acc-eve" }, status: 403},
		{name: "nobody we know", d: func(d *Decision) { d.Actor = "acc-x" }, status: 403, refused: approvals.NotEligible},
		{name: "another digest", d: func(d *Decision) { d.Digest = "k1.other" }, status: 422},
		{name: "unknown approval", d: func(d *Decision) { d.ApprovalID = "op_other" }, status: 404},
		{name: "an id that can't be one", d: func(d *Decision) { d.ApprovalID = "op:{x}" }, status: 422},
		{name: "expired", ticket: func(t *approvals.Ticket) { t.State = approvals.Expired }, status: 410},
		{name: "withdrawn", ticket: func(t *approvals.Ticket) { t.State = approvals.Withdrawn }, status: 410},
		{name: "denied by another", ticket: func(t *approvals.Ticket) { t.State, t.By = approvals.Denied, "carol" }, status: 409},
		{name: "Slack's groups unknown, not needed", dir: func(d *directory) { d.fail = errDown },
			ticket: func(t *approvals.Ticket) { t.Requirements[0].Approvers = []string{"group:ops"} }, status: 202},
		{name: "Slack's groups unknown, needed", d: func(d *Decision) { d.Actor = "acc-carol" }, dir: func(d *directory) { d.fail = errDown }, status: 503},
		{name: "Slack's groups unknown, on the route anyway", dir: func(d *directory) { d.fail = errDown }, status: 202},
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			w := newWorld(t)
			if r.ticket != nil {
				w.desk.set(r.ticket)
			}
			if r.dir != nil {
				r.dir(w.dir)
			}
			d := w.decision(approvals.Approve, "acc-ana")
			if r.d != nil {
				r.d(&d)
			}
			a := w.postHook("msg_1", d.Body(w.clock.now()))
			if a.status != r.status {
				t.Fatalf("status %d, want %d: %s", a.status, r.status, a.body)
			}
			if r.status != 202 {
				mustProblem(t, a, r.status)
				if len(w.desk.ticket().Votes) > 0 {
					t.Fatal("a vote was counted")
				}
			}
			w.wantRefused(r.refused)
		})
	}
}

// A person on two routes must not lose one of them to a lookup that failed: their
// yes waits, their no does not.
func TestHalfALookup(t *testing.T) {
	w := newWorld(t)
	w.dir.fail = errDown
	w.desk.set(func(t *approvals.Ticket) {
		second := t.Requirements[0]
		second.Route, second.Approvers = "oncall", []string{"slack-group:S0ONCALL"}
		t.Requirements[0].Approvers = []string{"group:ops"}
		t.Requirements = append(t.Requirements, second)
	})
	mustProblem(t, w.postHook("msg_1", w.decision(approvals.Approve, "acc-ana").Body(w.clock.now())), 503)
	w.undecided()
	if a := w.postHook("msg_2", w.decision(approvals.Deny, "acc-ana").Body(w.clock.now())); a.status != 202 {
		t.Fatal(a)
	}
}

func TestMergedMemberships(t *testing.T) {
	roster, now := testRoster(t), time.Unix(1e9, 0)
	seen := func(age time.Duration) approvals.Memberships {
		return approvals.Memberships{Groups: []string{"slack-group:S0ONCALL", "group:ops"}, AsOf: now.Add(-age)}
	}
	for age, want := range map[time.Duration]approvals.Memberships{
		59 * time.Second:  {Groups: []string{"group:oncall", "group:ops", "slack-group:S0ONCALL"}, AsOf: now.Add(-59 * time.Second)},
		61 * time.Second:  {Groups: []string{"group:ops"}, AsOf: now},
		-61 * time.Second: {Groups: []string{"group:ops"}, AsOf: now},
	} {
		if got := merge(roster, "ana", seen(age), now); !slices.Equal(got.Groups, want.Groups) || !got.AsOf.Equal(want.AsOf) {
			t.Errorf("%v old: %+v", age, got)
		}
	}
}

func TestCallbackBodies(t *testing.T) {
	good := func(w *world) string { return string(w.decision(approvals.Approve, "acc-ana").Body(w.clock.now())) }
	sub := func(from, to string) func(string) string {
		return func(s string) string { return strings.Replace(s, from, to, 1) }
	}
	rows := []struct {
		name string
		body func(string) string
		want int
	}{
		{"as it should be", func(s string) string { return s }, 202},
		{"unknown members", sub(`"data":{`, `"version":2,"data":{"external":{"ticket":"SEC-12"},`), 202},
		{"reason null", sub(`"reason":"canary-reason"`, `"reason":null`), 202},
		{"no reason", sub(`,"reason":"canary-reason"`, ``), 202},
		{"approved", sub(`"decision":"approve"`, `"decision":"approved"`), 422},
		{"APPROVE", sub(`"decision":"approve"`, `"decision":"APPROVE"`), 422},
		{"true", sub(`"decision":"approve"`, `"decision":true`), 422},
		{"empty decision", sub(`"decision":"approve"`, `"decision":""`), 422},
		{"cancel", sub(`"decision":"approve"`, `"decision":"cancel"`), 422},
		{"close", sub(`"decision":"approve"`, `"decision":"close"`), 422},
		{"a list of decisions", sub(`"decision":"approve"`, `"decision":["approve"]`), 422},
		{"decision in capitals", sub(`"decision":`, `"Decision":`), 422},
		{"decision at the top", sub(`"data":`, `"decision":"approve","date":`), 422},
		{"no digest", sub(`"digest":"k1.bound",`, ``), 422},
		{"digest null", sub(`"digest":"k1.bound"`, `"digest":null`), 422},
		{"digest empty", sub(`"digest":"k1.bound"`, `"digest":""`), 422},
		{"no actor", sub(`"actor":{"id":"acc-ana"},`, ``), 422},
		{"actor a string", sub(`"actor":{"id":"acc-ana"}`, `"actor":"acc-ana"`), 422},
		{"actor id a number", sub(`"id":"acc-ana"`, `"id":7`), 422},
		{"another type", sub(DecisionType, "approval.requested"), 422},
		{"no timestamp", sub(`"timestamp":`, `"stamp":`), 422},
		{"timestamp not a time", func(s string) string {
			i := strings.Index(s, `"timestamp":"`) + len(`"timestamp":"`)
			return s[:i] + "yesterday" + s[i+20:]
		}, 422},
		{"reason an object", sub(`"reason":"canary-reason"`, `"reason":{}`), 422},
		{"decision twice", sub(`"decision":"approve"`, `"decision":"deny","decision":"approve"`), 422},
		{"data twice", sub(`{"type"`, `{"data":{},"type"`), 422},
		{"byte order mark", func(s string) string { return "\ufeff" + s }, 422},
		{"two documents", func(s string) string { return s + s }, 422},
		{"an array", func(s string) string { return "[" + s + "]" }, 422},
		{"empty", func(string) string { return "" }, 422},
		{"too large", func(s string) string { return s + strings.Repeat(" ", CallbackBodyLimit) }, 413},
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			w := newWorld(t)
			body := r.body(good(w))
			a := w.postHook("msg_1", []byte(body))
			if a.status != r.want {
				t.Fatalf("status %d, want %d: %s", a.status, r.want, a.body)
			}
			if r.want != 202 {
				mustProblem(t, a, r.want)
				w.undecided()
			}
		})
	}
}

func TestCallbackMustBeSigned(t *testing.T) {
	w := newWorld(t)
	body := w.decision(approvals.Approve, "acc-ana").Body(w.clock.now())
	post := func(path string, change func(http.Header), at time.Time, sent []byte) answerOf {
		h, err := SignStandard(hookSecret, "msg_1", at, body)
		if err != nil {
			t.Fatal(err)
		}
		if change != nil {
			change(h)
		}
		return w.send(w.request("POST", w.site.URL+path, sent, h))
	}
	now := w.clock.now()
	mustProblem(t, post("/callbacks/jira", func(h http.Header) { h.Del("Webhook-Signature") }, now, body), 401)
	mustProblem(t, post("/callbacks/jira", func(h http.Header) { h.Del("Webhook-Timestamp") }, now, body), 401)
	mustProblem(t, post("/callbacks/jira", func(h http.Header) { h.Del("Webhook-Id") }, now, body), 401)
	mustProblem(t, post("/callbacks/jira", nil, now.Add(-6*time.Minute), body), 401)
	mustProblem(t, post("/callbacks/jira", nil, now.Add(6*time.Minute), body), 401)
	mustProblem(t, post("/callbacks/jira", nil, now, append([]byte(" "), body...)), 401)
	mustProblem(t, post("/callbacks/jira", func(h http.Header) { h.Set("Content-Encoding", "gzip") }, now, body), 415)
	mustProblem(t, post("/callbacks/other", nil, now, body), 404)
	mustProblem(t, post("/callbacks/jira?x=1", nil, now, body), 400)
	// A re-serialised body is another body.
	var m map[string]any
	if err := json.Unmarshal(body, &m); err != nil {
		t.Fatal(err)
	}
	again, _ := json.MarshalIndent(m, "", " ")
	mustProblem(t, post("/callbacks/jira", nil, now, again), 401)
	if c := w.desk.changes(); len(c) > 0 {
		t.Fatal(c)
	}
}

// A reply that is lost is a retry and never a second vote.
func TestCallbackAfterALostReply(t *testing.T) {
	w := newWorld(t)
	w.desk.lose = true
	body := w.decision(approvals.Approve, "acc-ana").Body(w.clock.now())
	a := w.postHook("msg_1", body)
	mustProblem(t, a, 503)
	if a.header.Get("Retry-After") == "" {
		t.Fatal("no Retry-After")
	}
	w.desk.lose = false
	if a := w.postHook("msg_1", body); a.status != 200 {
		t.Fatal(a)
	}
	if n := len(w.desk.ticket().Votes); n != 1 {
		t.Fatalf("%d votes", n)
	}
}

func TestCallbackMisconfigured(t *testing.T) {
	w := newWorld(t)
	for name, in := range map[string]Inbound{
		"none": {Scheme: SchemeStandard}, "weak": {Scheme: SchemeStandard, Secrets: []string{"whsec_YWJj"}},
		"sha1": {Scheme: "hmac-sha1", Secrets: []string{hookSecret}}, "plain": {Secrets: []string{hookSecret}},
		"Bad/Name": {Scheme: SchemeStandard, Secrets: []string{hookSecret}},
	} {
		cfg := w.cfg
		cfg.Callbacks = map[string]Inbound{name: in}
		if _, err := New(cfg); err == nil {
			t.Errorf("%s started", name)
		} else if strings.Contains(err.Error(), hookSecret) || strings.Contains(err.Error(), "YWJj") {
			t.Errorf("%s: the error holds the secret: %v", name, err)
		}
	}
}

func TestCallbacksRace(t *testing.T) {
	w := newWorld(t)
	body := w.decision(approvals.Approve, "acc-ana").Body(w.clock.now())
	deny := w.decision(approvals.Deny, "acc-carol").Body(w.clock.now())
	var wg sync.WaitGroup
	statuses := make([]int, 40)
	for i := range statuses {
		wg.Go(func() {
			if i%2 == 0 {
				statuses[i] = w.postHook("msg_1", body).status
			} else {
				statuses[i] = w.postHook(fmt.Sprintf("msg_d%d", i), deny).status
			}
		})
	}
	wg.Wait()
	got := w.desk.ticket()
	if len(w.desk.votes) != 1 {
		t.Fatalf("%d votes counted", len(w.desk.votes))
	}
	for i, st := range statuses {
		won := (i%2 == 0) == (got.State == approvals.Approved)
		if won && st != 202 && st != 200 || !won && st != 409 {
			t.Errorf("%d: %d in state %s", i, st, got.State)
		}
	}
}
