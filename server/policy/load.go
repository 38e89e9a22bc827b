package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/countersign-mcp/countersign/approvals/action"
)

const (
	maxFile     = 1 << 20
	maxProblems = 100 // that a person is told
)

// Problem is one thing that is wrong with a policy file.
type Problem struct {
	Line int // 0 when the file as a whole is meant
	Text string
}

// Error lists everything that is wrong with a policy file.
type Error struct {
	Name     string // of the file
	Problems []Problem
}

func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = e.Name + ": " + p.Text
		if p.Line > 0 {
			lines[i] = e.Name + ":" + strconv.Itoa(p.Line) + ": " + p.Text
		}
	}
	return strings.Join(lines, "\n")
}

// Parse reads a policy of version 1 (the form of the first gated servers:
// allow, deny, arg_rules) or 2, as YAML or JSON. name is the file's, for
// messages. The error is an *Error.
func Parse(name string, b []byte) (*Set, error) {
	l := &loader{}
	s := l.file(b)
	if len(l.problems) > 0 {
		slices.SortStableFunc(l.problems, func(a, b Problem) int { return a.Line - b.Line })
		if l.more {
			l.problems = append(l.problems, Problem{Text: "and more"})
		}
		return nil, &Error{Name: name, Problems: l.problems}
	}
	s.digest = DigestOf(b)
	return s, nil
}

// DigestOf is the digest of a policy file by its exact bytes, whether it loads or
// not.
func DigestOf(b []byte) action.Digest { return action.Sum("countersign/policy/v1", b) }

// loader collects what is wrong, so that a person sees all of it at once.
type loader struct {
	problems []Problem
	more     bool // than those
}

func (l *loader) fail(n *yaml.Node, format string, args ...any) {
	if len(l.problems) == maxProblems {
		l.more = true
		return
	}
	p := Problem{Text: fmt.Sprintf(format, args...)}
	if n != nil {
		p.Line = n.Line
	}
	l.problems = append(l.problems, p)
}

func (l *loader) file(b []byte) *Set {
	if len(b) > maxFile {
		l.fail(nil, "a policy is at most 1 MiB")
		return nil
	}
	b = bytes.TrimPrefix(b, []byte("\ufeff"))
	if !l.legible(b) {
		return nil
	}
	root := l.document(b)
	if root == nil || !l.plain(root) {
		return nil
	}
	version := field(root, "version")
	if root.Kind != yaml.MappingNode || version == nil {
		l.fail(root, "a policy is a mapping that begins with version: 2")
		return nil
	}
	// The tag tells 1 from true and 1.0, which many readers take for it.
	if version.Kind == yaml.ScalarNode && version.ShortTag() == "!!int" {
		switch version.Value {
		case "1":
			return l.version1(root)
		case "2":
			return l.version2(root)
		}
	}
	l.fail(version, "version is the whole number 1 or 2")
	return nil
}

func (l *loader) document(b []byte) *yaml.Node {
	if json.Valid(b) {
		b = plainStrings(b)
	}
	dec := yaml.NewDecoder(bytes.NewReader(b))
	var doc, second yaml.Node
	if err := dec.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			l.fail(nil, "the file is empty")
		} else {
			l.fail(nil, "%s", strings.TrimPrefix(err.Error(), "yaml: "))
		}
		return nil
	}
	if err := dec.Decode(&second); !errors.Is(err, io.EOF) {
		l.fail(nil, "a policy is one document; something follows it")
		return nil
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 {
		l.fail(nil, "the file is empty")
		return nil
	}
	return doc.Content[0]
}

// legible refuses a file that does not say to a person what it says to a program,
// comments included: characters that can't be seen or change how others are read,
// and line ends that many editors don't show as such.
func (l *loader) legible(b []byte) bool {
	if !utf8.Valid(b) {
		l.fail(nil, "the file is not UTF-8")
		return false
	}
	line := 1
	for i, r := range string(b) {
		switch {
		case r == '\n':
			line++
		case r == '\r' && i+1 < len(b) && b[i+1] == '\n':
		case r == '\r':
			l.fail(&yaml.Node{Line: line}, "a carriage return (U+000D) stands within the line")
			return false
		case unseen(r):
			l.fail(&yaml.Node{Line: line}, "the character %U is not visible", r)
			return false
		}
	}
	return true
}

// plainStrings rewrites the strings of a JSON text without the two escapes that
// YAML does not know ("\\/" and pairs of surrogates). Lines stay where they are.
func plainStrings(b []byte) []byte {
	var out []byte
	for i := 0; i < len(b); i++ {
		if b[i] != '"' {
			out = append(out, b[i])
			continue
		}
		end := i + 1
		for b[end] != '"' {
			if b[end] == '\\' {
				end++
			}
			end++
		}
		literal := b[i : end+1]
		if text, ok := action.Text(literal); ok {
			if plain, err := json.Marshal(text); err == nil {
				literal = plain
			}
		}
		out = append(out, literal...)
		i = end
	}
	return out
}

// plain refuses what makes a file mean something else than it seems: anchors,
// aliases, merge keys, explicit tags, invisible characters.
func (l *loader) plain(n *yaml.Node) bool {
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		l.fail(n, "anchors and aliases are not allowed")
		return false
	case n.Style&yaml.TaggedStyle != 0:
		l.fail(n, "tags are not allowed")
		return false
	case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!merge":
		l.fail(n, "merge keys are not allowed")
		return false
	case n.Kind == yaml.ScalarNode:
		if i := strings.IndexFunc(n.Value, unseen); i >= 0 {
			l.fail(n, "the character %U is not visible", []rune(n.Value[i:])[0])
			return false
		}
	}
	ok := true
	for _, c := range n.Content {
		ok = l.plain(c) && ok
	}
	return ok
}

func unseen(r rune) bool {
	return r != '\n' && r != '\t' && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Zl, unicode.Zp, unicode.Other_Default_Ignorable_Code_Point)
}

// field is the value of a mapping's key; nil when there is none.
func field(n *yaml.Node, key string) *yaml.Node {
	if n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

// mapping calls each for every member; what names the mapping for messages.
func (l *loader) mapping(n *yaml.Node, what string, each func(k, v *yaml.Node)) {
	l.pairs(n, what, false, each)
}

// pairs is mapping, but that it takes "" for a key where empty says so.
func (l *loader) pairs(n *yaml.Node, what string, empty bool, each func(k, v *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		l.fail(n, "%s is a mapping", what)
		return
	}
	lines := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if k.Kind != yaml.ScalarNode || k.ShortTag() != "!!str" || k.Value == "" && !empty {
			l.fail(k, "a key of %s is a string; put it in quotes", what)
			continue
		}
		if first, dup := lines[k.Value]; dup {
			l.fail(k, "%s stands twice in %s, first on line %d", k.Value, what, first)
			continue
		}
		lines[k.Value] = k.Line
		each(k, v)
	}
}

// keys reads a mapping whose keys are known. later are keys that another
// release will understand: they are refused by their own words.
func (l *loader) keys(n *yaml.Node, what string, known map[string]func(v *yaml.Node), later ...string) {
	l.mapping(n, what, func(k, v *yaml.Node) {
		switch read := known[k.Value]; {
		case read != nil:
			read(v)
		case slices.Contains(later, k.Value):
			l.fail(k, "not supported yet in this release: %s in %s", k.Value, what)
		default:
			l.fail(k, "%s is not a key of %s", k.Value, what)
		}
	})
}

func (l *loader) text(n *yaml.Node, what string) string {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" {
		l.fail(n, "%s is a string; put it in quotes", what)
		return ""
	}
	if n.Value == "" {
		l.fail(n, "%s is empty", what)
	}
	return n.Value
}

func (l *loader) flag(n *yaml.Node, what string) bool {
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!bool" && (n.Value == "true" || n.Value == "false") {
		return n.Value == "true"
	}
	l.fail(n, "%s is true or false", what)
	return false
}

func (l *loader) whole(n *yaml.Node, what string, least int) int {
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!int" {
		v, err := strconv.Atoi(n.Value)
		if err == nil && v >= least && v <= 1<<31-1 && strconv.Itoa(v) == n.Value {
			return v
		}
	}
	l.fail(n, "%s is a whole number, %d or more", what, least)
	return least
}

// list reads a sequence of distinct strings.
func (l *loader) list(n *yaml.Node, what string) []string {
	if n.Kind != yaml.SequenceNode {
		l.fail(n, "%s is a list", what)
		return nil
	}
	out := make([]string, 0, len(n.Content))
	seen := make(map[string]bool, len(n.Content))
	for _, c := range n.Content {
		s := l.text(c, "an item of "+what)
		if s != "" && seen[s] {
			l.fail(c, "%s stands twice in %s", s, what)
			continue
		}
		seen[s] = true
		out = append(out, s)
	}
	return out
}

func (l *loader) oneOf(n *yaml.Node, what string, words ...string) string {
	s := l.text(n, what)
	if s != "" && !slices.Contains(words, s) {
		l.fail(n, "%s is %s", what, strings.Join(words, ", "))
	}
	return s
}
