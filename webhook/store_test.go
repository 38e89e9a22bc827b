package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/approvals/keys"
	"github.com/countersign-mcp/countersign/approvals/store"
	"github.com/countersign-mcp/countersign/approvals/store/redistest"
	"github.com/countersign-mcp/countersign/notifier/slacktest"
)

// replicas are two webhook processes on one Redis, and a Slack.
type replicas struct {
	*world
	store  *store.Store
	other  *world
	slack  *slacktest.Slack
	ticket approvals.Ticket
	cardTS string
}

// onBoth runs a test on miniredis and on a real server.
func onBoth(t *testing.T, test func(t *testing.T, r *replicas)) {
	t.Run("miniredis", func(t *testing.T) {
		test(t, newReplicas(t, "redis://"+miniredis.RunT(t).Addr(), true))
	})
	t.Run("redis", func(t *testing.T) { test(t, newReplicas(t, redistest.Start(t).URL(), false)) })
}

func newReplicas(t *testing.T, url string, embedded bool) *replicas {
	t.Helper()
	ring, err := keys.NewRing(keys.NewSecret())
	if err != nil {
		t.Fatal(err)
	}
	// A loaded machine is no reason to fail: what counts here is who wins.
	fake := slacktest.New(t, slacktest.WithAckLimit(time.Minute))
	fake.AddChannel(slacktest.Channel{ID: theChannel})
	for _, u := range []string{anaInSlack, bobInSlack, carolInSlack, "U0STRANGER"} {
		fake.AddUser(slacktest.User{ID: u})
	}
	r := &replicas{slack: fake}
	open := func() *world {
		var st *store.Store
		w := newWorld(t, func(c *Config) {
			if st, err = store.Open(t.Context(), store.Options{URL: url, Embedded: embedded, Ring: ring, Log: c.Log, Owner: "file"}); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { st.Close() })
			c.clickTime = 50 * time.Second
			c.Decider, c.Adopter, c.Links, c.Desk, c.Ring, c.Replier, c.Now = st, st, st, st, ring, toResponseURL{}, time.Now
			c.Slack = &Slack{SigningSecrets: []string{fake.SigningSecret()}, AppID: func() string { return fake.AppID }, TeamID: func() string { return fake.TeamID }}
		})
		w.dir.now, w.ring = time.Now, ring
		r.store = st
		return w
	}
	r.other, r.world = open(), open()
	fake.SetInteractions(r.site.URL + "/slack/interactions")
	r.park()
	return r
}

// toResponseURL answers as Slack's documentation says: one POST of JSON.
type toResponseURL struct{}

func (toResponseURL) Ephemeral(ctx context.Context, responseURL, text string) error {
	body, err := json.Marshal(object_{"response_type": "ephemeral", "replace_original": false, "text": text})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, responseURL, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// park parks a call and posts its card.
func (r *replicas) park() {
	r.t.Helper()
	route := approvals.Route{Name: "default", Approvers: []string{"group:ops", "group:oncall"}, Quorum: 1, Timeout: 15 * time.Minute}
	p := approvals.Park{
		Nonce: "park-1", Requester: "bob", Title: "Cancel order 1042", View: approvals.View{Text: "{\n  \"order\": 1042\n}"},
		Channels: []string{"slack:" + theChannel, "link:ana"}, Links: "approve", Caps: approvals.DefaultCaps,
		Requirements: []approvals.Requirement{route.Require([]string{"bob"})},
		Envelope: action.Envelope{OperationID: theID, Tier: "destructive", Call: action.Call{
			Server: "orders", Tool: "cancel_order", Args: json.RawMessage(`{"order":1042}`), Actor: action.Actor{ID: "bob@acme.test", Auth: "token"},
		}},
	}
	var err error
	if r.ticket, _, err = r.store.Park(r.t.Context(), p); err != nil {
		r.t.Fatal(err)
	}
	r.cardTS = r.postCard()
}

func (r *replicas) postCard() string {
	button := func(id, label string, v approvals.Verdict) object_ {
		return object_{"type": "button", "action_id": id, "text": object_{"type": "plain_text", "text": label},
			"value": r.ring.Token(keys.Button, "v1", theID, "slack:"+theChannel, v.String(), "n1")}
	}
	blocks, err := json.Marshal([]any{object_{"type": "actions", "block_id": "b1", "elements": []any{
		button(ActionApprove, "Approve", approvals.Approve), button(ActionDeny, "Deny", approvals.Deny)}}})
	if err != nil {
		r.t.Fatal(err)
	}
	return r.slack.Seed(theChannel, slacktest.Seed{Text: "Approval needed", Blocks: string(blocks)})
}

func (r *replicas) now() approvals.Ticket {
	r.t.Helper()
	t, err := r.store.Ticket(r.t.Context(), theID)
	if err != nil {
		r.t.Fatal(err)
	}
	return t
}

// events counts the store's events of a kind.
func (r *replicas) events(kind string) (out []approvals.Event) {
	r.t.Helper()
	all, _, err := r.store.Events(r.t.Context(), "test", 1000, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, e := range all {
		if e.Kind == kind {
			out = append(out, e)
		}
	}
	return out
}

// Fifty clicks at once, on two replicas, decide once, and whoever was too late
// is told so.
func TestFiftyClicksOnTwoReplicas(t *testing.T) {
	onBoth(t, func(t *testing.T, r *replicas) {
		urls := []string{r.site.URL + "/slack/interactions", r.other.site.URL + "/slack/interactions"}
		answers := r.slack.ClickMany(t.Context(), slacktest.Click{User: anaInSlack, Channel: theChannel, TS: r.cardTS, ActionID: ActionApprove}, 50, urls...)
		for _, a := range answers {
			if a.Seen != "" {
				t.Errorf("a clicker saw %q (%d %s)", a.Seen, a.Status, a.Body)
			}
		}
		if got := r.now(); got.State != approvals.Approved || len(got.Votes) != 1 || got.By != "ana" {
			t.Fatalf("%s by %q with %d votes", got.State, got.By, len(got.Votes))
		}
		if n := len(r.events("vote")); n != 1 {
			t.Fatalf("%d votes on the event stream", n)
		}
		if err := r.s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := r.other.s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		told := r.slack.Ephemerals(anaInSlack)
		if len(told) == 0 || len(told) > 49 {
			t.Fatalf("%d sentences", len(told))
		}
		for _, e := range told {
			if !strings.HasPrefix(e.Text, "It was approved by ana") && !strings.HasPrefix(e.Text, "You have already answered") {
				t.Fatal(e.Text)
			}
		}
	})
}

// Approvals and denials race: whatever wins, the votes and the state agree.
func TestClicksOfTwoMinds(t *testing.T) {
	onBoth(t, func(t *testing.T, r *replicas) {
		done := make(chan []slacktest.Answer, 2)
		go func() {
			done <- r.slack.ClickMany(t.Context(), slacktest.Click{User: anaInSlack, Channel: theChannel, TS: r.cardTS, ActionID: ActionApprove}, 20)
		}()
		go func() {
			done <- r.slack.ClickMany(t.Context(), slacktest.Click{User: carolInSlack, Channel: theChannel, TS: r.cardTS, ActionID: ActionDeny, URL: r.other.site.URL + "/slack/interactions"}, 20)
		}()
		for range 2 {
			for _, a := range <-done {
				if a.Seen != "" {
					t.Errorf("a clicker saw %q", a.Seen)
				}
			}
		}
		got := r.now()
		want := map[approvals.State]approvals.Verdict{approvals.Approved: approvals.Approve, approvals.Denied: approvals.Deny}
		v, decided := want[got.State]
		if !decided || len(got.Votes) != 1 || got.Votes[0].Verdict != v {
			t.Fatalf("%s with %+v", got.State, got.Votes)
		}
	})
}

// The same request again, by Slack or by a thief on another replica, is the same
// vote: no second event, no sentence.
func TestReplayOnAnotherReplica(t *testing.T) {
	onBoth(t, func(t *testing.T, r *replicas) {
		in, err := r.slack.Prepare(slacktest.Click{User: anaInSlack, Channel: theChannel, TS: r.cardTS, ActionID: ActionApprove})
		if err != nil {
			t.Fatal(err)
		}
		for _, to := range []string{r.site.URL, r.other.site.URL, r.other.site.URL} {
			if a := r.slack.Send(t.Context(), in.To(to+"/slack/interactions")); a.Seen != "" {
				t.Fatal(a.Seen, a.Body)
			}
		}
		_ = r.s.Close(t.Context())
		_ = r.other.s.Close(t.Context())
		if n := len(r.slack.Ephemerals(anaInSlack)); n != 0 {
			t.Fatalf("%d sentences", n)
		}
		if n := len(r.events("vote")); n != 1 {
			t.Fatalf("%d votes", n)
		}
	})
}

// A refusal of a genuine click is on record with who and why.
func TestRefusalsAreOnRecord(t *testing.T) {
	onBoth(t, func(t *testing.T, r *replicas) {
		for _, u := range []string{"U0STRANGER", bobInSlack} {
			if a := r.slack.Click(t.Context(), slacktest.Click{User: u, Channel: theChannel, TS: r.cardTS, ActionID: ActionApprove}); a.Seen != "" {
				t.Fatal(a.Seen)
			}
		}
		a := r.postHook("msg_1", Decision{ApprovalID: theID, Verdict: approvals.Approve, Digest: "k.other", Actor: "acc-ana"}.Body(time.Now()))
		mustProblem(t, a, 422)
		var got []string
		for _, e := range r.events("vote_refused") {
			got = append(got, fmt.Sprintf("%s %s %s", e.Person, e.Source, e.Refused))
		}
		want := []string{" slack:U0STRANGER not_eligible", "bob slack:" + bobInSlack + " self_approval", "ana callback:jira wrong_digest"}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("%q", got)
		}
		if got := r.now(); got.State != approvals.Pending || len(got.Votes) != 0 {
			t.Fatal(got.State)
		}
	})
}

// A card that nobody knew of is known after its first click.
func TestAdoptionOnTheRealStore(t *testing.T) {
	onBoth(t, func(t *testing.T, r *replicas) {
		if r.now().Delivered() {
			t.Fatal("the card is known already")
		}
		if a := r.slack.Click(t.Context(), slacktest.Click{User: "U0STRANGER", Channel: theChannel, TS: r.cardTS, ActionID: ActionDeny}); a.Seen != "" {
			t.Fatal(a.Seen)
		}
		refs := r.now().Refs
		if len(refs) != 1 || refs[0].ID != theChannel+"/"+r.cardTS || refs[0].Rev != 0 || refs[0].Channel != "slack:"+theChannel {
			t.Fatalf("%+v", refs)
		}
	})
}

// A link, a callback and an operator on the real store, and the answers to what
// comes after.
func TestOtherWaysInOnTheRealStore(t *testing.T) {
	onBoth(t, func(t *testing.T, r *replicas) {
		token, err := r.store.NewLink(t.Context(), theID, "ana", time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		page := r.open("/a/" + token)
		m := nonceField.FindStringSubmatch(page.body)
		if page.status != 200 || m == nil || !strings.Contains(page.body, "&#34;order&#34;: 1042") {
			t.Fatal(page)
		}
		if a := r.open("/a/" + strings.Repeat("A", len(token))); a.status != 404 {
			t.Fatal(a.status)
		}
		h := map[string][]string{"Content-Type": {"application/x-www-form-urlencoded"}, "Origin": {r.site.URL}}
		a := r.send(r.request("POST", r.site.URL+"/a/"+token, []byte(answerForm(m[1], "approve", "confirm", "read", "reason", "fine").Encode()), h))
		if got := r.now(); a.status != 200 || got.State != approvals.Approved || got.Votes[0].Source != "link" {
			t.Fatal(a, got.State)
		}
		body := Decision{ApprovalID: theID, Verdict: approvals.Deny, Digest: r.ticket.Bound, Actor: "acc-carol"}.Body(time.Now())
		mustProblem(t, r.postHook("msg_2", body), 409)
		got, err := r.client(adminToken).Revoke(t.Context(), theID, "second thoughts")
		if err != nil || got.State != approvals.Revoked || got.Reason != "second thoughts" {
			t.Fatalf("%+v %v", got, err)
		}
		mustProblem(t, r.postHook("msg_3", body), 410)
		list, err := r.client(adminToken).List(t.Context(), []approvals.State{approvals.Revoked}, 10)
		if err != nil || len(list) != 1 {
			t.Fatal(list, err)
		}
	})
}

func TestCallbackOnTheRealStore(t *testing.T) {
	onBoth(t, func(t *testing.T, r *replicas) {
		body := Decision{ApprovalID: theID, Verdict: approvals.Approve, Digest: r.ticket.Bound, Actor: "acc-ana"}.Body(time.Now())
		if a := r.postHook("msg_1", body); a.status != 202 {
			t.Fatal(a)
		}
		for _, id := range []string{"msg_1", "msg_2"} {
			if a := r.postHook(id, body); a.status != 200 {
				t.Fatal(id, a)
			}
		}
		if n := len(r.events("vote")); n != 1 {
			t.Fatalf("%d votes", n)
		}
	})
}

// With the store gone, Slack shows an error, and so does everybody else.
func TestStoreGone(t *testing.T) {
	m := miniredis.RunT(t)
	r := newReplicas(t, "redis://"+m.Addr(), true)
	m.Close()
	a := r.slack.Click(t.Context(), slacktest.Click{User: anaInSlack, Channel: theChannel, TS: r.cardTS, ActionID: ActionApprove})
	if a.Status != 503 || a.Seen == "" {
		t.Fatalf("%d %q", a.Status, a.Seen)
	}
	e, err := r.slack.WaitEphemeral(t.Context(), anaInSlack, func(slacktest.Ephemeral) bool { return true })
	if err != nil || e.Text != sayUncertain {
		t.Fatal(e.Text, err)
	}
}
