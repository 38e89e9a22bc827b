package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/keys"
	"github.com/countersign-mcp/countersign/cmd/countersign/internal/config"
	"github.com/countersign-mcp/countersign/server/policy"
	"github.com/countersign-mcp/countersign/server/redact"
)

// Level is how grave a finding is.
type Level string

// The levels, from harmless to grave.
const (
	Fine Level = "ok"
	Warn Level = "warn" // works, and is probably not what is wanted
	Fail Level = "fail" // does not work, or is not safe
)

// Finding is one thing that was looked at. Neither text holds a secret or a
// stranger's text that could draw on a terminal.
type Finding struct {
	Level Level  `json:"level"`
	Text  string `json:"text"`
	Do    string `json:"do,omitempty"` // what to do next; empty where nothing is to be done
}

// Section is what was found about one part.
type Section struct {
	Name     string    `json:"name"`
	Findings []Finding `json:"findings"`
}

// Level is that of the gravest finding.
func (s Section) Level() Level { return gravest(s.Findings) }

// Diagnosis is what Diagnose found.
type Diagnosis []Section

// Level is that of the gravest section.
func (d Diagnosis) Level() Level {
	var all []Finding
	for _, s := range d {
		all = append(all, s.Findings...)
	}
	return gravest(all)
}

func gravest(found []Finding) Level {
	out := Fine
	for _, f := range found {
		if f.Level == Fail {
			return Fail
		}
		if f.Level == Warn {
			out = Warn
		}
	}
	return out
}

// Checkup says how to look.
type Checkup struct {
	Config  string // path of the configuration file
	Version string // our own, which upstreams are told
	NoStart bool   // start no upstream
	Now     func() time.Time
}

// patient is what the sections look at. What could not be read is nil, and the
// sections that need it say nothing of it: another one has said why.
type patient struct {
	Checkup
	cfg    *config.Config
	ring   *keys.Ring
	roster *approvals.Roster
	policy *policy.Set

	servers map[string]*looked // the upstreams that answered, by name
	pinned  Level              // what the look at the pins came to
	audit   *audit             // what the ledger's files say together
}

// sections are all that is looked at, in the order in which it is told. A later
// one may use what an earlier one left in the patient.
var sections = []struct {
	name string
	look func(ctx context.Context, p *patient) []Finding
	time time.Duration // 0: none is needed
}{
	{"configuration", lookAtConfig, 0},
	{"keys", lookAtKeys, 0},
	{"policy", lookAtPolicy, 0},
	{"listeners", lookAtListeners, 0},
	{"data", lookAtData, 0},
	{"ledger", lookAtLedger, 0},
	{"redis", lookAtRedis, 15 * time.Second},
	{"upstreams", lookAtUpstreams, 90 * time.Second},
	{"pins", lookAtPins, 15 * time.Second},
	{"routes", lookAtRoutes, 60 * time.Second},
	{"checklist", lookAtChecklist, 0},
}

// Diagnose looks at a configuration and all that it names, beside a gate that may
// run on it. It takes no lock and no port, answers for nobody and changes nothing;
// it does start a process of each upstream, for as long as it takes to list its
// tools.
func Diagnose(ctx context.Context, c Checkup) Diagnosis {
	if c.Now == nil {
		c.Now = time.Now
	}
	silenceRedis()
	p := &patient{Checkup: c, servers: map[string]*looked{}, pinned: Warn}
	var out Diagnosis
	for _, s := range sections {
		found := p.take(ctx, s.look, s.time)
		if len(found) > 0 {
			out = append(out, Section{s.name, found})
		}
		if p.cfg == nil {
			break // the file does not load; nothing else can be said
		}
	}
	return out
}

// take is one section's findings, within its time.
func (p *patient) take(ctx context.Context, look func(context.Context, *patient) []Finding, within time.Duration) []Finding {
	if within > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, within)
		defer cancel()
	}
	found := look(ctx, p)
	for i := range found {
		found[i].Text, found[i].Do = redact.Visible(found[i].Text), redact.Visible(found[i].Do)
	}
	return found
}

func fine(format string, args ...any) Finding {
	return Finding{Level: Fine, Text: fmt.Sprintf(format, args...)}
}

func warn(do, format string, args ...any) Finding {
	return Finding{Level: Warn, Text: fmt.Sprintf(format, args...), Do: do}
}

func fail(do, format string, args ...any) Finding {
	return Finding{Level: Fail, Text: fmt.Sprintf(format, args...), Do: do}
}

// failures makes one finding of each line of an error: faults that were found
// together are told one by one.
func failures(do string, err error) []Finding {
	var out []Finding
	for line := range strings.SplitSeq(err.Error(), "\n") {
		out = append(out, fail(do, "%s", line))
	}
	return out
}

// private says who else may read or write a file or directory.
func private(what, path string, secret bool) []Finding {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return []Finding{fail("make it readable for the user that runs the gate", "%s: %v", what, err)}
	}
	mode := info.Mode().Perm()
	remedy := "run: chmod go-rwx " + path
	if !secret {
		remedy = "run: chmod go-w " + path
	}
	switch {
	case mode&0o022 != 0:
		return []Finding{fail(remedy, "%s: others may write to %s (mode %04o)", what, path, mode)}
	case secret && mode&0o044 != 0:
		return []Finding{warn(remedy, "%s: others may read %s, which holds what they should not see (mode %04o)", what, path, mode)}
	}
	return nil
}

// notebook collects what a part warns of while it is looked at.
type notebook struct {
	mu    sync.Mutex
	found []Finding
}

func (n *notebook) log() *slog.Logger { return slog.New(n) }

// Enabled takes warnings and what is graver.
func (n *notebook) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

// Handle keeps the message and its attributes.
func (n *notebook) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool {
		text += fmt.Sprintf("; %s: %s", a.Key, a.Value)
		return true
	})
	n.mu.Lock()
	defer n.mu.Unlock()
	n.found = append(n.found, Finding{Level: Warn, Text: text})
	return nil
}

// WithAttrs drops them: they name the part, and the section does that.
func (n *notebook) WithAttrs([]slog.Attr) slog.Handler { return n }

// WithGroup changes nothing.
func (n *notebook) WithGroup(string) slog.Handler { return n }

func (n *notebook) findings() []Finding {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.found)
}

// listed writes names in a sentence, the first ones and how many more.
func listed(names []string) string {
	const most = 12
	slices.Sort(names)
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// count is a number with its noun.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprint(n, " ", many)
}

// absolute is a path for people.
func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}
