package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/cmd/countersign/internal/config"
	"github.com/countersign-mcp/countersign/cmd/countersign/internal/daemon"
	"github.com/countersign-mcp/countersign/cmd/countersign/internal/demo"
)

type demoCmd struct {
	Click  string        `help:"Play the click: approve, deny or none. Without it you open the link." enum:",approve,deny,none" default:"" placeholder:"VERDICT"`
	Attack bool          `help:"Play the attacks. Exits 1 if one succeeds." xor:"what"`
	Serve  bool          `help:"Keep running, and print how to add the gate to an MCP client." xor:"what"`
	Wait   time.Duration `help:"How long a person has to answer." default:"2m"`
}

// Run starts a whole gate in this process, in a directory of its own, and plays
// against it as a client.
func (c demoCmd) Run(ctx context.Context, term terminal, flags *common) error {
	if c.Click != "" && (c.Attack || c.Serve) {
		return fmt.Errorf("--click does not go with --attack or --serve")
	}
	dir, err := os.MkdirTemp("", "countersign-demo-")
	if err != nil {
		return fmt.Errorf("making the demo's directory: %w", err)
	}
	defer os.RemoveAll(dir)
	parts, d, err := c.start(ctx, dir, term, flags)
	if err != nil {
		return err
	}
	stopped := func(failed error) error {
		stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
		defer cancel()
		if err := d.Stop(stopCtx); failed == nil {
			failed = err
		}
		return failed
	}
	switch {
	case c.Attack:
		return stopped(demo.Attack(ctx, parts))
	case c.Serve:
		fmt.Fprint(term.out, demo.ClientLines(parts.MCPURL, parts.Token))
		fmt.Fprintf(term.out, "\nLinks for a person appear here. Stop it with ctrl-C.\n\n")
		return stopped(c.serve(ctx, term.out, parts, d))
	default:
		return stopped(demo.Story(ctx, parts, demo.Options{Click: c.Click}))
	}
}

func (c demoCmd) start(ctx context.Context, dir string, term terminal, flags *common) (demo.Parts, *daemon.Daemon, error) {
	program, err := executable()
	if err != nil {
		return demo.Parts{}, nil, err
	}
	setup, err := demo.Prepare(dir, program, c.Wait)
	if err != nil {
		return demo.Parts{}, nil, err
	}
	cfg, err := config.Load(setup.ConfigFile)
	if err != nil {
		return demo.Parts{}, nil, err
	}
	links := make(chan demo.Link, 64)
	d, err := daemon.New(cfg, daemon.Options{
		Version: version(), Log: c.logger(term, flags),
		Links: func(ctx context.Context, person, url string, t approvals.Ticket) error {
			select {
			case links <- demo.Link{Person: person, URL: url, Approval: t.ID, Digest: t.Bound, Deadline: t.Deadline}:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		},
	})
	if err != nil {
		return demo.Parts{}, nil, err
	}
	if err := d.Start(ctx); err != nil {
		return demo.Parts{}, nil, err
	}
	addrs := d.Addrs()
	return demo.Parts{
		MCPURL: "http://" + addrs.MCP + cfg.MCP.Path + "/orders", Token: setup.Token, OtherToken: setup.OtherToken,
		WebhookURL: "http://" + addrs.Webhook, CallbackSecret: setup.CallbackSecret,
		DeskFile: setup.DeskFile, LedgerDir: filepath.Dir(d.LedgerPath()), Wait: c.Wait, Links: links, Out: term.out,
	}, d, nil
}

// logger shows only what is wrong: the story is the output.
func (demoCmd) logger(term terminal, flags *common) *slog.Logger {
	if flags.LogLevel != "info" {
		return flags.logger(term)
	}
	return slog.New(slog.NewTextHandler(term.err, &slog.HandlerOptions{Level: slog.LevelError}))
}

func (demoCmd) serve(ctx context.Context, out io.Writer, p demo.Parts, d *daemon.Daemon) error {
	for {
		select {
		case l := <-p.Links:
			fmt.Fprintf(out, "A call waits for you until %s:\n  %s\n", l.Deadline.Local().Format("15:04:05"), l.URL)
		case err := <-d.Failed():
			return err
		case <-ctx.Done():
			return nil
		}
	}
}

type demoServerCmd struct {
	Orders struct{} `cmd:"" help:"The order desk."`
}

// Run serves the order desk until standard input ends.
func (demoServerCmd) Run(ctx context.Context, term terminal) error {
	in, ok := term.in.(io.ReadCloser)
	if !ok {
		in = io.NopCloser(term.in)
	}
	return demo.ServeOrders(ctx, in, nopWriteCloser{term.out})
}

// nopWriteCloser keeps standard output open when the protocol is over.
type nopWriteCloser struct{ io.Writer }

func (nopWriteCloser) Close() error { return nil }
