package webhook

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/keys"
	"github.com/countersign-mcp/countersign/webhook/page"
	"github.com/labstack/echo/v4"
)

const (
	pageNonceTime = 10 * time.Minute // how long a drawn page may be answered
	linkTime      = 10 * time.Second
)

var linkToken = regexp.MustCompile(`^[A-Za-z0-9_-]{20,128}$`)

// opened is a link that leads to an approval.
type opened struct {
	hash   string // of the token; the token itself goes no further
	person string
	ticket approvals.Ticket
}

// linkShow draws the page. It changes nothing: whoever follows links by machine
// must be able to come here as often as they like.
func (s *Server) linkShow(c echo.Context) error {
	ctx, cancel := context.WithTimeout(c.Request().Context(), linkTime)
	defer cancel()
	o, ok, err := s.openLink(ctx, c)
	if !ok {
		return err
	}
	a := s.draw(ctx, o)
	s.cfg.Observe("link", "shown")
	return s.sendPage(c, http.StatusOK, a)
}

// linkDecide takes the form's answer.
func (s *Server) linkDecide(c echo.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Request().Context()), linkTime)
	defer cancel()
	if err := http.NewCrossOriginProtection().Check(c.Request()); err != nil {
		s.cfg.Observe("link", "cross_origin")
		return s.sendMessage(c, http.StatusForbidden, "Not accepted", "This answer came from another site. Nothing was recorded.")
	}
	body, err := readRaw(c, PageBodyLimit)
	if err != nil {
		return err
	}
	o, ok, err := s.openLink(ctx, c)
	if !ok {
		return err
	}
	if !s.linkLimit.allow(o.hash) {
		return s.tooMany(c)
	}
	f, ok := parseAnswer(c.Request(), body)
	if !ok {
		s.cfg.Observe("link", "malformed")
		return s.sendMessage(c, http.StatusUnprocessableEntity, "Not understood", "The answer was not complete. Nothing was recorded. Open the link again.")
	}
	return s.answer(ctx, c, o, f)
}

// answer is a page's form as it was sent.
type answer struct {
	nonce, reason string
	verdict       approvals.Verdict
	confirmed     bool
}

// parseAnswer reads the form: each field once, no others, and one of the two
// verdicts.
func parseAnswer(r *http.Request, body []byte) (answer, bool) {
	if !mediaType(r, "application/x-www-form-urlencoded") || noQuery(r) != nil {
		return answer{}, false
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return answer{}, false
	}
	known := []string{page.FieldNonce, page.FieldDecision, page.FieldConfirm, page.FieldReason}
	for name, values := range form {
		if len(values) != 1 || !slices.Contains(known, name) {
			return answer{}, false
		}
	}
	v, ok := approvals.ParseVerdict(form.Get(page.FieldDecision))
	return answer{
		nonce: form.Get(page.FieldNonce), verdict: v, reason: cleanReason(form.Get(page.FieldReason)),
		confirmed: form.Get(page.FieldConfirm) == page.Confirmed,
	}, ok
}

// answer votes for the person whose link it is, and draws what came of it.
func (s *Server) answer(ctx context.Context, c echo.Context, o opened, f answer) error {
	a := s.draw(ctx, o)
	if !s.nonceFits(o, f.nonce) {
		a.Notice = "This page was open for too long, or what it shows has changed. Nothing was recorded. Read it again and answer."
		keep(&a, f)
		return s.sendPage(c, http.StatusConflict, a)
	}
	if f.verdict == approvals.Approve {
		if why := approveBar(o.ticket); why != "" {
			a.Notice = why + " Nothing was recorded."
			keep(&a, f)
			return s.sendPage(c, http.StatusForbidden, a)
		}
		if !f.confirmed {
			keep(&a, f)
			if a.Form != nil {
				a.Form.Unticked = true
			}
			return s.sendPage(c, http.StatusUnprocessableEntity, a)
		}
	}
	vote := approvals.Vote{
		ID: o.ticket.ID, Person: o.person, Verdict: f.verdict, Source: "link", Link: true,
		Reason: f.reason, Bound: o.ticket.Bound,
		Nonce: voteNonce("link", o.hash, o.ticket.ID, f.verdict.String(), f.nonce),
	}
	var err error
	if vote.Memberships, err = s.votersGroups(ctx, vote, o.ticket); err != nil {
		a.Notice = "It could not be checked which groups you are in. Nothing was recorded. Try again in a moment."
		return s.sendPage(c, http.StatusServiceUnavailable, a)
	}
	return s.settle(ctx, c, o, vote)
}

// settle decides and draws the state that came of it.
func (s *Server) settle(ctx context.Context, c echo.Context, o opened, vote approvals.Vote) error {
	t, err := s.cfg.Decider.Decide(ctx, vote)
	if err == nil {
		s.cfg.Observe("link", "taken")
		return s.sendPage(c, http.StatusOK, s.drawTaken(t, vote.Verdict))
	}
	s.cfg.Observe("link", "refused")
	conflict, is := approvals.AsConflict(err)
	if !is || conflict == approvals.StoreUnavailable {
		s.log.Error("an answer on a page could not be recorded", "approval", vote.ID, "error", err)
		return s.sendMessage(c, http.StatusServiceUnavailable, "Not certain", "It is not certain that your answer was recorded. Open the link again in a moment: it shows where the request stands.")
	}
	if conflict == approvals.NotFound {
		return s.linkGone(c)
	}
	if t.ID != "" {
		o.ticket = t
	}
	a := s.draw(ctx, o)
	a.Notice = sayConflict(conflict, o.ticket)
	return s.sendPage(c, conflictProblem(conflict, t).Status, a)
}

// keep puts what a person typed back into the form.
func keep(a *page.Approval, f answer) {
	if a.Form != nil {
		a.Form.Reason = f.reason
	}
}

// openLink resolves the token. When ok is false the answer was sent.
func (s *Server) openLink(ctx context.Context, c echo.Context) (o opened, ok bool, err error) {
	token := c.Param("token")
	if !linkToken.MatchString(token) {
		return o, false, s.nowhere(c)
	}
	id, person, err := s.cfg.Links.Link(ctx, token)
	if err == nil {
		o.ticket, err = s.cfg.Decider.Ticket(ctx, id)
	}
	if conflict, is := approvals.AsConflict(err); is && conflict != approvals.StoreUnavailable {
		if conflict != approvals.NotFound {
			s.log.Error("a link leads to an approval that can't be shown", "approval", id, "error", err)
		}
		return o, false, s.nowhere(c)
	}
	if err != nil {
		s.log.Error("a link could not be looked up", "error", err)
		return o, false, s.sendMessage(c, http.StatusServiceUnavailable, "Not available", "The request can't be looked up right now. Nothing was changed. Try again in a moment.")
	}
	if _, known := s.cfg.Roster().Person(person); !known {
		return o, false, s.nowhere(c) // the link of somebody who was taken off the list
	}
	sum := sha256.Sum256([]byte(token))
	o.hash, o.person = hex.EncodeToString(sum[:]), person
	if !s.viewLimit.allow(o.hash) {
		return o, false, s.tooMany(c)
	}
	return o, true, nil
}

// nowhere answers a token that leads to nothing, on the account of its sender's
// address. Only these are: people behind one address share it with whoever
// guesses there, and must still be able to open their links.
func (s *Server) nowhere(c echo.Context) error {
	if !s.ipLimit.allow(ipKey(c.RealIP())) {
		return s.tooMany(c)
	}
	return s.linkGone(c)
}

// nonce ties an answer to the page that was drawn: this link, this approval, this
// view, for ten minutes. It is in the open and gives nothing away.
func (s *Server) nonce(o opened) string {
	exp := strconv.FormatInt(s.now().Add(pageNonceTime).Unix(), 10)
	return s.cfg.Ring.Token(keys.Page, "v1", o.hash, o.ticket.ID, o.ticket.Bound, o.ticket.ShownDigest, exp)
}

func (s *Server) nonceFits(o opened, nonce string) bool {
	f, err := s.cfg.Ring.OpenToken(keys.Page, nonce)
	if err != nil || len(f) != 6 {
		return false
	}
	exp, err := strconv.ParseInt(f[5], 10, 64)
	return err == nil && s.now().Unix() < exp &&
		slices.Equal(f[:5], []string{"v1", o.hash, o.ticket.ID, o.ticket.Bound, o.ticket.ShownDigest})
}

// linkGone answers for every link that leads nowhere: unknown and outlived ones
// look the same to the byte.
func (s *Server) linkGone(c echo.Context) error {
	s.cfg.Observe("link", "gone")
	return s.sendMessage(c, http.StatusNotFound, "Nothing here", "This link is not valid, or not any more.")
}

func (s *Server) tooMany(c echo.Context) error {
	s.cfg.Observe("link", "rate_limited")
	c.Response().Header().Set("Retry-After", "60")
	return s.sendMessage(c, http.StatusTooManyRequests, "Too many requests", "Nothing was recorded. Wait a minute and open the link again.")
}

func (s *Server) sendMessage(c echo.Context, status int, heading string, sentences ...string) error {
	b, err := page.Message(heading, sentences...)
	return s.sendHTML(c, status, b, err)
}

func (s *Server) sendPage(c echo.Context, status int, a page.Approval) error {
	b, err := page.Render(a)
	return s.sendHTML(c, status, b, err)
}

func (s *Server) sendHTML(c echo.Context, status int, body []byte, err error) error {
	if err != nil {
		return fmt.Errorf("webhook: %w", err)
	}
	h := c.Response().Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "same-origin") // no-referrer would make browsers send "Origin: null" with our own form
	h.Set("Content-Security-Policy", page.Policy)
	h.Set("X-Frame-Options", "DENY")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Robots-Tag", "noindex, nofollow, noarchive")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), microphone=(), geolocation=()")
	if strings.HasPrefix(s.origin, "https:") {
		h.Set("Strict-Transport-Security", "max-age=31536000")
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Content-Type", "text/html; charset=utf-8")
	c.Response().WriteHeader(status)
	if c.Request().Method != http.MethodHead {
		_, _ = c.Response().Write(body)
	}
	return nil
}
