package config

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
)

var (
	hexDigest    = regexp.MustCompile(`^[0-9a-f]{64}$`)
	upstreamName = regexp.MustCompile(`^[a-z0-9-]+$`)
	slackUser    = regexp.MustCompile(`^[UW][A-Z0-9]+$`)
	redisURL     = regexp.MustCompile(`^(rediss?|unix)://.`)
	namespace    = regexp.MustCompile(`^[A-Za-z0-9_.:-]{1,64}$`)
)

// validate checks what can be checked without touching anything. All faults are
// reported at once.
func (c *Config) validate() error {
	var faults []error
	bad := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	c.validateMCP(bad)
	c.validateListeners(bad)
	c.validateStore(bad)
	c.validateTimes(bad)
	c.validateUpstreams(bad)
	c.validatePeople(bad)
	c.validateTold(bad)
	return errors.Join(faults...)
}

type report func(format string, args ...any)

func (c *Config) validateMCP(bad report) {
	if !strings.HasPrefix(c.MCP.Path, "/") || strings.HasSuffix(c.MCP.Path, "/") {
		bad("mcp.path: %q must begin with / and not end with it", c.MCP.Path)
	}
	if c.MCP.RefusalStyle != "result" && c.MCP.RefusalStyle != "error" {
		bad("mcp.refusal_style: %q is neither result nor error", c.MCP.RefusalStyle)
	}
	if c.MCP.MaxInFlight < 1 {
		bad("mcp.max_in_flight: %d would let nobody in; at least 1", c.MCP.MaxInFlight)
	}
	seen := map[string]bool{}
	for i, t := range c.MCP.Auth.Tokens {
		where := fmt.Sprintf("mcp.auth.tokens[%d]", i)
		checkDigest(bad, where, t.SHA256, seen)
		if t.Actor == "" {
			bad("%s.actor: say who this token belongs to", where)
		}
		checkActor(bad, where+".actor", t.Actor)
		c.checkPeople(bad, where+".owners", t.Owners)
	}
	c.checkPeople(bad, "mcp.stdio.owners", c.MCP.Stdio.Owners)
	checkActor(bad, "mcp.stdio.actor", c.MCP.Stdio.Actor)
}

// checkActor refuses the id under which the gate itself asks, and what people would
// take for it.
func checkActor(bad report, where, id string) {
	if strings.EqualFold(strings.TrimSpace(id), approvals.GateActor) {
		bad("%s: %s is the gate's own name; give another", where, id)
	}
}

func checkDigest(bad report, where, digest string, seen map[string]bool) {
	switch {
	case !hexDigest.MatchString(digest):
		bad("%s.sha256: needs 64 lower-case hex digits; make a token with: countersign token new", where)
	case seen[digest]:
		bad("%s.sha256: this token is listed twice", where)
	}
	seen[digest] = true
}

func (c *Config) checkPeople(bad report, where string, ids []string) {
	for _, id := range ids {
		if _, ok := c.People[id]; !ok {
			bad("%s: %s is not under people", where, id)
		}
	}
}

func (c *Config) validateListeners(bad report) {
	for where, addr := range map[string]string{
		"mcp.listen": c.MCP.Listen, "webhook.listen": c.Webhook.Listen, "admin.listen": c.Admin.Listen,
	} {
		if _, _, err := net.SplitHostPort(addr); err != nil {
			bad("%s: %q is not HOST:PORT", where, addr)
		}
	}
	if !Loopback(c.Admin.Listen) && len(c.Admin.Tokens) == 0 {
		bad("admin.listen: %s is not loopback and admin.tokens is empty; add a token or listen on 127.0.0.1", c.Admin.Listen)
	}
	if c.Webhook.PublicURL != "" {
		checkURL(bad, "webhook.public_url", c.Webhook.PublicURL)
	}
	for _, p := range c.Webhook.TrustedProxies {
		if _, err := netip.ParsePrefix(p); err != nil {
			bad("webhook.trusted_proxies: %q is not a network like 10.0.0.0/8", p)
		}
	}
	seen := map[string]bool{}
	for i, t := range c.Admin.Tokens {
		where := fmt.Sprintf("admin.tokens[%d]", i)
		checkDigest(bad, where, t.SHA256, seen)
		c.checkPeople(bad, where+".person", []string{t.Person})
	}
}

// Loopback tells whether an address is only reachable from this machine.
func Loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		host = addr
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

func checkURL(bad report, where, raw string) {
	u, err := url.Parse(raw)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		// It is not repeated: what makes it no plain URL may be a password.
		bad("%s: is not a plain URL, which has a host, and no user, query or fragment", where)
	case u.Scheme == "https":
	case u.Scheme == "http" && Loopback(u.Hostname()):
	default:
		bad("%s: needs https unless its host is loopback", where)
	}
}

func (c *Config) validateStore(bad report) {
	if c.Keys.Current.IsZero() {
		bad("keys.current: is empty; make a key with: countersign keygen")
	}
	if raw := c.Redis.URL.Reveal(); raw != "" && !redisURL.MatchString(raw) {
		bad("redis.url: is not a URL like redis://127.0.0.1:6379/0; rediss:// for TLS") // it is not repeated: it may hold a password
	}
	if !namespace.MatchString(c.Redis.Namespace) {
		bad("redis.namespace: %q may hold letters, digits and _ . : - only", c.Redis.Namespace)
	}
	if c.Redis.WaitReplicas < 0 {
		bad("redis.wait_replicas: can't be negative")
	}
	switch {
	case c.Store != "" && c.Store != "ephemeral":
		bad("store: %q is not known; the only value is ephemeral", c.Store)
	case c.Store == "ephemeral" && !c.Redis.URL.IsZero():
		bad("store: ephemeral and redis.url exclude each other; remove one")
	case c.Store == "" && c.Redis.URL.IsZero():
		bad("redis.url: is empty; point it at a Redis 7 or Valkey, or say store: ephemeral, which forgets everything at a restart")
	}
}

func (c *Config) validateTimes(bad report) {
	for where, d := range map[string]time.Duration{
		"mcp.hold": c.MCP.Hold, "mcp.session_idle": c.MCP.SessionIdle,
		"approvals.claim_ttl": c.Approvals.ClaimTTL, "approvals.exec_timeout": c.Approvals.ExecTimeout,
		"approvals.result_ttl": c.Approvals.ResultTTL, "approvals.deny_ttl": c.Approvals.DenyTTL,
		"approvals.lease": c.Approvals.Lease, "approvals.notify_lease": c.Approvals.NotifyLease,
		"pins.max_age": c.Pins.MaxAge, "pins.ask_every": c.Pins.AskEvery,
	} {
		if d < time.Second {
			bad("%s: %s is too short; at least 1s", where, d)
		}
	}
	for client, d := range c.MCP.Holds {
		if d < time.Second {
			bad("mcp.holds.%s: %s is too short; at least 1s", client, d)
		}
	}
}

func (c *Config) validateUpstreams(bad report) {
	if len(c.Upstreams) == 0 {
		bad("upstreams: is empty; name one MCP server, for example orders: {command: [orders-mcp, --stdio]}")
	}
	for _, name := range slices.Sorted(maps.Keys(c.Upstreams)) {
		if !upstreamName.MatchString(name) {
			bad("upstreams.%s: a name may hold a-z, 0-9 and - only", name)
		}
		if len(c.Upstreams[name].Command) == 0 {
			bad("upstreams.%s.command: is empty; give the program and its arguments", name)
		}
	}
}

func (c *Config) validatePeople(bad report) {
	for id, p := range c.People {
		checkActor(bad, "people", id)
		for _, a := range p.Actors {
			checkActor(bad, "people."+id+".actors", a)
		}
		if p.Slack != "" && !slackUser.MatchString(p.Slack) {
			bad("people.%s.slack: %q is not a Slack user's id, which begins with U or W; it is under Copy member ID in the profile", id, p.Slack)
		}
		for name, line := range p.lines {
			if _, ok := c.Tickets[name]; !ok {
				bad("line %d: people.%s.%s: known are actors, slack and the names under tickets", line, id, name)
			}
		}
	}
	if _, err := c.Roster(); err != nil {
		bad("people: %w", err)
	}
}

// Roster is people and groups.
func (c *Config) Roster() (*approvals.Roster, error) {
	var people []approvals.Person
	for _, id := range slices.Sorted(maps.Keys(c.People)) {
		p := c.People[id]
		people = append(people, approvals.Person{ID: id, Actors: p.Actors, Slack: p.Slack, Tickets: p.Names})
	}
	return approvals.NewRoster(people, c.Groups)
}

func (c *Config) validateTold(bad report) {
	if s := c.Slack; s != nil {
		switch token := s.BotToken.Reveal(); {
		case token == "":
			bad("slack.bot_token: is empty; it begins with xoxb-")
		case strings.HasPrefix(token, "xoxp-") || strings.HasPrefix(token, "xapp-"):
			bad("slack.bot_token: is not the bot's token, which begins with xoxb-; copy the Bot User OAuth Token")
		}
		if len(s.SigningSecrets) == 0 {
			bad("slack.signing_secrets: is empty; without one no click can be trusted")
		}
		for i, secret := range s.SigningSecrets {
			if len(secret.Reveal()) < 16 {
				bad("slack.signing_secrets[%d]: is too short; copy the Signing Secret from the app's Basic Information", i)
			}
		}
		if s.APIURL != "" {
			checkURL(bad, "slack.api_url", s.APIURL)
		}
		if c.Webhook.PublicURL == "" {
			bad("webhook.public_url: is empty; Slack sends clicks there")
		}
	}
	for name, t := range c.Tickets {
		if !approvals.IsSource(name) || name == "actors" || name == "slack" {
			bad("tickets.%s: a name has up to 64 of a-z, 0-9 and -, begins with a letter or digit, and is not actors or slack", name)
		}
		if t.Inbound == nil {
			bad("tickets.%s: has no inbound; outbound messages are not in this release", name)
			continue
		}
		if t.Inbound.Scheme != "standard-webhooks" {
			bad("tickets.%s.inbound.scheme: %q is not in this release; known: standard-webhooks", name, t.Inbound.Scheme)
		}
		if len(t.Inbound.Secrets) == 0 {
			bad("tickets.%s.inbound.secrets: is empty; without one no callback can be trusted", name)
		}
	}
}
