package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var reloadBase = `
keys: {current: aaaa}
redis: {url: "redis://127.0.0.1:6379/0"}
mcp: {hold: 45s, auth: {tokens: [{sha256: ` + digestA + `, actor: ana@acme.test}]}}
webhook: {public_url: "https://approvals.acme.test"}
people: {ana: {actors: [ana@acme.test]}}
upstreams: {orders: {command: [orders]}}
slack: {bot_token: xoxb-1, signing_secrets: ["0123456789abcdef"]}
`

var (
	digestA = strings.Repeat("a", 64)
	digestB = strings.Repeat("b", 64)
)

func parseAt(t *testing.T, text, dir string) *Config {
	t.Helper()
	c, err := Parse([]byte(text), dir)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestTake(t *testing.T) {
	const dir = "/etc/countersign"
	old := parseAt(t, reloadBase, dir)
	next := parseAt(t, strings.NewReplacer(
		digestA, digestB, "ana@acme.test", "ben@acme.test", "hold: 45s", "hold: 9s", "aaaa", "bbbb", ":6379", ":6380",
		"[orders]", "[orders, --new]", "xoxb-1", "xoxb-2", "0123456789abcdef", "fedcba9876543210",
	).Replace(reloadBase)+"policy: other.yaml\npins: {file: pins.json}\n", dir)
	now, restart, err := old.Take(next)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"mcp.hold", "redis.url", "keys.current", "slack.bot_token"}, restart); d != "" {
		t.Error(d)
	}
	if now.Policy != "other.yaml" || now.Pins.File != "pins.json" || now.MCP.Auth.Tokens[0].Actor != "ben@acme.test" || len(now.Upstreams["orders"].Command) != 2 ||
		now.Slack.SigningSecrets[0].Reveal() != "fedcba9876543210" {
		t.Error("a key that can be exchanged was not")
	}
	if now.MCP.Hold != old.MCP.Hold || now.Keys.Current.Reveal() != "aaaa" || now.Slack.BotToken.Reveal() != "xoxb-1" {
		t.Error("a key that takes a restart was exchanged")
	}
	if old.Slack.SigningSecrets[0].Reveal() != "0123456789abcdef" || old.Policy == now.Policy {
		t.Error("the old one was changed")
	}
	if _, restart, err := now.Take(next); err != nil || len(restart) != 4 {
		t.Errorf("once more: %v, %v", restart, err)
	}
}

// A section that is there or not takes a restart, and the whole has to fit: what
// needs the new section is refused.
func TestTakeValidatesTheWhole(t *testing.T) {
	with := parseAt(t, reloadBase, "/etc")
	text := reloadBase[:strings.Index(reloadBase, "slack:")]
	without := parseAt(t, text, "/etc")
	now, restart, err := without.Take(with)
	if err != nil || now.Slack != nil || !cmp.Equal(restart, []string{"slack"}) {
		t.Errorf("added: %v, %v", restart, err)
	}
	if now, restart, err := with.Take(without); err != nil || now.Slack == nil || !cmp.Equal(restart, []string{"slack"}) {
		t.Errorf("taken away: %v, %v", restart, err)
	}
	stdio := parseAt(t, strings.Replace(reloadBase, "mcp: {", "mcp: {stdio: {actor: x, owners: [ana]}, ", 1), "/etc")
	gone := parseAt(t, strings.Replace(reloadBase, "people: {ana", "people: {ben", 1), "/etc")
	if _, _, err := stdio.Take(gone); err == nil || !strings.Contains(err.Error(), "mcp.stdio.owners") {
		t.Errorf("an owner who is nobody any more: %v", err)
	}
	if _, _, err := with.Take(parseAt(t, reloadBase, "/other")); err == nil {
		t.Error("another directory was taken")
	}
}
