package webhook

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
)

// An app of a whole organisation has no team in its payloads; an unset check
// must not be passed by that.
func TestSlackOrganisations(t *testing.T) {
	org := func(p object_) { p["team"] = nil; p["enterprise"] = object_{"id": "E0ACME", "name": "org"} }
	set := func(team, enterprise string) func(*Config) {
		return func(c *Config) {
			c.Slack.TeamID = func() string { return team }
			c.Slack.EnterpriseID = func() string { return enterprise }
		}
	}
	rows := []struct {
		name             string
		team, enterprise string
		change           func(object_)
		status           int
	}{
		{"organisation, pinned", "", "E0ACME", org, 200},
		{"organisation, another pinned", "", "E0OTHER", org, 403},
		{"organisation, only a team pinned", theTeam, "", org, 403},
		{"workspace of the pinned organisation", "", "E0ACME", func(p object_) { p["enterprise"] = object_{"id": "E0ACME"} }, 200},
		{"nothing pinned yet", "", "", org, 503},
		{"nothing pinned yet, no ids", "", "", func(p object_) { p["team"] = nil }, 503},
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			w := newWorld(t, set(r.team, r.enterprise))
			if a := w.approveClick(anaInSlack, r.change); a.status != r.status {
				t.Fatalf("status %d, want %d", a.status, r.status)
			}
			if r.status != 200 {
				w.undecided()
			} else if w.desk.ticket().State != approvals.Approved {
				t.Fatal("not approved")
			}
		})
	}
	w := newWorld(t, func(c *Config) { c.Slack.AppID = func() string { return "" } })
	if a := w.approveClick(anaInSlack); a.status != 503 {
		t.Fatal("an app id that isn't known yet fitted: ", a.status)
	}
	w.undecided()
}

// When it can't be known whether the click was recorded, Slack gets an error to
// show and the clicker a sentence that is true either way.
func TestClickWhileTheStoreIsDown(t *testing.T) {
	t.Run("down", func(t *testing.T) {
		w := newWorld(t)
		w.desk.fail = fmt.Errorf("dial: %w: %w", approvals.StoreUnavailable, errDown)
		mustProblem(t, w.approveClick(anaInSlack), 503)
		if got := w.mouth.hear(t); got != sayUncertain {
			t.Fatal(got)
		}
	})
	t.Run("reply lost", func(t *testing.T) {
		w := newWorld(t)
		w.desk.lose = true
		mustProblem(t, w.approveClick(anaInSlack), 503)
		if got := w.mouth.hear(t); got != sayUncertain {
			t.Fatal(got)
		}
		w.desk.lose = false
		if a := w.approveClick(anaInSlack); a.status != 200 || len(w.desk.ticket().Votes) != 1 {
			t.Fatal("the same click again is not the same vote")
		}
	})
}

func TestCardIsAdopted(t *testing.T) {
	ref := func(channel, id string) approvals.Ref { return approvals.Ref{Channel: channel, ID: id, Rev: 1} }
	here := "slack:" + theChannel
	rows := []struct {
		name string
		refs []approvals.Ref
		want bool
	}{
		{"known", []approvals.Ref{ref(here, theChannel+"/"+cardTimestamp)}, false},
		{"known beside another", []approvals.Ref{ref(here, theChannel+"/1.1"), ref(here, theChannel+"/"+cardTimestamp)}, false},
		{"lost", nil, true},
		{"another message there", []approvals.Ref{ref(here, theChannel+"/1764470000.000100")}, true},
		{"only elsewhere", []approvals.Ref{ref("ticket:jira", "SEC-1")}, true},
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			w := newWorld(t)
			w.desk.set(func(t *approvals.Ticket) { t.Refs = r.refs })
			w.approveClick(anaInSlack)
			if got := len(w.desk.adopted) == 1; got != r.want {
				t.Fatalf("adopted %+v", w.desk.adopted)
			}
			if !r.want {
				return
			}
			if got := w.desk.adopted[0]; got != (approvals.Ref{Channel: here, ID: theChannel + "/" + cardTimestamp}) {
				t.Fatalf("%+v", got)
			}
			if c := w.desk.changes(); c[0] != "adopt" {
				t.Fatal("adopted after the vote: its nudge would not find the card")
			}
		})
	}
	w := newWorld(t)
	w.desk.set(func(t *approvals.Ticket) { t.Refs = nil })
	w.postSlack(form(w.payload(ActionApprove, w.button(approvals.Approve), anaInSlack, func(p object_) { p["api_app_id"] = "A0OTHER" })))
	w.postSlack(form(w.payload(ActionApprove, "forged", anaInSlack)))
	if len(w.desk.adopted) != 0 {
		t.Fatal("a card that isn't ours was adopted")
	}
}

// A store that doesn't answer is given up before Slack gives up.
func TestClickHasADeadline(t *testing.T) {
	if clickTime >= 3*time.Second || directoryTime >= clickTime {
		t.Fatal("Slack would give up first, or the lookup would leave no time for the decision")
	}
	w := newWorld(t, func(c *Config) { c.clickTime = 20 * time.Millisecond })
	w.desk.block = func(ctx context.Context) {
		<-ctx.Done()
		w.desk.fail = ctx.Err()
	}
	mustProblem(t, w.approveClick(anaInSlack), 503)
	if got := w.mouth.hear(t); got != sayUncertain {
		t.Fatal(got)
	}
}

// A click that was verified counts, also when Slack hangs up while it is taken.
func TestClickOutlivesItsConnection(t *testing.T) {
	w := newWorld(t)
	reached, gone, hungUp := make(chan struct{}), make(chan struct{}), make(chan struct{})
	w.desk.block = func(ctx context.Context) {
		close(reached)
		<-gone
		if ctx.Err() != nil {
			t.Error("the click ended with its connection")
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan struct{})
	h := w.s.Handler()
	site := serve(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		defer close(served)
		both, stop := context.WithCancel(r.Context())
		defer stop()
		context.AfterFunc(ctx, func() { stop(); close(hungUp) })
		h.ServeHTTP(rw, r.WithContext(both))
	}), w.cfg.Log)
	body := form(w.payload(ActionApprove, w.button(approvals.Approve), anaInSlack))
	req := w.request("POST", site.URL+"/slack/interactions", body, slackHeaders(slackSecret, w.clock.now(), body))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if resp, err := http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
		}
	}()
	<-reached
	cancel()
	<-hungUp
	close(gone)
	<-served
	<-done
	w.desk.block = nil
	if got := w.desk.ticket(); got.State != approvals.Approved {
		t.Fatal(got.State)
	}
}

func TestSlackIsNotMountedWithoutSecrets(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Slack = nil })
	mustProblem(t, w.approveClick(anaInSlack), 404)
	cfg := w.cfg
	cfg.Slack = &Slack{AppID: func() string { return theApp }, TeamID: func() string { return theTeam }}
	if _, err := New(cfg); err == nil {
		t.Fatal("Slack without a signing secret started")
	}
}
