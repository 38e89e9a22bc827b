package slacktest

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"
)

const (
	hookUses = 5
	hookLife = 30 * time.Minute
)

// Reply is one accepted post to a response URL.
type Reply struct {
	ResponseURL     string
	User            string // who clicked
	Text            string
	Blocks          []map[string]any
	InChannel       bool
	ReplaceOriginal bool
	DeleteOriginal  bool
	At              time.Time
}

// hook is one response URL.
type hook struct {
	url, user, channel, ts string
	born                   time.Time
	uses                   int
	replies                []Reply
}

// Replies lists what was posted to a response URL (see Interaction), oldest first.
func (s *Slack) Replies(responseURL string) []Reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.hookAt(responseURL); h != nil {
		return append([]Reply(nil), h.replies...)
	}
	return nil
}

// WaitReply returns the first post to the response URL of an answer's request.
func (s *Slack) WaitReply(ctx context.Context, responseURL string) (Reply, error) {
	var found Reply
	err := s.wait(ctx, "a post to the response URL", func() bool {
		h := s.hookAt(responseURL)
		if h == nil || len(h.replies) == 0 {
			return false
		}
		found = h.replies[0]
		return true
	})
	return found, err
}

func (s *Slack) hookAt(url string) *hook {
	return s.hooks[strings.TrimPrefix(url, s.srv.URL)]
}

// newHook makes a response URL for a click. Needs mu.
func (s *Slack) newHook(user, channel, ts string) *hook {
	path := "/actions/" + s.TeamID + "/" + s.id("") + "/" + randomHex(12)
	h := &hook{url: s.srv.URL + path, user: user, channel: channel, ts: ts, born: s.now()}
	s.hooks[path] = h
	return h
}

// serveHook takes a post to a response URL. Slack answers "ok" and nothing
// more: there is no timestamp to edit later.
func (s *Slack) serveHook(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		http.Error(w, "invalid_payload", http.StatusBadRequest)
		return
	}
	s.attempt(w, r, "response_url", args{"url": s.srv.URL + r.URL.Path, "body": string(body)}, func() func() {
		status, answer := s.respond(r, body)
		return func() {
			w.WriteHeader(status)
			io.WriteString(w, answer)
		}
	})
}

func (s *Slack) respond(r *http.Request, body []byte) (int, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.hooks[r.URL.Path]
	switch {
	case h == nil:
		return http.StatusNotFound, "no_service"
	case r.Method != http.MethodPost:
		return http.StatusBadRequest, "invalid_payload"
	case s.now().Sub(h.born) >= hookLife:
		return http.StatusNotFound, `{"ok":false,"error":"expired_url"}`
	case h.uses >= hookUses:
		return http.StatusNotFound, `{"ok":false,"error":"used_url"}`
	}
	var in struct {
		Text            string          `json:"text"`
		Blocks          json.RawMessage `json:"blocks"`
		ResponseType    string          `json:"response_type"`
		ReplaceOriginal bool            `json:"replace_original"`
		DeleteOriginal  bool            `json:"delete_original"`
		ThreadTS        string          `json:"thread_ts"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return http.StatusBadRequest, "invalid_payload"
	}
	h.uses++
	rep := Reply{ResponseURL: h.url, User: h.user, Text: in.Text, InChannel: in.ResponseType == "in_channel",
		ReplaceOriginal: in.ReplaceOriginal, DeleteOriginal: in.DeleteOriginal, At: s.now()}
	if in.DeleteOriginal {
		if m := s.find(h.channel, h.ts); m != nil {
			m.Deleted = true
		}
		h.replies = append(h.replies, rep)
		s.cond.Broadcast()
		return http.StatusOK, "ok"
	}
	v, f := s.version("response_url", in.Text, in.Blocks, nil, true)
	if f != nil {
		return http.StatusBadRequest, f.code
	}
	rep.Blocks = v.Blocks
	if code := s.show(h, rep, v, in.ThreadTS); code != "" {
		return http.StatusNotFound, code
	}
	h.replies = append(h.replies, rep)
	s.cond.Broadcast()
	return http.StatusOK, "ok"
}

// show puts a reply where its flags say. Needs mu.
func (s *Slack) show(h *hook, rep Reply, v Version, thread string) string {
	switch {
	case rep.ReplaceOriginal:
		m := s.find(h.channel, h.ts)
		if m == nil || m.Deleted {
			return "message_not_found"
		}
		v.Metadata = m.Metadata
		m.set(v)
	case rep.InChannel:
		r := s.channels[h.channel]
		m := &Message{Channel: h.channel, TS: s.stamp(), ThreadTS: thread, User: s.BotUserID, BotID: s.BotID}
		m.set(v)
		r.messages = append(r.messages, m)
	default:
		s.ephem = append(s.ephem, Ephemeral{User: h.user, Channel: h.channel, TS: s.stamp(), Text: v.Text,
			Blocks: v.Blocks, Via: "response_url", ResponseURL: h.url, At: v.At})
	}
	return ""
}
