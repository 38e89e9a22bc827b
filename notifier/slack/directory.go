package slack

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/slack-go/slack"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/notifier"
)

// remember is how long an answer of Slack about people is used again. With the
// time it takes to judge a vote it stays below approvals.MembershipAge.
const remember = 45 * time.Second

// NotAllowed says why somebody in Slack is nobody who may answer. It wraps
// approvals.NotEligible.
type NotAllowed string

// The reasons.
const (
	Deactivated    NotAllowed = "deactivated"
	Bot            NotAllowed = "bot"
	Guest          NotAllowed = "guest"
	OtherWorkspace NotAllowed = "other_workspace"
	NotVisible     NotAllowed = "not_visible" // Slack does not know the person or doesn't show them to us
)

func (n NotAllowed) Error() string { return "slack: " + string(n) }

// Unwrap makes it a refusal that everybody understands.
func (n NotAllowed) Unwrap() error { return approvals.NotEligible }

// person is what users.info said.
type person struct {
	why              NotAllowed // "" for a full member
	team, enterprise string
}

// Person finds the one person behind a Slack user who clicked, and the groups
// they are in, no older than approvals.MembershipAge. It returns "" and no error
// for a full member who is nobody of ours, a NotAllowed for a bot, a guest, a
// deactivated account or somebody of another workspace, and a *notifier.Fail
// when Slack could not be asked: then nobody is let through.
func (s *Slack) Person(ctx context.Context, user, team, enterprise string) (string, approvals.Memberships, error) {
	none := approvals.Memberships{}
	id, err := s.Identify(ctx)
	if err != nil {
		return "", none, err
	}
	if !userID.MatchString(user) {
		return "", none, NotVisible
	}
	// What the click says of the clicker may only narrow: on a Grid it may name
	// another workspace of the organisation.
	if team != "" && !ours(id, team, enterprise) {
		return "", none, OtherWorkspace
	}
	p, asOf, err := s.people.get(ctx, s.now, user, func(ctx context.Context) (person, error) { return s.lookUp(ctx, user) })
	if err != nil {
		return "", none, err
	}
	if p.why != "" {
		return "", none, p.why
	}
	if !ours(id, p.team, p.enterprise) {
		return "", none, OtherWorkspace
	}
	roster := s.cfg.Roster()
	name := roster.BySlack(user)
	if name == "" {
		return "", none, nil
	}
	m, err := s.groups(ctx, roster, name, user)
	if err != nil {
		return "", none, err
	}
	if asOf.Before(m.AsOf) {
		m.AsOf = asOf
	}
	return name, m, nil
}

// Memberships are the groups of one of our people who did not come through
// Slack.
func (s *Slack) Memberships(ctx context.Context, name string) (approvals.Memberships, error) {
	roster := s.cfg.Roster()
	p, _ := roster.Person(name)
	return s.groups(ctx, roster, name, p.Slack)
}

// ours tells whether a workspace or organisation is the app's own.
func ours(id Identity, team, enterprise string) bool {
	if team != "" && team == id.TeamID {
		return true
	}
	return id.EnterpriseID != "" && (team == id.EnterpriseID || enterprise == id.EnterpriseID)
}

func (s *Slack) lookUp(ctx context.Context, user string) (person, error) {
	u, err := s.api.GetUserInfoContext(ctx, user)
	var code slack.SlackErrorResponse
	if errors.As(err, &code) && slices.Contains([]string{"user_not_found", "user_not_visible", "users_not_found"}, code.Err) {
		return person{why: NotVisible}, nil
	}
	if err != nil {
		return person{}, classify(err, false)
	}
	p := person{team: u.TeamID, enterprise: u.Enterprise.EnterpriseID}
	switch {
	case u.ID != user:
		return p, refused("another user was answered")
	case u.Deleted:
		p.why = Deactivated
	case u.IsBot, u.IsAppUser, u.IsWorkflowBot, u.IsConnectorBot:
		p.why = Bot
	case u.IsRestricted, u.IsUltraRestricted, u.IsInvitedUser:
		p.why = Guest
	case u.IsStranger:
		p.why = OtherWorkspace
	}
	return p, nil
}

// groups are the configured groups and the Slack groups that matter to any
// route. With no Slack group to ask about they are true now.
func (s *Slack) groups(ctx context.Context, roster *approvals.Roster, name, user string) (approvals.Memberships, error) {
	m := approvals.Memberships{Groups: roster.Groups(name), AsOf: s.now()}
	if user == "" {
		return m, nil
	}
	var in []string
	for _, g := range roster.SlackGroups(s.cfg.Approvers()) {
		g := strings.TrimPrefix(g, "slack-group:")
		members, asOf, err := s.teams.get(ctx, s.now, g, func(ctx context.Context) ([]string, error) { return s.members(ctx, g) })
		if err != nil {
			return approvals.Memberships{}, err
		}
		if slices.Contains(members, user) {
			in = append(in, "slack-group:"+g)
		}
		if asOf.Before(m.AsOf) {
			m.AsOf = asOf
		}
	}
	m.Groups = append(m.Groups, in...)
	m.Groups = append(m.Groups, roster.Through(in)...)
	slices.Sort(m.Groups)
	m.Groups = slices.Compact(m.Groups)
	return m, nil
}

// members lists a Slack group. A group that doesn't exist or is disabled is
// nobody.
func (s *Slack) members(ctx context.Context, group string) ([]string, error) {
	list, err := s.api.GetUserGroupMembersContext(ctx, group)
	var code slack.SlackErrorResponse
	if errors.As(err, &code) && (code.Err == "no_such_subteam" || code.Err == "subteam_not_found") {
		s.log.Warn("a Slack group of the configuration doesn't exist or is disabled", "group", group)
		return nil, nil
	}
	if err != nil {
		return nil, classify(err, false)
	}
	return list, nil
}

// cache remembers answers for a short time and asks once for all who want
// the same one. The zero value is ready.
type cache[V any] struct {
	flight singleflight.Group
	mu     sync.Mutex
	known  map[string]entry[V]
}

type entry[V any] struct {
	value V
	asOf  time.Time // before the question was sent
}

const cacheMost = 10_000

func (c *cache[V]) get(ctx context.Context, now func() time.Time, key string, ask func(context.Context) (V, error)) (V, time.Time, error) {
	c.mu.Lock()
	e, ok := c.known[key]
	c.mu.Unlock()
	if t := now(); ok && !t.Before(e.asOf) && approvals.Apart(e.asOf, t) < remember {
		return e.value, e.asOf, nil
	}
	// The question is everybody's: one who gives up must not end it for the rest.
	ch := c.flight.DoChan(key, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		e := entry[V]{asOf: now()}
		var err error
		if e.value, err = ask(ctx); err != nil {
			return nil, err
		}
		c.put(key, e)
		return e, nil
	})
	var zero V
	select {
	case <-ctx.Done():
		return zero, time.Time{}, &notifier.Fail{Reason: notifier.Unreachable, Detail: "no answer in time"}
	case r := <-ch:
		if r.Err != nil {
			return zero, time.Time{}, r.Err
		}
		e := r.Val.(entry[V])
		return e.value, e.asOf, nil
	}
}

func (c *cache[V]) put(key string, e entry[V]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil || len(c.known) >= cacheMost {
		c.known = map[string]entry[V]{}
	}
	c.known[key] = e
}
