package slack

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/slack-go/slack"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/notifier"
)

var _ notifier.Channel = (*Slack)(nil)

// Deliver posts or edits one card; see notifier.Channel. A Ref's ID is
// "CHANNEL/TS".
func (s *Slack) Deliver(ctx context.Context, m notifier.Message) (approvals.Ref, error) {
	channel, ok := strings.CutPrefix(m.Channel, "slack:")
	if !ok || !channelID.MatchString(channel) {
		return approvals.Ref{}, &notifier.Fail{Reason: notifier.NoChannel, Final: true, Detail: "not a channel id"}
	}
	if m.Ref != nil {
		return s.update(ctx, m)
	}
	if m.Attempt != "" {
		ts, err := s.find(ctx, channel, m)
		if f, ok := err.(*notifier.Fail); ok {
			f.Unsent = true
		}
		if ts != "" || err != nil {
			return ref(channel, ts, 0), err
		}
	}
	if m.Find {
		return approvals.Ref{}, nil
	}
	return s.post(ctx, channel, m)
}

func ref(channel, ts string, rev uint64) approvals.Ref {
	if ts == "" {
		return approvals.Ref{}
	}
	return approvals.Ref{Channel: "slack:" + channel, ID: channel + "/" + ts, Rev: rev}
}

func (s *Slack) post(ctx context.Context, channel string, m notifier.Message) (approvals.Ref, error) {
	if err := s.checkPlace(ctx, channel); err != nil {
		return approvals.Ref{}, err
	}
	var posted approvals.Ref
	err := s.draw(m, func(c card) error {
		got, ts, _, err := s.api.SendMessageContext(ctx, channel, slack.MsgOptionPost(), c.options(m.Ticket.ID))
		if err == nil && ts == "" {
			err = errEmpty
		}
		if got == "" {
			got = channel // a person's id as channel is answered with the direct message's
		}
		posted = ref(got, ts, m.Ticket.Rev)
		posted.Channel = m.Channel
		return err
	}, true)
	if err != nil {
		return approvals.Ref{}, err
	}
	return posted, nil
}

func (s *Slack) update(ctx context.Context, m notifier.Message) (approvals.Ref, error) {
	channel, ts, ok := strings.Cut(m.Ref.ID, "/")
	if !ok || !channelID.MatchString(channel) || ts == "" {
		return approvals.Ref{}, &notifier.Fail{Reason: notifier.Gone, Detail: "not a reference of ours"}
	}
	err := s.draw(m, func(c card) error {
		_, got, _, err := s.api.SendMessageContext(ctx, channel, slack.MsgOptionUpdate(ts), c.options(m.Ticket.ID))
		if err == nil && got == "" {
			err = errEmpty
		}
		return err
	}, false)
	if err != nil {
		return approvals.Ref{}, err
	}
	out := *m.Ref
	out.Rev = m.Ticket.Rev
	return out, nil
}

// errEmpty is an answer without a message timestamp: the client library reports
// {"ok":false} without an error code as a success.
var errEmpty = errors.New("slack: an answer without a timestamp")

// draw sends the fullest card that Slack takes. A card that Slack refuses for
// what is in it is never dropped: a plainer one is sent instead.
func (s *Slack) draw(m notifier.Message, send func(card) error, posting bool) error {
	var f *notifier.Fail
	for lv := range levels {
		err := send(s.card(m, level(lv)))
		if err == nil {
			return nil
		}
		if f = classify(err, posting); f.Reason != notifier.Payload {
			return f
		}
		s.log.Warn("Slack refused a card for what is in it", "approval", m.Ticket.ID, "level", lv, "error", f.Detail)
	}
	return f
}

// options are a card's fields, the same for a post and an edit.
func (c card) options(id string) slack.MsgOption {
	return slack.MsgOptionCompose(
		slack.MsgOptionText(c.text, false), // is escaped
		slack.MsgOptionBlocks(c.blocks...),
		slack.MsgOptionParse(false), // an edit's default would look for links and names
		slack.MsgOptionLinkNames(false),
		slack.MsgOptionDisableMarkdown(),
		slack.MsgOptionDisableLinkUnfurl(),
		slack.MsgOptionDisableMediaUnfurl(),
		slack.MsgOptionMetadata(slack.SlackMetadata{
			EventType: EventType, EventPayload: map[string]any{"approval_id": id},
		}),
	)
}

// placeAge is how long a channel that was found fit stays so.
const placeAge = 5 * time.Minute

// checkPlace refuses a channel that people of another organisation read: the
// card shows what is in the arguments.
func (s *Slack) checkPlace(ctx context.Context, channel string) error {
	if strings.ContainsAny(channel[:1], "DUW") {
		return nil // a direct message
	}
	s.mu.Lock()
	seen, ok := s.places[channel]
	s.mu.Unlock()
	if ok && s.now().Sub(seen) < placeAge {
		return nil
	}
	info, err := s.api.GetConversationInfoContext(ctx, &slack.GetConversationInfoInput{ChannelID: channel})
	if err != nil {
		return classify(err, false)
	}
	if info.IsExtShared {
		return &notifier.Fail{Reason: notifier.NoChannel, Final: true, Detail: "shared with another organisation"}
	}
	s.mu.Lock()
	s.places[channel] = s.now()
	s.mu.Unlock()
	return nil
}

const (
	findPages = 10
	findPage  = 200
	findSkew  = 2 * time.Minute // between our clock and Slack's
)

// find looks for a card of this approval that an earlier attempt posted. It
// returns its timestamp, or "" when there is none for certain.
func (s *Slack) find(ctx context.Context, channel string, m notifier.Message) (string, error) {
	id, err := s.Identify(ctx)
	if err != nil {
		return "", err
	}
	q := slack.GetConversationHistoryParameters{
		ChannelID: channel, Limit: findPage, IncludeAllMetadata: true, Inclusive: true,
	}
	if since := m.Since(); !since.IsZero() {
		q.Oldest = stamp(since.Add(-findSkew))
	}
	for range findPages {
		page, err := s.api.GetConversationHistoryContext(ctx, &q)
		if err != nil {
			return "", s.blind(m, classify(err, false))
		}
		for _, x := range page.Messages {
			if x.BotID == id.BotID && x.Metadata.EventType == EventType && x.Metadata.EventPayload["approval_id"] == m.Ticket.ID {
				s.log.Info("a card that was lost sight of was found", "approval", m.Ticket.ID, "channel", m.Channel)
				return x.Timestamp, nil
			}
		}
		q.Cursor = page.ResponseMetaData.NextCursor
		if !page.HasMore || q.Cursor == "" {
			return "", s.settled(m)
		}
	}
	s.log.Warn("a lost card was not found among the newest messages", "approval", m.Ticket.ID, "channel", m.Channel)
	return "", nil
}

// settled says whether a post that is not in the history can still appear there.
func (s *Slack) settled(m notifier.Message) error {
	if left := s.cfg.Settle - s.now().Sub(m.Latest()); left > 0 {
		return &notifier.Fail{Reason: notifier.Unreachable, After: left, Maybe: true, Detail: "an earlier post may still appear"}
	}
	return nil
}

// blind decides what a failed search means. Without the right to read the
// channel's history a second card is better than none: a click on either counts.
func (s *Slack) blind(m notifier.Message, f *notifier.Fail) error {
	if f.Detail != "missing_scope" {
		return f
	}
	s.log.Warn("a lost card can't be looked for: the token lacks the history scope", "approval", m.Ticket.ID, "channel", m.Channel)
	return nil
}

// stamp is a Slack timestamp: seconds, a dot, six digits. It never goes through a
// float.
func stamp(t time.Time) string {
	us := max(t.UnixMicro(), 0)
	return fmt.Sprintf("%d.%06d", us/1e6, us%1e6)
}
