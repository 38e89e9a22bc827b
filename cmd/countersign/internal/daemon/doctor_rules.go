package daemon

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/countersign-mcp/countersign/approvals/keys"
	"github.com/countersign-mcp/countersign/cmd/countersign/internal/config"
	"github.com/countersign-mcp/countersign/server"
	"github.com/countersign-mcp/countersign/server/policy"
)

func lookAtConfig(_ context.Context, p *patient) []Finding {
	cfg, err := config.Load(p.Config)
	if err != nil {
		return failures("put it right; countersign config --defaults prints every key", err)
	}
	p.cfg = cfg
	found := []Finding{fine("%s loads: %s, %s", absolute(p.Config),
		count(len(cfg.Upstreams), "upstream", "upstreams"), count(len(cfg.People), "person", "people"))}
	found = append(found, private("the configuration", p.Config, p.holdsSecrets())...)
	if cfg.Store == "ephemeral" {
		found = append(found, warn("set redis.url", "store is ephemeral: a restart forgets every approval"))
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Tickets)) {
		if err := inbound(cfg.Tickets[name]).Validate(); err != nil {
			found = append(found, failures("put tickets."+name+".inbound right", fmt.Errorf("tickets.%s.inbound: %w", name, err))...)
		}
	}
	if p.roster, err = cfg.Roster(); err != nil {
		found = append(found, failures("put people and groups right", err)...)
	}
	return found
}

// holdsSecrets tells whether a secret stands in the file itself, and not in the
// environment or a file of its own.
func (p *patient) holdsSecrets() bool {
	text, err := os.ReadFile(p.Config)
	if err != nil {
		return true
	}
	for _, s := range p.secrets() {
		if v := s.Reveal(); v != "" && strings.Contains(string(text), v) {
			return true
		}
	}
	return false
}

func (p *patient) secrets() []config.Secret {
	out := slices.Clone(p.cfg.Keys.Previous)
	out = append(out, p.cfg.Keys.Current)
	if strings.Contains(p.cfg.Redis.URL.Reveal(), "@") {
		out = append(out, p.cfg.Redis.URL)
	}
	if s := p.cfg.Slack; s != nil {
		out = append(append(out, s.BotToken), s.SigningSecrets...)
	}
	for _, t := range p.cfg.Tickets {
		out = append(out, t.Inbound.Secrets...)
	}
	for _, u := range p.cfg.Upstreams {
		for name, v := range u.Env {
			if credential.MatchString(name) {
				out = append(out, v)
			}
		}
	}
	return out
}

// credential finds names of variables that hold a secret.
var credential = regexp.MustCompile(`(?i)(key|token|secret|password|passwd|credential|auth|_url|_uri|dsn)`)

func lookAtKeys(_ context.Context, p *patient) []Finding {
	ring, err := ring(p.cfg)
	if err != nil {
		return failures("make a key with: countersign keygen", err)
	}
	p.ring = ring
	found := []Finding{fine("keys.current is usable; %s in keys.previous", count(len(p.cfg.Keys.Previous), "key", "keys"))}
	named := p.keysByName()
	for _, where := range slices.Sorted(maps.Keys(named)) {
		if weak(named[where]) {
			found = append(found, fail("make another with: countersign keygen", "%s does not look random", where))
		}
	}
	return found
}

func (p *patient) keysByName() map[string]config.Secret {
	out := map[string]config.Secret{"keys.current": p.cfg.Keys.Current}
	for i, k := range p.cfg.Keys.Previous {
		out[fmt.Sprintf("keys.previous[%d]", i)] = k
	}
	return out
}

// weak finds keys that somebody typed or made up: one byte of many again and
// again, or nothing but text. No random key in a million million looks like that.
func weak(key config.Secret) bool {
	secret, err := keys.ParseSecret(key.Reveal())
	if err != nil {
		return false // said elsewhere
	}
	b, err := base64.StdEncoding.DecodeString(secret.Reveal())
	if err != nil {
		return true
	}
	different, text := map[byte]bool{}, true
	for _, c := range b {
		different[c] = true
		text = text && c >= ' ' && c <= '~'
	}
	return text || len(different) <= len(b)/2
}

func lookAtPolicy(_ context.Context, p *patient) []Finding {
	set, _, err := loadPolicy(p.cfg, reading{onlooker: true})
	if err != nil {
		return failures("put the policy right; countersign check says the same without the rest", err)
	}
	p.policy = set
	name := ""
	if set.ID() != "" {
		name = " " + set.ID()
	}
	found := []Finding{fine("%s: policy%s of version %d, digest %s", p.cfg.PolicyPath(), name, set.Version(), set.Digest().Hex()[:12])}
	found = append(found, private("the policy", p.cfg.PolicyPath(), false)...)
	observed := false
	for _, w := range set.Warnings() {
		found = append(found, warn("change the policy if it is not meant", "%s", w))
	}
	for name := range p.cfg.Upstreams {
		observed = observed || set.Observes(name, p.Now())
	}
	if !set.Reviews() {
		found = append(found, warn("give the tools that change things the tier destructive, or write a rule with effect: review",
			"no call ever needs a person's yes"))
	}
	if failing := casesThatFail(set); len(failing) > 0 {
		found = append(found, fail("run: countersign policy test "+p.cfg.PolicyPath(), "cases that do not come out as they say: %s", listed(failing)))
	} else if set.Cases() > 0 {
		found = append(found, fine("all %d cases come out as they say", set.Cases()))
	} else if set.Version() > 1 {
		found = append(found, fine("it has no cases; countersign policy test would run them"))
	}
	if observed {
		o := set.Observation()
		found = append(found, fine("what would be asked until %s is counted by: countersign policy report %s",
			o.Until.UTC().Format(time.RFC3339), p.cfg.LedgerPath()))
	}
	return found
}

func casesThatFail(set *policy.Set) []string {
	var out []string
	for _, r := range set.Test() {
		if len(r.Problems) > 0 {
			out = append(out, r.Name)
		}
	}
	return out
}

// lookAtListeners says what others can reach, and by what right.
func lookAtListeners(_ context.Context, p *patient) []Finding {
	cfg := p.cfg
	var found []Finding
	tokens, err := server.NewTokens(tokensOf(cfg))
	switch {
	case err != nil:
		found = append(found, failures("put mcp.auth.tokens right", err)...)
	case server.Validate(cfg.MCP.Listen, tokens) != nil:
		found = append(found, failures("make one with: countersign token new", server.Validate(cfg.MCP.Listen, tokens))...)
	case tokens.Len() == 0:
		found = append(found, warn("make one with: countersign token new", "mcp.auth.tokens is empty: every request over HTTP is answered with 401"))
	}
	if err := server.CheckNames(cfg.MCP.AllowedHosts, cfg.MCP.AllowedOrigins); err != nil {
		found = append(found, failures("put mcp.allowed_hosts and mcp.allowed_origins right", err)...)
	}
	if !config.Loopback(cfg.MCP.Listen) {
		if len(cfg.MCP.AllowedHosts) == 0 {
			found = append(found, warn("list the names under mcp.allowed_hosts",
				"mcp.listen is off loopback and mcp.allowed_hosts is empty: requests by any other name are answered with 403"))
		}
		found = append(found, warn("put it behind TLS", "mcp.listen is %s: tokens go over the network as they are", cfg.MCP.Listen))
	}
	if !config.Loopback(cfg.Admin.Listen) {
		found = append(found, warn("listen on loopback, or keep it behind TLS and a network of its own",
			"admin.listen is %s: others can reach the operators' side", cfg.Admin.Listen))
	}
	if _, err := adminTokens(cfg); err != nil {
		found = append(found, failures("put admin.tokens right", err)...)
	}
	if !config.Loopback(cfg.Webhook.Listen) && !strings.HasPrefix(cfg.Webhook.PublicURL, "https:") {
		found = append(found, warn("set webhook.public_url to an https URL", "webhook.listen is %s and webhook.public_url is not https", cfg.Webhook.Listen))
	}
	if gravest(found) == Fine {
		found = append(found, fine("MCP on %s (%s), answers on %s, operators on %s (%s)", cfg.MCP.Listen, count(tokens.Len(), "token", "tokens"),
			cfg.Webhook.Listen, cfg.Admin.Listen, count(len(cfg.Admin.Tokens), "token", "tokens")))
	}
	return found
}
