package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/keys"
	"github.com/countersign-mcp/countersign/approvals/ledger"
	"github.com/countersign-mcp/countersign/approvals/store"
	"github.com/countersign-mcp/countersign/cmd/countersign/internal/config"
	"github.com/countersign-mcp/countersign/cmd/countersign/internal/localredis"
	"github.com/countersign-mcp/countersign/notifier"
	"github.com/countersign-mcp/countersign/notifier/link"
	"github.com/countersign-mcp/countersign/notifier/slack"
	"github.com/countersign-mcp/countersign/server"
	"github.com/countersign-mcp/countersign/server/gate"
	"github.com/countersign-mcp/countersign/server/upstream"
	"github.com/countersign-mcp/countersign/webhook"
)

const (
	listenMCP     = "mcp"
	listenWebhook = "webhook"
	listenAdmin   = "admin"
)

// openRules reads keys, people and policy: what needs no other part.
func (d *Daemon) openRules() error {
	var err error
	if d.ring, err = ring(d.cfg); err != nil {
		return err
	}
	if d.opt.Stdio && d.cfg.MCP.Stdio.Actor == "" {
		return errors.New("mcp.stdio.actor is empty: say who calls over standard input")
	}
	if d.roster, err = d.cfg.Roster(); err != nil {
		return err
	}
	if d.policy, err = loadPolicy(d.cfg, d.opt.Links != nil); err != nil {
		return err
	}
	for _, w := range d.policy.Warnings() {
		d.log.Warn("policy: " + w)
	}
	return nil
}

func ring(cfg *config.Config) (*keys.Ring, error) {
	current, err := keys.ParseSecret(cfg.Keys.Current.Reveal())
	if err != nil {
		return nil, fmt.Errorf("keys.current: %w", err)
	}
	var previous []keys.Secret
	for i, s := range cfg.Keys.Previous {
		key, err := keys.ParseSecret(s.Reveal())
		if err != nil {
			return nil, fmt.Errorf("keys.previous[%d]: %w", i, err)
		}
		previous = append(previous, key)
	}
	return keys.NewRing(current, previous...)
}

func (d *Daemon) openLedger() error {
	if err := privateDir(d.cfg.DataPath()); err != nil {
		return fmt.Errorf("data_dir: %w", err)
	}
	if err := privateDir(d.cfg.LedgerPath()); err != nil {
		return fmt.Errorf("ledger.dir: %w", err)
	}
	l, err := ledger.Open(d.cfg.LedgerPath(), ledger.Options{Log: d.log, Young: d.longest()})
	if err != nil {
		return fmt.Errorf("opening the ledger: %w", err)
	}
	d.ledger = l
	d.onStop("the ledger", func(context.Context) error { return l.Close() })
	_, err = l.Append(context.Background(), policyLoaded(d.policy))
	if err != nil {
		return fmt.Errorf("writing to the ledger: %w", err)
	}
	return nil
}

// privateDir makes a directory for this user alone. One that others may write
// to is refused: they could put files there that we would believe.
func privateDir(path string) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("others may write to %s (mode %04o); run: chmod 700 %s", path, info.Mode().Perm(), path)
	}
	return nil
}

// longest is how long the start of a call can matter: from the park over the
// claim to the end of the run.
func (d *Daemon) longest() time.Duration {
	var timeout time.Duration
	for _, r := range d.policy.Routes() {
		timeout = max(timeout, r.Timeout)
	}
	return timeout + d.cfg.Approvals.ClaimTTL + d.cfg.Approvals.ExecTimeout
}

// openListeners binds before anything else is built: a taken port is found at
// once, and the others learn the addresses.
func (d *Daemon) openListeners() error {
	want := map[string]string{}
	if !d.opt.Stdio {
		want[listenMCP] = d.cfg.MCP.Listen
	}
	if d.tells() {
		want[listenWebhook], want[listenAdmin] = d.cfg.Webhook.Listen, d.cfg.Admin.Listen
	}
	if addr, ok := want[listenMCP]; ok {
		tokens, err := callers(d.cfg)
		if err != nil {
			return err
		}
		if err := server.Validate(addr, tokens); err != nil {
			return err
		}
		if tokens.Len() == 0 {
			d.log.Warn("mcp.auth.tokens is empty: every request over HTTP is answered with 401; make a token with: countersign token new")
		}
		if !config.Loopback(addr) && len(d.cfg.MCP.AllowedHosts) == 0 {
			d.log.Warn("mcp.allowed_hosts is empty: requests that name this machine by anything but a loopback name are answered with 403")
		}
	}
	for name, addr := range want {
		ln, err := net.Listen("tcp", addr)
		if err != nil {
			return fmt.Errorf("%s.listen: %w; if another gate runs on this machine, give this one a port of its own", name, err)
		}
		d.listeners[name] = ln
		d.onStop(name+" listener", func(context.Context) error { _ = ln.Close(); return nil })
	}
	return nil
}

func (d *Daemon) openStore() error {
	silenceRedis()
	opt := store.Options{
		URL: d.cfg.Redis.URL.Reveal(), Namespace: d.cfg.Redis.Namespace, Ring: d.ring, Log: d.log, Owner: d.ledger.ID(),
		// What a dead process had taken off the outbox is due again when its
		// lease is over.
		NudgeIdle: d.cfg.Approvals.NotifyLease,
		ClaimTTL:  d.cfg.Approvals.ClaimTTL, ResultTTL: d.cfg.Approvals.ResultTTL, DenyTTL: d.cfg.Approvals.DenyTTL, Lease: d.cfg.Approvals.Lease,
		WaitReplicas: d.cfg.Redis.WaitReplicas, AcceptNoAOF: d.cfg.Redis.AcceptNoAOF,
		AcceptLostClaims: d.cfg.Redis.AcceptLostClaims, AcceptUnchecked: d.cfg.Redis.AcceptUnchecked,
	}
	if d.cfg.Store == "ephemeral" {
		local, err := localredis.Start()
		if err != nil {
			return err
		}
		d.onStop("the store in this process", func(context.Context) error { local.Close(); return nil })
		d.log.Warn("the store is in this process: a restart forgets every approval")
		opt.URL, opt.Embedded = local.URL(), true
	}
	s, err := store.Open(context.Background(), opt)
	if err != nil {
		return err
	}
	d.store = s
	d.onStop("the store", func(context.Context) error { return s.Close() })
	d.onStop("the ledger's head", d.lastHead)
	return nil
}

func (d *Daemon) openUpstreams() error {
	d.onStop("the upstreams", d.closeUpstreams)
	for name := range d.cfg.Upstreams {
		up, err := upstream.New(StartOf(d.cfg, name, d.opt.Version), d.log)
		if err != nil {
			return err
		}
		d.upstreams[name] = up
	}
	return nil
}

// StartOf says how a configured upstream is started, by the gate and by whoever
// asks it what it is. Version is our own.
func StartOf(cfg *config.Config, name, version string) upstream.Config {
	u := cfg.Upstreams[name]
	env := make(map[string]string, len(u.Env))
	for k, v := range u.Env {
		env[k] = v.Reveal()
	}
	return upstream.Config{Name: name, Command: u.Command, Dir: u.Dir, Env: env, Version: version}
}

// closeUpstreams stops them side by side: each may need its grace.
func (d *Daemon) closeUpstreams(context.Context) error {
	var ends []func() error
	for name, u := range d.upstreams {
		ends = append(ends, func() error {
			if err := u.Close(); err != nil {
				return fmt.Errorf("upstream %s: %w", name, err)
			}
			return nil
		})
	}
	return together(ends)
}

// together does all at once and waits for all.
func together(what []func() error) error {
	errs := make([]error, len(what))
	var all sync.WaitGroup
	for i, do := range what {
		all.Go(func() { errs[i] = do() })
	}
	all.Wait()
	return errors.Join(errs...)
}

func (d *Daemon) openGate() error {
	ups := map[string]gate.Upstream{}
	for name, u := range d.upstreams {
		ups[name] = u
	}
	g, err := gate.New(gate.Config{
		Store: d.store, Ledger: d.ledger, Ring: d.ring, Log: d.log,
		State: gate.State{Policy: d.policy, Roster: d.roster, Upstreams: ups},
		Settings: gate.Settings{
			Hold: d.cfg.MCP.Hold, Holds: d.cfg.MCP.Holds, ExecTimeout: d.cfg.Approvals.ExecTimeout, Lease: d.cfg.Approvals.Lease,
			NoCollect: !d.cfg.MCP.CollectTool, RefuseAsError: d.cfg.MCP.RefusalStyle == "error",
		},
		Adopt: func() ([]*ledger.Dead, error) { return ledger.Adopt(d.ledger.Dir()) },
	})
	if err != nil {
		return err
	}
	d.gate = g
	d.runner = newRunner(d.store.ToRun, g.RunApproved, d.storeSeen.Load, d.log)
	// The loops go on while calls finish: a caller may be waiting for one of them.
	d.onStop("the loops", d.stopLoops)
	d.onDrain("the gate", g.Close)
	return nil
}

// callers are the tokens of those who call over HTTP.
func callers(cfg *config.Config) (*server.Tokens, error) {
	list := make([]server.Token, 0, len(cfg.MCP.Auth.Tokens))
	for _, t := range cfg.MCP.Auth.Tokens {
		list = append(list, server.Token{SHA256: t.SHA256, Actor: t.Actor, Roles: t.Roles, Owners: t.Owners})
	}
	return server.NewTokens(list)
}

func (d *Daemon) openEdge() error {
	tokens, err := callers(d.cfg)
	if err != nil {
		return err
	}
	d.refusals = newRefusals(d.ledger, d.log)
	edge, err := server.New(server.Config{
		Gate: d.gate, Auth: tokens, Log: d.log, Path: d.cfg.MCP.Path, Version: d.opt.Version,
		AllowedHosts: d.cfg.MCP.AllowedHosts, AllowedOrigins: d.cfg.MCP.AllowedOrigins, SessionIdle: d.cfg.MCP.SessionIdle,
		MaxPerActor: d.cfg.MCP.MaxInFlight, Malformed: d.refusals.take,
	})
	if err != nil {
		return err
	}
	d.edge = edge
	if d.listeners[listenMCP] != nil {
		d.serve(listenMCP, &http.Server{
			Handler: edge.Handler(), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
			ErrorLog: slog.NewLogLogger(d.log.Handler(), slog.LevelWarn),
		})
	}
	d.onDrain("the MCP edge", edge.Close)
	return nil
}

// serve registers a server for Start. Its Addr names its listener.
func (d *Daemon) serve(name string, s *http.Server) {
	s.Addr = name
	d.servers = append(d.servers, s)
	d.onDrain(name+" server", func(ctx context.Context) error {
		if err := s.Shutdown(ctx); err != nil {
			return s.Close()
		}
		return nil
	})
}

// openTelling builds what posts messages.
func (d *Daemon) openTelling() error {
	if !d.tells() {
		return nil
	}
	channels := notifier.Channels{}
	if d.cfg.Slack != nil {
		s, err := slack.New(slack.Config{
			BotToken: d.cfg.Slack.BotToken.Reveal(), APIURL: d.cfg.Slack.APIURL, Ring: d.ring,
			Roster: func() *approvals.Roster { return d.roster }, Approvers: func() []string { return approversOf(d.policy) }, Log: d.log,
		})
		if err != nil {
			return err
		}
		d.slack, channels["slack"] = s, s
	}
	if d.opt.Links != nil {
		l, err := link.New(link.Config{Links: d.store, PublicURL: d.publicURL(), Sink: d.opt.Links})
		if err != nil {
			return err
		}
		channels["link"] = l
	}
	teller, err := notifier.New(notifier.Config{
		Book: d.store, Find: channels.Find, Lease: d.cfg.Approvals.NotifyLease, Log: d.log,
	})
	d.teller = teller
	return err
}

// publicURL is where people reach the webhook listener.
func (d *Daemon) publicURL() string {
	if d.cfg.Webhook.PublicURL != "" {
		return d.cfg.Webhook.PublicURL
	}
	return "http://" + d.Addrs().Webhook
}

// openHooks builds what hears people's answers, and the operators' side.
func (d *Daemon) openHooks() error {
	if !d.tells() {
		return nil
	}
	counts := newMetrics(d.opt.Version)
	cfg := webhook.Config{
		Decider: d.store, Adopter: d.store, Links: d.store, Ring: d.ring,
		Roster:    func() *approvals.Roster { return d.roster },
		Directory: configured{func() *approvals.Roster { return d.roster }},
		Callbacks: map[string]webhook.Inbound{}, Desk: d.store, Health: func(context.Context) error { return nil }, Ready: d.ready,
		PublicURL: d.publicURL(), Log: d.log, Metrics: counts.handler(), Observe: counts.observe,
	}
	if d.slack != nil {
		var secrets []string
		for _, s := range d.cfg.Slack.SigningSecrets {
			secrets = append(secrets, s.Reveal())
		}
		cfg.Slack = &webhook.Slack{SigningSecrets: secrets, AppID: d.slack.AppID, TeamID: d.slack.TeamID, EnterpriseID: d.slack.EnterpriseID}
		cfg.Directory, cfg.Replier = d.slack, d.slack
	}
	for name, t := range d.cfg.Tickets {
		cfg.Callbacks[name] = inbound(t)
	}
	tokens, err := adminTokens(d.cfg)
	if err != nil {
		return err
	}
	cfg.Tokens = func() *webhook.Tokens { return tokens }
	for _, p := range d.cfg.Webhook.TrustedProxies {
		cfg.TrustedProxies = append(cfg.TrustedProxies, netip.MustParsePrefix(p)) // validated at load
	}
	hooks, err := webhook.New(cfg)
	if err != nil {
		return err
	}
	d.hooks = hooks
	d.onDrain("replies", hooks.Close)
	d.serve(listenWebhook, webhook.NewServer(hooks.Handler(), d.log))
	d.serve(listenAdmin, webhook.NewServer(hooks.AdminHandler(), d.log))
	return nil
}

func inbound(t config.Ticket) webhook.Inbound {
	in := webhook.Inbound{Scheme: t.Inbound.Scheme}
	for _, s := range t.Inbound.Secrets {
		in.Secrets = append(in.Secrets, s.Reveal())
	}
	return in
}

func adminTokens(cfg *config.Config) (*webhook.Tokens, error) {
	var list []webhook.Token
	for _, t := range cfg.Admin.Tokens {
		list = append(list, webhook.Token{SHA256: t.SHA256, Person: t.Person})
	}
	return webhook.NewTokens(list)
}
