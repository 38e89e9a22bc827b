package redact

import "strings"

// token is a family of secrets that are told by how they begin.
type token struct {
	prefix string
	kind   string
	least  int               // bytes after the prefix
	most   int               // the same; 0 for any number
	in     func(c byte) bool // what may follow
	word   bool              // the prefix is short: it counts only where a word begins
}

var tokens = []token{
	{prefix: "AKIA", kind: "AWS key id", least: 16, most: 16, in: upperOrDigit},
	{prefix: "ASIA", kind: "AWS key id", least: 16, most: 16, in: upperOrDigit},
	{prefix: "ghp_", kind: "GitHub token", least: 16, in: wordByte},
	{prefix: "gho_", kind: "GitHub token", least: 16, in: wordByte},
	{prefix: "ghu_", kind: "GitHub token", least: 16, in: wordByte},
	{prefix: "ghs_", kind: "GitHub token", least: 16, in: tokenByte},
	{prefix: "ghr_", kind: "GitHub token", least: 16, in: wordByte},
	{prefix: "github_pat_", kind: "GitHub token", least: 16, in: wordByte},
	{prefix: "glpat-", kind: "GitLab token", least: 16, in: tokenByte},
	{prefix: "gldt-", kind: "GitLab token", least: 16, in: tokenByte},
	{prefix: "glrt-", kind: "GitLab token", least: 16, in: tokenByte},
	{prefix: "glptt-", kind: "GitLab token", least: 16, in: tokenByte},
	{prefix: "glcbt-", kind: "GitLab token", least: 16, in: tokenByte},
	{prefix: "glsoat-", kind: "GitLab token", least: 16, in: tokenByte},
	{prefix: "glagent-", kind: "GitLab token", least: 16, in: tokenByte},
	{prefix: "gloas-", kind: "GitLab token", least: 16, in: tokenByte},
	{prefix: "xoxb-", kind: "Slack token", least: 10, in: tokenByte},
	{prefix: "xoxp-", kind: "Slack token", least: 10, in: tokenByte},
	{prefix: "xoxa-", kind: "Slack token", least: 10, in: tokenByte},
	{prefix: "xoxr-", kind: "Slack token", least: 10, in: tokenByte},
	{prefix: "xoxs-", kind: "Slack token", least: 10, in: tokenByte},
	{prefix: "xoxc-", kind: "Slack token", least: 10, in: tokenByte},
	{prefix: "xoxd-", kind: "Slack token", least: 10, in: urlTokenByte},
	{prefix: "xoxe-", kind: "Slack token", least: 10, in: tokenByte},
	{prefix: "xoxe.", kind: "Slack token", least: 10, in: tokenByte},
	{prefix: "xapp-", kind: "Slack token", least: 10, in: tokenByte},
	{prefix: "hooks.slack.com/services/", kind: "Slack webhook", least: 8, in: pathByte},
	{prefix: "sk_live_", kind: "Stripe key", least: 10, in: wordByte},
	{prefix: "sk_test_", kind: "Stripe key", least: 10, in: wordByte},
	{prefix: "rk_live_", kind: "Stripe key", least: 10, in: wordByte},
	{prefix: "rk_test_", kind: "Stripe key", least: 10, in: wordByte},
	{prefix: "whsec_", kind: "Stripe key", least: 16, in: base64Byte},
	{prefix: "AIza", kind: "Google key", least: 30, in: tokenByte},
	{prefix: "ya29.", kind: "Google token", least: 16, in: tokenByte},
	{prefix: "GOCSPX-", kind: "Google client secret", least: 16, in: tokenByte},
	{prefix: "1//0", kind: "Google token", least: 20, in: tokenByte, word: true},
	{prefix: "sk-ant-", kind: "API key", least: 16, in: tokenByte},
	{prefix: "sk-proj-", kind: "API key", least: 16, in: tokenByte},
	{prefix: "npm_", kind: "API key", least: 30, in: wordByte, word: true},
	{prefix: "hooks.slack.com/workflows/", kind: "Slack webhook", least: 8, in: pathByte},
	{prefix: "hooks.slack.com/triggers/", kind: "Slack webhook", least: 8, in: pathByte},
	{prefix: "discord.com/api/webhooks/", kind: "webhook", least: 8, in: pathByte},
	{prefix: "discordapp.com/api/webhooks/", kind: "webhook", least: 8, in: pathByte},
	{prefix: "webhook.office.com/webhookb2/", kind: "webhook", least: 8, in: urlTokenByte},
	{prefix: "api.telegram.org/bot", kind: "bot token", least: 16, in: func(c byte) bool { return tokenByte(c) || c == ':' }},
	{prefix: "sk-", kind: "API key", least: 32, in: tokenByte, word: true},
	{prefix: "gsk_", kind: "API key", least: 32, in: wordByte, word: true},
	{prefix: "xai-", kind: "API key", least: 32, in: tokenByte, word: true},
	{prefix: "pplx-", kind: "API key", least: 32, in: tokenByte, word: true},
	{prefix: "hf_", kind: "API key", least: 24, in: wordByte, word: true},
	{prefix: "r8_", kind: "API key", least: 30, in: wordByte, word: true},
	{prefix: "SG.", kind: "API key", least: 32, in: tokenByte, word: true},
	{prefix: "xkeysib-", kind: "API key", least: 24, in: tokenByte},
	{prefix: "dop_v1_", kind: "API key", least: 24, in: wordByte},
	{prefix: "doo_v1_", kind: "API key", least: 24, in: wordByte},
	{prefix: "dor_v1_", kind: "API key", least: 24, in: wordByte},
	{prefix: "dckr_pat_", kind: "API key", least: 16, in: tokenByte},
	{prefix: "pypi-", kind: "API key", least: 20, in: tokenByte, word: true},
	{prefix: "rubygems_", kind: "API key", least: 24, in: wordByte, word: true},
	{prefix: "shpat_", kind: "API key", least: 16, in: wordByte},
	{prefix: "shpca_", kind: "API key", least: 16, in: wordByte},
	{prefix: "shppa_", kind: "API key", least: 16, in: wordByte},
	{prefix: "shpss_", kind: "API key", least: 16, in: wordByte},
	{prefix: "lin_api_", kind: "API key", least: 16, in: wordByte},
	{prefix: "figd_", kind: "API key", least: 16, in: tokenByte, word: true},
	{prefix: "glsa_", kind: "API key", least: 16, in: wordByte, word: true},
	{prefix: "sbp_", kind: "API key", least: 24, in: wordByte, word: true},
	{prefix: "nfp_", kind: "API key", least: 24, in: wordByte, word: true},
	{prefix: "pscale_tkn_", kind: "API key", least: 16, in: tokenByte},
	{prefix: "pscale_pw_", kind: "API key", least: 16, in: tokenByte},
	{prefix: "tskey-", kind: "API key", least: 16, in: tokenByte, word: true},
	{prefix: "NRAK-", kind: "API key", least: 16, in: tokenByte, word: true},
	{prefix: "PMAK-", kind: "API key", least: 16, in: tokenByte, word: true},
	{prefix: "ATATT3x", kind: "API key", least: 24, in: urlTokenByte},
	{prefix: "dp.pt.", kind: "API key", least: 24, in: wordByte, word: true},
	{prefix: "ops_eyJ", kind: "API key", least: 24, in: urlTokenByte, word: true},
	{prefix: "sq0atp-", kind: "API key", least: 16, in: tokenByte},
	{prefix: "sq0csp-", kind: "API key", least: 16, in: tokenByte},
	{prefix: "hvs.", kind: "Vault token", least: 20, in: tokenByte, word: true},
	{prefix: "hvb.", kind: "Vault token", least: 20, in: tokenByte, word: true},
	{prefix: "AGE-SECRET-KEY-1", kind: "private key", least: 40, in: upperOrDigit},
	{prefix: "xprv", kind: "private key", least: 80, in: alnum, word: true},
}

func digit(c byte) bool        { return '0' <= c && c <= '9' }
func upperOrDigit(c byte) bool { return 'A' <= c && c <= 'Z' || digit(c) }
func alnum(c byte) bool        { return upperOrDigit(c) || 'a' <= c && c <= 'z' }
func wordByte(c byte) bool     { return alnum(c) || c == '_' }
func tokenByte(c byte) bool    { return alnum(c) || c == '_' || c == '-' || c == '.' }
func urlTokenByte(c byte) bool { return tokenByte(c) || c == '%' || c == '+' || c == '/' || c == '=' }
func pathByte(c byte) bool     { return alnum(c) || c == '/' || c == '_' || c == '-' }
func base64Byte(c byte) bool   { return alnum(c) || c == '+' || c == '/' || c == '=' }
func bearerByte(c byte) bool   { return urlTokenByte(c) || c == '~' }

func (t token) find(s string, found []span) []span {
	for i := 0; ; {
		at := strings.Index(s[i:], t.prefix)
		if at < 0 {
			return found
		}
		at += i
		end := run(s, at+len(t.prefix), t.in)
		n := end - at - len(t.prefix)
		switch {
		case t.word && at > 0 && alnum(s[at-1]), t.most == 0 && n < t.least:
			i = at + len(t.prefix)
		case t.most > 0 && n < t.least:
			i = max(at+1, end) // all of it was too short, so is every part of it
		default: // a run longer than most holds more than one, or is one with a tail
			found = append(found, span{from: at, to: end, kind: t.kind})
			i = end
		}
	}
}
