package slacktest_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slack-go/slack"

	"github.com/countersign-mcp/countersign/notifier/slacktest"
)

// Slack's own published example.
func TestOfficialSigningVector(t *testing.T) {
	body := `token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c`
	got := slacktest.Sign("8f742231b10e8888abcd99yyyzzz85a5", "1531420618", []byte(body))
	if want := "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"; got != want {
		t.Errorf("signature %s, want %s", got, want)
	}
}

// app is a webhook that takes Slack's word for nothing but the signature.
type app struct {
	*httptest.Server
	mu    sync.Mutex
	got   []slack.InteractionCallback
	bad   []error
	Reply func(slack.InteractionCallback) int
}

func newApp(t *testing.T, s *slacktest.Slack) *app {
	a := &app{}
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		v, err := slack.NewSecretsVerifier(r.Header, s.SigningSecret())
		if err == nil {
			v.Write(body)
			err = v.Ensure()
		}
		if err != nil {
			a.mu.Lock()
			a.bad = append(a.bad, err)
			a.mu.Unlock()
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		cb, err := slack.InteractionCallbackParse(r)
		if err != nil {
			w.WriteHeader(http.StatusUnprocessableEntity)
			return
		}
		a.mu.Lock()
		a.got = append(a.got, cb)
		reply := a.Reply
		a.mu.Unlock()
		if reply != nil {
			w.WriteHeader(reply(cb))
		}
	}))
	t.Cleanup(a.Close)
	s.SetInteractions(a.URL)
	return a
}

func (a *app) last() slack.InteractionCallback {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.got) == 0 {
		return slack.InteractionCallback{}
	}
	return a.got[len(a.got)-1]
}

func TestClickIsWhatTheClientLibraryExpects(t *testing.T) {
	s, api := scene(t)
	a := newApp(t, s)
	ts := post(t, api, "apr-1", "x <y>")
	ans := s.Click(t.Context(), slacktest.Click{User: "U0ANA", Channel: channel, TS: ts, Verdict: "approve"})
	if ans.Status != 200 || ans.Seen != "" || ans.Late || ans.Err != nil {
		t.Fatalf("answer %+v", ans)
	}
	cb := a.last()
	if cb.Type != slack.InteractionTypeBlockActions || cb.User.ID != "U0ANA" || cb.User.TeamID != s.TeamID ||
		cb.APIAppID != s.AppID || cb.Team.ID != s.TeamID || cb.Channel.ID != channel || cb.Container.MessageTs != ts ||
		cb.Container.ChannelID != channel || cb.Container.Type != "message" || cb.Message.Timestamp != ts {
		t.Errorf("callback %+v", cb)
	}
	acts := cb.ActionCallback.BlockActions
	if len(acts) != 1 || acts[0].ActionID != "countersign:approve:v1" || acts[0].Value != "v1.approve" || acts[0].BlockID == "" {
		t.Errorf("actions %+v", acts)
	}
	if cb.Message.BotID != s.BotID || cb.Message.Metadata.EventPayload["approval_id"] != "apr-1" {
		t.Errorf("message %+v", cb.Message)
	}
	if !strings.HasPrefix(cb.ResponseURL, "http://127.0.0.1") || cb.ResponseURL != ans.Request.ResponseURL || cb.TriggerID == "" {
		t.Errorf("response URL %q, trigger %q", cb.ResponseURL, cb.TriggerID)
	}
}

// The members that Slack sends, one by one.
func TestClickPayloadShape(t *testing.T) {
	s, api := scene(t)
	newApp(t, s)
	ts := post(t, api, "apr-1", "x")
	in, err := s.Prepare(slacktest.Click{User: "U0BOB", Channel: channel, TS: ts, ActionID: "countersign:deny:v1"})
	if err != nil {
		t.Fatal(err)
	}
	p := payload(t, in)
	for _, k := range []string{"type", "user", "api_app_id", "token", "container", "trigger_id", "team", "enterprise",
		"is_enterprise_install", "channel", "message", "state", "response_url", "actions"} {
		if _, ok := p[k]; !ok {
			t.Errorf("no %s", k)
		}
	}
	if p["enterprise"] != nil || p["is_enterprise_install"] != false {
		t.Errorf("enterprise %v, install %v", p["enterprise"], p["is_enterprise_install"])
	}
	act := p["actions"].([]any)[0].(map[string]any)
	for _, k := range []string{"action_id", "block_id", "text", "value", "style", "type", "action_ts"} {
		if _, ok := act[k]; !ok {
			t.Errorf("no actions[0].%s", k)
		}
	}
}

func payload(t *testing.T, in *slacktest.Interaction) map[string]any {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(string(in.Body)))
	r.Header = in.Header.Clone()
	var p map[string]any
	if err := json.Unmarshal([]byte(r.PostFormValue("payload")), &p); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestClickMutations(t *testing.T) {
	s, api := scene(t)
	a := newApp(t, s)
	ts := post(t, api, "apr-1", "x")
	base := slacktest.Click{User: "U0ANA", Channel: channel, TS: ts, Verdict: "deny"}
	with := func(f func(map[string]any)) slack.InteractionCallback {
		t.Helper()
		c := base
		c.Mutate = f
		if ans := s.Click(t.Context(), c); ans.Status != 200 {
			t.Fatalf("answer %+v", ans)
		}
		return a.last()
	}
	if cb := with(slacktest.OrgInstall("E0ORG")); cb.Team.ID != "" || cb.Enterprise.ID != "E0ORG" || !cb.IsEnterpriseInstall {
		t.Errorf("org install: %+v", cb)
	}
	if cb := with(slacktest.WrongApp("A0EVIL")); cb.APIAppID != "A0EVIL" {
		t.Errorf("app %s", cb.APIAppID)
	}
	if cb := with(slacktest.WrongTeam("T0EVIL")); cb.Team.ID != "T0EVIL" {
		t.Errorf("team %s", cb.Team.ID)
	}
	if cb := with(slacktest.WrongChannel("C0EVIL")); cb.Channel.ID != "C0EVIL" || cb.Container.ChannelID != "C0EVIL" {
		t.Errorf("channel %s %s", cb.Channel.ID, cb.Container.ChannelID)
	}
	cb := with(slacktest.All(slacktest.Value("forged"), slacktest.WrongMessage("1.000001"), slacktest.UserTeam("T0FAR"), slacktest.ActionID("other")))
	if act := cb.ActionCallback.BlockActions[0]; act.Value != "forged" || act.ActionID != "other" || cb.Container.MessageTs != "1.000001" || cb.User.TeamID != "T0FAR" {
		t.Errorf("value %q, message %s", act.Value, cb.Container.MessageTs)
	}
	if m, _ := s.Message(channel, ts); m.Buttons()[0].Value != "v1.approve" || m.TS != ts {
		t.Errorf("a mutation reached the stored message")
	}
}

func TestClickSignatures(t *testing.T) {
	s, api := scene(t)
	newApp(t, s)
	ts := post(t, api, "apr-1", "x")
	base := slacktest.Click{User: "U0ANA", Channel: channel, TS: ts, Verdict: "approve"}
	for name, change := range map[string]func(*slacktest.Click){
		"wrong secret": func(c *slacktest.Click) { c.Secret = "other" },
		"stale":        func(c *slacktest.Click) { c.At = time.Now().Add(-301 * time.Second) },
		"future":       func(c *slacktest.Click) { c.At = time.Now().Add(302 * time.Second) },
		"edited body": func(c *slacktest.Click) {
			c.Body = func(b []byte) []byte { return []byte(strings.Replace(string(b), "U0ANA", "U0BOB", 1)) }
		},
		"edited header": func(c *slacktest.Click) {
			c.Header = func(h http.Header) {
				at, _ := strconv.Atoi(h.Get("X-Slack-Request-Timestamp"))
				h.Set("X-Slack-Request-Timestamp", strconv.Itoa(at+1))
			}
		},
	} {
		c := base
		change(&c)
		if ans := s.Click(t.Context(), c); ans.Status != http.StatusUnauthorized || ans.Seen == "" {
			t.Errorf("%s: %+v", name, ans)
		}
	}
	old := s.SigningSecret()
	s.SetSigningSecret("rotated")
	if ans := s.Click(t.Context(), base); ans.Status != 200 {
		t.Errorf("after the rotation: %+v", ans)
	}
	base.Secret = old
	if ans := s.Click(t.Context(), base); ans.Status != http.StatusUnauthorized {
		t.Errorf("the old secret: %+v", ans)
	}
}

func TestReplayRetryAndMany(t *testing.T) {
	s, api := scene(t)
	a := newApp(t, s)
	ts := post(t, api, "apr-1", "x")
	c := slacktest.Click{User: "U0ANA", Channel: channel, TS: ts, Verdict: "approve"}
	first := s.Click(t.Context(), c)
	again := s.Send(t.Context(), first.Request)
	if again.Status != 200 || len(a.got) != 2 || a.got[0].TriggerID != a.got[1].TriggerID {
		t.Errorf("replay: %+v, %d deliveries", again, len(a.got))
	}
	c.Retry = 1
	in, err := s.Prepare(c)
	if err != nil || in.Header.Get("X-Slack-Retry-Num") != "1" {
		t.Errorf("retry: %v %v", in.Header, err)
	}
	c.Retry = 0
	second := httptest.NewServer(a.Config.Handler)
	defer second.Close()
	for _, ans := range s.ClickMany(t.Context(), c, 20, a.URL, second.URL) {
		if ans.Status != 200 {
			t.Errorf("%+v", ans)
		}
	}
	seen := map[string]bool{}
	for _, cb := range a.got[2:] {
		seen[cb.TriggerID] = true
	}
	if len(a.got) != 22 || len(seen) != 20 {
		t.Errorf("%d deliveries, %d different clicks", len(a.got), len(seen))
	}
}

func TestClickNeedsAButtonThatIsThere(t *testing.T) {
	s, api := scene(t)
	newApp(t, s)
	ts := post(t, api, "apr-1", "x")
	c := slacktest.Click{User: "U0ANA", Channel: channel, TS: ts, Verdict: "approve"}
	if _, _, _, err := api.UpdateMessageContext(t.Context(), channel, ts, slack.MsgOptionText("done", false), slack.MsgOptionBlocks(card("x")[1])); err != nil {
		t.Fatal(err)
	}
	if ans := s.Click(t.Context(), c); !errors.Is(ans.Err, slacktest.ErrNoButton) {
		t.Errorf("after the buttons went: %+v", ans)
	}
	c.Stale = true
	if ans := s.Click(t.Context(), c); ans.Status != 200 {
		t.Errorf("from an old screen: %+v", ans)
	}
	s.Remove(channel, ts)
	if ans := s.Click(t.Context(), c); ans.Status != 200 {
		t.Errorf("after the deletion: %+v", ans)
	}
	c.Stale = false
	if ans := s.Click(t.Context(), c); !errors.Is(ans.Err, slacktest.ErrNoButton) {
		t.Errorf("after the deletion: %+v", ans)
	}
	c.User = "U0NOBODY"
	if ans := s.Click(t.Context(), c); ans.Err == nil {
		t.Errorf("somebody unknown clicked")
	}
}

func TestLateAnswerIsATimeout(t *testing.T) {
	s, api := scene(t, slacktest.WithAckLimit(20*time.Millisecond))
	a := newApp(t, s)
	release := make(chan struct{})
	defer close(release)
	a.Reply = func(slack.InteractionCallback) int { <-release; return 200 }
	ts := post(t, api, "apr-1", "x")
	ans := s.Click(t.Context(), slacktest.Click{User: "U0ANA", Channel: channel, TS: ts, Verdict: "approve"})
	if !ans.Late || ans.Status != 0 || !strings.Contains(ans.Seen, "timed out") {
		t.Errorf("answer %+v", ans)
	}
}
