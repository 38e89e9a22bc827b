package pins

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/countersign-mcp/countersign/approvals/action"
)

// MaxFile is the most a file may hold, in bytes.
const MaxFile = 64 << 20

// ErrNoFile is Load's when there is no such file. Compare with errors.Is.
var ErrNoFile = errors.New("there is no such file")

// File is a file of pins. The zero value has none.
type File struct {
	Servers map[string]Server // by the upstream's name in the configuration
}

// Server is what was agreed on one upstream. Its lists are sorted.
type Server struct {
	Transport string   // "stdio"
	Command   []string // program and arguments; an argument that looks like a secret is hidden
	Dir       string   // working directory; empty means the gate's own
	Env       []string // names of the configured variables, never their values
	Package   Package  // what the command runs, as far as it says so
	AuthPath  []string // which names of Env look like credentials; empty: none seen

	Name         string          // what the server calls itself
	Version      string          // the same; it is recorded, and another one is the same server
	Protocol     string          // MCP version it was spoken to with
	Capabilities json.RawMessage // as declared, an object; nil when none were seen

	Identity action.Digest // [Identity] of command, directory, variables' names and name
	Tools    []Tool        // sorted by name
}

// Package is the published thing that a command runs. Kind is empty when the
// command names none.
type Package struct {
	Kind    string // "npm", "pypi", "docker" or "go"
	Name    string
	Version string // a version, tag or digest as written; empty when the command names none
}

// Tool finds a tool by its exact name.
func (s *Server) Tool(name string) (Tool, bool) {
	i, ok := slices.BinarySearchFunc(s.Tools, name, func(t Tool, n string) int { return strings.Compare(t.Name, n) })
	if !ok {
		return Tool{}, false
	}
	return s.Tools[i], true
}

// Over is the digest of the pin that a server has of a tool: of the definition and
// of the server it is of. It is zero where there is none. A pin that is made while
// the gate runs says by it which one it stands in place of.
func (s *Server) Over(tool string) action.Digest {
	t, ok := s.Tool(tool)
	if !ok {
		return action.Digest{}
	}
	return action.Sum("countersign/pin/v1", t.Digest.Bytes(), s.Identity.Bytes())
}

// Names lists the file's servers in order.
func (f *File) Names() []string { return slices.Sorted(maps.Keys(f.Servers)) }

// Load reads a file. The error wraps ErrNoFile when there is none, and is an
// *Invalid, with the file's name before it, when it is not a file of pins.
func Load(path string) (*File, error) {
	in, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading the pins: %s: %w", path, ErrNoFile)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the pins: %w", err)
	}
	defer in.Close()
	b, err := io.ReadAll(io.LimitReader(in, MaxFile+1))
	if err != nil {
		return nil, fmt.Errorf("reading the pins: %w", err)
	}
	f, err := Parse(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// Hidden stands in a command for what must not be written.
const Hidden = "<hidden>"

// hidden tells whether the command is not whole here, so that nobody can say
// whether the identity is its own.
func (s *Server) hidden() bool {
	return slices.ContainsFunc(s.Command, func(a string) bool { return strings.Contains(a, Hidden) })
}
