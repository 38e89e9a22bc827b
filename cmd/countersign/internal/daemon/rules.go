package daemon

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/cmd/countersign/internal/config"
	"github.com/countersign-mcp/countersign/server"
	"github.com/countersign-mcp/countersign/server/gate"
	"github.com/countersign-mcp/countersign/server/pins"
	"github.com/countersign-mcp/countersign/server/policy"
	"github.com/countersign-mcp/countersign/webhook"
)

// rules are what a reload exchanges: all that was read together. They are not
// changed after readRules.
type rules struct {
	cfg    *config.Config
	policy *policy.Set
	text   []byte // of the policy
	roster *approvals.Roster
	pins   gate.Pins
	tokens []server.Token
	admins *webhook.Tokens
	gone   map[string]bool // actors who could call before, in this process
}

// readRules reads what a configuration leads to and checks all of it against each
// other. It contacts and starts nothing.
func readRules(cfg *config.Config, how reading) (*rules, error) {
	r := &rules{cfg: cfg, tokens: tokensOf(cfg)}
	var faults []error
	check := func(err error) { faults = append(faults, err) }
	_, err := server.NewTokens(r.tokens)
	check(err)
	r.admins, err = adminTokens(cfg)
	check(err)
	for _, name := range slices.Sorted(maps.Keys(cfg.Tickets)) {
		if err := inbound(cfg.Tickets[name]).Validate(); err != nil {
			check(fmt.Errorf("tickets.%s.inbound: %w", name, err))
		}
	}
	r.roster, err = cfg.Roster()
	check(err)
	r.policy, r.text, err = loadPolicy(cfg, how)
	check(err)
	r.pins, err = loadPins(cfg)
	check(err)
	return r, errors.Join(faults...)
}

// checkListener refuses an MCP listener that other machines reach and nobody can
// authenticate to.
func (r *rules) checkListener() error {
	tokens, err := server.NewTokens(r.tokens)
	if err != nil {
		return nil // it is told already
	}
	return server.Validate(r.cfg.MCP.Listen, tokens)
}

func tokensOf(cfg *config.Config) []server.Token {
	list := make([]server.Token, 0, len(cfg.MCP.Auth.Tokens))
	for _, t := range cfg.MCP.Auth.Tokens {
		list = append(list, server.Token{SHA256: t.SHA256, Actor: t.Actor, Roles: t.Roles, Owners: t.Owners})
	}
	return list
}

// callers are all who may call: by token, and over standard input.
func (r *rules) callers() []action.Actor {
	out := []action.Actor{}
	for _, t := range r.tokens {
		out = append(out, action.Actor{ID: t.Actor, Roles: t.Roles, Owners: t.Owners, Auth: "token"})
	}
	if r.cfg.MCP.Stdio.Actor != "" {
		out = append(out, stdioActor(r.cfg))
	}
	return out
}

func stdioActor(cfg *config.Config) action.Actor {
	who := cfg.MCP.Stdio
	return action.Actor{ID: who.Actor, Roles: who.Roles, Owners: who.Owners, Auth: "none:stdio"}
}

// after notes who could call by the rules before and can't any more.
func (r *rules) after(was *rules) {
	r.gone = maps.Clone(was.gone)
	if r.gone == nil {
		r.gone = map[string]bool{}
	}
	for _, a := range was.callers() {
		r.gone[a.ID] = true
	}
	for _, a := range r.callers() {
		delete(r.gone, a.ID)
	}
}

// starts are how the upstreams are started, without what looks like a secret.
func (r *rules) starts() map[string]pins.Server {
	out := map[string]pins.Server{}
	for name := range r.cfg.Upstreams {
		s := StartOf(r.cfg, name, "")
		out[name] = pins.Describe(pins.Start{Command: s.Command, Dir: s.Dir, Env: s.Env}, "")
	}
	return out
}

// state is what the gate judges by.
func (r *rules) state(fleet map[string]*ship) gate.State {
	return gate.State{Policy: r.policy, Roster: r.roster, Upstreams: ships(fleet), Pins: r.pins, Starts: r.starts(), Callers: r.callers(), Gone: r.gone}
}

// secrets are what the webhook verifies with.
func (r *rules) secrets() webhook.Secrets {
	out := webhook.Secrets{Callbacks: map[string]webhook.Inbound{}}
	if r.cfg.Slack != nil {
		for _, s := range r.cfg.Slack.SigningSecrets {
			out.SigningSecrets = append(out.SigningSecrets, s.Reveal())
		}
	}
	for name, t := range r.cfg.Tickets {
		out.Callbacks[name] = inbound(t)
	}
	return out
}
