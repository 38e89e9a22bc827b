package pins_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/server/pins"
)

const cancel = `{"name":"cancel_order","title":"Cancel","description":"Cancels one order.\nIt can't be undone.",
 "inputSchema":{"type":"object","properties":{"id":{"type":"string"},"limit":{"type":"number","maximum":10}},"required":["id"]},
 "annotations":{"readOnlyHint":false}}`

func tool(t testing.TB, raw string) pins.Tool {
	t.Helper()
	d, err := pins.Define(json.RawMessage(raw))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func desk(t testing.TB, tools ...string) pins.Server {
	t.Helper()
	s := pins.Server{
		Transport: "stdio", Command: []string{"npx", "-y", "@acme/desk@1.4.2"}, Dir: "/srv/desk",
		Env: []string{"DESK_REGION", "DESK_TOKEN"}, AuthPath: []string{"DESK_TOKEN"},
		Package: pins.Package{Kind: "npm", Name: "@acme/desk", Version: "1.4.2"},
		Name:    "desk", Version: "1.4.2", Protocol: "2025-11-25", Capabilities: json.RawMessage(`{"tools":{"listChanged":true}}`),
	}
	s.Identity = action.ServerID(s.Command, s.Dir, s.Env, s.Name)
	for _, raw := range tools {
		s.Tools = append(s.Tools, tool(t, raw))
	}
	return s
}

func encode(t *testing.T, servers map[string]pins.Server) []byte {
	t.Helper()
	b, err := (&pins.File{Servers: servers}).Encode()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// golden compares with a committed text; UPDATE=1 writes it.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if os.Getenv("UPDATE") == "1" {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; write it with UPDATE=1 and read it", err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s differs (-want +got):\n%s", path, diff)
	}
}

func TestFileGolden(t *testing.T) {
	bare := pins.Server{Transport: "stdio", Command: []string{"./ledger-mcp"}, Identity: action.ServerID([]string{"./ledger-mcp"}, "", nil, "")}
	hostile := `{"name":"look","description":"Looks.\u202e\u001b[31m\ud83d\ude00\u200b <&>","x-more":[1.0,1e400,{"a":null}]}`
	file := map[string]pins.Server{"orders": desk(t, hostile, cancel), "ledger": bare}
	b := encode(t, file)
	golden(t, "file.json", b)

	back, err := pins.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	again, err := back.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if string(again) != string(b) {
		t.Errorf("read and written again it differs:\n%s", cmp.Diff(string(b), string(again)))
	}
	for name, s := range file {
		got := back.Servers[name]
		if c := pins.Diff(s, got); !c.Empty() {
			t.Errorf("%s came back changed:\n%s", name, c.Text())
		}
		if got.Identity != s.Identity || pins.Manifest(got.Tools) != pins.Manifest(s.Tools) {
			t.Errorf("%s came back with other digests", name)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	good := string(encode(t, map[string]pins.Server{"orders": desk(t, cancel)}))
	identity := desk(t).Identity.Hex()
	change := func(old, new string) string {
		t.Helper()
		if strings.Count(good, old) != 1 {
			t.Fatalf("%q stands %d times in the file", old, strings.Count(good, old))
		}
		return strings.Replace(good, old, new, 1)
	}
	for name, row := range map[string]struct {
		file, want string
	}{
		"empty":               {"", "line 1: the file ends"},
		"not JSON":            {"version: 1", "line 1: this is not JSON"},
		"a list":              {"[]", "line 1: this is not an object"},
		"cut":                 {good[:len(good)/2], "the file ends before it is complete"},
		"something after":     {good + "{}", "something follows"},
		"another version":     {change(`"version": 1`, `"version": 2`), "line 2, version: this version"},
		"version as text":     {change(`"version": 1`, `"version": "1"`), "line 2, version"},
		"no version":          {change("\"version\": 1,\n", "\n"), "the key version is missing"},
		"no servers":          {`{"version": 1}`, "the key servers is missing"},
		"unknown at the top":  {change(`"version": 1`, `"version": 1, "x": 1`), "line 2, x: unknown key"},
		"unknown of a server": {change(`"dir":`, `"durr": "", "dir":`), "line 11, servers/orders/durr: unknown key"},
		"unknown of a tool":   {change(`"definition":`, `"x": 1, "definition":`), "tools/cancel_order/x: unknown key"},
		"twice":               {change(`"dir":`, `"dir": "", "dir":`), "line 11, servers/orders: a key stands here twice"},
		"twice, escaped":      {change(`"dir":`, `"d\u0069r": "", "dir":`), "a key stands here twice"},
		"a server twice":      {`{"version":1,"servers":{"a":{},"a":{}}}`, "servers/a: the key transport is missing"},
		"twice in a schema":   {change(`"title":`, `"title": "", "title":`), "a key stands here twice"},
		"other description":   {change(`Cancels one order.`, `Cancels an order.`), "tools/cancel_order: the digest is not that of the definition"},
		"other maximum":       {change(`"maximum": 10`, `"maximum": 10.0`), "edited by hand"},
		"other tool's name":   {change(`"name": "cancel_order"`, `"name": "look"`), "a tool of another name"},
		"other key":           {change(`"cancel_order": {`, `"look": {`), "a tool of another name"},
		"other command":       {change(`@acme/desk@1.4.2"`, `@acme/desk@1.4.3"`), "line 32, servers/orders: the identity is not that"},
		"other env":           {change(`"DESK_REGION"`, `"DESK_REGIO"`), "the identity is not that"},
		"env twice":           {change(`"DESK_REGION"`, `"DESK_TOKEN"`), "env: a name stands here twice"},
		"other identity":      {change(identity, strings.Repeat("0", 64)), "the identity is not that"},
		"digest in capitals":  {change(identity, strings.ToUpper(identity)), "identity: this is not a digest"},
		"capabilities a list": {change(`"capabilities": {`, `"capabilities": [], "c": {`), "neither an object nor null"},
		"command a text":      {change(`"dir": "/srv/desk"`, `"dir": 5`), "dir: this is not a text"},
		"bad UTF-8":           {change(`"/srv/desk"`, "\"/srv/\xff\""), "this is not JSON in UTF-8"},
		"invisible name":      {change(`"dir":`, `"d\u202eir": "", "dir":`), `d⟦U+202E⟧ir: unknown key`},
	} {
		_, err := pins.Parse([]byte(row.file))
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: got %v, want %q", name, err, row.want)
		}
	}
	if _, err := pins.Parse([]byte(good)); err != nil {
		t.Errorf("unchanged: %v", err)
	}
}

// What is written can be read, however much an upstream has to say.
func TestTooLargeIsNotWritten(t *testing.T) {
	s := desk(t, `{"name":"look","description":"`+strings.Repeat("x", 2<<10)+`"}`)
	file := &pins.File{Servers: map[string]pins.Server{"desk": s}}
	if _, err := file.EncodeWithin(4 << 10); err != nil {
		t.Error(err)
	}
	if _, err := file.EncodeWithin(2 << 10); err == nil || !strings.Contains(err.Error(), "larger than 2 KiB") {
		t.Errorf("got %v", err)
	}
	if _, err := pins.Parse(make([]byte, pins.MaxFile+1)); err == nil || !strings.Contains(err.Error(), "larger than 65536 KiB") {
		t.Errorf("got %v", err)
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	if _, err := pins.Load(filepath.Join(dir, "none.json")); !errors.Is(err, pins.ErrNoFile) {
		t.Errorf("no file: got %v", err)
	}
	path := filepath.Join(dir, "pins.json")
	if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	var bad *pins.Invalid
	if _, err := pins.Load(path); !errors.As(err, &bad) || !strings.HasPrefix(err.Error(), path+": line 1: ") {
		t.Errorf("a bad file: got %v", err)
	}
	if _, err := pins.Load(dir); err == nil || errors.Is(err, pins.ErrNoFile) {
		t.Errorf("a directory: got %v", err)
	}
}

// What a pin stands in place of is a definition of one server.
func TestOver(t *testing.T) {
	s := desk(t, cancel)
	over := s.Over("cancel_order")
	again, moved, changed := desk(t, cancel), desk(t, cancel), desk(t, `{"name":"cancel_order"}`)
	moved.Identity = action.ServerID([]string{"other"}, "", nil, "")
	if over.IsZero() || again.Over("cancel_order") != over {
		t.Error("the same pin has another digest")
	}
	if moved.Over("cancel_order") == over || changed.Over("cancel_order") == over {
		t.Error("another pin has the same digest")
	}
	if !s.Over("look").IsZero() {
		t.Error("a tool without a pin has one")
	}
}
