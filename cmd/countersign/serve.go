package main

import (
	"context"
	"fmt"
	"time"

	"github.com/countersign-mcp/countersign/cmd/countersign/internal/config"
	"github.com/countersign-mcp/countersign/cmd/countersign/internal/daemon"
)

// stopWithin bounds a clean stop: waiting callers are answered, a running call
// is given time to end and to be recorded. Upstreams that don't go may take some
// seconds more; server/README.md says how long a supervisor should wait.
const stopWithin = 30 * time.Second

// reloads is what SIGHUP does.
const reloads = "On SIGHUP it reads the configuration and the policy again and takes them over at once, " +
	"or, if anything is wrong with them, stays as it is and says so."

// needs is what both ways to run a gate have in common.
const needs = "Needs a configuration (see: countersign config --defaults), a policy and a Redis, or store: ephemeral."

type serveCmd struct{}

// Help says what it needs.
func (serveCmd) Help() string { return needs + " " + reloads }

// Run serves until it is told to stop or something essential fails.
func (serveCmd) Run(ctx context.Context, term terminal, c *common) error {
	hangup := catchHangups()
	defer hangup.forget()
	cfg, err := config.Load(c.Config)
	if err != nil {
		return err
	}
	log := c.logger(term)
	d, err := daemon.New(cfg, daemon.Options{Version: version(), Log: log, Load: c.again})
	if err != nil {
		return err
	}
	if err := d.Start(ctx); err != nil {
		return err
	}
	defer hangup.reload(ctx, d)()
	addrs := d.Addrs()
	fmt.Fprintf(term.err, "countersign: ledger %s\n", d.LedgerPath())
	fmt.Fprintf(term.err, "countersign: MCP on http://%s%s, approvers' answers on http://%s, operators on http://%s\n",
		addrs.MCP, cfg.MCP.Path, addrs.Webhook, addrs.Admin)
	return finish(ctx, d)
}

// finish waits for the end and stops the daemon.
func finish(ctx context.Context, d *daemon.Daemon) error {
	var failed error
	select {
	case <-ctx.Done():
	case failed = <-d.Failed():
	}
	stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
	defer cancel()
	if err := d.Stop(stopCtx); failed == nil {
		failed = err
	}
	return failed
}

type stdioCmd struct{}

// Help says what it needs.
func (stdioCmd) Help() string {
	return "The client starts it as its MCP server. mcp.stdio.actor says who calls. " + needs + " " + reloads
}

// Run serves one client on standard input and output until it closes its end.
func (stdioCmd) Run(ctx context.Context, term terminal, c *common) error {
	hangup := catchHangups()
	defer hangup.forget()
	cfg, err := config.Load(c.Config)
	if err != nil {
		return err
	}
	d, err := daemon.New(cfg, daemon.Options{Version: version(), Log: c.logger(term), Stdio: true, Load: c.again})
	if err != nil {
		return err
	}
	if err := d.Start(ctx); err != nil {
		return err
	}
	defer hangup.reload(ctx, d)()
	fmt.Fprintf(term.err, "countersign: ledger %s\n", d.LedgerPath())
	fmt.Fprintln(term.err, "countersign: a caller that can read or write this user's files can go round this gate; "+
		"run `countersign serve` under another user where that matters")
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	served := make(chan error, 1)
	go func() {
		served <- d.ServeStdio(ctx, term.in, term.out)
		cancel()
	}()
	if err := finish(ctx, d); err != nil {
		return err
	}
	select {
	case err := <-served:
		return err
	default: // stopped by a signal while a read of standard input blocks
		return nil
	}
}
