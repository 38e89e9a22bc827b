package redact_test

import (
	"testing"

	"github.com/countersign-mcp/countersign/server/redact"
)

func TestTold(t *testing.T) {
	for text, want := range map[string]bool{
		"@acme/desk@1.4.2":                         false,
		"postgres://db.acme.test/orders":           false,
		"postgres://desk:pa55word@db.acme.test/o":  true,
		"Authorization: Bearer abcdefghijklmnop12": true,
		"ghp_0123456789abcdefghij":                 true,
		"https://acme.test/mcp?token=0123456789":   true,
	} {
		if got := redact.Secret(text); got != want {
			t.Errorf("%s: got %t", text, got)
		}
	}
	for name, want := range map[string]bool{"DESK_TOKEN": true, "apiKey": true, "DESK_REGION": false, "LIMIT": false} {
		if got := redact.SecretName(name); got != want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}
