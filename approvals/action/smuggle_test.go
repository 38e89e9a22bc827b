package action

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
)

// goPeer is a server in Go that decodes with encoding/json, as most do: names
// compare case-insensitively and the last of two wins.
type goPeer struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method"`
	Params  struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
		Meta      json.RawMessage `json:"_meta"`
	} `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
}

// agree fails the test unless encoding/json reads the message as Parse did, into
// a struct and into maps: whatever was decided on is what a peer would execute.
func agree(t *testing.T, b []byte, f Frame) {
	t.Helper()
	var peer goPeer
	if err := json.Unmarshal(b, &peer); err != nil {
		// An optional name of another type than text stops a typed peer: it runs
		// nothing, which can't be more than what was decided.
		if f.Method == "tools/call" || f.Kind == Response {
			t.Fatalf("a Go peer can't read it: %v", err)
		}
		return
	}
	if peer.JSONRPC != "2.0" || peer.Method != f.Method || !bytes.Equal(peer.ID, f.ID) {
		t.Fatalf("the peer reads %+v, we read %+v", peer, f)
	}
	if peer.Params.Name != f.Name || !bytes.Equal(peer.Params.Arguments, f.Args) || !bytes.Equal(peer.Params.Meta, f.Meta) {
		t.Fatalf("the peer runs %q %s, we judge %q %s", peer.Params.Name, peer.Params.Arguments, f.Name, f.Args)
	}
	if !bytes.Equal(peer.Result, f.Result) || !bytes.Equal(peer.Error, f.Error) {
		t.Fatalf("the peer's answer is %s %s, ours %s %s", peer.Result, peer.Error, f.Result, f.Error)
	}
	var top map[string]json.RawMessage
	if err := json.Unmarshal(b, &top); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(top["params"], f.Params) || !bytes.Equal(top["id"], f.ID) {
		t.Fatalf("a map reads other params: %s", top["params"])
	}
	if f.Params == nil {
		return
	}
	var params map[string]json.RawMessage
	if err := json.Unmarshal(f.Params, &params); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(params["arguments"], f.Args) || !bytes.Equal(params["_meta"], f.Meta) {
		t.Fatalf("a map reads other arguments: %s", params["arguments"])
	}
	if name, ok := Text(params["name"]); ok != (f.Name != "") && name != "" || name != f.Name {
		t.Fatalf("a map reads the name %q", name)
	}
	members := 0
	for name, v := range Fields(f.Params) {
		members++
		if !bytes.Equal(params[name], v) {
			t.Fatalf("a map reads another %q", name)
		}
	}
	if members != len(params) {
		t.Fatalf("we see %d members, a map sees %d", members, len(params))
	}
}

// What the gate decided is what a Go server executes: either the body is refused,
// or both read the same. The corpus must contain bodies on which a Go server
// would have run something else, or the test proves nothing.
func TestDecidedIsExecuted(t *testing.T) {
	split := 0
	for _, tc := range hostile() {
		b := []byte(tc.in)
		f, err := Parse(b, Limits{})
		if err == nil {
			agree(t, b, f)
			continue
		}
		var peer goPeer
		var exact struct{ Params map[string]json.RawMessage }
		if json.Unmarshal(b, &peer) != nil || json.Unmarshal(b, &exact) != nil {
			continue
		}
		name, _ := Text(exact.Params["name"])
		if peer.Params.Name != name || !bytes.Equal(peer.Params.Arguments, exact.Params["arguments"]) {
			split++
		}
	}
	if split < 4 {
		t.Errorf("only %d bodies are read in two ways by encoding/json alone", split)
	}
}

// What is forwarded is made of the judged bytes: a Go peer that reads the new
// frame sees the judged tool with the judged arguments.
func TestForwardedIsJudged(t *testing.T) {
	in := []byte(`{"params":{"task":{"ttl":1},"name":"pay","arguments":{ "amount":9007199254740993, "to":"\u0041" },"_meta":{"progressToken":3,"x":1}},"jsonrpc":"2.0","method":"tools/call","id":"a"}`)
	f, err := Parse(in, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	meta := SetMember(DropMember(f.Meta, "progressToken"), "progressToken", json.RawMessage(`"own"`))
	params := SetMember(SetMember(f.Params, "_meta", meta), "name", json.RawMessage(`"pay"`))
	var peer struct {
		Name      string
		Arguments json.RawMessage
		Meta      map[string]any `json:"_meta"`
		Task      json.RawMessage
	}
	if err := json.Unmarshal(params, &peer); err != nil {
		t.Fatal(err)
	}
	if peer.Name != "pay" || !bytes.Equal(peer.Arguments, f.Args) || string(peer.Task) != `{"ttl":1}` {
		t.Errorf("the peer reads %+v", peer)
	}
	if want := map[string]any{"progressToken": "own", "x": 1.0}; !reflect.DeepEqual(peer.Meta, want) {
		t.Errorf("meta %v", peer.Meta)
	}
}

func FuzzParse(f *testing.F) {
	for _, tc := range hostile() {
		if len(tc.in) < 1<<16 {
			f.Add([]byte(tc.in))
		}
	}
	for _, b := range corpus() {
		if len(b) < 1<<12 {
			f.Add(b)
		}
	}
	f.Add([]byte(call(`{"name":"x","arguments":{"a":[1,2,{"b":"\ud83d\ude00"}]},"task":{}}`)))
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		kept := bytes.Clone(b)
		frame, err := Parse(b, Limits{})
		if !bytes.Equal(kept, b) {
			t.Fatal("the message was changed")
		}
		if err != nil {
			return
		}
		agree(t, b, frame)
		if frame.Method == "tools/call" {
			for name, read := range map[string]func([]byte) (string, error){"a struct": readStruct, "maps": readMaps} {
				if got, err := read(b); err != nil || got != ours(frame, literally) {
					t.Fatalf("Go reads %q into %s as %s (%v), and we as %s", b, name, got, err, ours(frame, literally))
				}
			}
			if _, err := Canonical(frame.Args); err != nil && frame.Args != nil {
				t.Fatalf("no canonical form of %s: %v", frame.Args, err)
			}
		}
		again, err := Parse(bytes.TrimSpace(b), Limits{})
		if err != nil || !bytes.Equal(again.Params, frame.Params) {
			t.Fatalf("not stable: %v", err)
		}
		// A request passes Check as a whole; a result need not.
		if frame.Kind != Response {
			if err := Check(b, Limits{}); err != nil {
				t.Fatal(err)
			}
		}
	})
}
