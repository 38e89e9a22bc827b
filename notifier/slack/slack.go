// Package slack is the Slack channel: it draws the cards, posts and edits them,
// finds lost ones again, and says who a person in Slack is.
//
// What a stranger wrote (arguments, titles, names, reasons) appears only where
// Slack does not interpret it: in plain_text objects with emoji off and in the
// text elements of rich_text. Mentions and dates are elements of their own, made
// from the configuration and the record alone. A card is always drawn from the
// record, never from what Slack echoes.
//
// The bot token is in no error, log line or URL.
package slack

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/slack-go/slack"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/keys"
)

// The action ids of the two buttons. They carry a version: a card may be older
// than the process that answers its click.
const (
	ActionApprove = "countersign:approve:v1"
	ActionDeny    = "countersign:deny:v1"
)

// EventType marks our messages in their metadata, beside the approval's id.
const EventType = "countersign_approval"

// DefaultAPI is Slack's Web API.
const DefaultAPI = "https://slack.com/api/"

// Config of the channel. BotToken, Ring and Roster are needed.
type Config struct {
	BotToken string
	APIURL   string // default DefaultAPI; https unless its host is loopback
	Ring     *keys.Ring
	Roster   func() *approvals.Roster
	// Approvers lists the approvers of all routes as they are written; the Slack
	// user groups among them are looked up at a click. nil: no Slack groups.
	Approvers func() []string

	Timeout time.Duration // of one HTTP request; default 8 s
	Pace    time.Duration // between two posts in one channel; default 1.1 s (Slack allows one a second)
	// Settle is how long a post may take to appear in the channel's history;
	// within it a post that is not found there may still come. Default 3 s.
	Settle time.Duration
	Now    func() time.Time
	Log    *slog.Logger
}

// Slack is the channel and the directory. It is safe for concurrent use.
type Slack struct {
	cfg  Config
	api  *slack.Client
	http *http.Client
	base *url.URL
	log  *slog.Logger
	now  func() time.Time
	// nonce makes the value of a button unlike any other's.
	nonce func() string

	mu       sync.Mutex
	identity Identity
	places   map[string]time.Time // channels that were checked, and when

	people cache[person]
	teams  cache[[]string]
}

// New checks the configuration. It does not talk to Slack.
func New(cfg Config) (*Slack, error) {
	switch {
	case strings.TrimSpace(cfg.BotToken) == "":
		return nil, errors.New("slack: no bot token")
	case cfg.Ring == nil:
		return nil, errors.New("slack: no key ring")
	case cfg.Roster == nil:
		return nil, errors.New("slack: no roster of people")
	}
	if cfg.APIURL == "" {
		cfg.APIURL = DefaultAPI
	}
	if !strings.HasSuffix(cfg.APIURL, "/") {
		cfg.APIURL += "/" // method names are appended to it
	}
	base, err := url.Parse(cfg.APIURL)
	if err != nil || base.Host == "" || base.User != nil || base.RawQuery != "" {
		return nil, errors.New("slack: api_url is not a plain http(s) URL")
	}
	if base.Scheme != "https" && (base.Scheme != "http" || !loopback(base.Hostname())) {
		return nil, fmt.Errorf("slack: api_url must be https, since %s is not loopback", base.Hostname())
	}
	fill(&cfg)
	s := &Slack{
		cfg: cfg, base: base, log: cfg.Log, now: cfg.Now, nonce: randomNonce,
		places: map[string]time.Time{},
		http: &http.Client{
			Timeout:   cfg.Timeout,
			Transport: http.DefaultTransport.(*http.Transport).Clone(),
			// The token is in the request: it goes nowhere else.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	s.api = slack.New(cfg.BotToken, slack.OptionAPIURL(cfg.APIURL), slack.OptionHTTPClient(bounded{s.http}))
	return s, nil
}

func fill(cfg *Config) {
	if cfg.Timeout <= 0 {
		cfg.Timeout = 8 * time.Second
	}
	if cfg.Pace <= 0 {
		cfg.Pace = 1100 * time.Millisecond
	}
	if cfg.Settle <= 0 {
		cfg.Settle = 3 * time.Second
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Approvers == nil {
		cfg.Approvers = func() []string { return nil }
	}
}

// Close drops idle connections. Deliveries under way go on.
func (s *Slack) Close() { s.http.CloseIdleConnections() }

// Pace is the time between two posts in one channel.
func (s *Slack) Pace() time.Duration { return s.cfg.Pace }

func randomNonce() string {
	var b [12]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// maxAnswer bounds what is read of an answer: a page of history with large cards.
const maxAnswer = 16 << 20

// bounded is a client whose answers end.
type bounded struct{ c *http.Client }

func (b bounded) Do(r *http.Request) (*http.Response, error) {
	resp, err := b.c.Do(r)
	if err != nil {
		return nil, err
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(resp.Body, maxAnswer), resp.Body}
	return resp, nil
}

var (
	channelID = regexp.MustCompile(`^[CGDUW][A-Z0-9]{1,40}$`)
	userID    = regexp.MustCompile(`^[UW][A-Z0-9]{1,40}$`)
	groupID   = regexp.MustCompile(`^S[A-Z0-9]{1,40}$`)
)

// Identity is the app as Slack knows it.
type Identity struct {
	TeamID       string
	EnterpriseID string // of an Enterprise Grid organisation; empty otherwise
	UserID       string // the bot user
	BotID        string
	AppID        string
}

// Identify asks Slack who the token belongs to, once: the answer is pinned, and
// a later one that differs is an error. The error is a *notifier.Fail.
func (s *Slack) Identify(ctx context.Context) (Identity, error) {
	s.mu.Lock()
	known := s.identity
	s.mu.Unlock()
	if known.AppID != "" {
		return known, nil
	}
	return s.Verify(ctx)
}

// Verify asks Slack again, and refuses an answer that differs from the pinned
// one: a token of another app or workspace must not take over its cards.
func (s *Slack) Verify(ctx context.Context) (Identity, error) {
	auth, err := s.api.AuthTestContext(ctx)
	if err != nil {
		return Identity{}, classify(err, false)
	}
	bot, err := s.api.GetBotInfoContext(ctx, slack.GetBotInfoParameters{Bot: auth.BotID})
	if err != nil {
		return Identity{}, classify(err, false)
	}
	id := Identity{TeamID: auth.TeamID, EnterpriseID: auth.EnterpriseID, UserID: auth.UserID, BotID: auth.BotID, AppID: bot.AppID}
	if id.TeamID == "" || id.BotID == "" || id.AppID == "" {
		return Identity{}, refused("incomplete_identity")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.identity.AppID != "" && s.identity != id {
		return Identity{}, refused("identity_changed")
	}
	s.identity = id
	return id, nil
}

// TeamID is the pinned workspace; empty before Identify succeeded.
func (s *Slack) TeamID() string { return s.pinned().TeamID }

// EnterpriseID is the pinned organisation; empty before Identify succeeded and
// for a workspace of its own.
func (s *Slack) EnterpriseID() string { return s.pinned().EnterpriseID }

// AppID is the pinned app; empty before Identify succeeded.
func (s *Slack) AppID() string { return s.pinned().AppID }

func (s *Slack) pinned() Identity {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.identity
}
