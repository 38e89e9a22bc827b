package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"

	"github.com/alecthomas/kong"
)

// Exit codes of all commands. Where a command has more than done, not and usage,
// its help says what they mean.
const (
	exitOK     = 0
	exitFailed = 1 // not done; or the answer is no: it differs, was tampered with
	exitBroken = 2 // for commands whose 1 is an answer: it could not be told, or does not work
	exitUsage  = 4 // 3 is the ledger's torn last line: see ledger.ExitCode
)

const description = `A self-hosted approval gate for MCP tool calls.

Exit code: 0 done, 1 not, 4 usage. Where there are others, the command's help says what they mean.`

// exitError ends a command with a code of its own; its text, if any, was
// printed already.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit %d", int(e)) }

// common are the flags of every command.
type common struct {
	Config   string `help:"Configuration file; countersign.yaml unless given." default:"countersign.yaml" placeholder:"FILE" type:"path"`
	LogLevel string `help:"debug, info, warn or error." default:"info" enum:"debug,info,warn,error"`
}

type cli struct {
	common

	Demo      demoCmd      `cmd:"" help:"See a call parked, approved by a click and resumed. Needs nothing."`
	Serve     serveCmd     `cmd:"" help:"Run the gate: MCP over HTTP, messages to approvers, their answers."`
	Stdio     stdioCmd     `cmd:"" help:"Run the gate for one client on standard input and output."`
	Check     checkCmd     `cmd:"" help:"Check the configuration and the policy without starting anything."`
	Doctor    doctorCmd    `cmd:"" help:"Look at the configuration and all that it names: Redis, ledger, upstreams, routes."`
	Settings  configCmd    `cmd:"" name:"config" help:"Print the configuration's keys and defaults."`
	Keygen    keygenCmd    `cmd:"" help:"Make a key for keys.current."`
	Token     tokenCmd     `cmd:"" help:"Make bearer tokens."`
	Approvals approvalsCmd `cmd:"" help:"List, show and decide approvals as an operator."`
	Policy    policyCmd    `cmd:"" help:"Try and explain a policy, count what it came to, pin what the upstreams are."`
	Ledger    ledgerCmd    `cmd:"" help:"Check ledger files."`
	Version   versionCmd   `cmd:"" help:"Print the version."`

	DemoServer demoServerCmd `cmd:"" hidden:"" help:"An MCP server of the demo, on standard input and output."`
}

func run(ctx context.Context, args []string, term terminal) int {
	var c cli
	parser, err := kong.New(&c,
		kong.Name("countersign"),
		kong.Description(description),
		kong.Writers(term.out, term.err),
		kong.Exit(func(code int) { panic(exitError(code)) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true}),
		kong.UsageOnError(),
	)
	if err != nil {
		fmt.Fprintln(term.err, "countersign:", err)
		return exitFailed
	}
	return parseAndRun(ctx, parser, &c, args, term)
}

// parseAndRun turns kong's way of leaving (it calls Exit after help) into a
// return value.
func parseAndRun(ctx context.Context, parser *kong.Kong, c *cli, args []string, term terminal) (code int) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case exitError:
			code = int(r)
		default:
			panic(r)
		}
	}()
	k, err := parser.Parse(args)
	if err != nil {
		fmt.Fprintf(term.err, "countersign: %v\nSee: %s --help\n", err, wrongCommand(err))
		return exitUsage
	}
	k.BindTo(ctx, (*context.Context)(nil))
	k.Bind(term, &c.common)
	return exitCode(k.Run(), term)
}

// wrongCommand is the command that could not be read, as far as it was known.
func wrongCommand(err error) string {
	name := "countersign"
	var p *kong.ParseError
	if errors.As(err, &p) && p.Context != nil {
		for _, step := range p.Context.Path {
			if step.Command != nil {
				name += " " + step.Command.Name
			}
		}
	}
	return name
}

func exitCode(err error, term terminal) int {
	var e exitError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &e):
		return int(e)
	}
	fmt.Fprintln(term.err, "countersign:", err)
	return exitFailed
}

// usage says what is wrong with what a command was given.
func usage(term terminal, err error) error {
	fmt.Fprintln(term.err, "countersign:", err)
	return exitError(exitUsage)
}

// notes prints what holds and is probably not meant.
func notes(term terminal, about string, list []string) {
	for _, n := range list {
		fmt.Fprintf(term.err, "countersign: note: %s%s\n", about, n)
	}
}

// logger writes to stderr: stdout belongs to the protocol or to the answer.
func (c *common) logger(term terminal) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(c.LogLevel)) // the enum was checked
	return slog.New(slog.NewTextHandler(term.err, &slog.HandlerOptions{Level: level}))
}

// version is the module's, as the Go toolchain stamped it.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return "devel"
	}
	return info.Main.Version
}

type versionCmd struct{}

// Run prints one line.
func (versionCmd) Run(term terminal) error {
	_, err := fmt.Fprintln(term.out, "countersign", version())
	return err
}

// executable is this program's own path, for children of the demo.
func executable() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("finding this program's own path: %w", err)
	}
	return path, nil
}
