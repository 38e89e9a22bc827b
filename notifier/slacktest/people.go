package slacktest

import "slices"

// User is a member, guest, stranger or bot. Only ID is required; the zero
// value of everything else is a plain active member of the app's workspace.
type User struct {
	ID              string
	Name            string // default: the id
	RealName        string
	Email           string
	TeamID          string // default: the app's workspace
	EnterpriseID    string // of enterprise_user; default: the app's
	Deleted         bool
	Bot             bool
	AppUser         bool
	WorkflowBot     bool
	ConnectorBot    bool
	Restricted      bool // multi-channel guest
	UltraRestricted bool // single-channel guest
	Stranger        bool // shares no channel with the app; see ClickTeamID too
	Invisible       bool // users.info answers user_not_visible
	ClickTeamID     string
	// ClickTeamID is user.team_id in payloads, where Grid may say the
	// organisation's id or another of the person's workspaces. Default TeamID.
}

// UserGroup is a Slack user group, such as an on-call rota.
type UserGroup struct {
	ID       string
	Handle   string
	Members  []string
	Disabled bool
}

// Channel is a conversation. The zero value of all but ID is a public channel
// that the app is in.
type Channel struct {
	ID         string
	Name       string
	Private    bool
	Archived   bool
	Frozen     bool
	ExtShared  bool // Slack Connect
	NotMember  bool // the app isn't in it
	Restricted bool // posting is restricted by an admin
	Outsiders  []string
	// Outsiders are users who aren't in the channel; everyone else is.
}

type room struct {
	Channel
	messages []*Message // ascending by ts
}

// AddUser adds or replaces a user.
func (s *Slack) AddUser(u User) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if u.Name == "" {
		u.Name = u.ID
	}
	if u.TeamID == "" {
		u.TeamID = s.TeamID
	}
	if u.EnterpriseID == "" && u.TeamID == s.TeamID {
		u.EnterpriseID = s.EnterpriseID
	}
	if u.ClickTeamID == "" {
		u.ClickTeamID = u.TeamID
	}
	s.users[u.ID] = u
}

// AddUserGroup adds or replaces a user group.
func (s *Slack) AddUserGroup(g UserGroup) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g.Handle == "" {
		g.Handle = g.ID
	}
	g.Members = slices.Clone(g.Members)
	s.groups[g.ID] = g
}

// AddChannel adds a channel, or changes one and keeps its messages.
func (s *Slack) AddChannel(c Channel) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.Name == "" {
		c.Name = c.ID
	}
	c.Outsiders = slices.Clone(c.Outsiders)
	if r := s.channels[c.ID]; r != nil {
		r.Channel = c
		return
	}
	s.channels[c.ID] = &room{Channel: c}
}

// user finds a user; the app's own bot is always there. Needs mu.
func (s *Slack) user(id string) (User, bool) {
	if u, ok := s.users[id]; ok {
		return u, true
	}
	if id == s.BotUserID {
		return User{ID: id, Name: "countersign", TeamID: s.TeamID, EnterpriseID: s.EnterpriseID,
			ClickTeamID: s.TeamID, Bot: true, AppUser: true}, true
	}
	return User{}, false
}
