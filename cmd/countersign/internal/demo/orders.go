package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// DeskVariable names the file in which the order desk keeps its state.
const DeskVariable = "COUNTERSIGN_DEMO_DESK"

type orderID struct {
	OrderID string `json:"order_id" jsonschema:"the order's number, such as 4417"`
}

type noteIn struct {
	OrderID string `json:"order_id" jsonschema:"the order's number, such as 4417"`
	Note    string `json:"note" jsonschema:"what the desk should know"`
	APIKey  string `json:"api_key,omitempty" jsonschema:"a key for the shipping partner; used once and kept nowhere"`
}

// ServeOrders is the order desk as an MCP server on in and out, until the
// client goes or ctx ends. Its state is in the file that DeskVariable names.
func ServeOrders(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
	path := os.Getenv(DeskVariable)
	if path == "" {
		return fmt.Errorf("%s is not set: it names the desk's file", DeskVariable)
	}
	err := newOrders(&desk{path: path}).Run(ctx, &mcp.IOTransport{Reader: in, Writer: out})
	if errors.Is(err, io.EOF) || ctx.Err() != nil {
		return nil // the client went away, as clients do
	}
	return err
}

// newOrders declares the tools. Each description says what the tool does, what
// stands before it, and what to use instead.
func newOrders(d *desk) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "orders", Title: "Order desk", Version: "1.0.0"}, &mcp.ServerOptions{
		Instructions: "An order desk for trying out approvals. Look an order up before you change it.",
	})
	no := false
	mcp.AddTool(s, &mcp.Tool{
		Name: "list_orders",
		Description: "Lists all orders with their state. Changes nothing and runs at once. " +
			"For one order with its notes use lookup_order.",
		Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: &no},
	}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
		return answer(d.list())
	})
	mcp.AddTool(s, &mcp.Tool{
		Name: "lookup_order",
		Description: "Shows one order with its notes. Changes nothing and runs at once. " +
			"To find an order's number use list_orders.",
		Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: &no},
	}, func(_ context.Context, _ *mcp.CallToolRequest, in orderID) (*mcp.CallToolResult, any, error) {
		return answer(d.lookup(in.OrderID))
	})
	mcp.AddTool(s, &mcp.Tool{
		Name: "add_note",
		Description: "Adds a note to an order. Runs at once and is recorded; a note can't be removed. " +
			"To only read the notes use lookup_order.",
		Annotations: &mcp.ToolAnnotations{DestructiveHint: &no, OpenWorldHint: &no},
	}, func(_ context.Context, _ *mcp.CallToolRequest, in noteIn) (*mcp.CallToolResult, any, error) {
		return answer(d.note(in.OrderID, in.Note))
	})
	mcp.AddTool(s, &mcp.Tool{
		Name: "cancel_order",
		Description: "Cancels an order for good; it can't be undone. A person has to approve each call, within 2 minutes; " +
			"without an answer it is refused. To leave word for the desk instead use add_note.",
		Annotations: &mcp.ToolAnnotations{OpenWorldHint: &no},
	}, func(_ context.Context, _ *mcp.CallToolRequest, in orderID) (*mcp.CallToolResult, any, error) {
		return answer(d.cancel(in.OrderID))
	})
	return s
}

// answer is a tool's result: what was said, or an error that the model may read.
func answer(said string, err error) (*mcp.CallToolResult, any, error) {
	if err != nil {
		return nil, nil, err
	}
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: said}}}, nil, nil
}
