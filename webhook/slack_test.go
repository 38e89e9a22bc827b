package webhook

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/keys"
)

type object_ = map[string]any

// payload is a whole block_actions payload; change edits it.
func (w *world) payload(actionID, value, user string, change ...func(object_)) string {
	p := object_{
		"type": "block_actions", "user": object_{"id": user, "username": "x", "name": "x", "team_id": theTeam},
		"api_app_id": theApp, "token": "canary-verification-token",
		"container":  object_{"type": "message", "message_ts": cardTimestamp, "channel_id": theChannel, "is_ephemeral": false},
		"trigger_id": "1.2.canary-trigger", "team": object_{"id": theTeam, "domain": "acme"}, "enterprise": nil,
		"is_enterprise_install": false, "channel": object_{"id": theChannel, "name": "approvals"},
		"message": object_{"type": "message", "ts": cardTimestamp, "text": "canary-message-text"}, "state": object_{"values": object_{}},
		"response_url": "https://hooks.slack.com/actions/canary-response-url",
		"actions": []any{object_{"action_id": actionID, "block_id": "b1", "type": "button", "value": value,
			"text": object_{"type": "plain_text", "text": "Approve"}, "action_ts": "1764471100.123456"}},
	}
	for _, f := range change {
		f(p)
	}
	b, err := json.Marshal(p)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(b)
}

func (w *world) approveClick(user string, change ...func(object_)) answerOf {
	return w.postSlack(form(w.payload(ActionApprove, w.button(approvals.Approve), user, change...)))
}

func firstAction(p object_) object_ { return p["actions"].([]any)[0].(object_) }

func (w *world) undecided() {
	w.t.Helper()
	if t := w.desk.ticket(); t.State != approvals.Pending || len(t.Votes) != 0 {
		w.t.Fatalf("something was decided: %s, %d votes", t.State, len(t.Votes))
	}
}

func TestClickApprovesOnce(t *testing.T) {
	w := newWorld(t)
	a := w.approveClick(anaInSlack)
	if a.status != 200 || a.body != "" {
		t.Fatalf("answer %d %q", a.status, a.body)
	}
	if got := w.desk.ticket(); got.State != approvals.Approved || got.By != "ana" {
		t.Fatalf("ticket %s by %q", got.State, got.By)
	}
	v := w.desk.votes[0]
	if v.Source != "slack:"+anaInSlack || v.Bound != "k1.bound" || v.Link || v.Refused != "" {
		t.Fatalf("vote %+v", v)
	}
	w.mouth.silent(t, w.s)
}

func TestClickDenies(t *testing.T) {
	w := newWorld(t)
	// bob asked for it: he may not approve it, but he may stop it.
	a := w.postSlack(form(w.payload(ActionDeny, w.button(approvals.Deny), bobInSlack)))
	if a.status != 200 || w.desk.ticket().State != approvals.Denied {
		t.Fatalf("%d, %s", a.status, w.desk.ticket().State)
	}
}

// A body that is sent again is the vote it repeats, also on another day's key.
func TestClickReplayedIsTheSameVote(t *testing.T) {
	w := newWorld(t, func(c *Config) {})
	w.desk.set(func(t *approvals.Ticket) { t.Requirements[0].Quorum = 2 })
	body := form(w.payload(ActionApprove, w.button(approvals.Approve), anaInSlack))
	for range 3 {
		if a := w.postSlack(body); a.status != 200 {
			t.Fatal(a)
		}
	}
	if got := w.desk.ticket(); len(got.Votes) != 1 || got.State != approvals.Pending {
		t.Fatalf("%d votes, %s", len(got.Votes), got.State)
	}
	w.mouth.silent(t, w.s)
	w.clock.advance(6 * time.Minute)
	h := slackHeaders(slackSecret, w.clock.now().Add(-6*time.Minute), body)
	mustProblem(t, w.send(w.request("POST", w.site.URL+"/slack/interactions", body, h)), 401)
}

func TestSecondClickIsTold(t *testing.T) {
	w := newWorld(t)
	w.approveClick(anaInSlack)
	if a := w.approveClick(anaInSlack, func(p object_) { firstAction(p)["action_ts"] = "1764471101.000000" }); a.status != 200 {
		t.Fatal(a)
	}
	if got := w.mouth.hear(t); got != "It was approved by ana and has not run yet. Your answer changed nothing." {
		t.Fatal(got)
	}
}

func TestClickByGroupOfSlack(t *testing.T) {
	w := newWorld(t)
	w.approveClick(carolInSlack)
	if got := w.desk.ticket(); got.State != approvals.Approved || got.By != "carol" {
		t.Fatalf("%s by %q: %s", got.State, got.By, w.log)
	}
}

// Every row is a genuinely signed request that must decide nothing.
func TestClicksThatDecideNothing(t *testing.T) {
	set := func(path string, v any) func(object_) {
		return func(p object_) {
			names := strings.Split(path, ".")
			for _, n := range names[:len(names)-1] {
				p = p[n].(object_)
			}
			p[names[len(names)-1]] = v
		}
	}
	act := func(name string, v any) func(object_) { return func(p object_) { firstAction(p)[name] = v } }
	rows := []struct {
		name    string
		user    string
		change  func(*world, object_)
		status  int
		say     string // "" tells nothing
		refused approvals.Conflict
	}{
		{"another app", anaInSlack, chg(set("api_app_id", "A0OTHER")), 403, "", ""},
		{"another workspace", anaInSlack, chg(set("team.id", "T0OTHER")), 403, "", ""},
		{"team null", anaInSlack, chg(set("team", nil)), 403, "", ""},
		{"team null, some organisation", anaInSlack, chg(func(p object_) { p["team"] = nil; p["enterprise"] = object_{"id": "E0OTHER"} }), 403, "", ""},
		{"team id empty", anaInSlack, chg(set("team.id", "")), 422, "", ""},
		{"another channel", anaInSlack, chg(func(p object_) {
			p["channel"].(object_)["id"], p["container"].(object_)["channel_id"] = "C0ELSE", "C0ELSE"
		}), 200, sayWrongPlace, approvals.NotEligible},
		{"channels disagree", anaInSlack, chg(set("channel.id", "C0ELSE")), 422, "", ""},
		{"an attachment", anaInSlack, chg(set("container.type", "message_attachment")), 422, "", ""},
		{"a modal", anaInSlack, chg(set("container.type", "view")), 422, "", ""},
		{"a view_submission", anaInSlack, chg(set("type", "view_submission")), 422, "", ""},
		{"a view_closed", anaInSlack, chg(set("type", "view_closed")), 422, "", ""},
		{"type missing", anaInSlack, chg(func(p object_) { delete(p, "type") }), 422, "", ""},
		{"no actions", anaInSlack, chg(set("actions", []any{})), 422, "", ""},
		{"actions null", anaInSlack, chg(set("actions", nil)), 422, "", ""},
		{"two actions", anaInSlack, chg(func(p object_) { p["actions"] = []any{firstAction(p), firstAction(p)} }), 422, "", ""},
		{"no block_id", anaInSlack, chg(func(p object_) { delete(firstAction(p), "block_id") }), 422, "", ""},
		{"no action_ts", anaInSlack, chg(func(p object_) { delete(firstAction(p), "action_ts") }), 422, "", ""},
		{"a select, not a button", anaInSlack, chg(act("type", "static_select")), 422, "", ""},
		{"user a string", anaInSlack, chg(set("user", anaInSlack)), 422, "", ""},
		{"no user id", anaInSlack, chg(set("user.id", "")), 422, "", ""},
		{"retired action", anaInSlack, chg(act("action_id", "countersign:approve:v0")), 200, sayUnknownButton, ""},
		{"a link button", anaInSlack, chg(func(p object_) { firstAction(p)["action_id"] = "docs"; delete(firstAction(p), "value") }), 200, sayUnknownButton, ""},
		{"action id in capitals", anaInSlack, chg(act("action_id", "Countersign:approve:v1")), 200, sayUnknownButton, ""},
		{"deny's value under approve's id", anaInSlack, func(w *world, p object_) { firstAction(p)["value"] = w.button(approvals.Deny) }, 200, sayForeignButton, ""},
		{"no value", anaInSlack, chg(act("value", "")), 200, sayForeignButton, ""},
		{"value edited", anaInSlack, func(w *world, p object_) {
			v := []byte(w.button(approvals.Approve))
			v[len(v)-4] ^= 1
			firstAction(p)["value"] = string(v)
		}, 200, sayForeignButton, ""},
		{"another purpose's token", anaInSlack, func(w *world, p object_) {
			firstAction(p)["value"] = w.ring.Token(keys.Page, "v1", theID, "slack:"+theChannel, "approve", "nonce-1")
		}, 200, sayForeignButton, ""},
		{"another ring's token", anaInSlack, func(w *world, p object_) {
			r, _ := keys.NewRing(keys.NewSecret())
			firstAction(p)["value"] = r.Token(keys.Button, "v1", theID, "slack:"+theChannel, "approve", "nonce-1")
		}, 200, sayForeignButton, ""},
		{"a token of version 2", anaInSlack, func(w *world, p object_) {
			firstAction(p)["value"] = w.ring.Token(keys.Button, "v2", theID, "slack:"+theChannel, "approve", "nonce-1")
		}, 200, sayForeignButton, ""},
		{"a token with a sixth field", anaInSlack, func(w *world, p object_) {
			firstAction(p)["value"] = w.ring.Token(keys.Button, "v1", theID, "slack:"+theChannel, "approve", "nonce-1", "x")
		}, 200, sayForeignButton, ""},
		{"a token for a channel that the ticket hasn't", anaInSlack, func(w *world, p object_) {
			p["channel"].(object_)["id"], p["container"].(object_)["channel_id"] = "C0ELSE", "C0ELSE"
			firstAction(p)["value"] = w.ring.Token(keys.Button, "v1", theID, "slack:C0ELSE", "approve", "nonce-1")
		}, 200, sayWrongPlace, approvals.NotEligible},
		{"an unknown approval", anaInSlack, func(w *world, p object_) {
			firstAction(p)["value"] = w.ring.Token(keys.Button, "v1", "op_other", "slack:"+theChannel, "approve", "nonce-1")
		}, 200, sayGone, ""},
		{"a stranger", "U0STRANGER", nil, 200, sayStranger, approvals.NotEligible},
		{"the requester", bobInSlack, nil, 200, "You asked for this call, or answer for the account that did: somebody else must approve it. You may deny it.", ""},
		{"a guest", anaInSlack, func(w *world, _ object_) { w.dir.errs[anaInSlack] = fmt.Errorf("guest: %w", approvals.NotEligible) }, 200, sayNotAllowed, approvals.NotEligible},
		{"Slack can't be asked", anaInSlack, func(w *world, _ object_) { w.dir.fail = errDown }, 200, sayNoLookup, approvals.NotEligible},
		{"a person off the roster", anaInSlack, func(w *world, _ object_) { w.dir.people[anaInSlack] = "mallory" }, 200, sayStranger, approvals.NotEligible},
		{"nobody on the route", anaInSlack, func(w *world, _ object_) {
			w.desk.set(func(t *approvals.Ticket) { t.Requirements[0].Approvers = nil })
		}, 200, "You are not among the people who may answer this request, so your answer was not counted.", ""},
		{"past its deadline", anaInSlack, func(w *world, _ object_) {
			w.desk.set(func(t *approvals.Ticket) { t.Deadline = w.clock.now() })
		}, 200, "This request expired before it was decided. It did not run, and your answer changed nothing.", ""},
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			w := newWorld(t)
			body := form(w.payload(ActionApprove, w.button(approvals.Approve), r.user, func(p object_) {
				if r.change != nil {
					r.change(w, p)
				}
			}))
			a := w.postSlack(body)
			if a.status != r.status {
				t.Fatalf("status %d, want %d: %s", a.status, r.status, a.body)
			}
			if a.status != 200 {
				mustProblem(t, a, r.status)
			}
			if r.say == "" {
				w.mouth.silent(t, w.s)
			} else if got := w.mouth.hear(t); got != r.say {
				t.Errorf("said %q, want %q", got, r.say)
			}
			w.undecided()
			w.wantRefused(r.refused)
		})
	}
}

func chg(f func(object_)) func(*world, object_) { return func(_ *world, p object_) { f(p) } }

func (w *world) wantRefused(c approvals.Conflict) {
	w.t.Helper()
	switch {
	case c == "" && len(w.desk.refused) > 0:
		w.t.Errorf("a refusal was put on record: %+v", w.desk.refused)
	case c != "" && (len(w.desk.refused) != 1 || w.desk.refused[0].Refused != c):
		w.t.Errorf("refusals on record: %+v, want one %s", w.desk.refused, c)
	}
}

// Every row is not signed well, or not a form with one payload.
func TestSlackBodies(t *testing.T) {
	rows := []struct {
		name   string
		body   func(good string) string
		query  string
		header func(http.Header)
		status int
	}{
		{name: "not signed", header: func(h http.Header) { h.Del("X-Slack-Signature") }, status: 401},
		{name: "two signatures", header: func(h http.Header) { h.Add("X-Slack-Signature", h.Get("X-Slack-Signature")) }, status: 401},
		{name: "a payload in the query", query: "?payload=%7B%7D", status: 400},
		{name: "an empty query", query: "?", status: 400},
		{name: "JSON", header: func(h http.Header) { h.Set("Content-Type", "application/json") }, status: 415},
		{name: "no type", header: func(h http.Header) { h.Del("Content-Type") }, status: 415},
		{name: "two types", header: func(h http.Header) { h.Add("Content-Type", "text/plain") }, status: 415},
		{name: "compressed", header: func(h http.Header) { h.Set("Content-Encoding", "gzip") }, status: 415},
		{name: "two payloads", body: func(g string) string { return g + "&" + g }, status: 422},
		{name: "another field", body: func(g string) string { return g + "&x=1" }, status: 422},
		{name: "no payload", body: func(string) string { return "x=1" }, status: 422},
		{name: "empty", body: func(string) string { return "" }, status: 422},
		{name: "broken escape", body: func(g string) string { return g + "%zz" }, status: 422},
		{name: "a semicolon", body: func(g string) string { return g + ";x=1" }, status: 422},
		{name: "null", body: func(string) string { return "payload=null" }, status: 422},
		{name: "an array", body: func(string) string { return "payload=[]" }, status: 422},
		{name: "byte order mark", body: func(g string) string { return strings.Replace(g, "payload=", "payload=%EF%BB%BF", 1) }, status: 422},
		{name: "trailing bytes", body: func(g string) string { return g + "%7B%7D" }, status: 422},
		{name: "invalid UTF-8", body: func(g string) string { return strings.Replace(g, "canary-message-text", "%FF", 1) }, status: 422},
		{name: "duplicate names", body: func(g string) string {
			return strings.Replace(g, url.QueryEscape(`"type":"block_actions"`), url.QueryEscape(`"type":"block_actions","typ\u0065":"block_actions"`), 1)
		}, status: 422},
		{name: "duplicate names deep down", body: func(g string) string {
			return strings.Replace(g, url.QueryEscape(`"domain":"acme"`), url.QueryEscape(`"domain":"acme","domain":"x"`), 1)
		}, status: 422},
		{name: "names in capitals", body: func(g string) string {
			return strings.Replace(g, url.QueryEscape(`"actions":`), url.QueryEscape(`"Actions":`), 1)
		}, status: 422},
		{name: "too large", body: func(g string) string { return g + strings.Repeat("x", SlackBodyLimit) }, status: 413},
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			w := newWorld(t)
			good := string(form(w.payload(ActionApprove, w.button(approvals.Approve), anaInSlack)))
			body := good
			if r.body != nil {
				if body = r.body(good); body == good {
					t.Fatal("the row changes nothing")
				}
			}
			h := slackHeaders(slackSecret, w.clock.now(), []byte(body))
			if r.header != nil {
				r.header(h)
			}
			mustProblem(t, w.send(w.request("POST", w.site.URL+"/slack/interactions"+r.query, []byte(body), h)), r.status)
			if c := w.desk.changes(); len(c) > 0 {
				t.Fatalf("the store was asked: %v", c)
			}
			w.mouth.silent(t, w.s)
		})
	}
}
