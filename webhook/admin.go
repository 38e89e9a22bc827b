package webhook

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/labstack/echo/v4"
)

const (
	adminTime    = 10 * time.Second
	listDefault  = 50
	listMax      = 500
	personKey    = "countersign.person"
	adminNoToken = "send an operator's token (Authorization: Bearer …), one whose SHA-256 is under admin.tokens"
)

// requireToken lets nobody past without a token of a person who is configured:
// always on the operators' API, whether the path exists or not, and off loopback
// on everything.
func (s *Server) requireToken(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		open := onLoopback(r) && slices.Contains([]string{"/healthz", "/readyz", "/metrics"}, r.URL.Path)
		if open {
			return next(c)
		}
		person := s.personOf(r.Header)
		if person == "" {
			s.cfg.Observe("admin", "no_token")
			c.Response().Header().Set("WWW-Authenticate", "Bearer")
			return problem(http.StatusUnauthorized, "unauthorized", adminNoToken)
		}
		c.Set(personKey, person)
		return next(c)
	}
}

func (s *Server) personOf(h http.Header) string {
	token, err := bearer(h)
	if err != nil || s.cfg.Tokens == nil {
		return ""
	}
	person := s.cfg.Tokens().person(token)
	if _, known := s.cfg.Roster().Person(person); !known {
		return ""
	}
	return person
}

func (s *Server) health(check func(context.Context) error) echo.HandlerFunc {
	return func(c echo.Context) error {
		ctx, cancel := context.WithTimeout(c.Request().Context(), 2*time.Second)
		defer cancel()
		if check != nil {
			if err := check(ctx); err != nil {
				return problem(http.StatusServiceUnavailable, "not-ready", err.Error())
			}
		}
		c.Response().Header().Set("Cache-Control", "no-store")
		return c.JSON(http.StatusOK, map[string]string{"status": "ok"})
	}
}

// adminContext outlives the caller's connection where something is written.
func adminContext(c echo.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(c.Request().Context()), adminTime)
}

func (s *Server) adminList(c echo.Context) error {
	q, err := url.ParseQuery(c.Request().URL.RawQuery)
	if err != nil {
		return problem(http.StatusUnprocessableEntity, "malformed", "the query string can't be read")
	}
	n, states, err := listQuery(q)
	if err != nil {
		return err
	}
	ctx, cancel := adminContext(c)
	defer cancel()
	tickets, err := s.cfg.Desk.List(ctx, states, n)
	if err != nil {
		return s.voteProblem(err, approvals.Ticket{})
	}
	out := ApprovalList{Approvals: make([]Approval, 0, len(tickets))}
	for _, t := range tickets {
		out.Approvals = append(out.Approvals, wire(t))
	}
	return answerJSON(c, out)
}

func listQuery(q url.Values) (n int, states []approvals.State, err error) {
	n = listDefault
	for name, values := range q {
		switch {
		case name == "max" && len(values) == 1:
			n, err = strconv.Atoi(values[0])
			if err != nil || n < 1 || n > listMax {
				return 0, nil, problem(http.StatusUnprocessableEntity, "malformed", "max is 1 to "+strconv.Itoa(listMax))
			}
		case name == "state" && len(values) == 1:
			for w := range strings.SplitSeq(values[0], ",") {
				if !slices.Contains(approvals.States(), approvals.State(w)) {
					return 0, nil, problem(http.StatusUnprocessableEntity, "malformed", "there is no such state")
				}
				states = append(states, approvals.State(w))
			}
		default:
			return 0, nil, problem(http.StatusUnprocessableEntity, "malformed", "the query knows state and max, each once")
		}
	}
	return n, states, nil
}

func (s *Server) adminShow(c echo.Context) error {
	ctx, cancel := adminContext(c)
	defer cancel()
	t, err := s.adminTicket(ctx, c)
	if err != nil {
		return err
	}
	return answerJSON(c, wire(t))
}

func (s *Server) adminTicket(ctx context.Context, c echo.Context) (approvals.Ticket, error) {
	id := c.Param("id")
	if !approvalID.MatchString(id) {
		return approvals.Ticket{}, conflictProblem(approvals.NotFound, approvals.Ticket{})
	}
	t, err := s.cfg.Desk.Ticket(ctx, id)
	if err != nil {
		return t, s.voteProblem(err, t)
	}
	return t, nil
}

// adminBody reads a JSON object with no members beside the known ones.
func adminBody(c echo.Context, known ...string) (members, error) {
	if err := noQuery(c.Request()); err != nil {
		return nil, err
	}
	if !mediaType(c.Request(), "application/json") {
		return nil, problem(http.StatusUnsupportedMediaType, "media-type", "send application/json")
	}
	body, err := readRaw(c, AdminBodyLimit)
	if err != nil {
		return nil, err
	}
	m, err := strictObject(body)
	if err != nil {
		return nil, problem(http.StatusUnprocessableEntity, "malformed", err.Error())
	}
	for name := range m {
		if !slices.Contains(known, name) {
			return nil, problem(http.StatusUnprocessableEntity, "malformed", "known members: "+strings.Join(known, ", "))
		}
	}
	return m, nil
}

// adminDecide is an operator's own vote, under the same rules as everywhere.
func (s *Server) adminDecide(c echo.Context) error {
	m, err := adminBody(c, "decision", "reason", "digest")
	if err != nil {
		return err
	}
	word, _ := m.must("decision")
	verdict, ok := approvals.ParseVerdict(word)
	reason, ok2 := m.text("reason")
	digest, ok3 := m.text("digest")
	if !ok || !ok2 || !ok3 {
		return problem(http.StatusUnprocessableEntity, "malformed", `decision is "approve" or "deny"; reason and digest are strings`)
	}
	if verdict == approvals.Approve && digest == "" {
		// A yes is for the call that was read; a no needs no reading.
		return problem(http.StatusUnprocessableEntity, "malformed", "an approval needs the digest of what was shown")
	}
	ctx, cancel := adminContext(c)
	defer cancel()
	t, err := s.adminTicket(ctx, c)
	if err != nil {
		return err
	}
	vote := approvals.Vote{
		ID: t.ID, Person: c.Get(personKey).(string), Verdict: verdict, Source: "admin", Reason: cleanReason(reason), Bound: digest,
		// Every request is a vote of its own: a person who says the same again is
		// told that they have already voted.
		Nonce: voteNonce("admin", t.ID, requestIDOf(c)),
	}
	if vote.Memberships, err = s.votersGroups(ctx, vote, t); err != nil {
		return err
	}
	after, err := s.cfg.Desk.Decide(ctx, vote)
	if err != nil {
		return s.voteProblem(err, after)
	}
	s.cfg.Observe("admin", "taken")
	return answerJSON(c, wire(after))
}

// adminRevoke takes an approval back before it is claimed. Who may approve may
// revoke.
func (s *Server) adminRevoke(c echo.Context) error {
	m, err := adminBody(c, "reason")
	if err != nil {
		return err
	}
	reason, ok := m.text("reason")
	if !ok {
		return problem(http.StatusUnprocessableEntity, "malformed", "reason is a string")
	}
	ctx, cancel := adminContext(c)
	defer cancel()
	t, person, err := s.adminMay(ctx, c, approvals.Approve, "revoke")
	if err != nil {
		return err
	}
	after, err := s.cfg.Desk.End(ctx, t.ID, approvals.Revoked, "", person, cleanReason(reason))
	if err != nil {
		return s.voteProblem(err, after)
	}
	return answerJSON(c, wire(after))
}

// adminResolve says what became of a call whose outcome is not known. Whoever is
// on the route may: it is a statement of fact and no approval, so also somebody
// who may only deny.
func (s *Server) adminResolve(c echo.Context) error {
	m, err := adminBody(c, "ran", "note")
	if err != nil {
		return err
	}
	ran := string(m["ran"])
	note, _ := m.must("note")
	note = cleanReason(note)
	if (ran != "true" && ran != "false") || note == "" {
		return problem(http.StatusUnprocessableEntity, "malformed", "ran is true or false, and note says how you know")
	}
	ctx, cancel := adminContext(c)
	defer cancel()
	t, person, err := s.adminMay(ctx, c, approvals.Deny, "resolve")
	if err != nil {
		return err
	}
	after, err := s.cfg.Desk.Resolve(ctx, t.ID, ran == "true", person, note)
	if err != nil {
		return s.voteProblem(err, after)
	}
	return answerJSON(c, wire(after))
}

// adminMay finds the approval and the operator, who has to be somebody who could
// answer it so. A refusal is recorded.
func (s *Server) adminMay(ctx context.Context, c echo.Context, as approvals.Verdict, what string) (approvals.Ticket, string, error) {
	t, err := s.adminTicket(ctx, c)
	if err != nil {
		return t, "", err
	}
	person := c.Get(personKey).(string)
	groups, err := s.votersGroups(ctx, approvals.Vote{Person: person, Verdict: as}, t)
	if err != nil {
		return t, "", err
	}
	st := standing(t, person, groups, s.now())
	if as == approvals.Approve && st.MayApprove || as == approvals.Deny && st.MayDeny {
		return t, person, nil
	}
	s.refuse(ctx, approvals.Vote{ID: t.ID, Person: person, Source: "admin", Nonce: voteNonce(what, t.ID, requestIDOf(c))}, st.Why)
	return t, "", conflictProblem(st.Why, t)
}

func answerJSON(c echo.Context, v any) error {
	h := c.Response().Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	return c.JSON(http.StatusOK, v)
}
