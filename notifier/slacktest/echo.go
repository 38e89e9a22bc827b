package slacktest

import (
	"fmt"
	"regexp"
	"strings"
)

// Slack doesn't hand back what was sent: control characters come as entities,
// emoji as :names: and addresses as links. Whoever compares or reuses the
// echo must fail here too.

var (
	mentionToken = regexp.MustCompile(`<(@[UW][A-Z0-9]+|!subteam\^S[A-Z0-9]+|!channel|!here|!everyone)(?:[|^][^<>]*)?>`)
	controlToken = regexp.MustCompile(`<(?:[@#!][^<>]*|(?:https?|mailto|tel):[^<>]*)>`)
	entity       = regexp.MustCompile(`^&(?:amp|lt|gt);`)
	bareAddress  = regexp.MustCompile(`https?://[^\s<>|]+`)
)

var emojiNames = map[rune]string{
	'✅': "white_check_mark", '❌': "x", '⚠': "warning", '🔒': "lock", '🔓': "unlock", '⏳': "hourglass_flowing_sand",
	'⌛': "hourglass", '🚫': "no_entry_sign", '⛔': "no_entry", '🎉': "tada", '👍': "+1", '👎': "-1", '🔥': "fire",
	'❓': "question", '❗': "exclamation", '🕒': "clock3", '🛑': "octagonal_sign", '🔴': "red_circle", '🟢': "large_green_circle",
}

// echo is the message as the API returns it. Without full, metadata is only
// its event_type. Needs mu.
func (s *Slack) echo(m *Message, v Version, full bool) object {
	out := object{"type": "message", "user": m.User, "ts": m.TS, "text": echoMarkup(v.Text, true), "team": s.TeamID}
	if m.BotID != "" {
		out["bot_id"] = m.BotID
		out["bot_profile"] = object{"id": m.BotID, "app_id": s.appOf(m.BotID), "team_id": s.TeamID, "deleted": false}
	}
	if m.BotID == s.BotID {
		out["app_id"] = s.AppID
	}
	if m.ThreadTS != "" {
		out["thread_ts"] = m.ThreadTS
	}
	if len(v.Blocks) > 0 {
		blocks := make([]any, len(v.Blocks))
		for i, b := range v.Blocks {
			blocks[i] = echoTree(b)
		}
		out["blocks"] = blocks
	}
	if len(m.Edits) > 1 {
		out["edited"] = object{"user": m.BotID, "ts": fmt.Sprintf("%d.000000", m.Edits[len(m.Edits)-1].At.Unix())}
	}
	if v.Metadata != nil {
		meta := object{"event_type": v.Metadata.EventType}
		if full {
			meta["event_payload"] = v.Metadata.EventPayload
		}
		out["metadata"] = meta
	}
	return out
}

func (s *Slack) appOf(bot string) string {
	if bot == s.BotID {
		return s.AppID
	}
	return "A0OTHER001"
}

// echoTree copies a block with its texts in echoed form.
func echoTree(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			text, ok := e.(string)
			switch {
			case ok && k == "text" && v["type"] == "mrkdwn":
				out[k] = echoMarkup(text, v["verbatim"] != true)
			case ok && k == "text":
				out[k] = echoPlain(text)
			default:
				out[k] = echoTree(e)
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = echoTree(e)
		}
		return out
	}
	return v
}

// echoMarkup leaves Slack's own <…> tokens alone.
func echoMarkup(s string, link bool) string {
	var b strings.Builder
	for s != "" {
		at := controlToken.FindStringIndex(s)
		if at == nil {
			at = []int{len(s), len(s)}
		}
		plain := echoPlain(s[:at[0]])
		if link {
			plain = bareAddress.ReplaceAllString(plain, "<$0>")
		}
		b.WriteString(plain)
		b.WriteString(s[at[0]:at[1]])
		s = s[at[1]:]
	}
	return b.String()
}

func echoPlain(s string) string {
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == '<':
			b.WriteString("&lt;")
		case r == '>':
			b.WriteString("&gt;")
		case r == '&' && !entity.MatchString(s[i:]):
			b.WriteString("&amp;")
		case r == '\uFE0F': // asks for the emoji's look; goes with it
		case emojiNames[r] != "":
			b.WriteString(":" + emojiNames[r] + ":")
		case r >= 0x1F300 && r <= 0x1FAFF:
			fmt.Fprintf(&b, ":emoji_%x:", r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
