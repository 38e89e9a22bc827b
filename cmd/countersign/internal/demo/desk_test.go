package demo

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// childVariable makes this test binary the order desk.
const childVariable = "COUNTERSIGN_DEMO_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) == "" {
		os.Exit(m.Run())
	}
	if err := ServeOrders(context.Background(), os.Stdin, os.Stdout); err != nil {
		panic(err)
	}
}

// startDesk runs the desk as a child process, as the gate does.
func startDesk(t *testing.T, file string) *agent {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), childVariable+"=1", DeskVariable+"="+file)
	cmd.Stderr = t.Output()
	client := mcp.NewClient(&mcp.Implementation{Name: "test"}, nil)
	session, err := client.Connect(t.Context(), &mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		t.Fatal(err)
	}
	a := &agent{session}
	t.Cleanup(a.close)
	return a
}

func TestDesk(t *testing.T) {
	file := filepath.Join(t.TempDir(), "desk.json")
	a := startDesk(t, file)
	for _, row := range []struct {
		tool    string
		args    map[string]any
		says    string
		isError bool
	}{
		{"list_orders", nil, "4417: Espresso machine, 1 piece, open", false},
		{"lookup_order", map[string]any{"order_id": "4417"}, "Order 4417: Espresso machine, 1 piece, open", false},
		{"lookup_order", map[string]any{"order_id": "9999"}, "no order 9999", true},
		{"add_note", map[string]any{"order_id": "4417", "note": "call first", "api_key": "canary-key"}, "has a new note", false},
		{"add_note", map[string]any{"order_id": "1", "note": "x"}, "no order 1", true},
		{"lookup_order", map[string]any{"order_id": "4417"}, "Note: call first", false},
		{"cancel_order", map[string]any{"order_id": "4417"}, "Order 4417 is cancelled", false},
		{"cancel_order", map[string]any{"order_id": "4417"}, "was cancelled before", true},
		{"cancel_order", map[string]any{"order_id": "0"}, "no order 0", true},
		{"lookup_order", map[string]any{"order_id": "4417"}, "cancelled", false},
	} {
		got, err := a.call(t.Context(), row.tool, row.args)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(got.text, row.says) || got.isError != row.isError {
			t.Errorf("%s %v: %+v, want %q, error %t", row.tool, row.args, got, row.says, row.isError)
		}
	}
	for _, args := range []map[string]any{{}, {"order_id": 4417}, {"order_id": "4417", "force": true}} {
		if got, err := a.call(t.Context(), "cancel_order", args); err != nil || !got.isError {
			t.Errorf("cancel_order %v: %+v, %v", args, got, err)
		}
	}
	s, err := ReadState(file)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int{"list_orders": 1, "lookup_order": 4, "add_note": 2, "cancel_order": 3}
	if diff := cmp.Diff(want, s.Ran); diff != "" {
		t.Errorf("runs counted on disk (-want +got):\n%s", diff)
	}
	if b, err := os.ReadFile(file); err != nil || strings.Contains(string(b), "canary-key") {
		t.Errorf("the key was kept: %s %v", b, err)
	}
	again := startDesk(t, file) // the state outlives the process
	got, err := again.call(t.Context(), "lookup_order", map[string]any{"order_id": "4417"})
	if err != nil || !strings.Contains(got.text, "cancelled") {
		t.Errorf("after a restart: %+v, %v", got, err)
	}
}

// Every description says what a caller may rely on: what changes, what stands
// before it, and what to use instead.
func TestDescriptions(t *testing.T) {
	a := startDesk(t, filepath.Join(t.TempDir(), "desk.json"))
	res, err := a.session.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	says := map[string][]string{
		"list_orders":  {"Changes nothing", "runs at once", "lookup_order"},
		"lookup_order": {"Changes nothing", "runs at once", "list_orders"},
		"add_note":     {"Adds", "Runs at once and is recorded", "lookup_order"},
		"cancel_order": {"can't be undone", "person has to approve", "2 minutes", "add_note"},
	}
	var names []string
	for _, tool := range res.Tools {
		names = append(names, tool.Name)
		for _, s := range says[tool.Name] {
			if !strings.Contains(tool.Description, s) {
				t.Errorf("%s does not say %q: %s", tool.Name, s, tool.Description)
			}
		}
	}
	slices.Sort(names)
	if diff := cmp.Diff([]string{"add_note", "cancel_order", "list_orders", "lookup_order"}, names); diff != "" {
		t.Errorf("tools (-want +got):\n%s", diff)
	}
}

func TestServeOrdersNeedsItsFile(t *testing.T) {
	t.Setenv(DeskVariable, "")
	if err := ServeOrders(t.Context(), os.Stdin, os.Stdout); err == nil {
		t.Error("a desk without a file began to serve")
	}
}
