package webhook

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/keys"
)

// Decider takes votes. Decide returns the ticket also with an
// [approvals.Conflict] when the record exists; it must be safe to repeat with
// the same Vote.Nonce.
type Decider interface {
	Decide(ctx context.Context, v approvals.Vote) (approvals.Ticket, error)
	Ticket(ctx context.Context, id string) (approvals.Ticket, error)
}

// Adopter is told of a message that the record doesn't know of, so that it is
// brought up to date like the others.
type Adopter interface {
	Adopt(ctx context.Context, id string, ref approvals.Ref) error
}

// Links resolves a link's token; an unknown, used or expired one is
// [approvals.NotFound].
type Links interface {
	Link(ctx context.Context, token string) (id, person string, err error)
}

// Directory says who somebody is, now. Memberships are no older than
// [approvals.MembershipAge].
type Directory interface {
	// Person finds the one person behind a Slack user. It returns "" and no
	// error for somebody who is nobody of ours, a Conflict for a guest, a bot, a
	// deactivated account or somebody of another workspace, and any other error
	// when it could not find out.
	Person(ctx context.Context, user, team, enterprise string) (person string, m approvals.Memberships, err error)
	// Memberships looks up the Slack groups of a person who did not come
	// through Slack.
	Memberships(ctx context.Context, person string) (approvals.Memberships, error)
}

// Replier tells somebody something that only they see. The text is plain; the
// replier escapes it, and posts to nobody but Slack.
type Replier interface {
	Ephemeral(ctx context.Context, responseURL, text string) error
}

// Desk is what the operators' API needs beside votes.
type Desk interface {
	Decider
	List(ctx context.Context, states []approvals.State, max int) ([]approvals.Ticket, error)
	End(ctx context.Context, id string, to approvals.State, cause, by, why string) (approvals.Ticket, error)
	Resolve(ctx context.Context, id string, ran bool, by, note string) (approvals.Ticket, error)
}

// Slack is the interactions endpoint. A nil *Slack does not mount it.
type Slack struct {
	SigningSecrets []string // any of them verifies; at least one
	// The app that posts our cards, as auth.test and bots.info told. While AppID
	// is empty, and TeamID and EnterpriseID both are, clicks are answered 503.
	AppID        func() string
	TeamID       func() string
	EnterpriseID func() string // may be nil; set for an app installed in a whole organisation
}

// Inbound is the verifier of one callback source.
type Inbound struct {
	Scheme  string   // "standard-webhooks"
	Secrets []string // base64 of at least 24 bytes, with or without "whsec_"; any of them verifies
}

// Validate says what is wrong with it; nil when callbacks can be verified.
func (in Inbound) Validate() error {
	_, err := in.verifier()
	return err
}

func (in Inbound) verifier() (*standardVerifier, error) {
	if in.Scheme != SchemeStandard {
		return nil, fmt.Errorf("unknown scheme %q (known: %s)", in.Scheme, SchemeStandard)
	}
	return newStandardVerifier(in.Secrets)
}

// Config is what New needs. Fields marked optional may be zero.
type Config struct {
	Decider   Decider
	Adopter   Adopter   // optional
	Links     Links     // nil: no link pages
	Directory Directory // optional without Slack; then only static groups count
	Replier   Replier   // needed with Slack
	Ring      *keys.Ring
	Roster    func() *approvals.Roster

	Slack     *Slack             // nil: not mounted
	Callbacks map[string]Inbound // by source

	Desk   Desk           // nil: AdminHandler has no operators' API
	Tokens func() *Tokens // the operators' tokens; read at every request
	Health func(ctx context.Context) error
	Ready  func(ctx context.Context) error
	// Metrics is mounted at /metrics of the admin handler; optional.
	Metrics http.Handler

	PublicURL      string         // "https://approvals.acme.test"; empty: loopback only
	AllowedHosts   []string       // Host values beside PublicURL's, e.g. what an inner proxy sends
	TrustedProxies []netip.Prefix // whose X-Forwarded-For is believed; empty: nobody's

	Now func() time.Time // optional
	Log *slog.Logger
	// Observe counts requests by route and outcome, for metrics; both come from
	// closed sets. Optional.
	Observe func(route, outcome string)

	clickTime time.Duration // tests make it longer or shorter than Slack's patience
}

// Server holds the handlers. It is safe for concurrent use.
type Server struct {
	cfg       Config
	log       *slog.Logger
	now       func() time.Time
	origin    string // of PublicURL
	hosts     map[string]bool
	verify    atomic.Pointer[verifiers]
	replies   *replies
	ipLimit   *limiter // of tokens that lead nowhere, by address
	viewLimit *limiter // of requests, by link
	linkLimit *limiter // of answers, by link
}

// New checks the configuration; an endpoint that could not verify anything is an
// error, never an open door.
func New(cfg Config) (*Server, error) {
	s := &Server{cfg: cfg, log: cfg.Log, now: cfg.Now, hosts: map[string]bool{}}
	switch {
	case cfg.Decider == nil:
		return nil, errors.New("webhook: no Decider")
	case cfg.Ring == nil:
		return nil, errors.New("webhook: no key ring")
	case cfg.Roster == nil:
		return nil, errors.New("webhook: no roster of people")
	case cfg.Log == nil:
		return nil, errors.New("webhook: no logger")
	}
	if s.now == nil {
		s.now = time.Now
	}
	if s.cfg.clickTime == 0 {
		s.cfg.clickTime = clickTime
	}
	if s.cfg.Observe == nil {
		s.cfg.Observe = func(string, string) {}
	}
	if err := s.setHosts(); err != nil {
		return nil, err
	}
	if err := s.checkSlack(); err != nil {
		return nil, err
	}
	first := Secrets{Callbacks: cfg.Callbacks}
	if cfg.Slack != nil {
		first.SigningSecrets = cfg.Slack.SigningSecrets
	}
	if err := s.Exchange(first); err != nil {
		return nil, err
	}
	s.replies = newReplies(cfg.Replier, s.log)
	s.ipLimit = newLimiter(perIP, ipBurst, limiterKeys, s.now)
	s.viewLimit = newLimiter(perView, viewBurst, limiterKeys, s.now)
	s.linkLimit = newLimiter(perLink, linkBurst, limiterKeys, s.now)
	return s, nil
}

func (s *Server) setHosts() error {
	for _, h := range s.cfg.AllowedHosts {
		s.hosts[normalHost(h)] = true
	}
	if s.cfg.PublicURL == "" {
		return nil
	}
	u, err := url.Parse(s.cfg.PublicURL)
	if err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http") {
		return fmt.Errorf("webhook: public_url %q is not an http(s) URL", s.cfg.PublicURL)
	}
	if u.Scheme == "http" && !loopbackHost(u.Hostname()) {
		return fmt.Errorf("webhook: public_url %q must be https", s.cfg.PublicURL)
	}
	s.origin = u.Scheme + "://" + originHost(u)
	s.hosts[normalHost(u.Host)] = true
	return nil
}

func (s *Server) checkSlack() error {
	c := s.cfg.Slack
	if c == nil {
		return nil
	}
	if c.AppID == nil || c.TeamID == nil {
		return errors.New("webhook: Slack needs its app id and team id")
	}
	if s.cfg.Directory == nil || s.cfg.Replier == nil {
		return errors.New("webhook: Slack needs a directory and a replier")
	}
	return nil
}

// Close waits for replies that are on their way, at most until ctx ends.
func (s *Server) Close(ctx context.Context) error { return s.replies.close(ctx) }
