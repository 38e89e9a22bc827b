package demo

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/cmd/countersign/internal/config"
	"github.com/countersign-mcp/countersign/server/policy"
)

// The demo's files are read by the same strict readers as anybody's.
func TestPrepare(t *testing.T) {
	dir := filepath.Join(t.TempDir(), `with "quotes" and spaces`)
	s, err := Prepare(dir, "/usr/bin/countersign", 0)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(s.ConfigFile)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.DataDir != dir || cfg.Store != "ephemeral" || len(cfg.MCP.Auth.Tokens) != 2 {
		t.Errorf("configuration: %+v", cfg)
	}
	if up := cfg.Upstreams["orders"]; strings.Join(up.Command, " ") != "/usr/bin/countersign demo-server orders" {
		t.Errorf("upstream: %+v", up)
	}
	for _, secret := range []string{s.Token, s.OtherToken} {
		if b, err := os.ReadFile(s.ConfigFile); err != nil || strings.Contains(string(b), secret) {
			t.Errorf("a token stands in the configuration (%v)", err)
		}
	}
	for path, mode := range map[string]os.FileMode{dir: 0o700, s.ConfigFile: 0o600, s.PolicyFile: 0o600} {
		if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", path, fi.Mode(), err)
		}
	}
	other, err := Prepare(t.TempDir(), "countersign", 0)
	if err != nil {
		t.Fatal(err)
	}
	if other.Token == s.Token || other.CallbackSecret == s.CallbackSecret || s.Token == s.OtherToken {
		t.Error("two runs share a secret")
	}
	if _, err := Prepare(filepath.Join(t.TempDir(), "${HOME}"), "countersign", 0); err == nil {
		t.Error("a path that the configuration would expand was written into it")
	}
}

func TestPolicy(t *testing.T) {
	for wait, want := range map[time.Duration]time.Duration{0: Wait, 3 * time.Second: 3 * time.Second} {
		set, err := policy.Parse("policy.yaml", []byte(policyWith(wait)))
		if err != nil {
			t.Fatal(err)
		}
		if err := set.Bind([]string{"orders"}); err != nil {
			t.Fatal(err)
		}
		routes := set.Routes()
		if len(routes) != 1 || routes[0].Timeout != want || routes[0].AllowRequester || routes[0].Links != "approve" {
			t.Errorf("wait %s: %+v", wait, routes)
		}
		for tool, shown := range map[string]bool{"list_orders": true, "cancel_order": true, "drop_all_orders": false} {
			if set.Shows("orders", tool) != shown {
				t.Errorf("%s is shown: %t", tool, !shown)
			}
		}
		if !set.Reviews() {
			t.Error("the policy never asks anybody")
		}
	}
}

func TestClientLines(t *testing.T) {
	got := ClientLines("http://127.0.0.1:1/mcp/orders", "demo-abc")
	for _, want := range []string{
		`claude mcp add --transport http orders http://127.0.0.1:1/mcp/orders --header "Authorization: Bearer demo-abc"`,
		`"url": "http://127.0.0.1:1/mcp/orders"`, `"Authorization": "Bearer demo-abc"`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}
