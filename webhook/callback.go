package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/labstack/echo/v4"
)

const callbackTime = 10 * time.Second

// DecisionType is the type member of a callback's body.
const DecisionType = "approval.decision"

// Decision is what a callback says.
type Decision struct {
	ApprovalID string
	Verdict    approvals.Verdict
	Digest     string // the keyed one that our message carried
	Actor      string // the sender's own id of the person; people.*.NAME maps it
	Reason     string
}

// Body is the callback's body, for whoever sends one to us.
func (d Decision) Body(at time.Time) []byte {
	type actor struct {
		ID string `json:"id"`
	}
	type data struct {
		ApprovalID string `json:"approval_id"`
		Decision   string `json:"decision"`
		Digest     string `json:"digest"`
		Actor      actor  `json:"actor"`
		Reason     string `json:"reason,omitempty"`
	}
	var b bytes.Buffer
	_ = json.NewEncoder(&b).Encode(struct { // strings only
		Type      string `json:"type"`
		Timestamp string `json:"timestamp"`
		Data      data   `json:"data"`
	}{DecisionType, at.UTC().Format(time.RFC3339), data{d.ApprovalID, d.Verdict.String(), d.Digest, actor{d.Actor}, d.Reason}})
	return bytes.TrimSpace(b.Bytes())
}

var approvalID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)

// parseDecision reads a verified body. Members that it doesn't know are left
// alone; everything it does know must be there and exact.
func parseDecision(body []byte) (Decision, bool) {
	m, err := strictObject(body)
	if err != nil {
		return Decision{}, false
	}
	kind, _ := m.must("type")
	data, ok := m.object("data")
	if kind != DecisionType || !ok {
		return Decision{}, false
	}
	stamp, _ := m.must("timestamp")
	if _, err := time.Parse(time.RFC3339, stamp); err != nil {
		return Decision{}, false
	}
	actor, ok := data.object("actor")
	if !ok {
		return Decision{}, false
	}
	var d Decision
	var good [4]bool
	d.ApprovalID, good[0] = data.must("approval_id")
	word, _ := data.must("decision")
	d.Verdict, good[1] = approvals.ParseVerdict(word)
	d.Digest, good[2] = data.must("digest")
	d.Actor, good[3] = actor.must("id")
	if good != [4]bool{true, true, true, true} || !approvalID.MatchString(d.ApprovalID) {
		return Decision{}, false
	}
	if !data.absent("reason") {
		if d.Reason, ok = data.text("reason"); !ok {
			return Decision{}, false
		}
		d.Reason = cleanReason(d.Reason)
	}
	return d, true
}

// callback takes a signed decision. 202: taken; 200: the same again; 403: not
// theirs to decide; 404: no such approval; 409: decided otherwise; 410: over;
// 422: not a decision, or about something else than what waits; 503: try again.
func (s *Server) callback(c echo.Context) error {
	source := c.Param("source")
	if err := noQuery(c.Request()); err != nil {
		return err
	}
	verifier, ok := s.verify.Load().callbacks[source]
	if !ok {
		return problem(http.StatusNotFound, "unknown-source", "")
	}
	body, err := readRaw(c, CallbackBodyLimit)
	if err != nil {
		return err
	}
	hookID, err := verifier.verify(c.Request().Header, body, s.now())
	if err != nil {
		s.cfg.Observe("callback", "bad_signature")
		return problem(http.StatusUnauthorized, "bad-signature", "")
	}
	d, ok := parseDecision(body)
	if !ok {
		s.cfg.Observe("callback", "malformed")
		return problem(http.StatusUnprocessableEntity, "malformed", "the body is not an "+DecisionType)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Request().Context()), callbackTime)
	defer cancel()
	status, err := s.takeDecision(ctx, source, hookID, d)
	if err != nil {
		s.cfg.Observe("callback", "refused")
		return err
	}
	s.cfg.Observe("callback", "taken")
	return c.JSON(status, map[string]string{"approval_id": d.ApprovalID, "decision": d.Verdict.String()})
}

// takeDecision votes for the person behind a verified callback.
func (s *Server) takeDecision(ctx context.Context, source, hookID string, d Decision) (int, error) {
	t, err := s.cfg.Decider.Ticket(ctx, d.ApprovalID)
	if err != nil {
		return 0, s.voteProblem(err, approvals.Ticket{ID: d.ApprovalID})
	}
	vote := approvals.Vote{
		ID: t.ID, Verdict: d.Verdict, Source: "callback:" + source, Reason: d.Reason, Bound: d.Digest,
		// Also the answer is in it: an id that comes again with another answer
		// is another vote, not a repeat.
		Nonce: voteNonce("callback", source, hookID, t.ID, d.Actor, d.Verdict.String()),
	}
	roster := s.cfg.Roster()
	vote.Person = roster.ByTicket(source, d.Actor)
	if vote.Person == "" {
		s.refuse(ctx, vote, approvals.NotEligible)
		return 0, conflictProblem(approvals.NotEligible, t)
	}
	if vote.Memberships, err = s.votersGroups(ctx, vote, t); err != nil {
		return 0, err
	}
	before := castBy(t, vote.Person, vote.Verdict)
	after, err := s.cfg.Decider.Decide(ctx, vote)
	switch {
	case err == nil && !before:
		return http.StatusAccepted, nil
	case err == nil:
		return http.StatusOK, nil
	}
	if c, is := approvals.AsConflict(err); is && repeats(c) && castBy(after, vote.Person, vote.Verdict) {
		return http.StatusOK, nil // their answer already is what they say again
	}
	return 0, s.voteProblem(err, after)
}

// votersGroups looks up the groups of a vote's person. Without an answer an
// approval is not taken, since a lookup that fails must not cost a person the
// route they are on; a deny stands on any one route.
func (s *Server) votersGroups(ctx context.Context, v approvals.Vote, t approvals.Ticket) (approvals.Memberships, error) {
	m, err := s.memberships(ctx, v.Person, t)
	if err == nil || (v.Verdict == approvals.Deny && standing(t, v.Person, m, s.now()).MayDeny) {
		return m, nil
	}
	s.log.Warn("a voter's groups could not be looked up", "approval", t.ID, "person", v.Person, "error", err)
	return m, problem(http.StatusServiceUnavailable, "no-lookup", "the groups of this person could not be checked; nothing was recorded")
}

// repeats tells whether a conflict may only mean that a vote came before.
func repeats(c approvals.Conflict) bool {
	switch c {
	case approvals.NotFound, approvals.NotEligible, approvals.SelfApproval, approvals.WrongDigest,
		approvals.Forged, approvals.StoreUnavailable:
		return false
	}
	return true
}

// voteProblem maps what Decide returned to an answer.
func (s *Server) voteProblem(err error, t approvals.Ticket) error {
	c, is := approvals.AsConflict(err)
	if is && c != approvals.StoreUnavailable {
		return conflictProblem(c, t)
	}
	s.log.Error("a vote could not be recorded", "approval", t.ID, "error", err)
	p := problem(http.StatusServiceUnavailable, "store-unavailable", "it is not certain that anything was recorded; send it again")
	p.Conflict = approvals.StoreUnavailable
	return p
}

// conflictProblem says a conflict as an HTTP status and a true sentence.
func conflictProblem(c approvals.Conflict, t approvals.Ticket) *Problem {
	status := http.StatusConflict
	switch c {
	case approvals.NotFound:
		status = http.StatusNotFound
	case approvals.NotEligible, approvals.SelfApproval:
		status = http.StatusForbidden
	case approvals.WrongDigest:
		status = http.StatusUnprocessableEntity
	case approvals.IsExpired, approvals.IsLapsed, approvals.IsWithdrawn, approvals.IsVoid, approvals.IsRevoked,
		approvals.AlreadyUsed:
		status = http.StatusGone
	}
	p := problem(status, dashed(c), sayConflict(c, t))
	p.Conflict, p.State = c, t.State
	return p
}

func dashed(c approvals.Conflict) string {
	return strings.ReplaceAll(string(c), "_", "-")
}
