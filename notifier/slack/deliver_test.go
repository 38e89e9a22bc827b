package slack

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slack-go/slack"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/keys"
	"github.com/countersign-mcp/countersign/notifier"
	"github.com/countersign-mcp/countersign/notifier/notifiertest"
	"github.com/countersign-mcp/countersign/notifier/slacktest"
)

func fail(t *testing.T, err error) *notifier.Fail {
	t.Helper()
	var f *notifier.Fail
	if !errors.As(err, &f) {
		t.Fatalf("got %v, want a *notifier.Fail", err)
	}
	return f
}

func attempt(at time.Time) string {
	return fmt.Sprintf("%d-%d.abcd", at.UnixMilli(), at.UnixMilli())
}

// Every state edits the card: no buttons, the rich text kept, fresh block ids.
func TestUpdateToEveryState(t *testing.T) {
	for name, tk := range settled() {
		t.Run(name, func(t *testing.T) {
			sc := newScene(t, nil)
			r, err := sc.Deliver(t.Context(), sc.message(pending()))
			if err != nil {
				t.Fatal(err)
			}
			m := sc.message(tk)
			m.Ref = &r
			got, err := sc.Deliver(t.Context(), m)
			if err != nil {
				t.Fatal(err)
			}
			if got.ID != r.ID || got.Rev != tk.Rev {
				t.Errorf("ref %+v", got)
			}
			msg := sc.fake.Messages(testChannel)[0]
			if len(msg.Edits) != 2 || len(msg.Buttons()) != 0 || len(msg.Warnings) != 0 {
				t.Errorf("%d edits, buttons %v, warnings %v", len(msg.Edits), msg.Buttons(), msg.Warnings)
			}
			if strings.Join(msg.Preformatted(), "\n") != tk.View.Text {
				t.Error("the arguments are not kept")
			}
			if msg.Metadata == nil || msg.Metadata.EventPayload["approval_id"] != tk.ID {
				t.Error("the metadata is gone")
			}
			if sc.fake.Calls("chat.update") != 1 {
				t.Error("more than one edit")
			}
		})
	}
}

// A post whose answer was lost is found again, not repeated.
func TestLostPostIsAdopted(t *testing.T) {
	for name, f := range map[string]slacktest.Fault{
		"dropped":  slacktest.DropAfterCommit(),
		"500":      slacktest.ErrorAfterCommit(),
		"internal": {Commit: true, Code: "internal_error"},
		"empty":    {Commit: true, Empty: true},
		"fatal":    {Commit: true, Code: "fatal_error"},
		"timeout":  {Commit: true, Code: "request_timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			sc := newScene(t, nil)
			began := time.Now()
			sc.fake.FailNext("chat.postMessage", f)
			_, err := sc.Deliver(t.Context(), sc.message(pending()))
			if got := fail(t, err); !got.Maybe || got.Final || got.Reason != notifier.Unreachable {
				t.Fatalf("got %+v", got)
			}
			m := sc.message(pending())
			m.Attempt = attempt(began)
			r, err := sc.Deliver(t.Context(), m)
			if err != nil {
				t.Fatal(err)
			}
			msgs := sc.fake.Messages(testChannel)
			if len(msgs) != 1 || r.ID != testChannel+"/"+msgs[0].TS || r.Rev != 0 {
				t.Fatalf("%d messages, ref %+v", len(msgs), r)
			}
		})
	}
}

func TestLostPostAmongMany(t *testing.T) {
	sc := newScene(t, nil)
	began := time.Now()
	if _, err := sc.Deliver(t.Context(), sc.message(pending())); err != nil {
		t.Fatal(err)
	}
	want := sc.fake.Messages(testChannel)[0].TS
	for i := range findPage + 50 { // the card is on the second page
		other := pending()
		other.ID = "apr_other" + strconv.Itoa(i)
		if _, err := sc.Deliver(t.Context(), sc.message(other)); err != nil {
			t.Fatal(err)
		}
	}
	m := sc.message(pending())
	m.Attempt = attempt(began)
	r, err := sc.Deliver(t.Context(), m)
	if err != nil || r.ID != testChannel+"/"+want {
		t.Fatalf("%+v, %v", r, err)
	}
}

// Somebody else's message with our id in its metadata is not ours.
func TestForeignCardIsNotAdopted(t *testing.T) {
	sc := newScene(t, nil)
	began := time.Now()
	if _, err := sc.Deliver(t.Context(), sc.message(pending())); err != nil {
		t.Fatal(err)
	}
	id, err := sc.Identify(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	id.BotID = "B0ANOTHER" // now the card is another app's
	sc.Slack.identity = id
	m := sc.message(pending())
	m.Attempt = attempt(began)
	r, err := sc.Deliver(t.Context(), m)
	if err != nil || r.Rev != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	if n := len(sc.fake.Messages(testChannel)); n != 2 {
		t.Fatalf("%d messages", n)
	}
}

func TestAttemptThatPostedNothing(t *testing.T) {
	sc := newScene(t, func(c *Config) { c.Settle = time.Hour })
	m := sc.message(pending())
	m.Attempt = attempt(time.Now())
	_, err := sc.Deliver(t.Context(), m)
	if f := fail(t, err); f.Final || f.After <= 0 || !f.Maybe || !f.Unsent {
		t.Fatalf("a young attempt was taken for failed: %+v", f)
	}
	m.Attempt = attempt(time.Now().Add(-2 * time.Hour))
	if r, err := sc.Deliver(t.Context(), m); err != nil || r.Rev != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	if n := len(sc.fake.Messages(testChannel)); n != 1 {
		t.Fatalf("%d messages", n)
	}
}

func TestFindOnlyPostsNothing(t *testing.T) {
	sc := newScene(t, nil)
	m := sc.message(settled()["denied"])
	m.Attempt, m.Find = attempt(time.Now().Add(-time.Minute)), true
	r, err := sc.Deliver(t.Context(), m)
	if err != nil || r.ID != "" || len(sc.fake.Messages(testChannel)) != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
}

// Without the history scope a second card is better than none.
func TestWithoutHistoryScope(t *testing.T) {
	sc := newScene(t, nil)
	sc.fake.SetScopes("chat:write", "users:read", "channels:read")
	m := sc.message(pending())
	m.Attempt = attempt(time.Now())
	if r, err := sc.Deliver(t.Context(), m); err != nil || r.ID == "" {
		t.Fatalf("%+v, %v", r, err)
	}
}

func TestHistoryDownPostsNothing(t *testing.T) {
	sc := newScene(t, nil)
	sc.fake.FailAlways("conversations.history", slacktest.ErrorBefore())
	m := sc.message(pending())
	m.Attempt = attempt(time.Now())
	_, err := sc.Deliver(t.Context(), m)
	if f := fail(t, err); f.Reason != notifier.Unreachable || sc.fake.Calls("chat.postMessage") != 0 {
		t.Fatalf("%+v, %d posts", f, sc.fake.Calls("chat.postMessage"))
	}
}

// A card that Slack refuses for what is in it is never dropped.
func TestRefusedCard(t *testing.T) {
	sc := newScene(t, nil)
	roster, err := approvals.NewRoster([]approvals.Person{{ID: "ben", Slack: "U0WRONG"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	sc.roster = roster // Slack knows no such user
	tk := pending()
	tk.Requirements[0].Approvers = []string{"ben"}
	if _, err := sc.Deliver(t.Context(), sc.message(tk)); err != nil {
		t.Fatal(err)
	}
	m := sc.fake.Messages(testChannel)[0]
	checkButtons(t, sc, m.Buttons(), "Approve", "Deny")
	if len(m.Mentions()) != 0 || strings.Join(m.Preformatted(), "") != tk.View.Text {
		t.Errorf("mentions %v", m.Mentions())
	}
}

func TestRefusedTwice(t *testing.T) {
	sc := newScene(t, nil)
	sc.fake.FailNext("chat.postMessage", slacktest.Code("invalid_blocks"), slacktest.Code("msg_blocks_too_long"))
	r, err := sc.Deliver(t.Context(), sc.message(pending()))
	if err != nil {
		t.Fatal(err)
	}
	m := sc.fake.Messages(testChannel)[0]
	checkButtons(t, sc, m.Buttons(), "Deny")
	for _, want := range []string{"countersign approvals show apr_7QK2M4", "countersign approvals approve apr_7QK2M4"} {
		if !strings.Contains(m.Plain(), want) {
			t.Errorf("the card does not name %q", want)
		}
	}
	up := sc.message(settled()["succeeded"])
	up.Ref = &r
	sc.fake.FailNext("chat.update", slacktest.Code("invalid_blocks"), slacktest.Code("invalid_blocks"))
	if _, err := sc.Deliver(t.Context(), up); err != nil {
		t.Fatal(err) // a plain card keeps a rich_text block, else Slack refuses the edit
	}
	if b := sc.fake.Messages(testChannel)[0].Buttons(); len(b) != 0 {
		t.Errorf("buttons %v", b)
	}
}

func TestRefusedThrice(t *testing.T) {
	sc := newScene(t, nil)
	sc.fake.FailAlways("chat.postMessage", slacktest.Code("invalid_blocks"))
	_, err := sc.Deliver(t.Context(), sc.message(pending()))
	if f := fail(t, err); f.Reason != notifier.Payload || !f.Final || sc.fake.Calls("chat.postMessage") != levels {
		t.Fatalf("%+v after %d posts", f, sc.fake.Calls("chat.postMessage"))
	}
}

func TestDeletedCard(t *testing.T) {
	sc := newScene(t, nil)
	r, err := sc.Deliver(t.Context(), sc.message(pending()))
	if err != nil {
		t.Fatal(err)
	}
	_, ts, _ := strings.Cut(r.ID, "/")
	sc.fake.Remove(testChannel, ts)
	m := sc.message(settled()["denied"])
	m.Ref = &r
	_, err = sc.Deliver(t.Context(), m)
	if f := fail(t, err); f.Reason != notifier.Gone || f.Final {
		t.Fatalf("%+v", f)
	}
}

// The card of a call is not for people of another organisation.
func TestSharedChannel(t *testing.T) {
	sc := newScene(t, nil)
	sc.fake.AddChannel(slacktest.Channel{ID: "C0SHARED", ExtShared: true})
	m := sc.message(pending())
	m.Channel = "slack:C0SHARED"
	_, err := sc.Deliver(t.Context(), m)
	if f := fail(t, err); f.Reason != notifier.NoChannel || !f.Final || sc.fake.Calls("chat.postMessage") != 0 {
		t.Fatalf("%+v", f)
	}
}

func TestClassify(t *testing.T) {
	for _, c := range []struct {
		fault slacktest.Fault
		want  notifier.Fail
	}{
		{slacktest.TooMany(7), notifier.Fail{Reason: notifier.RateLimited, After: 7 * time.Second}},
		{slacktest.TooMany(-1), notifier.Fail{Reason: notifier.RateLimited, Detail: "HTTP 429"}},
		{slacktest.Code("ratelimited"), notifier.Fail{Reason: notifier.RateLimited, Detail: "ratelimited"}},
		{slacktest.ErrorBefore(), notifier.Fail{Reason: notifier.Unreachable, Maybe: true, Detail: "HTTP 500"}},
		{slacktest.DropBefore(), notifier.Fail{Reason: notifier.Unreachable, Maybe: true, Detail: "no usable answer"}},
		{slacktest.Code("token_revoked"), notifier.Fail{Reason: notifier.Auth, Final: true, Detail: "token_revoked"}},
		{slacktest.Code("missing_scope"), notifier.Fail{Reason: notifier.Auth, Final: true, Detail: "missing_scope"}},
		{slacktest.Code("is_archived"), notifier.Fail{Reason: notifier.NoChannel, Final: true, Detail: "is_archived"}},
		{slacktest.Code("restricted_action_read_only_channel"), notifier.Fail{Reason: notifier.NoChannel, Final: true, Detail: "restricted_action_read_only_channel"}},
		{slacktest.Code("something_new"), notifier.Fail{Reason: notifier.Rejected, Detail: "something_new"}},
		{slacktest.Code("<script>"), notifier.Fail{Reason: notifier.Rejected, Detail: "an unknown error"}},
		{slacktest.Fault{Empty: true}, notifier.Fail{Reason: notifier.Unreachable, Maybe: true, Detail: "no usable answer"}},
		{slacktest.Fault{Status: 403, RetryAfter: -1}, notifier.Fail{Reason: notifier.Auth, Final: true, Detail: "HTTP 403"}},
		{slacktest.Fault{Status: 404, RetryAfter: -1}, notifier.Fail{Reason: notifier.Rejected, Detail: "HTTP 404"}},
	} {
		sc := newScene(t, nil)
		sc.fake.FailNext("chat.postMessage", c.fault)
		_, err := sc.Deliver(t.Context(), sc.message(pending()))
		if f := fail(t, err); *f != c.want {
			t.Errorf("%+v: got %+v, want %+v", c.fault, *f, c.want)
		}
		if n := sc.fake.Calls("chat.postMessage"); n != 1 {
			t.Errorf("%+v: %d posts", c.fault, n)
		}
	}
	for code, f := range reasons {
		if got := classify(slack.SlackErrorResponse{Err: code}, false); got.Maybe || got.Reason != f.Reason {
			t.Errorf("%s: %+v", code, got)
		}
	}
}

func TestNobodyListens(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	url := srv.URL
	srv.Close()
	sc := newScene(t, func(c *Config) { c.APIURL = url })
	_, err := sc.Deliver(t.Context(), sc.message(pending()))
	if f := fail(t, err); f.Maybe || f.Reason != notifier.Unreachable {
		t.Fatalf("a post that can't have happened is %+v", f)
	}
}

// The token is sent to the API and to nobody else.
func TestRedirectIsNotFollowed(t *testing.T) {
	var stolen int
	thief := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { stolen++ }))
	defer thief.Close()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, thief.URL, http.StatusTemporaryRedirect)
	}))
	defer srv.Close()
	sc := newScene(t, func(c *Config) { c.APIURL = srv.URL })
	if _, err := sc.Deliver(t.Context(), sc.message(pending())); err == nil || stolen != 0 {
		t.Fatalf("%v, %d requests elsewhere", err, stolen)
	}
}

func TestNewRefuses(t *testing.T) {
	good := Config{BotToken: "xoxb-1", Ring: testRing(t), Roster: func() *approvals.Roster { return nil }}
	for name, change := range map[string]func(*Config){
		"no token":    func(c *Config) { c.BotToken = " " },
		"no ring":     func(c *Config) { c.Ring = (*keys.Ring)(nil) },
		"no roster":   func(c *Config) { c.Roster = nil },
		"plain http":  func(c *Config) { c.APIURL = "http://slack.test/api/" },
		"not a URL":   func(c *Config) { c.APIURL = "slack" },
		"user in URL": func(c *Config) { c.APIURL = "https://a:b@slack.test/api/" },
		"ftp":         func(c *Config) { c.APIURL = "ftp://127.0.0.1/" },
	} {
		c := good
		change(&c)
		if _, err := New(c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := New(good); err != nil {
		t.Error(err)
	}
}

func TestLeaksNothing(t *testing.T) {
	sc := newScene(t, func(c *Config) { c.Timeout = time.Second })
	hold := make(chan struct{})
	defer close(hold)
	notifiertest.LeaksNothing(t, notifiertest.Case{
		Channel: sc.Slack, Message: sc.message(pending()),
		Secrets: []string{sc.fake.BotToken, "customer asked"}, Log: sc.log,
		Break: map[string]func(){
			"refused":   func() { sc.fake.FailNext("*", slacktest.Code("invalid_auth")) },
			"500":       func() { sc.fake.FailNext("*", slacktest.ErrorBefore()) },
			"dropped":   func() { sc.fake.FailNext("*", slacktest.DropBefore()) },
			"slow":      func() { sc.fake.FailNext("*", slacktest.Slow(hold)) },
			"bad block": func() { sc.fake.FailAlways("chat.postMessage", slacktest.Code("invalid_blocks")) },
		},
	})
}

func TestCancelledDelivery(t *testing.T) {
	sc := newScene(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := sc.Deliver(ctx, sc.message(pending()))
	if f := fail(t, err); f.Final || f.Reason != notifier.Unreachable {
		t.Fatalf("%+v", f)
	}
}
