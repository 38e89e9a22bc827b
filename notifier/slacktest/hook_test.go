package slacktest_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/slack-go/slack"

	"github.com/countersign-mcp/countersign/notifier/slacktest"
)

// clicked is the response URL of a fresh click.
func clicked(t *testing.T, s *slacktest.Slack, ts string) string {
	t.Helper()
	in, err := s.Prepare(slacktest.Click{User: "U0ANA", Channel: channel, TS: ts, Verdict: "approve", URL: "http://127.0.0.1/"})
	if err != nil {
		t.Fatal(err)
	}
	return in.ResponseURL
}

func answer(t *testing.T, url, body string) (int, string) {
	t.Helper()
	res, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

func TestResponseURLByTheClientLibrary(t *testing.T) {
	s, api := scene(t)
	ts := post(t, api, "apr", "x")
	url := clicked(t, s, ts)
	done := make(chan error, 1)
	go func() {
		_, _, err := api.PostMessageContext(t.Context(), "", slack.MsgOptionResponseURL(url, slack.ResponseTypeEphemeral), slack.MsgOptionText("You aren't on this route.", false))
		done <- err
	}()
	r, err := s.WaitReply(t.Context(), url)
	if err != nil || r.Text != "You aren't on this route." || r.User != "U0ANA" {
		t.Errorf("reply %+v, %v", r, err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	e, err := s.WaitEphemeral(t.Context(), "U0ANA", nil)
	if err != nil || e.Text != r.Text || e.Via != "response_url" || e.ResponseURL != url {
		t.Errorf("ephemeral %+v, %v", e, err)
	}
	if got := s.Ephemerals("U0BOB"); len(got) != 0 {
		t.Errorf("Bob saw %+v", got)
	}
}

func TestResponseURLUsesAndLife(t *testing.T) {
	clock := newClock()
	s, api := scene(t, slacktest.WithClock(clock.Now))
	ts := post(t, api, "apr", "x")
	url := clicked(t, s, ts)
	for i := range 5 {
		if code, body := answer(t, url, `{"text":"x"}`); code != 200 || body != "ok" {
			t.Fatalf("use %d: %d %s", i+1, code, body)
		}
	}
	if code, body := answer(t, url, `{"text":"x"}`); code != 404 || !strings.Contains(body, "used_url") {
		t.Errorf("sixth use: %d %s", code, body)
	}
	if n := len(s.Replies(url)); n != 5 {
		t.Errorf("%d replies", n)
	}
	young := clicked(t, s, ts)
	clock.Advance(30*time.Minute - time.Nanosecond)
	if code, _ := answer(t, young, `{"text":"x"}`); code != 200 {
		t.Errorf("just before its end: %d", code)
	}
	clock.Advance(time.Nanosecond)
	if code, body := answer(t, young, `{"text":"x"}`); code != 404 || !strings.Contains(body, "expired_url") {
		t.Errorf("at its end: %d %s", code, body)
	}
	if code, _ := answer(t, strings.TrimSuffix(url, "0")+"zz", `{"text":"x"}`); code != 404 {
		t.Errorf("an unknown URL: %d", code)
	}
}

func TestResponseURLKinds(t *testing.T) {
	s, api := scene(t)
	ts := post(t, api, "apr", "x")
	if code, _ := answer(t, clicked(t, s, ts), `{"text":"all of you","response_type":"in_channel"}`); code != 200 {
		t.Fatal(code)
	}
	if ms := s.Messages(channel); len(ms) != 2 || ms[1].Text != "all of you" {
		t.Errorf("messages %+v", ms)
	}
	if code, _ := answer(t, clicked(t, s, ts), `not json`); code != 400 {
		t.Errorf("bad JSON: %d", code)
	}
	if code, body := answer(t, clicked(t, s, ts), `{"text":"x","blocks":[{"type":"nonsense"}]}`); code != 400 || body != "invalid_blocks" {
		t.Errorf("bad blocks: %d %s", code, body)
	}
	url := clicked(t, s, ts)
	if code, _ := answer(t, url, `{"text":"decided","replace_original":true}`); code != 200 {
		t.Fatal(code)
	}
	if m, _ := s.Message(channel, ts); m.Text != "decided" || m.Via != "response_url" || m.Metadata == nil {
		t.Errorf("replaced as %+v", m.Version)
	}
	if code, _ := answer(t, url, `{"delete_original":true}`); code != 200 {
		t.Fatal(code)
	}
	if m, _ := s.Message(channel, ts); !m.Deleted {
		t.Error("not deleted")
	}
	if code, _ := answer(t, url, `{"text":"x","replace_original":true}`); code == 200 {
		t.Error("a deleted message was replaced")
	}
}

func TestResponseURLFaults(t *testing.T) {
	s, api := scene(t)
	ts := post(t, api, "apr", "x")
	url := clicked(t, s, ts)
	s.FailNext("response_url", slacktest.ErrorBefore(), slacktest.ErrorAfterCommit())
	for i, stored := range []int{0, 1} {
		if code, _ := answer(t, url, `{"text":"x"}`); code != 500 {
			t.Errorf("fault %d: status %d", i, code)
		}
		if n := len(s.Replies(url)); n != stored {
			t.Errorf("fault %d: %d replies, want %d", i, n, stored)
		}
	}
}

func TestViews(t *testing.T) {
	clock := newClock()
	s, api := scene(t, slacktest.WithClock(clock.Now))
	ts := post(t, api, "apr", "x")
	trigger := func() string {
		in, err := s.Prepare(slacktest.Click{User: "U0ANA", Channel: channel, TS: ts, Verdict: "approve", URL: "http://127.0.0.1/"})
		if err != nil {
			t.Fatal(err)
		}
		return in.TriggerID
	}
	view := func(title string) slack.ModalViewRequest {
		return slack.ModalViewRequest{Type: slack.VTModal, Title: slack.NewTextBlockObject(slack.PlainTextType, title, false, false),
			Blocks: slack.Blocks{BlockSet: []slack.Block{slack.NewDividerBlock()}}, PrivateMetadata: "apr"}
	}
	id := trigger()
	v, err := api.OpenViewContext(t.Context(), id, view("Details"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = api.OpenViewContext(t.Context(), id, view("Details"))
	wantCode(t, err, "exchanged_trigger_id")
	_, err = api.OpenViewContext(t.Context(), "1.2", view("Details"))
	wantCode(t, err, "invalid_trigger_id")
	old := trigger()
	clock.Advance(3 * time.Second)
	_, err = api.OpenViewContext(t.Context(), old, view("Details"))
	wantCode(t, err, "expired_trigger_id")
	_, err = api.OpenViewContext(t.Context(), trigger(), view("A title that is over 24 characters"))
	wantCode(t, err, "invalid_arguments")

	if _, err = api.UpdateViewContext(t.Context(), view("Loaded"), "", v.Hash, v.ID); err != nil {
		t.Fatal(err)
	}
	_, err = api.UpdateViewContext(t.Context(), view("Loaded"), "", v.Hash, v.ID)
	wantCode(t, err, "hash_conflict")
	if vs := s.Views(); len(vs) != 1 || vs[0].Updates != 1 || vs[0].User != "U0ANA" {
		t.Errorf("views %+v", vs)
	}
}
