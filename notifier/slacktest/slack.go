package slacktest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"
)

// AckWithin is how long Slack waits for the answer to an interaction before it
// hangs up and shows the person an error.
const AckWithin = 3 * time.Second

// Slack is one fake workspace with one installed app.
type Slack struct {
	BotToken     string // accepted in the form or as a bearer token
	TeamID       string
	TeamDomain   string
	EnterpriseID string // set for a workspace of an Enterprise Grid organisation
	AppID        string
	BotID        string
	BotUserID    string

	tb      testing.TB
	srv     *httptest.Server
	now     func() time.Time
	ack     time.Duration
	limited bool

	mu           sync.Mutex
	cond         *sync.Cond
	secret       string
	scopes       map[string]bool
	authError    string
	interactions string
	down         bool
	closed       chan struct{}

	users    map[string]User
	groups   map[string]UserGroup
	channels map[string]*room
	hooks    map[string]*hook
	triggers map[string]*trigger
	views    []View
	ephem    []Ephemeral

	calls  []Call
	once   map[string][]Fault
	always map[string]Fault
	spent  map[string][]time.Time // for the rate limits, by method and channel

	lastTS int64 // microseconds
	serial int
}

// An Option changes a new Slack. A nil option is ignored.
type Option func(*Slack)

// WithClock makes the fake read now for message timestamps, signatures, rate
// limits, triggers and response URLs. It must be safe for concurrent use.
func WithClock(now func() time.Time) Option { return func(s *Slack) { s.now = now } }

// WithRateLimits turns on Slack's limits: one message a second and channel,
// and the method's own tier a minute, answered by 429 with Retry-After.
func WithRateLimits() Option { return func(s *Slack) { s.limited = true } }

// WithAckLimit replaces AckWithin.
func WithAckLimit(d time.Duration) Option { return func(s *Slack) { s.ack = d } }

// New starts a fake Slack that stops when the test ends. It knows the app's
// own bot user and nobody and nothing else.
func New(tb testing.TB, opts ...Option) *Slack {
	tb.Helper()
	s := &Slack{
		BotToken: "xoxb-" + randomHex(12), TeamID: "T0ACME0001", TeamDomain: "acme",
		AppID: "A0COUNTER1", BotID: "B0COUNTER1", BotUserID: "U0COUNTER1",
		tb: tb, now: time.Now, ack: AckWithin,
		secret: randomHex(16), closed: make(chan struct{}),
		users: map[string]User{}, groups: map[string]UserGroup{}, channels: map[string]*room{},
		hooks: map[string]*hook{}, triggers: map[string]*trigger{},
		once: map[string][]Fault{}, always: map[string]Fault{}, spent: map[string][]time.Time{},
	}
	s.cond = sync.NewCond(&s.mu)
	for _, o := range opts {
		if o != nil {
			o(s)
		}
	}
	s.SetScopes("chat:write", "users:read", "usergroups:read", "channels:read", "groups:read",
		"channels:history", "groups:history")
	s.srv = httptest.NewServer(http.HandlerFunc(s.serve))
	tb.Cleanup(func() {
		close(s.closed) // frees held requests, else Close would wait for them
		s.srv.CloseClientConnections()
		s.srv.Close()
	})
	return s
}

// URL is the base of the Web API. It ends with a slash, as clients need it.
func (s *Slack) URL() string { return s.srv.URL + "/api/" }

// SigningSecret is the secret that clicks are signed with.
func (s *Slack) SigningSecret() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.secret
}

// SetSigningSecret plays a rotation: later clicks are signed with secret.
func (s *Slack) SetSigningSecret(secret string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.secret = secret
}

// SetInteractions sets the URL that clicks are posted to.
func (s *Slack) SetInteractions(url string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.interactions = url
}

// SetScopes replaces the scopes of the bot token.
func (s *Slack) SetScopes(scopes ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scopes = map[string]bool{}
	for _, sc := range scopes {
		s.scopes[sc] = true
	}
}

// SetAuthError makes every call fail with code (token_revoked, token_expired,
// account_inactive …) until it is set to "".
func (s *Slack) SetAuthError(code string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.authError = code
}

// stamp makes the next message timestamp: seconds, a dot and six digits,
// strictly growing over the whole workspace. Needs mu.
func (s *Slack) stamp() string {
	us := s.now().UnixMicro()
	if us <= s.lastTS {
		us = s.lastTS + 1
	}
	s.lastTS = us
	return fmt.Sprintf("%d.%06d", us/1e6, us%1e6)
}

// wait blocks until ok says so or ctx ends. ok is called with mu held.
func (s *Slack) wait(ctx context.Context, what string, ok func() bool) error {
	stop := context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.cond.Broadcast()
	})
	defer stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for !ok() {
		if err := context.Cause(ctx); err != nil {
			return fmt.Errorf("waiting for %s: %w", what, err)
		}
		s.cond.Wait()
	}
	return nil
}

func randomHex(n int) string {
	b := make([]byte, n)
	rand.Read(b) // never fails: the runtime stops the process instead
	return hex.EncodeToString(b)
}
