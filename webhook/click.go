package webhook

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/approvals/keys"
)

const (
	clickTime     = 2500 * time.Millisecond // Slack gives up at 3 s
	directoryTime = 1200 * time.Millisecond // leaves time for the decision
)

// outcome is how a click ended: the status for Slack, a sentence for the clicker
// (none when the card says it all), and a name for metrics and problems.
type outcome struct {
	status int
	name   string
	say    string
}

func told(name, say string) outcome { return outcome{status: http.StatusOK, name: name, say: say} }

// button is what the value of one of our buttons says.
type button struct {
	id, channel string
	verdict     approvals.Verdict
	nonce       string
}

// takeClick does everything after the signature. Its context outlives the
// request: a click that was verified counts, also when Slack hangs up.
func (s *Server) takeClick(ctx context.Context, k click) outcome {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.clickTime)
	defer cancel()
	if out, ok := s.checkOrigin(k); !ok {
		return out
	}
	b, out, ok := s.openButton(k)
	if !ok {
		return out
	}
	t, err := s.cfg.Decider.Ticket(ctx, b.id)
	if c, is := approvals.AsConflict(err); is && c != approvals.StoreUnavailable {
		return told(string(c), sayConflict(c, t))
	}
	if err != nil {
		s.log.Error("reading an approval for a click", "approval", b.id, "error", err)
		return outcome{http.StatusServiceUnavailable, "store-unavailable", sayUncertain}
	}
	vote := approvals.Vote{
		ID: t.ID, Verdict: b.verdict, Source: "slack:" + k.user,
		// The button's MAC ties it to the approval's id, and an approval's
		// envelope never changes: the stored digest is the one the card showed.
		Bound: t.Bound,
		Nonce: voteNonce("slack", t.ID, k.user, b.verdict.String(), b.nonce, k.channel, k.messageTS, k.at),
	}
	if "slack:"+k.channel != b.channel || !slices.Contains(t.Channels, b.channel) {
		s.refuse(ctx, vote, approvals.NotEligible)
		return told("wrong_channel", sayWrongPlace)
	}
	s.adopt(ctx, t, k)
	if out, ok := s.identify(ctx, k, &vote); !ok {
		return out
	}
	return s.decideClick(ctx, vote)
}

// checkOrigin compares app and workspace with the pinned ones. What isn't pinned
// yet fits nothing.
func (s *Server) checkOrigin(k click) (outcome, bool) {
	c := s.cfg.Slack
	app, team, enterprise := c.AppID(), c.TeamID(), ""
	if c.EnterpriseID != nil {
		enterprise = c.EnterpriseID()
	}
	if app == "" || (team == "" && enterprise == "") {
		return outcome{http.StatusServiceUnavailable, "not-ready", sayNotReady}, false
	}
	ours := (team != "" && k.team == team) || (enterprise != "" && k.enterprise == enterprise)
	if k.app != app || !ours {
		s.log.Warn("a signed click of another app or workspace was refused", "app", k.app == app, "workspace", ours)
		return outcome{status: http.StatusForbidden, name: "foreign-app"}, false
	}
	return outcome{}, true
}

// openButton opens the button's value; its verdict must be the one its action id
// stands for.
func (s *Server) openButton(k click) (button, outcome, bool) {
	var want approvals.Verdict
	switch k.action {
	case ActionApprove:
		want = approvals.Approve
	case ActionDeny:
		want = approvals.Deny
	default:
		return button{}, told("unknown_button", sayUnknownButton), false
	}
	f, err := s.cfg.Ring.OpenToken(keys.Button, k.value)
	if err != nil || len(f) != 5 || f[0] != "v1" || f[1] == "" || f[4] == "" {
		return button{}, told("foreign_button", sayForeignButton), false
	}
	v, ok := approvals.ParseVerdict(f[3])
	if !ok || v != want {
		return button{}, told("foreign_button", sayForeignButton), false
	}
	return button{id: f[1], channel: f[2], verdict: v, nonce: f[4]}, outcome{}, true
}

// adopt records a card of ours that the record does not know of, before the vote
// makes the nudge that will redraw it. The button's MAC and the signed channel
// prove that it is ours, whoever clicked.
func (s *Server) adopt(ctx context.Context, t approvals.Ticket, k click) {
	if s.cfg.Adopter == nil {
		return
	}
	ref := approvals.Ref{Channel: "slack:" + k.channel, ID: k.channel + "/" + k.messageTS}
	known := slices.ContainsFunc(t.Refs, func(r approvals.Ref) bool { return r.Channel == ref.Channel && r.ID == ref.ID })
	if known {
		return
	}
	// Rev stays 0: what the card shows is not known, so it will be redrawn.
	if err := s.cfg.Adopter.Adopt(ctx, t.ID, ref); err != nil {
		s.log.Warn("a card could not be adopted", "approval", t.ID, "error", err)
		return
	}
	s.log.Info("a card was adopted at a click", "approval", t.ID, "channel", ref.Channel)
}

// identify finds the one person who clicked, as they are now.
func (s *Server) identify(ctx context.Context, k click, vote *approvals.Vote) (outcome, bool) {
	lookup, cancel := context.WithTimeout(ctx, directoryTime)
	defer cancel()
	person, seen, err := s.cfg.Directory.Person(lookup, k.user, k.userTeam, k.enterprise)
	vote.Person = person
	if c, is := approvals.AsConflict(err); is {
		s.refuse(ctx, *vote, c)
		return told("not_allowed", sayNotAllowed), false
	}
	if err != nil {
		s.log.Warn("a clicker could not be looked up", "approval", vote.ID, "error", err)
		s.refuse(ctx, *vote, approvals.NotEligible)
		return told("no_lookup", sayNoLookup), false
	}
	roster := s.cfg.Roster()
	if _, known := roster.Person(person); !known {
		vote.Person = ""
		s.refuse(ctx, *vote, approvals.NotEligible)
		return told("stranger", sayStranger), false
	}
	vote.Memberships = merge(roster, person, seen, s.now())
	return outcome{}, true
}

func (s *Server) decideClick(ctx context.Context, vote approvals.Vote) outcome {
	t, err := s.cfg.Decider.Decide(ctx, vote)
	if err == nil {
		return told("taken", "")
	}
	if c, is := approvals.AsConflict(err); is && c != approvals.StoreUnavailable {
		return told(string(c), sayConflict(c, t))
	}
	s.log.Error("a click could not be recorded", "approval", vote.ID, "error", err)
	return outcome{http.StatusServiceUnavailable, "store-unavailable", sayUncertain}
}

// refuse puts a genuine request of somebody who may not vote on record. It is
// only a record: when it fails, the refusal stands.
func (s *Server) refuse(ctx context.Context, v approvals.Vote, why approvals.Conflict) {
	v.Refused = why
	if _, err := s.cfg.Decider.Decide(ctx, v); err != nil && !errors.Is(err, why) {
		s.log.Warn("a refused vote could not be put on record", "approval", v.ID, "error", err)
	}
}

// voteNonce is the same for the same signed fact, so that a replay is the vote it
// repeats.
func voteNonce(fields ...string) string {
	parts := make([][]byte, len(fields))
	for i, f := range fields {
		parts[i] = []byte(f)
	}
	return action.Sum("countersign/vote/v1", parts...).Hex()
}
