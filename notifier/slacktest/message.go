package slacktest

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// Message is one message in a channel, as it is now, with all it has been.
type Message struct {
	Channel  string
	TS       string
	ThreadTS string
	User     string // author
	BotID    string
	Deleted  bool
	Version
	Edits []Version // every version, the first post first, the current one last
}

// Version is a message between two edits. Text and blocks are as they were
// sent (with missing ids filled in): what a person would see. The echoed form,
// which history and payloads carry, differs.
type Version struct {
	At       time.Time
	Via      string // the method, or "response_url"
	Text     string
	Blocks   []map[string]any // numbers are json.Number
	Raw      json.RawMessage  // the blocks as they were sent, compact; nil without blocks
	Metadata *Metadata
	Unfurl   bool     // links or media would be unfurled
	Warnings []string // what Slack would take and people would regret, e.g. "/blocks/0/text: mrkdwn without verbatim"
}

// Metadata is what an app attaches to a message.
type Metadata struct {
	EventType    string         `json:"event_type"`
	EventPayload map[string]any `json:"event_payload"`
}

// Button is one button of a message.
type Button struct {
	ActionID, BlockID, Text, Value, Style, URL string
}

// Ephemeral is a message that only one person saw.
type Ephemeral struct {
	User, Channel, TS, Text string
	Blocks                  []map[string]any
	Via                     string // "chat.postEphemeral" or "response_url"
	ResponseURL             string
	At                      time.Time
}

// PushText is what a phone's lock screen shows: the first line of the text.
func (v Version) PushText() string {
	line, _, _ := strings.Cut(v.Text, "\n")
	return line
}

// Buttons lists all buttons in the order of the blocks.
func (v Version) Buttons() []Button {
	var out []Button
	for _, b := range v.Blocks {
		id, _ := b["block_id"].(string)
		els, _ := b["elements"].([]any)
		if acc, ok := b["accessory"]; ok {
			els = append(slices.Clone(els), acc)
		}
		for _, e := range els {
			el, _ := e.(map[string]any)
			if el["type"] != "button" {
				continue
			}
			out = append(out, Button{
				ActionID: str(el["action_id"]), BlockID: id, Text: textOf(el["text"]),
				Value: str(el["value"]), Style: str(el["style"]), URL: str(el["url"]),
			})
		}
	}
	return out
}

// Preformatted is the text of each rich_text_preformatted element.
func (v Version) Preformatted() []string {
	var out []string
	for _, b := range v.Blocks {
		walk(b, func(m map[string]any) {
			if m["type"] == "rich_text_preformatted" {
				out = append(out, richText(m))
			}
		})
	}
	return out
}

// Plain is all text a person can read in the blocks, one line an object.
func (v Version) Plain() string {
	var out []string
	for _, b := range v.Blocks {
		walk(b, func(m map[string]any) {
			switch m["type"] {
			case "plain_text", "mrkdwn", "text":
				out = append(out, str(m["text"]))
			case "user":
				out = append(out, "@"+str(m["user_id"]))
			case "usergroup":
				out = append(out, "@"+str(m["usergroup_id"]))
			case "link":
				out = append(out, str(m["text"])+" "+str(m["url"]))
			}
		})
	}
	return strings.Join(out, "\n")
}

// Mentions lists the people and user groups that this version notifies.
func (v Version) Mentions() []string {
	seen := map[string]bool{}
	var out []string
	add := func(id string) {
		if id != "" && !seen[id] {
			seen[id] = true
			out = append(out, id)
		}
	}
	scan := func(text string) {
		for _, m := range mentionToken.FindAllStringSubmatch(text, -1) {
			add(strings.TrimPrefix(strings.TrimPrefix(m[1], "@"), "!subteam^"))
		}
	}
	if len(v.Blocks) == 0 {
		scan(v.Text)
	}
	for _, b := range v.Blocks {
		walk(b, func(m map[string]any) {
			switch m["type"] {
			case "user":
				add(str(m["user_id"]))
			case "usergroup":
				add(str(m["usergroup_id"]))
			case "broadcast":
				add("!" + str(m["range"]))
			case "mrkdwn":
				scan(str(m["text"]))
			}
		})
	}
	return out
}

// Messages lists the messages of a channel that aren't deleted, oldest first.
func (s *Slack) Messages(channel string) []Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.live(channel)
}

// Message finds one message, deleted ones included.
func (s *Slack) Message(channel, ts string) (Message, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.find(channel, ts); m != nil {
		return m.copy(), true
	}
	return Message{}, false
}

// WaitMessage returns the oldest message of the channel that ok accepts, as
// soon as there is one. A nil ok accepts any.
func (s *Slack) WaitMessage(ctx context.Context, channel string, ok func(Message) bool) (Message, error) {
	var found Message
	err := s.wait(ctx, "a message in "+channel, func() bool {
		for _, m := range s.live(channel) {
			if ok == nil || ok(m) {
				found = m
				return true
			}
		}
		return false
	})
	return found, err
}

// Ephemerals lists what only this user saw, oldest first. An empty user means
// everyone.
func (s *Slack) Ephemerals(user string) []Ephemeral {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.whispers(user)
}

// WaitEphemeral returns the oldest ephemeral message to user that ok accepts,
// as soon as there is one. A nil ok accepts any.
func (s *Slack) WaitEphemeral(ctx context.Context, user string, ok func(Ephemeral) bool) (Ephemeral, error) {
	var found Ephemeral
	err := s.wait(ctx, "an ephemeral message to "+user, func() bool {
		for _, e := range s.whispers(user) {
			if ok == nil || ok(e) {
				found = e
				return true
			}
		}
		return false
	})
	return found, err
}

// Remove deletes a message as an admin would, behind the app's back.
func (s *Slack) Remove(channel, ts string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.find(channel, ts)
	if m == nil || m.Deleted {
		return false
	}
	m.Deleted = true
	s.cond.Broadcast()
	return true
}

func (s *Slack) live(channel string) []Message {
	r := s.channels[channel]
	if r == nil {
		return nil
	}
	var out []Message
	for _, m := range r.messages {
		if !m.Deleted {
			out = append(out, m.copy())
		}
	}
	return out
}

func (s *Slack) whispers(user string) []Ephemeral {
	var out []Ephemeral
	for _, e := range s.ephem {
		if user == "" || e.User == user {
			out = append(out, e)
		}
	}
	return out
}

func (s *Slack) find(channel, ts string) *Message {
	r := s.channels[channel]
	if r == nil {
		return nil
	}
	for _, m := range r.messages {
		if m.TS == ts {
			return m
		}
	}
	return nil
}

// copy detaches the edit list; versions themselves are never changed.
func (m *Message) copy() Message {
	c := *m
	c.Edits = slices.Clone(m.Edits)
	return c
}

// set makes v the current version.
func (m *Message) set(v Version) {
	m.Version = v
	m.Edits = append(m.Edits, v)
}
