package slacktest

import (
	"encoding/json"
	"fmt"
)

// Seed is a message put into a channel without the API.
type Seed struct {
	User     string // author; "" is the app itself
	BotID    string // the author's bot, if it is another app's
	Text     string
	Blocks   string // JSON array
	Metadata string // JSON object
}

// Seed adds a message and returns its timestamp. What Slack would refuse fails
// the test.
func (s *Slack) Seed(channel string, in Seed) string {
	s.tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.channels[channel]
	if r == nil {
		s.tb.Fatalf("slacktest: no channel %s", channel)
	}
	var meta json.RawMessage
	if in.Metadata != "" {
		meta = json.RawMessage(in.Metadata)
	}
	v, f := s.version("seed", in.Text, json.RawMessage(in.Blocks), meta, true)
	if f != nil {
		s.tb.Fatalf("slacktest: seeding a message: %s %s", f.code, fmt.Sprint(f.detail))
	}
	m := &Message{Channel: channel, TS: s.stamp(), User: in.User, BotID: in.BotID}
	if in.User == "" && in.BotID == "" {
		m.User, m.BotID = s.BotUserID, s.BotID
	}
	m.set(v)
	r.messages = append(r.messages, m)
	s.cond.Broadcast()
	return m.TS
}
