package config

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"
)

//go:embed reference.yaml
var reference string

// Reference is the annotated file with every key and its default.
func Reference() string { return reference }

// Defaults is a configuration in which nothing was set.
func Defaults() Config {
	return Config{
		DataDir: dataDir(),
		MCP: MCP{
			Listen: "127.0.0.1:8080", Path: "/mcp", Hold: 45 * time.Second,
			RefusalStyle: "result", CollectTool: true, SessionIdle: time.Hour, MaxInFlight: 256,
		},
		Webhook: Webhook{Listen: "127.0.0.1:8090"},
		Admin:   Admin{Listen: "127.0.0.1:8091"},
		Redis:   Redis{Namespace: "countersign"},
		Approvals: Approvals{
			ClaimTTL: time.Hour, ExecTimeout: 10 * time.Minute, ResultTTL: time.Hour, DenyTTL: time.Hour,
			Lease: 30 * time.Second, NotifyLease: 30 * time.Second,
		},
		Policy: "policy.yaml",
		Pins:   Pins{MaxAge: 30 * time.Second, AskEvery: time.Minute},
		Ledger: Ledger{Dir: "ledger"},
	}
}

func dataDir() string {
	if state := os.Getenv("XDG_STATE_HOME"); state != "" {
		return filepath.Join(state, "countersign")
	}
	if home, err := os.UserHomeDir(); err == nil {
		return filepath.Join(home, ".local", "state", "countersign")
	}
	return "countersign-data"
}

// Load reads and validates the file. Errors name the file, the line where there
// is one, and what to do.
func Load(path string) (*Config, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("there is no %s; name one with --config, or start from: countersign config --defaults", path)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	cfg, err := Parse(b, filepath.Dir(abs))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return cfg, nil
}

// Parse reads a configuration whose relative paths start at dir.
func Parse(b []byte, dir string) (*Config, error) {
	cfg := Defaults()
	cfg.dir = dir
	root, err := tree(b)
	if err != nil {
		return nil, err
	}
	if root != nil {
		if err := expand(root, environment); err != nil {
			return nil, err
		}
		if err := unknown(root, reflect.TypeFor[Config](), ""); err != nil {
			return nil, err
		}
		if err := root.Decode(&cfg); err != nil {
			return nil, withoutValues(err)
		}
	}
	if err := cfg.loadSecrets(); err != nil {
		return nil, err
	}
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	for name, u := range cfg.Upstreams {
		if u.Dir != "" { // else an upstream works where we do
			u.Dir = cfg.Resolve(u.Dir)
			cfg.Upstreams[name] = u
		}
	}
	return &cfg, nil
}

// tree parses exactly one YAML document; nil when the file has no content.
func tree(b []byte) (*yaml.Node, error) {
	dec := yaml.NewDecoder(bytes.NewReader(b))
	var doc yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New("the file holds more than one document; keep the first")
	}
	if len(doc.Content) != 1 || doc.Content[0].Kind != yaml.MappingNode {
		return nil, errors.New("the file is not a list of keys with values")
	}
	return doc.Content[0], nil
}

func (c *Config) loadSecrets() error {
	for _, s := range c.secrets() {
		if err := s.load(c.dir); err != nil {
			return err
		}
	}
	for name, u := range c.Upstreams {
		for key, s := range u.Env {
			if err := s.load(c.dir); err != nil {
				return fmt.Errorf("upstreams.%s.env.%s: %w", name, key, err)
			}
			u.Env[key] = s
		}
	}
	return nil
}

func (c *Config) secrets() []*Secret {
	out := []*Secret{&c.Redis.URL, &c.Keys.Current}
	for i := range c.Keys.Previous {
		out = append(out, &c.Keys.Previous[i])
	}
	if c.Slack != nil {
		out = append(out, &c.Slack.BotToken)
		for i := range c.Slack.SigningSecrets {
			out = append(out, &c.Slack.SigningSecrets[i])
		}
	}
	for _, t := range c.Tickets {
		if t.Inbound != nil {
			for i := range t.Inbound.Secrets {
				out = append(out, &t.Inbound.Secrets[i])
			}
		}
	}
	return out
}

// UnmarshalYAML reads actors, slack and one id per ticketing system.
func (p *Person) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.MappingNode {
		return fmt.Errorf("line %d: a person is a list of names, like {actors: [ana@acme.test], slack: U0123}", n.Line)
	}
	p.Names, p.lines = map[string]string{}, map[string]int{}
	var seen []string
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if slices.Contains(seen, key.Value) {
			return fmt.Errorf("line %d: %s is listed twice", key.Line, key.Value)
		}
		seen = append(seen, key.Value)
		var err error
		switch key.Value {
		case "actors":
			err = value.Decode(&p.Actors)
		case "slack":
			err = value.Decode(&p.Slack)
		default:
			var id string
			err = value.Decode(&id)
			p.Names[key.Value], p.lines[key.Value] = id, key.Line
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Resolve makes a path of the file absolute.
func (c *Config) Resolve(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(c.dir, path)
}

// PolicyPath is where the policy is.
func (c *Config) PolicyPath() string { return c.Resolve(c.Policy) }

// DataPath is data_dir, absolute.
func (c *Config) DataPath() string { return c.Resolve(c.DataDir) }

// LedgerPath is the ledger's directory: under data_dir unless absolute.
func (c *Config) LedgerPath() string {
	if filepath.IsAbs(c.Ledger.Dir) {
		return c.Ledger.Dir
	}
	return filepath.Join(c.DataPath(), c.Ledger.Dir)
}

// PinsPath is where the pins are; empty when the file is not configured.
func (c *Config) PinsPath() string {
	if c.Pins.File == "" {
		return ""
	}
	return c.Resolve(c.Pins.File)
}
