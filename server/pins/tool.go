package pins

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/countersign-mcp/countersign/approvals/action"
)

// Tool is one tool as its upstream describes it.
type Tool struct {
	Name   string
	Raw    json.RawMessage // the array element as sent; from a file, its canonical form
	Digest action.Digest   // over the canonical form: the order of keys is no change
}

// Define reads a tool's definition, as it stands in an upstream's list. One that
// is no object, has no name or has two members of one name is an error.
func Define(raw json.RawMessage) (Tool, error) {
	member, _ := action.Member(raw, "name")
	name, ok := action.Text(member)
	if !ok || name == "" {
		return Tool{}, errors.New("it has no name")
	}
	canon, err := action.Canonical(raw)
	if err != nil {
		return Tool{}, fmt.Errorf("its definition has no canonical form: %w", err)
	}
	return Tool{Name: name, Raw: raw, Digest: action.Sum("countersign/tool/v1", canon)}, nil
}

// Manifest is the digest of a whole list, in whatever order it is.
func Manifest(tools []Tool) action.Digest {
	sorted := sortedTools(tools)
	parts := make([][]byte, 0, 2*len(sorted))
	for _, t := range sorted {
		parts = append(parts, []byte(t.Name), t.Digest.Bytes())
	}
	return action.Sum("countersign/manifest/v1", parts...)
}

// Distinct leaves out the tools whose name another one in the list has too, be it in
// other capitals: nobody can say which of them a call means. They are returned as
// well, each group of them on its own, in the list's order.
func Distinct(tools []Tool) (kept []Tool, alike [][]Tool) {
	groups := map[string][]Tool{}
	for _, t := range tools {
		key := strings.ToLower(t.Name)
		groups[key] = append(groups[key], t)
	}
	for _, t := range tools {
		switch g := groups[strings.ToLower(t.Name)]; {
		case len(g) == 1:
			kept = append(kept, t)
		case len(g) > 1:
			alike = append(alike, g)
			groups[strings.ToLower(t.Name)] = nil
		}
	}
	return kept, alike
}

func sortedTools(tools []Tool) []Tool {
	return slices.SortedFunc(slices.Values(tools), func(a, b Tool) int { return strings.Compare(a.Name, b.Name) })
}

// Plausible tells whether a tool can be called by this name at all: ASCII without
// blanks, so that no name looks like another.
func Plausible(name string) bool {
	const most = 256
	return name != "" && len(name) <= most && !strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r >= 0x7f })
}
