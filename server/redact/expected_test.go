package redact

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/countersign-mcp/countersign/approvals/action"
)

// Who names a place in the policy has said that a value is there and is not to be
// seen: the view can be the whole. Adding a name to all tools says no such thing.
func TestPolicyPointerDeclares(t *testing.T) {
	args := json.RawMessage(`{"card":{"number":"4111 x","pin":1},"iban":"DE1"}`)
	for _, tc := range []struct {
		rules   Rules
		missing string
	}{
		{Rules{Pointers: []string{"/card/number", "/card/pin"}}, ""},
		{Rules{Pointers: []string{"/card"}}, ""},
		{Rules{Pointers: []string{"/card/number"}}, "/card/pin"},
		{Rules{Pointers: []string{"/card"}, Keys: []string{"iban"}}, "/iban"},
		{Rules{Pointers: []string{"/card", "/iban"}, Keys: []string{"iban"}}, ""},
		{Rules{Pointers: []string{"/pin", "/0/pin", "card"}}, "/card/pin"},
	} {
		_, v := Render(action.Call{Tool: "t", Args: args}, tc.rules, keyed)
		if v.Complete() != (tc.missing == "") || !strings.HasSuffix(strings.Join(v.Missing, ""), tc.missing) {
			t.Errorf("%+v: %q", tc.rules, v.Missing)
		}
	}
	// It speaks of the arguments only.
	_, v := Render(action.Call{Tool: "t", Meta: json.RawMessage(`{"auth":{"x":1}}`)}, Rules{Pointers: []string{"/auth"}}, keyed)
	if v.Complete() {
		t.Error("a pointer into the arguments declared a member of _meta")
	}
}

// A secret's name over an object could hide all of a call: each leaf must be
// declared, not only the name on top.
func TestMaskedObjectsAreDeclaredWhole(t *testing.T) {
	for _, tc := range []struct {
		args, schema string
		complete     bool
	}{
		{`{"auth":{"user":"u","run":"rm -rf /"}}`, `{"properties":{"auth":{}}}`, false},
		{`{"auth":{"user":"u","run":"rm -rf /"}}`, `{"properties":{"auth":{"properties":{"user":{}}}}}`, false},
		{`{"auth":{"user":"u","password":"p"}}`, `{"properties":{"auth":{"properties":{"user":{},"password":{}}}}}`, true},
		{`{"tokens":["a",["rm"]]}`, `{"properties":{"tokens":{"items":{}}}}`, false},
		{`{"tokens":["a","b"]}`, `{"properties":{"tokens":{"items":{"type":"string"}}}}`, true},
		{`{"session":{}}`, `{"properties":{"session":{}}}`, true},
		// A value that is masked for its neighbour's name is declared as something else.
		{`{"name":"Authorization","value":"Bearer abc"}`, `{"properties":{"name":{},"value":{}}}`, true},
		{`{"name":"Authorization","value":"rm -rf /"}`, `{"properties":{"name":{},"value":{}}}`, false},
		{`{"args":["--password","x1"]}`, `{"properties":{"args":{"items":{}}}}`, true},
		{`{"args":["--password","x; rm -rf /"]}`, `{"properties":{"args":{"items":{}}}}`, false},
	} {
		if v := view(t, tc.args, json.RawMessage(tc.schema)); v.Complete() != tc.complete || len(v.Masked) == 0 {
			t.Errorf("%s under %s: complete %v, %q", tc.args, tc.schema, v.Complete(), v.Missing)
		}
	}
}

// Clients put ids under names of secrets into the metadata of every call. Such a
// word hides nothing that could run; anything longer or else does.
func TestMasksBesideTheArguments(t *testing.T) {
	for _, tc := range []struct {
		name, meta string
		complete   bool
	}{
		{"a session in a turn", `{"x-codex-turn-metadata":{"session_id":"0199a213-81c0-7800-8aa1-bbab2a035a53","turn_id":"7"}}`, true},
		{"a session of a host", `{"openai/session":"v1/abc123DEF","openai/userAgent":"x/1.0","openai/subject":"v1/u"}`, true},
		{"a trace", `{"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01","baggage":"session=abc1"}`, true},
		{"a conversation", `{"vscode.conversationId":"5f1c","vscode.requestId":"9c"}`, true},
		{"a number", `{"session":7}`, true},
		{"an object", `{"auth":{"token":"abc"}}`, false},
		{"a list", `{"tokens":["abc"]}`, false},
		{"a sentence", `{"token":"rm -rf /"}`, false},
		{"a command", `{"token":"$(reboot)"}`, false},
		{"a path", `{"session":"/etc/passwd"}`, false},
		{"a URL", `{"session":"https://evil.test"}`, false},
		{"a long word", `{"session":"` + strings.Repeat("a", 513) + `"}`, false},
		{"a text with a secret", `{"note":"password=a\\\\b"}`, false},
	} {
		for part, c := range map[string]action.Call{"meta": {Tool: "t", Meta: json.RawMessage(tc.meta)}, "extra": {Tool: "t", Extra: json.RawMessage(tc.meta)}} {
			_, v := Render(c, Rules{}, keyed)
			if v.Complete() != tc.complete {
				t.Errorf("%s in %s: complete %v, %q, %s", tc.name, part, v.Complete(), v.Missing, v.Text)
			}
		}
		if v := view(t, tc.meta, nil); v.Complete() && len(v.Masked) > 0 {
			t.Errorf("%s as arguments is complete without a schema", tc.name)
		}
	}
}
