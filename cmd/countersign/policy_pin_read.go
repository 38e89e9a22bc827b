package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/countersign-mcp/countersign/cmd/countersign/internal/archive"
	"github.com/countersign-mcp/countersign/cmd/countersign/internal/config"
	"github.com/countersign-mcp/countersign/cmd/countersign/internal/daemon"
	"github.com/countersign-mcp/countersign/server/pins"
	"github.com/countersign-mcp/countersign/server/redact"
	"github.com/countersign-mcp/countersign/server/upstream"
)

// pinTimeout bounds the start of one upstream and the reading of its list. A
// package may be fetched first.
const pinTimeout = 2 * time.Minute

// pinned is one upstream as it was found.
type pinned struct {
	name   string
	server pins.Server
	notes  []string // what a person should know of it
}

// readUpstreams starts the upstreams side by side and asks them what they are. One
// that can't be asked is an error: half a file would look like a whole one.
func readUpstreams(ctx context.Context, term terminal, c *common, cfg *config.Config, names []string) ([]pinned, error) {
	found := make([]pinned, len(names))
	faults := make([]error, len(names))
	var all sync.WaitGroup
	for i, name := range names {
		all.Go(func() {
			found[i], faults[i] = readUpstream(ctx, term, c, cfg, name)
		})
	}
	all.Wait()
	if err := errors.Join(faults...); err != nil {
		return nil, fmt.Errorf("%w\nNothing was written", err)
	}
	return found, nil
}

// readUpstream starts one upstream and asks it what it is.
func readUpstream(ctx context.Context, term terminal, c *common, cfg *config.Config, name string) (pinned, error) {
	ctx, cancel := context.WithTimeout(ctx, pinTimeout)
	defer cancel()
	log := slog.New(slog.DiscardHandler)
	if c.LogLevel == "debug" {
		log = c.logger(term)
	}
	start := daemon.StartOf(cfg, name, version())
	start.StartTimeout = pinTimeout
	start.ShowStderr = true // nothing is called, so no argument is in it
	up, err := upstream.New(start, log)
	if err != nil {
		return pinned{}, err
	}
	defer up.Close()
	tools, err := up.Tools(ctx)
	if err != nil {
		return pinned{}, fmt.Errorf("%s can't be read: %s; --log-level debug shows what it says", start.Name, redact.Visible(err.Error()))
	}
	info := up.Info()
	said := pins.Start{Command: start.Command, Dir: start.Dir, Env: start.Env}
	p := pinned{name: start.Name, server: pins.Describe(said, info.Name)}
	p.server.Version, p.server.Protocol, p.server.Capabilities = info.Version, info.Protocol, info.Capabilities
	var list []pins.Tool
	for i, raw := range tools {
		t, err := pins.Define(raw)
		if err != nil {
			p.notef("number %d of its list is no tool (%v); it is left out, and the gate never offers it", i+1, err)
			continue
		}
		if leaked := said.Leaks(raw); len(leaked) > 0 {
			return pinned{}, fmt.Errorf("%s can't be read: its definition of %s holds the value of %s, which the file would give away; let the server keep it to itself",
				start.Name, redact.Visible(t.Name), strings.Join(leaked, " and "))
		}
		list = append(list, t)
	}
	p.take(list)
	if strings.Contains(strings.Join(p.server.Command, " "), pins.Hidden) {
		p.notef("its command holds what looks like a secret; it is not written, but give it in env: others on this machine can see a command")
	}
	if p.server.Package.Floating() {
		p.notef("its command names no fixed version of %s, so another one may run tomorrow; name one", redact.Visible(p.server.Package.Name))
	}
	return p, nil
}

func (p *pinned) notef(format string, args ...any) {
	p.notes = append(p.notes, fmt.Sprintf(format, args...))
}

// take pins the tools of a list that the gate could offer, and says which are not
// among them.
func (p *pinned) take(list []pins.Tool) {
	kept, alike := pins.Distinct(list)
	for _, group := range alike {
		names := make([]string, len(group))
		for i, t := range group {
			names[i] = redact.Visible(t.Name)
		}
		p.notef("nobody can say which of its tools %s a call means; they are left out, and the gate never offers them", strings.Join(names, " and "))
	}
	for _, t := range kept {
		if !pins.Plausible(t.Name) {
			p.notef("the name %s is not plain ASCII without blanks, so it may look like another tool's; it is left out, and the gate never offers it", redact.Visible(t.Name))
			continue
		}
		p.server.Tools = append(p.server.Tools, t)
	}
}

// replaceFile puts a whole new file in the place of the old one, or leaves the old
// one. A link stays one.
func replaceFile(path string, b []byte) error {
	mode := os.FileMode(0o644)
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	like, err := os.Stat(path)
	if err == nil {
		mode = like.Mode().Perm()
	}
	return archive.Write(path, b, mode, like)
}
