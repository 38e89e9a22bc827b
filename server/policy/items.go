package policy

import (
	"encoding/json"
	"fmt"

	"github.com/countersign-mcp/countersign/approvals/action"
)

// items looks at an array and at each of its items. It refuses what is not an
// array; absent passes.
type items struct {
	least, most int     // how many, both ends included; most < 0: no upper bound
	each        []check // nil: no rule on the items
}

func (c items) judge(raw json.RawMessage, left *steps) string {
	if raw == nil {
		return ""
	}
	if action.TypeOf(raw) != "array" {
		return "is not an array"
	}
	parts, ok := split(nil, raw)
	switch {
	case !ok:
		return "can't be read"
	case len(parts) < c.least:
		return fmt.Sprintf("has fewer than %d items", c.least)
	case c.most >= 0 && len(parts) > c.most:
		return fmt.Sprintf("has more than %d items", c.most)
	}
	for i, p := range parts {
		for _, check := range c.each {
			if why := check.judge(p.value, left); why != "" {
				return at(i, why)
			}
		}
	}
	return ""
}

// at says which item is meant, by its pointer within the array.
func at(i int, why string) string {
	if why[0] == '/' { // of an item of the item
		return fmt.Sprintf("/%d%s", i, why)
	}
	return fmt.Sprintf("/%d %s", i, why)
}
