package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/notifier/slack"
)

// lookAtRoutes asks whether somebody would be told, and could answer.
func lookAtRoutes(ctx context.Context, p *patient) []Finding {
	if p.policy == nil || p.roster == nil {
		return nil
	}
	var found []Finding
	routes := p.policy.Routes()
	app, id, err := p.slack(ctx)
	switch {
	case err != nil:
		found = append(found, fail("see that slack.api_url can be reached from here and that slack.bot_token is right", "Slack does not say who we are: %v", err))
	case app != nil:
		defer app.Close()
		found = append(found, fine("Slack knows us: app %s in workspace %s", id.AppID, id.TeamID))
	}
	if p.cfg.Slack != nil {
		if u := p.cfg.Webhook.PublicURL; strings.HasPrefix(u, "http:") {
			found = append(found, warn("set it to the https address that Slack can reach", "webhook.public_url is %s: Slack can't send clicks there", u))
		}
	}
	for _, r := range routes {
		problems := p.route(ctx, r, app)
		if len(problems) == 0 {
			problems = []Finding{fine("%s: asks %s on %s; %s of them, within %s", r.Name, listed(slices.Clone(r.Approvers)),
				strings.Join(r.Channels, ", "), quorum(r), r.Timeout)}
		}
		found = append(found, problems...)
	}
	return found
}

func quorum(r approvals.Route) string {
	if r.Quorum <= 1 {
		return "one"
	}
	return fmt.Sprint(r.Quorum)
}

// slack is the app, once Slack has said who we are; nil where none is configured
// or Slack does not know it.
func (p *patient) slack(ctx context.Context) (*slack.Slack, slack.Identity, error) {
	if p.cfg.Slack == nil || p.ring == nil {
		return nil, slack.Identity{}, nil
	}
	app, err := slack.New(slack.Config{
		BotToken: p.cfg.Slack.BotToken.Reveal(), APIURL: p.cfg.Slack.APIURL, Ring: p.ring,
		Roster: func() *approvals.Roster { return p.roster },
	})
	if err != nil {
		return nil, slack.Identity{}, err
	}
	id, err := app.Identify(ctx)
	if err != nil {
		app.Close()
		return nil, slack.Identity{}, err
	}
	return app, id, nil
}

// route looks at one route; nothing is found where all is well.
func (p *patient) route(ctx context.Context, r approvals.Route, app *slack.Slack) []Finding {
	var found []Finding
	if err := errors.Join(checkApprovers(r, p.roster, p.cfg), checkChannels(r, p.roster, p.cfg, false)); err != nil {
		return failures("put the route right", err)
	}
	for _, ch := range r.Channels {
		kind, name, _ := strings.Cut(ch, ":")
		if kind != "slack" || app == nil {
			continue
		}
		if err := app.Reaches(ctx, name); err != nil {
			found = append(found, fail("invite the app to the channel, or name another", "%s: %s can't be reached: %v", r.Name, ch, err))
		}
	}
	if p.cfg.Slack == nil {
		return found
	}
	return append(found, p.answers(ctx, r, app)...)
}

// answers asks of each approver by name whether a click of theirs would count.
func (p *patient) answers(ctx context.Context, r approvals.Route, app *slack.Slack) []Finding {
	var found []Finding
	people, groups := p.approvers(r)
	able := 0
	for _, id := range people {
		person, _ := p.roster.Person(id)
		if person.Slack == "" {
			found = append(found, warn("give them one under people", "%s: %s has no slack id, so can't click", r.Name, id))
			continue
		}
		able++
		if app == nil {
			continue
		}
		why, err := app.MayAnswer(ctx, person.Slack)
		switch {
		case err != nil:
			return append(found, warn(again, "%s: Slack does not tell who %s is: %v", r.Name, id, err))
		case why != "":
			able--
			found = append(found, warn("put people."+id+".slack right", "%s: clicks of %s are refused: %s", r.Name, id, why))
		}
	}
	for _, g := range groups {
		if app == nil {
			continue
		}
		members, err := app.GroupMembers(ctx, g)
		if err != nil {
			found = append(found, fail("name a user group that exists", "%s: slack-group:%s can't be read: %v", r.Name, g, err))
			continue
		}
		able += len(members)
	}
	if able < r.Quorum && (app != nil || len(groups) == 0) {
		found = append(found, fail("add approvers who can click", "%s: %s can answer in Slack, and it takes %d", r.Name, count(able, "person", "people"), r.Quorum))
	}
	return found
}

const again = "try again; the gate refuses a click that it can't verify"

// approvers are the people of a route by id, and the Slack groups by theirs.
func (p *patient) approvers(r approvals.Route) (people, groups []string) {
	for _, a := range r.Approvers {
		name, isGroup := strings.CutPrefix(a, "group:")
		members := []string{a}
		if isGroup {
			members, _ = p.roster.Members(name)
		}
		for _, m := range members {
			if g, ok := strings.CutPrefix(m, "slack-group:"); ok {
				groups = append(groups, g)
			} else {
				people = append(people, m)
			}
		}
	}
	slices.Sort(people)
	slices.Sort(groups)
	return slices.Compact(people), slices.Compact(groups)
}
