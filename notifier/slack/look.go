package slack

import (
	"context"
	"errors"
	"strings"

	"github.com/slack-go/slack"

	"github.com/countersign-mcp/countersign/notifier"
)

// The methods below are for whoever checks a configuration. They post nothing and
// remember nothing. Errors are *notifier.Fail; their texts hold no secret.

// Reaches tells whether the app can post in a channel; nil when it can. A direct
// message is taken to be reachable: Slack tells only when one is posted.
func (s *Slack) Reaches(ctx context.Context, channel string) error {
	if channel == "" || strings.ContainsAny(channel[:1], "DUW") {
		return nil
	}
	info, err := s.api.GetConversationInfoContext(ctx, &slack.GetConversationInfoInput{ChannelID: channel})
	fit := func(detail string) error {
		return &notifier.Fail{Reason: notifier.NoChannel, Final: true, Detail: detail}
	}
	switch {
	case err != nil:
		return classify(err, false)
	case info.IsExtShared:
		return fit("shared with another organisation")
	case info.IsArchived:
		return fit("is_archived")
	case !info.IsMember:
		return fit("not_in_channel")
	}
	return nil
}

// MayAnswer tells whether clicks of a Slack user would be taken; when not, why is
// one of the reasons of a refused click.
func (s *Slack) MayAnswer(ctx context.Context, user string) (why string, err error) {
	id, err := s.Identify(ctx)
	if err != nil {
		return "", err
	}
	p, err := s.lookUp(ctx, user)
	switch {
	case err != nil:
		return "", err
	case p.why != "":
		return string(p.why), nil
	case !ours(id, p.team, p.enterprise):
		return string(OtherWorkspace), nil
	}
	return "", nil
}

// GroupMembers lists the users of a Slack group ("S…"). One that doesn't exist or
// is disabled is an error here.
func (s *Slack) GroupMembers(ctx context.Context, group string) ([]string, error) {
	list, err := s.api.GetUserGroupMembersContext(ctx, group)
	var code slack.SlackErrorResponse
	if errors.As(err, &code) && (code.Err == "no_such_subteam" || code.Err == "subteam_not_found") {
		return nil, &notifier.Fail{Reason: notifier.NoChannel, Final: true, Detail: code.Err}
	}
	if err != nil {
		return nil, classify(err, false)
	}
	return list, nil
}
