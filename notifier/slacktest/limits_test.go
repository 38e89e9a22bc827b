package slacktest_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/slack-go/slack"

	"github.com/countersign-mcp/countersign/notifier/slacktest"
)

// raw is blocks as JSON, so that a test can say what the client's types can't.
func raw(t *testing.T, blocks string) slack.MsgOption {
	t.Helper()
	if !json.Valid([]byte(blocks)) {
		t.Fatalf("the test's blocks aren't JSON: %s", blocks)
	}
	var bs slack.Blocks
	if err := json.Unmarshal([]byte(blocks), &bs); err != nil {
		t.Fatal(err)
	}
	return slack.MsgOptionBlocks(bs.BlockSet...)
}

func TestBlockLimits(t *testing.T) {
	long := func(n int) string { return strings.Repeat("x", n) }
	plain := func(n int) string { return `{"type":"plain_text","text":"` + long(n) + `"}` }
	button := func(extra string) string {
		return `[{"type":"actions","elements":[{"type":"button","text":` + plain(5) + extra + `}]}]`
	}
	many := func(n int, one string) string {
		return "[" + strings.TrimSuffix(strings.Repeat(one+",", n), ",") + "]"
	}
	rich := func(el string) string {
		return `[{"type":"rich_text","elements":[{"type":"rich_text_section","elements":[` + el + `]}]}]`
	}
	cases := []struct{ name, blocks, pointer string }{
		{"section 3000", `[{"type":"section","text":` + plain(3000) + `}]`, ""},
		{"section 3001", `[{"type":"section","text":` + plain(3001) + `}]`, "/blocks/0/text/text"},
		{"empty text", `[{"type":"section","text":` + plain(0) + `}]`, "/blocks/0/text/text"},
		{"emoji counts twice", `[{"type":"section","text":{"type":"plain_text","text":"` + strings.Repeat("🎉", 1501) + `"}}]`, "/blocks/0/text/text"},
		{"header 150", `[{"type":"header","text":` + plain(150) + `}]`, ""},
		{"header 151", `[{"type":"header","text":` + plain(151) + `}]`, "/blocks/0/text/text"},
		{"header mrkdwn", `[{"type":"header","text":{"type":"mrkdwn","text":"x"}}]`, "/blocks/0/text/type"},
		{"50 blocks", many(50, `{"type":"divider"}`), ""},
		{"51 blocks", many(51, `{"type":"divider"}`), "/blocks"},
		{"10 fields", `[{"type":"section","fields":` + many(10, plain(1)) + `}]`, ""},
		{"11 fields", `[{"type":"section","fields":` + many(11, plain(1)) + `}]`, "/blocks/0/fields"},
		{"field 2001", `[{"type":"section","fields":[` + plain(2001) + `]}]`, "/blocks/0/fields/0/text"},
		{"context 11", `[{"type":"context","elements":` + many(11, plain(1)) + `}]`, "/blocks/0/elements"},
		{"no elements", `[{"type":"actions","elements":[]}]`, "/blocks/0/elements"},
		{"button", button(``), ""},
		{"button text 75", `[{"type":"actions","elements":[{"type":"button","text":` + plain(75) + `}]}]`, ""},
		{"button text 76", `[{"type":"actions","elements":[{"type":"button","text":` + plain(76) + `}]}]`, "/blocks/0/elements/0/text/text"},
		{"value 2000", button(`,"value":"` + long(2000) + `"`), ""},
		{"value 2001", button(`,"value":"` + long(2001) + `"`), "/blocks/0/elements/0/value"},
		{"style default", button(`,"style":"default"`), "/blocks/0/elements/0/style"},
		{"action_id 256", button(`,"action_id":"` + long(256) + `"`), "/blocks/0/elements/0/action_id"},
		{"block_id twice", `[{"type":"divider","block_id":"a"},{"type":"divider","block_id":"a"}]`, "/blocks/1/block_id"},
		{"action_id twice in two blocks", `[{"type":"actions","elements":[{"type":"button","action_id":"a","text":` + plain(1) + `}]},
			{"type":"actions","elements":[{"type":"button","action_id":"a","text":` + plain(1) + `}]}]`, "/blocks/1/elements/0/action_id"},
		{"unknown block", `[{"type":"alert","text":` + plain(1) + `}]`, "/blocks/0/type"},
		{"unknown element", `[{"type":"actions","elements":[{"type":"datepicker"}]}]`, "/blocks/0/elements/0/type"},
		{"known user", rich(`{"type":"user","user_id":"U0ANA"}`), ""},
		{"unknown user", rich(`{"type":"user","user_id":"U0NOBODY"}`), "/blocks/0/elements/0/elements/0/user_id"},
		{"known group", rich(`{"type":"usergroup","usergroup_id":"S0ONCALL"}`), ""},
		{"unknown group", rich(`{"type":"usergroup","usergroup_id":"S0NONE"}`), "/blocks/0/elements/0/elements/0/usergroup_id"},
		{"group as user", rich(`{"type":"user","user_id":"S0ONCALL"}`), "/blocks/0/elements/0/elements/0/user_id"},
		{"empty rich text", rich(`{"type":"text","text":""}`), "/blocks/0/elements/0/elements/0/text"},
		{"mention in preformatted", `[{"type":"rich_text","elements":[{"type":"rich_text_preformatted","elements":[{"type":"user","user_id":"U0ANA"}]}]}]`,
			"/blocks/0/elements/0/elements/0/type"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s, api := scene(t)
			_, _, err := api.PostMessageContext(t.Context(), channel, slack.MsgOptionText("x", false), raw(t, c.blocks))
			if c.pointer == "" {
				if err != nil {
					t.Fatalf("refused: %v", err)
				}
				return
			}
			e := wantCode(t, err, "invalid_blocks")
			want := "[json-pointer:" + c.pointer + "]"
			if !strings.Contains(strings.Join(e.ResponseMetadata.Messages, "\n"), want) {
				t.Errorf("messages %q, want %s", e.ResponseMetadata.Messages, want)
			}
			if n := len(s.Messages(channel)); n != 0 {
				t.Errorf("%d messages stored", n)
			}
		})
	}
}

func TestMessageLimits(t *testing.T) {
	s, api := scene(t)
	_, _, err := api.PostMessageContext(t.Context(), channel, slack.MsgOptionText("", false))
	wantCode(t, err, "no_text")

	sections := func(n int) slack.MsgOption {
		one := fmt.Sprintf(`{"type":"section","text":{"type":"plain_text","text":%q}}`, strings.Repeat("x", 2900))
		return raw(t, "["+strings.TrimSuffix(strings.Repeat(one+",", n), ",")+"]")
	}
	if _, _, err := api.PostMessageContext(t.Context(), channel, slack.MsgOptionText("x", false), sections(4)); err != nil {
		t.Errorf("12,000 characters of blocks: %v", err)
	}
	_, _, err = api.PostMessageContext(t.Context(), channel, slack.MsgOptionText("x", false), sections(5))
	wantCode(t, err, "msg_blocks_too_long")

	ts := post(t, api, "apr", "x")
	_, _, _, err = api.UpdateMessageContext(t.Context(), channel, ts, slack.MsgOptionText(strings.Repeat("x", 4001), false))
	wantCode(t, err, "msg_too_long")
	_, _, _, err = api.UpdateMessageContext(t.Context(), channel, ts, slack.MsgOptionText("x", false), raw(t, `[{"type":"divider"}]`))
	wantCode(t, err, "block_mismatch")
	if m, _ := s.Message(channel, ts); len(m.Edits) != 1 || len(m.Buttons()) != 2 {
		t.Errorf("refused updates changed the message")
	}

	_, long, err := api.PostMessageContext(t.Context(), channel, slack.MsgOptionText(strings.Repeat("é", 40_001), false))
	if err != nil {
		t.Fatal(err)
	}
	if m, _ := s.Message(channel, long); len(m.Text) != 80_000 {
		t.Errorf("a long text was kept at %d bytes", len(m.Text))
	}
}

func TestMetadataLimits(t *testing.T) {
	_, api := scene(t)
	for code, payload := range map[string]map[string]any{
		"invalid_metadata_schema": {"nested": map[string]any{"a": 1}},
		"metadata_too_large":      {"a": strings.Repeat("x", 9000)},
	} {
		_, _, err := api.PostMessageContext(t.Context(), channel, slack.MsgOptionText("x", false),
			slack.MsgOptionMetadata(slack.SlackMetadata{EventType: "e", EventPayload: payload}))
		wantCode(t, err, code)
	}
	_, _, err := api.PostMessageContext(t.Context(), channel, slack.MsgOptionText("x", false),
		slack.MsgOptionMetadata(slack.SlackMetadata{EventPayload: map[string]any{"a": 1}}))
	wantCode(t, err, "invalid_metadata_format")
}

func TestChannels(t *testing.T) {
	s, api := scene(t)
	for id, c := range map[string]struct {
		channel slacktest.Channel
		code    string
	}{
		"C0OLD":    {slacktest.Channel{Archived: true}, "is_archived"},
		"C0OUT":    {slacktest.Channel{NotMember: true}, "not_in_channel"},
		"C0HIDDEN": {slacktest.Channel{NotMember: true, Private: true}, "channel_not_found"},
		"C0LOCKED": {slacktest.Channel{Restricted: true}, "restricted_action"},
	} {
		c.channel.ID = id
		s.AddChannel(c.channel)
		_, _, err := api.PostMessageContext(t.Context(), id, slack.MsgOptionText("x", false))
		wantCode(t, err, c.code)
	}
	_, _, err := api.PostMessageContext(t.Context(), "C0NONE", slack.MsgOptionText("x", false))
	wantCode(t, err, "channel_not_found")

	ts := post(t, api, "apr", "x")
	s.AddChannel(slacktest.Channel{ID: channel, Archived: true})
	_, _, _, err = api.UpdateMessageContext(t.Context(), channel, ts, slack.MsgOptionText("x", false))
	wantCode(t, err, "is_inactive")

	s.AddChannel(slacktest.Channel{ID: channel, Outsiders: []string{"U0BOB"}})
	if _, err := api.PostEphemeralContext(t.Context(), channel, "U0ANA", slack.MsgOptionText("psst", false)); err != nil {
		t.Errorf("ephemeral: %v", err)
	}
	_, err = api.PostEphemeralContext(t.Context(), channel, "U0BOB", slack.MsgOptionText("psst", false))
	wantCode(t, err, "user_not_in_channel")
	if got := s.Ephemerals("U0ANA"); len(got) != 1 || got[0].Text != "psst" {
		t.Errorf("ephemerals %+v", got)
	}
}

func TestOthersMessagesCantBeChanged(t *testing.T) {
	s, api := scene(t)
	ts := s.Seed(channel, slacktest.Seed{User: "U0ANA", Text: "mine"})
	_, _, _, err := api.UpdateMessageContext(t.Context(), channel, ts, slack.MsgOptionText("x", false))
	wantCode(t, err, "cant_update_message")
	_, _, err = api.DeleteMessageContext(t.Context(), channel, ts)
	wantCode(t, err, "cant_delete_message")
}

func TestRateLimit(t *testing.T) {
	clock := newClock()
	s, api := scene(t, slacktest.WithClock(clock.Now), slacktest.WithRateLimits())
	s.AddChannel(slacktest.Channel{ID: "C0SECOND"})
	post(t, api, "a", "x")
	_, _, err := api.PostMessageContext(t.Context(), channel, slack.MsgOptionText("x", false))
	var limited *slack.RateLimitedError
	if !asError(err, &limited) || limited.RetryAfter != time.Second {
		t.Fatalf("second message in the same second: %v", err)
	}
	if _, _, err := api.PostMessageContext(t.Context(), "C0SECOND", slack.MsgOptionText("x", false)); err != nil {
		t.Errorf("another channel has its own limit: %v", err)
	}
	clock.Advance(time.Second)
	post(t, api, "b", "x")

	for range 20 {
		if _, err := api.GetUserGroupMembersContext(t.Context(), "S0ONCALL"); err != nil {
			t.Fatal(err)
		}
	}
	_, err = api.GetUserGroupMembersContext(t.Context(), "S0ONCALL")
	if !asError(err, &limited) || limited.RetryAfter != time.Minute {
		t.Errorf("21st call in a minute: %v", err)
	}
}

func TestEchoIsNotWhatWasSent(t *testing.T) {
	s, api := scene(t)
	text := `✅ a & b <c> &amp; <@U0ANA> https://x.test`
	_, ts, err := api.PostMessageContext(t.Context(), channel, slack.MsgOptionText(text, false),
		raw(t, `[{"type":"section","text":{"type":"plain_text","text":"🎉 <&>"}}]`))
	if err != nil {
		t.Fatal(err)
	}
	h, err := api.GetConversationHistoryContext(t.Context(), &slack.GetConversationHistoryParameters{ChannelID: channel})
	if err != nil || len(h.Messages) != 1 {
		t.Fatal(h, err)
	}
	if got, want := h.Messages[0].Text, `:white_check_mark: a &amp; b &lt;c&gt; &amp; <@U0ANA> <https://x.test>`; got != want {
		t.Errorf("echoed %q, want %q", got, want)
	}
	sec := h.Messages[0].Blocks.BlockSet[0].(*slack.SectionBlock)
	if got, want := sec.Text.Text, `:tada: &lt;&amp;&gt;`; got != want {
		t.Errorf("block echoed %q, want %q", got, want)
	}
	if sec.BlockID == "" {
		t.Errorf("no block_id was filled in")
	}
	if m, _ := s.Message(channel, ts); m.Text != text || m.Plain() != "🎉 <&>" {
		t.Errorf("a person sees %q and %q", m.Text, m.Plain())
	}
}
