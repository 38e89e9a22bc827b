package demo

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"
	"time"
)

var (
	//go:embed policy.yaml
	policyText string
	//go:embed countersign.yaml
	configText string
)

// Wait is how long a person has in the demo's policy.
const Wait = 2 * time.Minute

// Setup is a configuration made for one run, in a directory of its own.
type Setup struct {
	Dir        string // holds everything, the ledger too
	ConfigFile string
	PolicyFile string
	DeskFile   string

	Token          string // of the agent, whose requester is ana
	OtherToken     string // of another agent
	CallbackSecret string // of POST /callbacks/demo
}

// Prepare writes the configuration and the policy into dir. program is the
// countersign binary, which also is the order desk. wait is how long a person
// has to answer; 0 means Wait.
func Prepare(dir, program string, wait time.Duration) (*Setup, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	s := &Setup{
		Dir:            dir,
		ConfigFile:     filepath.Join(dir, "countersign.yaml"),
		PolicyFile:     filepath.Join(dir, "policy.yaml"),
		DeskFile:       filepath.Join(dir, "desk.json"),
		Token:          "demo-" + random(hex.EncodeToString),
		OtherToken:     "demo-" + random(hex.EncodeToString),
		CallbackSecret: "whsec_" + random(base64.StdEncoding.EncodeToString),
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("the demo's directory: %w", err)
	}
	config, err := s.config(program)
	if err != nil {
		return nil, err
	}
	for path, text := range map[string]string{s.ConfigFile: config, s.PolicyFile: policyWith(wait)} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return nil, fmt.Errorf("the demo's configuration: %w", err)
		}
	}
	return s, nil
}

func policyWith(wait time.Duration) string {
	if wait <= 0 {
		return policyText
	}
	return strings.Replace(policyText, "timeout: 2m", "timeout: "+wait.String(), 1)
}

func (s *Setup) config(program string) (string, error) {
	t, err := template.New("config").Funcs(template.FuncMap{"q": quoted, "hash": hash}).Parse(configText)
	if err != nil {
		return "", err
	}
	var b bytes.Buffer
	err = t.Execute(&b, struct {
		*Setup
		Key, Program, Variable string
	}{s, random(base64.StdEncoding.EncodeToString), program, DeskVariable})
	return b.String(), err
}

// quoted is a YAML string; JSON's form is one. The configuration would take
// ${…} for a variable, and has no way to write it otherwise.
func quoted(s string) (string, error) {
	if strings.Contains(s, "${") {
		return "", fmt.Errorf("%s has ${ in it, which can't stand in a configuration; use another place", s)
	}
	b, err := json.Marshal(s)
	return string(b), err
}

func hash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

func random(encode func([]byte) string) string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails: crypto/rand ends the process instead
	return encode(b)
}

// ClientLines is how a person adds the running gate to an MCP client.
func ClientLines(mcpURL, token string) string {
	generic, err := json.MarshalIndent(map[string]any{
		"mcpServers": map[string]any{
			"orders": map[string]any{
				"type": "http", "url": mcpURL,
				"headers": map[string]string{"Authorization": "Bearer " + token},
			},
		},
	}, "", "  ")
	if err != nil {
		generic = nil // strings always encode
	}
	return fmt.Sprintf(`Add it to Claude Code:

  claude mcp add --transport http orders %s --header "Authorization: Bearer %s"

Or to any client that reads a JSON file of servers:

%s
`, mcpURL, token, generic)
}
