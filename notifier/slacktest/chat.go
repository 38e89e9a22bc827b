package slacktest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	maxPostText   = 40_000 // cut off beyond
	maxUpdateText = 4000
	maxMetadata   = 8000 // bytes of event_payload; no documented limit, a stricter reading
)

var methods map[string]method

func init() {
	chat := func(*Slack, args) []string { return []string{"chat:write"} }
	none := func(*Slack, args) []string { return nil }
	users := func(*Slack, args) []string { return []string{"users:read"} }
	groups := func(*Slack, args) []string { return []string{"usergroups:read"} }
	methods = map[string]method{
		"auth.test":             {none, true, 0, (*Slack).authTest},
		"bots.info":             {users, false, 50, (*Slack).botsInfo},
		"chat.postMessage":      {chat, true, 0, (*Slack).postMessage},
		"chat.update":           {chat, true, 50, (*Slack).update},
		"chat.delete":           {chat, true, 50, (*Slack).remove},
		"chat.postEphemeral":    {chat, true, 100, (*Slack).postEphemeral},
		"chat.getPermalink":     {none, false, 0, (*Slack).permalink},
		"conversations.info":    {roomScope("channels:read", "groups:read"), false, 50, (*Slack).conversationInfo},
		"conversations.history": {roomScope("channels:history", "groups:history"), false, 50, (*Slack).history},
		"users.info":            {users, false, 100, (*Slack).usersInfo},
		"usergroups.list":       {groups, false, 20, (*Slack).groupsList},
		"usergroups.users.list": {groups, false, 20, (*Slack).groupMembers},
		"views.open":            {none, true, 100, (*Slack).viewsOpen},
		"views.update":          {none, true, 100, (*Slack).viewsUpdate},
	}
}

// roomScope is the scope that the kind of channel needs.
func roomScope(public, private string) func(*Slack, args) []string {
	return func(s *Slack, in args) []string {
		if r := s.channels[in["channel"]]; r != nil && r.Private {
			return []string{private}
		}
		return []string{public}
	}
}

// version checks what is to be shown. A message needs a text or blocks.
func (s *Slack) version(via, text string, rawBlocks json.RawMessage, rawMeta json.RawMessage, quiet bool) (Version, *refusal) {
	v := Version{At: s.now(), Via: via, Text: text, Unfurl: !quiet}
	if len(rawBlocks) > 0 && string(rawBlocks) != "null" {
		var compact bytes.Buffer
		if json.Compact(&compact, rawBlocks) != nil {
			return v, refuse("invalid_blocks_format")
		}
		blocks, warns, f := s.checkBlocks(rawBlocks, false)
		if f != nil {
			return v, f
		}
		if compact.Len() >= maxBlocksBytes {
			return v, refuse("msg_blocks_too_long")
		}
		v.Warnings = warns
		if len(blocks) > 0 {
			v.Blocks, v.Raw = blocks, compact.Bytes()
		}
	}
	if v.Text == "" && len(v.Blocks) == 0 {
		return v, refuse("no_text")
	}
	if v.Text == "" {
		v.Warnings = append(v.Warnings, "/text: no text for push messages and screen readers")
	}
	if m := mentionToken.FindStringSubmatch(v.Text); m != nil && strings.HasPrefix(m[1], "!") && !strings.HasPrefix(m[1], "!subteam") {
		v.Warnings = append(v.Warnings, "/text: notifies everyone")
	}
	if v.Unfurl && via == "chat.postMessage" {
		v.Warnings = append(v.Warnings, "unfurl_links and unfurl_media aren't both false")
	}
	if len(rawMeta) > 0 {
		meta, f := metadata(rawMeta)
		if f != nil {
			return v, f
		}
		v.Metadata = meta
	}
	return v, nil
}

func metadata(raw json.RawMessage) (*Metadata, *refusal) {
	var top map[string]any
	if decode(raw, &top) != nil {
		return nil, refuse("invalid_metadata_format")
	}
	kind, _ := top["event_type"].(string)
	payload, ok := top["event_payload"].(map[string]any)
	if kind == "" || !ok {
		return nil, refuse("invalid_metadata_format")
	}
	for k := range top {
		if k != "event_type" && k != "event_payload" {
			return nil, refuse("invalid_metadata_format")
		}
	}
	for _, v := range payload {
		switch v.(type) {
		case string, bool, json.Number:
		default:
			return nil, refuse("invalid_metadata_schema") // only flat values
		}
	}
	if len(raw) > maxMetadata {
		return nil, refuse("metadata_too_large")
	}
	return &Metadata{EventType: kind, EventPayload: payload}, nil
}

// room finds a channel that the app may write to. A user's id opens a direct
// message.
func (s *Slack) room(id string) (*room, *refusal) {
	if u, ok := s.users[id]; ok {
		if u.Deleted {
			return nil, refuse("user_disabled")
		}
		dm := "D" + strings.TrimLeft(id, "UW")
		if s.channels[dm] == nil {
			s.channels[dm] = &room{Channel: Channel{ID: dm, Name: dm, Private: true}}
		}
		return s.channels[dm], nil
	}
	r := s.channels[id]
	switch {
	case r == nil || r.Private && r.NotMember:
		return nil, refuse("channel_not_found")
	case r.Archived || r.Frozen:
		return nil, refuse("is_archived")
	case r.NotMember:
		return nil, refuse("not_in_channel")
	case r.Restricted:
		return nil, refuse("restricted_action")
	}
	return r, nil
}

func (s *Slack) postMessage(in args) (object, *refusal) {
	r, f := s.room(in["channel"])
	if f != nil {
		return nil, f
	}
	text, out := in["text"], object{}
	if utf8.RuneCountInString(text) > maxPostText {
		text = string([]rune(text)[:maxPostText])
		out["warning"] = "message_truncated"
		out["response_metadata"] = object{"warnings": []string{"message_truncated"}}
	}
	quiet := off(in, "unfurl_links") && off(in, "unfurl_media")
	v, f := s.version("chat.postMessage", text, in.raw("blocks"), in.raw("metadata"), quiet)
	if f != nil {
		return nil, f
	}
	if t := in["thread_ts"]; t != "" {
		if root := s.find(r.ID, t); root == nil || root.Deleted {
			return nil, refuse("thread_not_found")
		}
	}
	m := &Message{Channel: r.ID, TS: s.stamp(), ThreadTS: in["thread_ts"], User: s.BotUserID, BotID: s.BotID}
	m.set(v)
	r.messages = append(r.messages, m)
	out["channel"], out["ts"], out["message"] = r.ID, m.TS, s.echo(m, v, true)
	return out, nil
}

func off(in args, name string) bool { return in.has(name) && !in.flag(name) }

// own finds a message of this app that can be changed.
func (s *Slack) own(in args, cant string) (*room, *Message, *refusal) {
	r := s.channels[in["channel"]]
	switch {
	case r == nil || r.Private && r.NotMember:
		return nil, nil, refuse("channel_not_found")
	case r.Archived || r.Frozen:
		return nil, nil, refuse("is_inactive")
	}
	m := s.find(r.ID, in["ts"])
	switch {
	case m == nil || m.Deleted:
		return nil, nil, refuse("message_not_found")
	case m.BotID != s.BotID:
		return nil, nil, refuse(cant)
	}
	return r, m, nil
}

func (s *Slack) update(in args) (object, *refusal) {
	r, m, f := s.own(in, "cant_update_message")
	if f != nil {
		return nil, f
	}
	if utf8.RuneCountInString(in["text"]) > maxUpdateText {
		return nil, refuse("msg_too_long")
	}
	// A text without blocks takes the old blocks away.
	v, f := s.version("chat.update", in["text"], in.raw("blocks"), in.raw("metadata"), true)
	if f != nil {
		return nil, f
	}
	if len(v.Blocks) > 0 && hasRichText(m.Blocks) && !hasRichText(v.Blocks) {
		return nil, refuse("block_mismatch")
	}
	if v.Metadata == nil {
		v.Metadata = m.Metadata
	}
	for _, b := range v.Blocks {
		if slices.ContainsFunc(m.Blocks, func(o map[string]any) bool { return o["block_id"] == b["block_id"] }) {
			v.Warnings = append(v.Warnings, fmt.Sprintf("block_id %s is used again", str(b["block_id"])))
		}
	}
	m.set(v)
	return object{"channel": r.ID, "ts": m.TS, "text": echoMarkup(v.Text, true), "message": s.echo(m, v, true)}, nil
}

func hasRichText(blocks []map[string]any) bool {
	return slices.ContainsFunc(blocks, func(b map[string]any) bool { return b["type"] == "rich_text" })
}

func (s *Slack) remove(in args) (object, *refusal) {
	r, m, f := s.own(in, "cant_delete_message")
	if f != nil {
		return nil, f
	}
	m.Deleted = true
	return object{"channel": r.ID, "ts": m.TS}, nil
}

func (s *Slack) postEphemeral(in args) (object, *refusal) {
	r, f := s.room(in["channel"])
	if f != nil {
		return nil, f
	}
	u, ok := s.user(in["user"])
	if !ok || u.Deleted || slices.Contains(r.Outsiders, u.ID) {
		return nil, refuse("user_not_in_channel")
	}
	v, f := s.version("chat.postEphemeral", in["text"], in.raw("blocks"), nil, true)
	if f != nil {
		return nil, f
	}
	e := Ephemeral{User: u.ID, Channel: r.ID, TS: s.stamp(), Text: v.Text, Blocks: v.Blocks, Via: v.Via, At: v.At}
	s.ephem = append(s.ephem, e)
	return object{"message_ts": e.TS}, nil
}

func (s *Slack) permalink(in args) (object, *refusal) {
	m := s.find(in["channel"], in["message_ts"])
	switch {
	case s.channels[in["channel"]] == nil:
		return nil, refuse("channel_not_found")
	case m == nil || m.Deleted:
		return nil, refuse("message_not_found")
	}
	link := fmt.Sprintf("https://%s.slack.com/archives/%s/p%s", s.TeamDomain, m.Channel, strings.ReplaceAll(m.TS, ".", ""))
	return object{"channel": m.Channel, "permalink": link}, nil
}
