package slacktest

import (
	"encoding/json"
	"strconv"
	"time"
)

const triggerLife = 3 * time.Second

// View is a modal as it is now.
type View struct {
	ID, ExternalID, Hash, User string
	Raw                        json.RawMessage // as sent
	Updates                    int
}

// trigger is the right to open one modal, once, soon.
type trigger struct {
	user string
	born time.Time
	used bool
}

// Views lists the modals that were opened, oldest first.
func (s *Slack) Views() []View {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]View(nil), s.views...)
}

func (s *Slack) newTrigger(user string) string {
	id := s.id("") + "." + randomHex(16)
	s.triggers[id] = &trigger{user: user, born: s.now()}
	return id
}

// id makes a short id that this workspace hasn't used. Needs mu.
func (s *Slack) id(prefix string) string {
	s.serial++
	return prefix + strconv.FormatInt(int64(1_000_000+s.serial), 36)
}

func (s *Slack) viewsOpen(in args) (object, *refusal) {
	t := s.triggers[in["trigger_id"]]
	switch {
	case t == nil:
		return nil, refuse("invalid_trigger_id")
	case t.used:
		return nil, refuse("exchanged_trigger_id")
	case s.now().Sub(t.born) >= triggerLife:
		return nil, refuse("expired_trigger_id")
	}
	ext, f := s.checkView(in.raw("view"))
	if f != nil {
		return nil, f
	}
	for _, v := range s.views {
		if ext != "" && v.ExternalID == ext {
			return nil, refuse("duplicate_external_id")
		}
	}
	t.used = true
	v := View{ID: s.id("V"), ExternalID: ext, Hash: s.id("h"), User: t.user, Raw: in.raw("view")}
	s.views = append(s.views, v)
	return s.viewAnswer(v), nil
}

func (s *Slack) viewsUpdate(in args) (object, *refusal) {
	for i := range s.views {
		v := &s.views[i]
		if v.ID != in["view_id"] && (in["external_id"] == "" || v.ExternalID != in["external_id"]) {
			continue
		}
		if h := in["hash"]; h != "" && h != v.Hash {
			return nil, refuse("hash_conflict")
		}
		ext, f := s.checkView(in.raw("view"))
		if f != nil {
			return nil, f
		}
		v.ExternalID, v.Hash, v.Raw = ext, s.id("h"), in.raw("view")
		v.Updates++
		return s.viewAnswer(*v), nil
	}
	return nil, refuse("not_found")
}

func (s *Slack) viewAnswer(v View) object {
	var m object
	if decode(v.Raw, &m) != nil {
		m = object{}
	}
	m["id"], m["hash"], m["team_id"], m["app_id"], m["bot_id"] = v.ID, v.Hash, s.TeamID, s.AppID, s.BotID
	return object{"view": m}
}

func (s *Slack) checkView(raw json.RawMessage) (externalID string, f *refusal) {
	if len(raw) > 250_000 {
		return "", refuse("view_too_large")
	}
	var m map[string]any
	if decode(raw, &m) != nil {
		return "", refuse("invalid_arguments")
	}
	c := &checker{s: s, modal: true}
	c.only("/view", m, "title", "blocks", "close", "submit", "private_metadata", "callback_id", "clear_on_close",
		"notify_on_close", "external_id", "submit_disabled")
	if m["type"] != "modal" {
		c.err("/view/type", "must be modal")
	}
	c.text("/view/title", m["title"], 24, "plain_text")
	for _, k := range []string{"close", "submit"} {
		if v, ok := m[k]; ok {
			c.text("/view/"+k, v, 24, "plain_text")
		}
	}
	for k, most := range map[string]int{"private_metadata": 3000, "callback_id": 255, "external_id": 255} {
		if v, ok := m[k]; ok {
			c.length("/view/"+k, v, 0, most)
		}
	}
	if len(c.errs) > 0 {
		return "", &refusal{"invalid_arguments", object{"response_metadata": object{"messages": c.errs}}}
	}
	blocks, err := encode(m["blocks"])
	if err != nil {
		return "", refuse("invalid_arguments")
	}
	if _, _, f := s.checkBlocks(blocks, true); f != nil {
		return "", f
	}
	return str(m["external_id"]), nil
}
