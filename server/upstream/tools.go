package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/countersign-mcp/countersign/approvals/action"
)

// What a list of tools may cost.
const (
	maxPages = 100
	maxTools = 10_000
	maxBytes = 16 << 20
)

// Tools asks for the upstream's tools, all pages of them, each as it was sent.
// An upstream without tools has none, which is no error. Errors are those of Do;
// a list that is too long or not a list is an error of its own.
func (u *Upstream) Tools(ctx context.Context) ([]json.RawMessage, error) {
	var all []json.RawMessage
	params := json.RawMessage(`{}`)
	seen := map[string]bool{}
	for size, page := 0, 0; ; page++ {
		raw, err := u.Do(ctx, Request{Method: "tools/list", Params: params})
		if errors.Is(err, ErrLost) && ctx.Err() == nil {
			// Another's call may have ended the process. A list may be asked
			// for twice.
			raw, err = u.Do(ctx, Request{Method: "tools/list", Params: params})
		}
		var fault *Fault
		if errors.As(err, &fault) && fault.Code == -32601 && page == 0 {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("listing the tools of upstream %s: %w", u.cfg.Name, err)
		}
		tools, cursor, err := readPage(raw)
		if err != nil {
			return nil, fmt.Errorf("the list of tools of upstream %s is not one: %w", u.cfg.Name, err)
		}
		size += len(raw)
		all = append(all, tools...)
		if size > maxBytes || len(all) > maxTools {
			return nil, fmt.Errorf("the list of tools of upstream %s is too long: at most %d tools and %d MiB are read", u.cfg.Name, maxTools, maxBytes>>20)
		}
		if cursor == "" {
			return all, nil
		}
		if page+1 >= maxPages || seen[cursor] {
			return nil, fmt.Errorf("the list of tools of upstream %s does not end", u.cfg.Name)
		}
		seen[cursor] = true
		params = action.SetMember(json.RawMessage(`{}`), "cursor", quote(cursor))
	}
}

// readPage finds the members by their exact names, which encoding/json does not.
func readPage(raw json.RawMessage) (tools []json.RawMessage, cursor string, err error) {
	list, ok := action.Member(raw, "tools")
	if !ok {
		return nil, "", errors.New("it has no tools member")
	}
	if err := json.Unmarshal(list, &tools); err != nil {
		return nil, "", fmt.Errorf("tools: %w", err)
	}
	if next, ok := action.Member(raw, "nextCursor"); ok && string(next) != "null" {
		if cursor, ok = action.Text(next); !ok {
			return nil, "", errors.New("nextCursor is not a string")
		}
	}
	return tools, cursor, nil
}
