package slacktest

import (
	"encoding/base64"
	"strconv"
	"strings"
)

func (s *Slack) authTest(args) (object, *refusal) {
	out := object{
		"url": "https://" + s.TeamDomain + ".slack.com/", "team": s.TeamDomain, "user": "countersign",
		"team_id": s.TeamID, "user_id": s.BotUserID, "bot_id": s.BotID, "is_enterprise_install": false,
	}
	if s.EnterpriseID != "" {
		out["enterprise_id"] = s.EnterpriseID
	}
	return out, nil
}

func (s *Slack) botsInfo(in args) (object, *refusal) {
	if in["bot"] != s.BotID {
		return nil, refuse("bot_not_found")
	}
	return object{"bot": object{
		"id": s.BotID, "app_id": s.AppID, "user_id": s.BotUserID, "name": "countersign", "deleted": false, "updated": 0,
	}}, nil
}

func (s *Slack) usersInfo(in args) (object, *refusal) {
	u, ok := s.user(in["user"])
	switch {
	case !ok:
		return nil, refuse("user_not_found")
	case u.Invisible:
		return nil, refuse("user_not_visible")
	}
	profile := object{"real_name": u.RealName, "display_name": u.Name, "team": u.TeamID}
	if s.scopes["users:read.email"] {
		profile["email"] = u.Email
	}
	out := object{
		"id": u.ID, "team_id": u.TeamID, "name": u.Name, "real_name": u.RealName, "profile": profile,
		"deleted": u.Deleted, "is_bot": u.Bot, "is_app_user": u.AppUser, "updated": 0,
	}
	if !u.Deleted {
		out["is_restricted"], out["is_ultra_restricted"] = u.Restricted || u.UltraRestricted, u.UltraRestricted
	}
	for key, on := range map[string]bool{
		"is_stranger": u.Stranger, "is_workflow_bot": u.WorkflowBot, "is_connector_bot": u.ConnectorBot,
	} {
		if on { // Slack leaves these out otherwise
			out[key] = true
		}
	}
	if u.EnterpriseID != "" {
		out["enterprise_user"] = object{
			"id": u.ID, "enterprise_id": u.EnterpriseID, "enterprise_name": u.EnterpriseID, "teams": []string{u.TeamID},
		}
	}
	return object{"user": out}, nil
}

func (s *Slack) groupsList(in args) (object, *refusal) {
	list := []object{}
	for _, id := range sortedIDs(s.groups) {
		g := s.groups[id]
		if g.Disabled && !in.flag("include_disabled") {
			continue
		}
		o := object{
			"id": g.ID, "team_id": s.TeamID, "is_usergroup": true, "name": g.Handle, "handle": g.Handle,
			"date_create": 1, "date_delete": 0, "user_count": len(g.Members),
		}
		if g.Disabled {
			o["date_delete"] = 2
		}
		if in.flag("include_users") {
			o["users"] = members(g)
		}
		list = append(list, o)
	}
	return object{"usergroups": list}, nil
}

func (s *Slack) groupMembers(in args) (object, *refusal) {
	g, ok := s.groups[in["usergroup"]]
	if !ok || g.Disabled && !in.flag("include_disabled") {
		return nil, refuse("no_such_subteam")
	}
	return object{"users": members(g)}, nil
}

func members(g UserGroup) []string { return append([]string{}, g.Members...) }

func sortedIDs[V any](m map[string]V) []string {
	all := make(map[string]any, len(m))
	for k := range m {
		all[k] = nil
	}
	return sortedKeys(all)
}

func (s *Slack) conversationInfo(in args) (object, *refusal) {
	r := s.channels[in["channel"]]
	if r == nil || r.Private && r.NotMember {
		return nil, refuse("channel_not_found")
	}
	im := strings.HasPrefix(r.ID, "D")
	return object{"channel": object{
		"id": r.ID, "name": r.Name, "is_channel": !im && !r.Private, "is_group": false, "is_im": im,
		"is_private": r.Private, "is_archived": r.Archived, "is_frozen": r.Frozen, "is_member": !r.NotMember,
		"is_ext_shared": r.ExtShared, "is_shared": r.ExtShared, "is_org_shared": false,
		"context_team_id": s.TeamID, "created": 1,
	}}, nil
}

func (s *Slack) history(in args) (object, *refusal) {
	r := s.channels[in["channel"]]
	switch {
	case r == nil || r.Private && r.NotMember:
		return nil, refuse("channel_not_found")
	case r.NotMember:
		return nil, refuse("not_in_channel")
	}
	limit := 100
	if l := in["limit"]; l != "" {
		n, err := strconv.Atoi(l)
		if err != nil || n < 1 || n > 999 {
			return nil, refuse("invalid_limit")
		}
		limit = n
	}
	var bounds [3]moment // oldest, latest, cursor
	for i, text := range []string{in["oldest"], in["latest"], ""} {
		if i == 2 && in["cursor"] != "" {
			raw, err := base64.StdEncoding.DecodeString(in["cursor"])
			if err != nil || !strings.HasPrefix(string(raw), "before:") {
				return nil, refuse("invalid_cursor")
			}
			text = strings.TrimPrefix(string(raw), "before:")
		}
		var ok bool
		if bounds[i], ok = parseTS(text); !ok {
			return nil, refuse([]string{"invalid_ts_oldest", "invalid_ts_latest", "invalid_cursor"}[i])
		}
	}
	return s.page(r, bounds, limit, in.flag("inclusive"), in.flag("include_all_metadata")), nil
}

// page lists messages newest first.
func (s *Slack) page(r *room, bounds [3]moment, limit int, inclusive, full bool) object {
	oldest, latest, before := bounds[0], bounds[1], bounds[2]
	list, more := []object{}, false
	last := ""
	for i := len(r.messages) - 1; i >= 0; i-- {
		m := r.messages[i]
		at, _ := parseTS(m.TS)
		switch {
		case m.Deleted, m.ThreadTS != "" && m.ThreadTS != m.TS:
			continue
		case before.set && at.compare(before) >= 0:
			continue
		case oldest.set && (at.compare(oldest) < 0 || !inclusive && at.compare(oldest) == 0):
			continue
		case latest.set && (at.compare(latest) > 0 || !inclusive && at.compare(latest) == 0):
			continue
		}
		if len(list) == limit {
			more = true
			break
		}
		list = append(list, s.echo(m, m.Version, full))
		last = m.TS
	}
	out := object{"messages": list, "has_more": more, "pin_count": 0}
	if more {
		out["response_metadata"] = object{"next_cursor": base64.StdEncoding.EncodeToString([]byte("before:" + last))}
	}
	return out
}

// moment is a timestamp in exact parts: a float can't hold it.
type moment struct {
	sec, micro int64
	set        bool
}

func (m moment) compare(o moment) int {
	if m.sec != o.sec {
		return int(max(-1, min(1, m.sec-o.sec)))
	}
	return int(max(-1, min(1, m.micro-o.micro)))
}

func parseTS(s string) (moment, bool) {
	if s == "" || s == "0" {
		return moment{}, true
	}
	whole, frac, _ := strings.Cut(s, ".")
	sec, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || len(frac) > 6 {
		return moment{}, false
	}
	micro, err := strconv.ParseInt((frac + "000000")[:6], 10, 64)
	return moment{sec, micro, true}, err == nil
}
