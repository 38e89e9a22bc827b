package config

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

var (
	variable      = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)\}`)
	unmarshalYAML = reflect.TypeFor[yaml.Unmarshaler]()
)

// expand replaces ${NAME} in every scalar value. It works on the parsed tree, so
// a variable's content can never add structure to the file.
func expand(n *yaml.Node, lookup func(string) (string, bool)) error {
	if n.Kind == yaml.ScalarNode {
		return expandScalar(n, lookup)
	}
	for i, child := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 {
			continue // keys stay as they are
		}
		if err := expand(child, lookup); err != nil {
			return err
		}
	}
	return nil
}

func expandScalar(n *yaml.Node, lookup func(string) (string, bool)) error {
	var missing string
	out := variable.ReplaceAllStringFunc(n.Value, func(m string) string {
		name := variable.FindStringSubmatch(m)[1]
		v, ok := lookup(name)
		if !ok && missing == "" {
			missing = name
		}
		return v
	})
	if missing != "" {
		return fmt.Errorf("line %d: the variable %s is not set; set it or remove ${%s}", n.Line, missing, missing)
	}
	if out != n.Value && n.Style == 0 && n.Tag == "!!str" {
		n.Style = yaml.DoubleQuotedStyle // what came from outside stays text
	}
	n.Value = out
	return nil
}

// unknown finds the first key of the tree that the type has no field for.
// (yaml.Decoder's KnownFields can't be used on a tree that was expanded.)
func unknown(n *yaml.Node, t reflect.Type, path string) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if reflect.PointerTo(t).Implements(unmarshalYAML) {
		return nil
	}
	if n.Kind == yaml.AliasNode {
		return fmt.Errorf("line %d: aliases are not supported; write the value out", n.Line)
	}
	switch {
	case t.Kind() == reflect.Struct && n.Kind == yaml.MappingNode:
		return unknownField(n, t, path)
	case t.Kind() == reflect.Map && n.Kind == yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if err := unknown(n.Content[i+1], t.Elem(), path+n.Content[i].Value+"."); err != nil {
				return err
			}
		}
	case t.Kind() == reflect.Slice && n.Kind == yaml.SequenceNode:
		for _, c := range n.Content {
			if err := unknown(c, t.Elem(), path); err != nil {
				return err
			}
		}
	}
	return nil
}

func unknownField(n *yaml.Node, t reflect.Type, path string) error {
	fields := map[string]reflect.Type{}
	var names []string
	for i := range t.NumField() {
		if tag := t.Field(i).Tag.Get("yaml"); tag != "" {
			fields[tag] = t.Field(i).Type
			names = append(names, tag)
		}
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		ft, ok := fields[key.Value]
		if !ok {
			if why, later := notYet[path+key.Value]; later {
				return fmt.Errorf("line %d: %s%s: %s", key.Line, path, key.Value, why)
			}
			return fmt.Errorf("line %d: unknown key %s%s; here are known: %s", key.Line, path, key.Value, strings.Join(names, ", "))
		}
		if err := unknown(n.Content[i+1], ft, path+key.Value+"."); err != nil {
			return err
		}
	}
	return nil
}

// notYet are keys of the documented contract that this release does not act
// on. Accepting one in silence would promise what is not done.
var notYet = map[string]string{
	"mcp.state_legs":  "input_required legs are not in this release; remove the key",
	"mcp.auth.oidc":   "OIDC is not in this release; use mcp.auth.tokens",
	"slack.app_token": "Socket Mode is not in this release; use signing_secrets and webhook.public_url",
}

func environment(name string) (string, bool) { return os.LookupEnv(name) }

var (
	wrongKind  = regexp.MustCompile(`(?s)^line (\d+): cannot unmarshal .* into (\S+)$`)
	doubledKey = regexp.MustCompile(`^line \d+: mapping key "[^"]*" already defined at line \d+$`)
	lineNumber = regexp.MustCompile(`^line \d+: `)
)

// withoutValues says what the decoder found without the value it found: that may
// be a secret, written or expanded where something else belongs.
func withoutValues(err error) error {
	var kinds *yaml.TypeError
	if !errors.As(err, &kinds) {
		return err // one of ours
	}
	var out []error
	for _, text := range kinds.Errors {
		switch m := wrongKind.FindStringSubmatch(text); {
		case m != nil:
			out = append(out, fmt.Errorf("line %s: here belongs %s", m[1], kindOf(m[2])))
		case doubledKey.MatchString(text):
			out = append(out, errors.New(text))
		default:
			out = append(out, fmt.Errorf("%sthe value is of the wrong kind", lineNumber.FindString(text)))
		}
	}
	return errors.Join(out...)
}

// kindOf is a Go type as a reader of the file knows it.
func kindOf(goType string) string {
	switch {
	case strings.HasPrefix(goType, "[]"):
		return "a list"
	case strings.HasPrefix(goType, "map["), strings.Contains(goType, "config."):
		return "a mapping, like {key: value}"
	case goType == "time.Duration":
		return "a duration, like 30s"
	case goType == "int":
		return "a whole number"
	case goType == "bool":
		return "true or false"
	}
	return "text"
}
