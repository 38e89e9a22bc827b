package config

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Secret is a value that is never printed. In the file it is text, usually
// "${VARIABLE}", or {file: PATH}.
type Secret struct {
	text string
	path string
}

// Text makes a Secret in code.
func Text(s string) Secret { return Secret{text: s} }

// Reveal returns the value.
func (s Secret) Reveal() string { return s.text }

// IsZero tells whether nothing was set.
func (s Secret) IsZero() bool { return s.text == "" }

// String hides the value.
func (s Secret) String() string { return "<secret>" }

// GoString hides the value.
func (s Secret) GoString() string { return "<secret>" }

// LogValue hides the value.
func (s Secret) LogValue() slog.Value { return slog.StringValue("<secret>") }

// MarshalText refuses: a secret is never written by an encoder.
func (s Secret) MarshalText() ([]byte, error) {
	return nil, errors.New("config: a secret can't be encoded")
}

// UnmarshalYAML reads text or {file: PATH}. The file itself is read by Load,
// which knows the directory that the path starts from.
func (s *Secret) UnmarshalYAML(n *yaml.Node) error {
	switch n.Kind {
	case yaml.ScalarNode:
		s.text = n.Value
		return nil
	case yaml.MappingNode:
		if len(n.Content) == 2 && n.Content[0].Value == "file" && n.Content[1].Kind == yaml.ScalarNode {
			s.path = n.Content[1].Value
			return nil
		}
	}
	return fmt.Errorf("line %d: a secret is text, usually ${VARIABLE}, or {file: PATH}", n.Line)
}

func (s *Secret) load(dir string) error {
	if s.path == "" {
		return nil
	}
	path := s.path
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading a secret: %w", err)
	}
	s.text = strings.TrimRight(string(b), "\r\n")
	if s.text == "" {
		return fmt.Errorf("the secret's file %s is empty", path)
	}
	return nil
}
