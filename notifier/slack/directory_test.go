package slack

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/notifier"
	"github.com/countersign-mcp/countersign/notifier/slacktest"
)

func TestPerson(t *testing.T) {
	for name, c := range map[string]struct {
		user   slacktest.User
		team   string // of the click; "" is the user's own
		want   string
		groups []string
		why    NotAllowed
	}{
		"in a group":          {user: slacktest.User{ID: "U0BEN"}, want: "ben", groups: []string{"group:ops"}},
		"through Slack group": {user: slacktest.User{ID: "U0CAT"}, want: "cat", groups: []string{"group:ops", "slack-group:S0ONCALL"}},
		"in another group":    {user: slacktest.User{ID: "U0ANA"}, want: "ana", groups: []string{"group:desk"}},
		"nobody of ours":      {user: slacktest.User{ID: "U0NOBODY"}, want: ""},
		"deactivated":         {user: slacktest.User{ID: "U0BEN", Deleted: true}, why: Deactivated},
		"bot":                 {user: slacktest.User{ID: "U0BEN", Bot: true}, why: Bot},
		"app":                 {user: slacktest.User{ID: "U0BEN", AppUser: true}, why: Bot},
		"workflow":            {user: slacktest.User{ID: "U0BEN", WorkflowBot: true}, why: Bot},
		"connector":           {user: slacktest.User{ID: "U0BEN", ConnectorBot: true}, why: Bot},
		"guest":               {user: slacktest.User{ID: "U0BEN", Restricted: true}, why: Guest},
		"single-channel":      {user: slacktest.User{ID: "U0BEN", UltraRestricted: true}, why: Guest},
		"stranger":            {user: slacktest.User{ID: "U0BEN", Stranger: true}, why: OtherWorkspace},
		"other workspace":     {user: slacktest.User{ID: "U0BEN", TeamID: "T0OTHER"}, why: OtherWorkspace},
		"lies about its team": {user: slacktest.User{ID: "U0BEN", TeamID: "T0OTHER"}, team: "T0ACME0001", why: OtherWorkspace},
		"click from outside":  {user: slacktest.User{ID: "U0BEN"}, team: "T0OTHER", why: OtherWorkspace},
		"not visible":         {user: slacktest.User{ID: "U0BEN", Invisible: true}, why: NotVisible},
		"not an id":           {user: slacktest.User{ID: "S0ONCALL"}, why: NotVisible},
	} {
		t.Run(name, func(t *testing.T) {
			sc := newScene(t, nil)
			sc.fake.AddUser(c.user)
			team := c.team
			if team == "" {
				if team = c.user.TeamID; team == "" {
					team = sc.fake.TeamID
				}
			}
			got, m, err := sc.Person(t.Context(), c.user.ID, team, "")
			if c.why != "" {
				var why NotAllowed
				if !errors.As(err, &why) || why != c.why || !errors.Is(err, approvals.NotEligible) || got != "" {
					t.Fatalf("got %q, %v; want %s", got, err, c.why)
				}
				return
			}
			if err != nil || got != c.want || !slices.Equal(m.Groups, c.groups) {
				t.Fatalf("got %q, %v, %v", got, m.Groups, err)
			}
			if got != "" && time.Since(m.AsOf) > time.Minute {
				t.Errorf("as of %v", m.AsOf)
			}
		})
	}
}

func TestGridTeams(t *testing.T) {
	fake := slacktest.Option(func(s *slacktest.Slack) { s.EnterpriseID = "E0ACME" })
	sc := newScene(t, nil, fake)
	sc.fake.AddUser(slacktest.User{ID: "U0BEN", TeamID: "T0SISTER", EnterpriseID: "E0ACME"})
	if got, _, err := sc.Person(t.Context(), "U0BEN", "E0ACME", "E0ACME"); got != "ben" || err != nil {
		t.Errorf("a colleague of another workspace of the organisation: %q, %v", got, err)
	}
	sc.fake.AddUser(slacktest.User{ID: "U0CAT", TeamID: "T0OTHER", EnterpriseID: "E0OTHER"})
	if got, _, err := sc.Person(t.Context(), "U0CAT", "T0OTHER", "E0ACME"); got != "" || !errors.Is(err, approvals.NotEligible) {
		t.Errorf("somebody of another organisation: %q, %v", got, err)
	}
}

// A group that can't be read lets nobody in; one that is gone is empty.
func TestGroupFailures(t *testing.T) {
	sc := newScene(t, nil)
	sc.fake.FailNext("usergroups.users.list", slacktest.TooMany(30))
	_, m, err := sc.Person(t.Context(), "U0CAT", sc.fake.TeamID, "")
	if f := fail(t, err); f.Reason != notifier.RateLimited || len(m.Groups) != 0 {
		t.Fatalf("%+v, %v", f, m.Groups)
	}
	sc.fake.AddUserGroup(slacktest.UserGroup{ID: "S0ONCALL", Members: []string{"U0CAT"}, Disabled: true})
	_, m, err = sc.Person(t.Context(), "U0CAT", sc.fake.TeamID, "")
	if err != nil || len(m.Groups) != 0 {
		t.Fatalf("%v, %v", m.Groups, err)
	}
}

func TestUsersInfoDown(t *testing.T) {
	sc := newScene(t, nil)
	sc.fake.FailAlways("users.info", slacktest.ErrorBefore())
	got, _, err := sc.Person(t.Context(), "U0BEN", sc.fake.TeamID, "")
	if f := fail(t, err); got != "" || f.Reason != notifier.Unreachable {
		t.Fatalf("%q, %+v", got, f)
	}
	sc.fake.Heal("users.info") // a failure is not remembered
	if got, _, err := sc.Person(t.Context(), "U0BEN", sc.fake.TeamID, ""); got != "ben" || err != nil {
		t.Fatalf("%q, %v", got, err)
	}
}

// The answer is used again for less than a membership may be old, and then asked
// for anew: somebody who left the group is out.
func TestMembershipsAreFresh(t *testing.T) {
	var mu sync.Mutex
	now := time.Now()
	clock := func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	forward := func(d time.Duration) { mu.Lock(); defer mu.Unlock(); now = now.Add(d) }
	sc := newScene(t, func(c *Config) { c.Now = clock })
	person := func() approvals.Memberships {
		t.Helper()
		_, m, err := sc.Person(t.Context(), "U0CAT", sc.fake.TeamID, "")
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	first := person()
	sc.fake.AddUserGroup(slacktest.UserGroup{ID: "S0ONCALL"})
	forward(remember - time.Second)
	if m := person(); !slices.Contains(m.Groups, "group:ops") || !m.AsOf.Equal(first.AsOf) {
		t.Errorf("%+v: the cache was not used, or lies about its age", m)
	}
	if n := sc.fake.Calls("users.info"); n != 1 {
		t.Errorf("%d calls of users.info", n)
	}
	forward(time.Second)
	m := person()
	if len(m.Groups) != 0 || !m.AsOf.After(first.AsOf) {
		t.Errorf("%+v after %s", m, remember)
	}
	sc.fake.AddUser(slacktest.User{ID: "U0CAT", Deleted: true})
	forward(remember)
	if _, _, err := sc.Person(t.Context(), "U0CAT", sc.fake.TeamID, ""); !errors.Is(err, Deactivated) {
		t.Errorf("got %v", err)
	}
}

func TestManyClicksAskOnce(t *testing.T) {
	sc := newScene(t, nil)
	if _, err := sc.Identify(t.Context()); err != nil {
		t.Fatal(err)
	}
	hold := make(chan struct{})
	sc.fake.FailNext("users.info", slacktest.Slow(hold))
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if got, _, err := sc.Person(t.Context(), "U0BEN", sc.fake.TeamID, ""); got != "ben" || err != nil {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
	if err := sc.fake.WaitCalls(t.Context(), "users.info", 1); err != nil {
		t.Fatal(err)
	}
	close(hold)
	wg.Wait()
	// Whoever came after the first answer found it remembered.
	if n := sc.fake.Calls("users.info"); n != 1 {
		t.Errorf("%d calls for 50 clicks", n)
	}
}

func TestMembershipsOfSomebodyElsewhere(t *testing.T) {
	sc := newScene(t, nil)
	m, err := sc.Memberships(t.Context(), "cat")
	if err != nil || !slices.Contains(m.Groups, "group:ops") {
		t.Errorf("%v, %v", m, err)
	}
	m, err = sc.Memberships(t.Context(), "dan")
	if err != nil || len(m.Groups) != 0 || sc.fake.Calls("usergroups.users.list") != 1 {
		t.Errorf("%v, %v", m, err)
	}
}

func TestIdentityIsPinned(t *testing.T) {
	sc := newScene(t, nil)
	if sc.AppID() != "" || sc.TeamID() != "" {
		t.Error("there is an identity before Slack was asked")
	}
	id, err := sc.Identify(t.Context())
	if err != nil || id.TeamID != sc.fake.TeamID || id.AppID != sc.fake.AppID || sc.AppID() != id.AppID || sc.TeamID() != id.TeamID {
		t.Fatalf("%+v, %v", id, err)
	}
	if _, err := sc.Identify(t.Context()); err != nil || sc.fake.Calls("auth.test") != 1 {
		t.Errorf("%v, %d calls", err, sc.fake.Calls("auth.test"))
	}
	other := id
	other.AppID = "A0ANOTHER"
	sc.Slack.identity = other
	if _, err := sc.Verify(t.Context()); err == nil {
		t.Error("another app took over")
	}
}

func TestEphemeral(t *testing.T) {
	sc := newScene(t, nil)
	if _, err := sc.Deliver(t.Context(), sc.message(pending())); err != nil {
		t.Fatal(err)
	}
	sc.fake.SetInteractions("http://127.0.0.1:1/unused")
	in, err := sc.fake.Prepare(slacktest.Click{User: "U0BEN", Channel: testChannel, TS: sc.fake.Messages(testChannel)[0].TS, Verdict: "deny"})
	if err != nil {
		t.Fatal(err)
	}
	if err := sc.Ephemeral(t.Context(), in.ResponseURL, "You may not <!channel> & \u202e"); err != nil {
		t.Fatal(err)
	}
	got := sc.fake.Ephemerals("U0BEN")
	if len(got) != 1 || got[0].Text != "You may not &lt;!channel&gt; &amp; ⟦U+202E⟧" {
		t.Fatalf("%+v", got)
	}
	if n := len(sc.fake.Messages(testChannel)[0].Edits); n != 1 {
		t.Error("the card was replaced")
	}
	for range 4 {
		if err := sc.Ephemeral(t.Context(), in.ResponseURL, "again"); err != nil {
			t.Fatal(err)
		}
	}
	if err := sc.Ephemeral(t.Context(), in.ResponseURL, "too often"); err == nil {
		t.Error("a used-up URL is a success")
	}
}

func TestEphemeralGoesToSlackOnly(t *testing.T) {
	sc := newScene(t, nil)
	for _, u := range []string{
		"http://hooks.slack.com/actions/1", "https://hooks.slack.com.evil.test/1", "https://evil.test/hooks.slack.com",
		"https://hooks.slack.com@evil.test/1", "https://hooks.slack.com:8443/1", "http://169.254.169.254/latest", "//evil.test",
		"https://evil.test\\@hooks.slack.com/", "", "http://127.0.0.1:1/actions/x", "https://a:b@hooks.slack.com/",
	} {
		if sc.mayAnswer(u) {
			t.Errorf("%q would be posted to", u)
		}
	}
	for _, u := range []string{"https://hooks.slack.com/actions/T1/2/3", "https://hooks.slack-gov.com/actions/T1/2/3"} {
		if !sc.mayAnswer(u) {
			t.Errorf("%q would not be posted to", u)
		}
	}
	real := newScene(t, func(c *Config) { c.APIURL = DefaultAPI })
	if real.mayAnswer("https://slack.com/actions") || real.mayAnswer("http://127.0.0.1/actions") {
		t.Error("with the real API only the hook hosts are answered")
	}
}
