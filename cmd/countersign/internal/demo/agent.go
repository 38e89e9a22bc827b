package demo

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// agent is an MCP client with one bearer token.
type agent struct{ session *mcp.ClientSession }

// bearer adds the token to every request.
type bearer struct{ token string }

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return http.DefaultTransport.RoundTrip(r)
}

func connect(ctx context.Context, url, token string) (*agent, error) {
	client := mcp.NewClient(&mcp.Implementation{Name: "countersign-demo", Version: "1"},
		&mcp.ClientOptions{Capabilities: &mcp.ClientCapabilities{}})
	session, err := client.Connect(ctx, &mcp.StreamableClientTransport{
		Endpoint: url, HTTPClient: &http.Client{Transport: bearer{token}},
		MaxRetries: -1, DisableStandaloneSSE: true,
	}, nil)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", url, err)
	}
	return &agent{session}, nil
}

func (a *agent) close() { _ = a.session.Close() }

func (a *agent) tools(ctx context.Context) ([]string, error) {
	var names []string
	for t, err := range a.session.Tools(ctx, nil) {
		if err != nil {
			return nil, fmt.Errorf("listing the tools: %w", err)
		}
		names = append(names, t.Name)
	}
	return names, nil
}

// told is what the agent got for a call.
type told struct {
	text    string
	isError bool
	// code is of a JSON-RPC error; 0 for a result.
	code int64
	// approval and status are of _meta["countersign/approval"], if there is one.
	approval, status string
	retryAfter       time.Duration
}

// call makes one tools/call. Only a failure to get an answer is an error.
func (a *agent) call(ctx context.Context, tool string, args map[string]any) (told, error) {
	res, err := a.session.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: args})
	var wire *jsonrpc.Error
	switch {
	case errors.As(err, &wire):
		return told{text: wire.Message, isError: true, code: wire.Code}, nil
	case err != nil:
		return told{}, fmt.Errorf("calling %s: %w", tool, err)
	}
	t := told{isError: res.IsError}
	var parts []string
	for _, c := range res.Content {
		if text, ok := c.(*mcp.TextContent); ok {
			parts = append(parts, text.Text)
		}
	}
	t.text = strings.Join(parts, "\n")
	if m, ok := res.Meta["countersign/approval"].(map[string]any); ok {
		t.approval, _ = m["id"].(string)
		t.status, _ = m["status"].(string)
		ms, _ := m["retry_after_ms"].(float64)
		t.retryAfter = time.Duration(ms) * time.Millisecond
	}
	return t, nil
}

// waiting tells whether the answer is that there is none yet.
func (t told) waiting() bool {
	return t.isError && (t.status == "pending" || t.status == "approved" || t.status == "executing")
}

// finish makes a call and, while it waits for a person, collects it until it
// has ended.
func (a *agent) finish(ctx context.Context, tool string, args map[string]any) (told, error) {
	t, err := a.call(ctx, tool, args)
	for err == nil && t.waiting() {
		select {
		case <-ctx.Done():
			return t, ctx.Err()
		case <-time.After(min(max(t.retryAfter, 100*time.Millisecond), 5*time.Second)):
		}
		t, err = a.call(ctx, "countersign_collect", map[string]any{"approval_id": t.approval})
	}
	return t, err
}
