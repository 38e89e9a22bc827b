package provenance

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/countersign-mcp/countersign/approvals/action"
)

// node is a step of the pointers that are looked for. All are looked for in one
// walk through the arguments, and only where one of them leads.
type node struct {
	below map[string]*node
	ends  bool // a pointer ends here
}

// plant makes the tree of the pointers, and counts them.
func plant(labels map[string][]string) (root *node, pointers int) {
	root = &node{}
	for p := range labels {
		at := root
		for step := range strings.SplitSeq(p[1:], "/") {
			name := action.UnescapePointer(step)
			if at.below == nil {
				at.below = map[string]*node{}
			}
			if at.below[name] == nil {
				at.below[name] = &node{}
			}
			at = at.below[name]
		}
		if !at.ends {
			at.ends = true
			pointers++
		}
	}
	return root, pointers
}

// allExist tells whether every pointer leads to a value of args.
func allExist(labels map[string][]string, args json.RawMessage) bool {
	root, want := plant(labels)
	return want == 0 || root.found(args) == want
}

// found counts the pointers below n that lead somewhere in raw.
func (n *node) found(raw json.RawMessage) int {
	count := 0
	meet := func(name string, value json.RawMessage) {
		next := n.below[name]
		if next == nil {
			return
		}
		if next.ends {
			count++
		}
		if len(next.below) > 0 {
			count += next.found(value)
		}
	}
	for name, value := range action.Fields(raw) {
		meet(name, value)
	}
	i := 0
	for value := range action.Items(raw) {
		meet(strconv.Itoa(i), value)
		i++
	}
	return count
}
