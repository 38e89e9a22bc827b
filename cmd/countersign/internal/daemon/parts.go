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
	r, err := readRules(d.cfg, d.reading())
	if err != nil {
		return err
	}
	d.rules.Store(r)
	d.generations.set(r.policy.Digest())
	for _, w := range r.policy.Warnings() {
		d.log.Warn("policy: " + w)
	}
	d.sayPins()
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
	l, err := ledger.Open(d.cfg.LedgerPath(), ledger.Options{Log: d.log, Young: longest(d.rules.Load())})
	if err != nil {
		return fmt.Errorf("opening the ledger: %w", err)
	}
	d.ledger = l
	d.onStop("the ledger", func(context.Context) error { return l.Close() })
	_, err = l.Append(context.Background(), policyLoaded(d.rules.Load().policy))
	if err != nil {
		return fmt.Errorf("writing to the ledger: %w", err)
	}
	d.keep(d.rules.Load())
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
		if err := d.rules.Load().checkListener(); err != nil {
			return err
		}
		if len(d.rules.Load().tokens) == 0 {
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
	d.store, d.generations.store = s, s
	d.onStop("the store", func(context.Context) error { return s.Close() })
	d.onStop("the ledger's head", d.lastHead)
	return nil
}

func (d *Daemon) openUpstreams() error {
	d.onStop("the upstreams", d.fleet.close)
	first, err := d.fleet.plan(d.cfg)
	if err != nil {
		return err
	}
	d.fleet.sail(first)
	return nil
}

func (d *Daemon) openGate() error {
	g, err := gate.New(gate.Config{
		Store: d.store, Ledger: d.ledger, Ring: d.ring, Log: d.log,
		State: d.rules.Load().state(d.fleet.now), Behind: d.generations.soon,
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

func (d *Daemon) openEdge() error {
	var err error
	if d.tokens, err = server.NewTokens(d.rules.Load().tokens); err != nil {
		return err
	}
	d.refusals = newRefusals(d.ledger, d.log)
	edge, err := server.New(server.Config{
		Gate: d.gate, Auth: d.tokens, Log: d.log, Path: d.cfg.MCP.Path, Version: d.opt.Version,
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
			Roster: d.roster, Approvers: func() []string { return approversOf(d.rules.Load().policy) }, Log: d.log,
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

// roster are the people of this moment.
func (d *Daemon) roster() *approvals.Roster { return d.rules.Load().roster }

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
	secrets := d.rules.Load().secrets()
	cfg := webhook.Config{
		Decider: d.store, Adopter: d.store, Links: d.store, Ring: d.ring,
		Roster: d.roster, Directory: configured{d.roster}, Callbacks: secrets.Callbacks, Desk: d.store, Health: func(context.Context) error { return nil }, Ready: d.ready,
		PublicURL: d.publicURL(), Log: d.log, Metrics: d.metrics.handler(), Observe: d.metrics.observe,
	}
	if d.slack != nil {
		cfg.Slack = &webhook.Slack{SigningSecrets: secrets.SigningSecrets, AppID: d.slack.AppID, TeamID: d.slack.TeamID, EnterpriseID: d.slack.EnterpriseID}
		cfg.Directory, cfg.Replier = d.slack, d.slack
	}
	cfg.Tokens = func() *webhook.Tokens { return d.rules.Load().admins }
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
