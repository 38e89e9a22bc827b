package slacktest_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slack-go/slack"

	"github.com/countersign-mcp/countersign/notifier/slacktest"
)

const channel = "C0APPROVALS"

// scene is a workspace with one channel and two people, and the real client
// library pointed at it.
func scene(t *testing.T, opts ...slacktest.Option) (*slacktest.Slack, *slack.Client) {
	t.Helper()
	s := slacktest.New(t, opts...)
	s.AddChannel(slacktest.Channel{ID: channel, Name: "approvals"})
	s.AddUser(slacktest.User{ID: "U0ANA", Name: "ana"})
	s.AddUser(slacktest.User{ID: "U0BOB", Name: "bob"})
	s.AddUserGroup(slacktest.UserGroup{ID: "S0ONCALL", Handle: "oncall", Members: []string{"U0ANA", "U0BOB"}})
	return s, client(s, s.BotToken)
}

func client(s *slacktest.Slack, token string) *slack.Client {
	return slack.New(token, slack.OptionAPIURL(s.URL()), slack.OptionHTTPClient(&http.Client{Timeout: 10 * time.Second}))
}

// card is what an approval looks like.
func card(args string) []slack.Block {
	plain := func(s string) *slack.TextBlockObject {
		return slack.NewTextBlockObject(slack.PlainTextType, s, false, false)
	}
	yes := slack.NewButtonBlockElement("countersign:approve:v1", "v1.approve", plain("Approve")).WithStyle(slack.StylePrimary)
	no := slack.NewButtonBlockElement("countersign:deny:v1", "v1.deny", plain("Deny")).WithStyle(slack.StyleDanger)
	return []slack.Block{
		slack.NewHeaderBlock(plain("Approval needed")),
		slack.NewRichTextBlock("",
			slack.NewRichTextSection(slack.NewRichTextSectionUserElement("U0ANA", nil), slack.NewRichTextSectionUserGroupElement("S0ONCALL")),
			&slack.RichTextPreformatted{Type: slack.RTEPreformatted, Elements: []slack.RichTextSectionElement{
				slack.NewRichTextSectionTextElement(args, nil)}}),
		slack.NewActionBlock("", yes, no),
	}
}

func meta(id string) slack.MsgOption {
	return slack.MsgOptionMetadata(slack.SlackMetadata{EventType: "countersign_approval", EventPayload: map[string]any{"approval_id": id}})
}

func quiet() []slack.MsgOption {
	return []slack.MsgOption{slack.MsgOptionDisableLinkUnfurl(), slack.MsgOptionDisableMediaUnfurl()}
}

// post puts a card into the channel through the real client.
func post(t *testing.T, api *slack.Client, id, args string) string {
	t.Helper()
	opts := append(quiet(), slack.MsgOptionText("Approve cancel_order?\nMore", false), slack.MsgOptionBlocks(card(args)...), meta(id))
	_, ts, err := api.PostMessageContext(t.Context(), channel, opts...)
	if err != nil {
		t.Fatalf("posting a card: %v", err)
	}
	return ts
}

func TestClientPostsAndUpdates(t *testing.T) {
	s, api := scene(t)
	ts := post(t, api, "apr-1", `{"id": "<A&B>"}`)
	m, ok := s.Message(channel, ts)
	if !ok {
		t.Fatalf("message %s isn't there", ts)
	}
	if got := m.PushText(); got != "Approve cancel_order?" {
		t.Errorf("push text %q", got)
	}
	if got := m.Preformatted(); !slices.Equal(got, []string{`{"id": "<A&B>"}`}) {
		t.Errorf("arguments shown as %q", got)
	}
	if got := m.Mentions(); !slices.Equal(got, []string{"U0ANA", "S0ONCALL"}) {
		t.Errorf("mentions %q", got)
	}
	bs := m.Buttons()
	if len(bs) != 2 || bs[0].Text != "Approve" || bs[0].Value != "v1.approve" || bs[1].Style != "danger" || bs[0].BlockID == "" {
		t.Errorf("buttons %+v", bs)
	}
	if m.Metadata == nil || m.Metadata.EventPayload["approval_id"] != "apr-1" {
		t.Errorf("metadata %+v", m.Metadata)
	}
	if len(m.Warnings) != 0 || m.Unfurl {
		t.Errorf("warnings %q, unfurl %v", m.Warnings, m.Unfurl)
	}

	_, _, _, err := api.UpdateMessageContext(t.Context(), channel, ts, slack.MsgOptionText("Approved", false), slack.MsgOptionBlocks(card("x")[1]))
	if err != nil {
		t.Fatalf("updating: %v", err)
	}
	m, _ = s.Message(channel, ts)
	if len(m.Edits) != 2 || m.Text != "Approved" || len(m.Buttons()) != 0 || m.Edits[0].Text == "Approved" {
		t.Errorf("after the update: %d versions, %q, %d buttons", len(m.Edits), m.Text, len(m.Buttons()))
	}
	if m.Metadata == nil || m.Metadata.EventPayload["approval_id"] != "apr-1" {
		t.Errorf("the update lost the metadata: %+v", m.Metadata)
	}

	if _, _, _, err = api.UpdateMessageContext(t.Context(), channel, ts, slack.MsgOptionText("only text", false)); err != nil {
		t.Fatalf("updating with text: %v", err)
	}
	if m, _ = s.Message(channel, ts); len(m.Blocks) != 0 {
		t.Errorf("a text without blocks left %d blocks", len(m.Blocks))
	}
	if _, _, err := api.DeleteMessageContext(t.Context(), channel, ts); err != nil {
		t.Fatalf("deleting: %v", err)
	}
	if got := s.Messages(channel); len(got) != 0 {
		t.Errorf("%d messages after the deletion", len(got))
	}
	if m, ok := s.Message(channel, ts); !ok || !m.Deleted {
		t.Errorf("the deleted message is forgotten")
	}
	_, _, _, err = api.UpdateMessageContext(t.Context(), channel, ts, slack.MsgOptionText("again", false))
	wantCode(t, err, "message_not_found")
}

func TestClientReadsHistory(t *testing.T) {
	s, api := scene(t)
	var stamps []string
	for _, id := range []string{"a", "b", "c"} {
		stamps = append(stamps, post(t, api, id, id))
	}
	if !slices.IsSorted(stamps) || stamps[0] == stamps[1] || stamps[1] == stamps[2] {
		t.Fatalf("timestamps don't grow: %v", stamps)
	}
	h, err := api.GetConversationHistoryContext(t.Context(), &slack.GetConversationHistoryParameters{
		ChannelID: channel, Limit: 2, IncludeAllMetadata: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(h.Messages) != 2 || !h.HasMore || h.Messages[0].Timestamp != stamps[2] {
		t.Fatalf("first page: %d messages, more %v", len(h.Messages), h.HasMore)
	}
	if h.Messages[0].BotID != s.BotID || h.Messages[0].Metadata.EventPayload["approval_id"] != "c" {
		t.Errorf("newest message: bot %q, metadata %+v", h.Messages[0].BotID, h.Messages[0].Metadata)
	}
	h, err = api.GetConversationHistoryContext(t.Context(), &slack.GetConversationHistoryParameters{
		ChannelID: channel, Limit: 2, Cursor: h.ResponseMetaData.NextCursor})
	if err != nil {
		t.Fatal(err)
	}
	if len(h.Messages) != 1 || h.HasMore || h.Messages[0].Timestamp != stamps[0] {
		t.Fatalf("second page: %+v", h.Messages)
	}
	if m := h.Messages[0].Metadata; m.EventType != "countersign_approval" || len(m.EventPayload) != 0 {
		t.Errorf("without the flag the payload came: %+v", m)
	}
	h, err = api.GetConversationHistoryContext(t.Context(), &slack.GetConversationHistoryParameters{ChannelID: channel, Oldest: stamps[1]})
	if err != nil || len(h.Messages) != 1 || h.Messages[0].Timestamp != stamps[2] {
		t.Errorf("oldest isn't exclusive: %v %v", h, err)
	}
	h, err = api.GetConversationHistoryContext(t.Context(), &slack.GetConversationHistoryParameters{ChannelID: channel, Oldest: stamps[1], Inclusive: true})
	if err != nil || len(h.Messages) != 2 {
		t.Errorf("inclusive: %v %v", h, err)
	}
}

func TestClientReadsPeople(t *testing.T) {
	s, api := scene(t)
	s.AddUser(slacktest.User{ID: "U0GUEST", UltraRestricted: true, EnterpriseID: "E0ORG"})
	s.AddUser(slacktest.User{ID: "U0FAR", TeamID: "T0OTHER", Stranger: true})
	u, err := api.GetUserInfoContext(t.Context(), "U0GUEST")
	if err != nil || !u.IsRestricted || !u.IsUltraRestricted || u.IsBot || u.Deleted || u.TeamID != s.TeamID || u.Enterprise.EnterpriseID != "E0ORG" {
		t.Errorf("guest: %+v, %v", u, err)
	}
	if u, err = api.GetUserInfoContext(t.Context(), "U0FAR"); err != nil || !u.IsStranger || u.TeamID != "T0OTHER" {
		t.Errorf("stranger: %+v, %v", u, err)
	}
	_, err = api.GetUserInfoContext(t.Context(), "U0NOBODY")
	wantCode(t, err, "user_not_found")

	got, err := api.GetUserGroupMembersContext(t.Context(), "S0ONCALL")
	if err != nil || !slices.Equal(got, []string{"U0ANA", "U0BOB"}) {
		t.Errorf("group: %v, %v", got, err)
	}
	s.AddUserGroup(slacktest.UserGroup{ID: "S0ONCALL", Members: []string{"U0ANA"}, Disabled: true})
	_, err = api.GetUserGroupMembersContext(t.Context(), "S0ONCALL")
	wantCode(t, err, "no_such_subteam")

	a, err := api.AuthTestContext(t.Context())
	if err != nil || a.TeamID != s.TeamID || a.BotID != s.BotID || a.UserID != s.BotUserID {
		t.Errorf("auth.test: %+v, %v", a, err)
	}
	b, err := api.GetBotInfoContext(t.Context(), slack.GetBotInfoParameters{Bot: a.BotID})
	if err != nil || b.AppID != s.AppID {
		t.Errorf("bots.info: %+v, %v", b, err)
	}
	s.AddChannel(slacktest.Channel{ID: "C0SHARED", ExtShared: true})
	c, err := api.GetConversationInfoContext(t.Context(), &slack.GetConversationInfoInput{ChannelID: "C0SHARED"})
	if err != nil || !c.IsExtShared || !c.IsMember || c.IsArchived {
		t.Errorf("conversations.info: %+v, %v", c, err)
	}
}

// wantCode insists on Slack's error code, as the client sees it.
func wantCode(t *testing.T, err error, code string) slack.SlackErrorResponse {
	t.Helper()
	var e slack.SlackErrorResponse
	if !errors.As(err, &e) || e.Err != code {
		t.Errorf("error %v, want %s", err, code)
	}
	return e
}

func TestTokensAndScopes(t *testing.T) {
	s, api := scene(t)
	for token, code := range map[string]string{"": "not_authed", "xoxb-wrong": "invalid_auth", "xapp-1": "not_allowed_token_type"} {
		_, err := client(s, token).AuthTestContext(t.Context())
		wantCode(t, err, code)
	}
	s.SetScopes("users:read", "groups:history")
	_, _, err := api.PostMessageContext(t.Context(), channel, slack.MsgOptionText("x", false))
	wantCode(t, err, "missing_scope")
	_, err = api.GetConversationHistoryContext(t.Context(), &slack.GetConversationHistoryParameters{ChannelID: channel})
	wantCode(t, err, "missing_scope")
	if _, err = api.GetUserInfoContext(t.Context(), "U0ANA"); err != nil {
		t.Errorf("users.info has its scope: %v", err)
	}
	if n := len(s.Messages(channel)); n != 0 {
		t.Errorf("%d messages were posted without the scope", n)
	}
	s.SetAuthError("token_revoked")
	_, err = api.AuthTestContext(t.Context())
	wantCode(t, err, "token_revoked")
	s.SetAuthError("")

	// The token in the header, arguments as JSON.
	s.SetScopes("chat:write")
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL()+"chat.postMessage",
		strings.NewReader(`{"channel":"`+channel+`","text":"hello","blocks":[{"type":"divider"}],"unfurl_links":false,"unfurl_media":false}`))
	req.Header.Set("Authorization", "Bearer "+s.BotToken)
	req.Header.Set("Content-Type", "application/json; charset=utf-8")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var out struct {
		OK bool   `json:"ok"`
		TS string `json:"ts"`
	}
	if err := json.NewDecoder(res.Body).Decode(&out); err != nil || !out.OK {
		t.Fatalf("JSON post: %+v, %v", out, err)
	}
	if m, _ := s.Message(channel, out.TS); m.Text != "hello" || len(m.Blocks) != 1 {
		t.Errorf("JSON post stored as %+v", m)
	}
	for _, c := range s.Requests("") {
		if _, leaked := c.Args["token"]; leaked {
			t.Errorf("the token is kept in the record of %s", c.Method)
		}
	}
}
