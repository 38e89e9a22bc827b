package daemon

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/cmd/countersign/internal/config"
	"github.com/countersign-mcp/countersign/server/pins"
	"github.com/countersign-mcp/countersign/server/policy"
	"github.com/countersign-mcp/countersign/server/redact"
)

// PinNotes compares the file of pins with the configuration and with a policy that
// is bound to it: what is held back, denied or no longer there. It contacts nobody,
// so it can't know what an upstream lists today. A file that can't be read is an
// error.
func PinNotes(cfg *config.Config, set *policy.Set) ([]string, error) {
	path := cfg.PinsPath()
	if path == "" {
		return []string{"tool definitions are pinned as first seen; set pins.file, look at what is pinned, and keep it: countersign policy pin"}, nil
	}
	file, err := pins.Load(path)
	if errors.Is(err, pins.ErrNoFile) {
		return nil, fmt.Errorf("%w; write it with: countersign policy pin", err)
	}
	if err != nil {
		return nil, err
	}
	var notes []string
	known := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(cfg.Upstreams)) {
		s, ok := file.Servers[name]
		switch {
		case !ok && cfg.Pins.FirstUse:
			notes = append(notes, fmt.Sprintf("%s is not pinned; its tools will be pinned as first seen", name))
			continue
		case !ok:
			notes = append(notes, fmt.Sprintf("%s is not pinned: all its tools are held back; pin it with: countersign policy pin %s", name, name))
			continue
		case !sameServer(cfg, name, s):
			notes = append(notes, fmt.Sprintf("%s has another command, directory or variables than it was pinned with: all its tools are held back; see: countersign policy pin %s --diff", name, name))
		}
		known[name] = toolNames(s)
	}
	for _, name := range file.Names() {
		if _, ok := cfg.Upstreams[name]; !ok {
			notes = append(notes, fmt.Sprintf("%s is pinned, and is no configured upstream", redact.Visible(name)))
		}
	}
	for _, n := range set.Against(known) {
		notes = append(notes, redact.Visible(n))
	}
	return notes, nil
}

// sameServer tells whether what a server is by its configuration is as pinned. What
// it calls itself is known when it runs.
func sameServer(cfg *config.Config, name string, s pins.Server) bool {
	start := StartOf(cfg, name, "")
	return s.Identity == action.ServerID(start.Command, start.Dir, slices.Sorted(maps.Keys(start.Env)), s.Name)
}

func toolNames(s pins.Server) []string {
	var out []string
	for _, t := range s.Tools {
		out = append(out, t.Name)
	}
	return out
}
