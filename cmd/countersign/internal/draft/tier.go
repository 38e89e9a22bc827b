package draft

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/countersign-mcp/countersign/approvals/action"
)

// What the words of a tool's name say of it. A word of a stricter list counts
// wherever it stands; one of a freer list only where it is the name's first.
var (
	denying     = []string{"exec", "execute", "eval", "shell", "bash", "sh", "cmd", "command", "commands", "powershell", "terminal", "sudo", "wipe", "purge", "destroy", "drop", "truncate", "nuke", "rm", "rmdir", "spawn"}
	destructive = []string{
		"delete", "remove", "erase", "clear", "reset", "revert", "rollback", "overwrite", "kill", "stop", "terminate", "cancel", "close", "archive", "merge", "force",
		"deploy", "publish", "release", "restart", "reboot", "pay", "payment", "transfer", "refund", "charge", "buy", "grant", "revoke", "invite", "permission", "permissions",
		"role", "roles", "access", "admin", "secret", "secrets", "password", "passwords", "credential", "credentials", "token", "tokens", "key", "keys", "run", "invoke", "call", "trigger",
		"install", "uninstall", "migrate", "fork", "share", "sql", "query", "script", "code", "browser", "navigate", "click", "fetch", "request", "http", "download", "upload", "import", "export",
		"approve", "sign", "submit", "raw", "any",
	}
	writing = []string{"create", "add", "update", "set", "put", "write", "post", "send", "edit", "comment", "reply", "assign", "save", "append", "rename", "move", "insert", "mark", "label", "make", "new", "tag", "note"}
	reading = []string{"get", "list", "read", "search", "find", "show", "describe", "view", "lookup", "count", "status", "info", "stat", "head", "tail", "diff", "tree", "ls", "cat", "whoami", "ping", "version", "help"}
)

// tierOf is the tier that a tool begins with, and why.
func tierOf(t Tool) (tier, why string) {
	parts := wordsOf(t.Name)
	has := func(list []string) string {
		for _, w := range parts {
			if slices.Contains(list, w) {
				return w
			}
		}
		return ""
	}
	claims := hints(t.Raw)
	first := ""
	if len(parts) > 0 {
		first = parts[0]
	}
	switch {
	case has(denying) != "":
		return "deny", fmt.Sprintf("its name says %q; list it with a tier if you need it", has(denying))
	case has(destructive) != "":
		return "destructive", fmt.Sprintf("its name says %q", has(destructive))
	case claims["destructiveHint"] == "true":
		return "destructive", "the server itself says that it is"
	case slices.Contains(reading, first) && has(writing) == "" && claims["readOnlyHint"] == "false":
		return "write", fmt.Sprintf("its name says %q, and the server that it does not only read", first)
	case slices.Contains(reading, first) && has(writing) == "":
		return "read", fmt.Sprintf("its name says %q; make sure that it does nothing else", first)
	case slices.Contains(writing, first):
		return "write", fmt.Sprintf("its name says %q", first)
	}
	return "destructive", "its name does not say what it does"
}

// wordsOf are the words of a name, in lower case: get_issue, getIssue, HTTPGet.
func wordsOf(name string) []string {
	var out []string
	var word []rune
	flush := func() {
		if len(word) > 0 {
			out = append(out, strings.ToLower(string(word)))
			word = nil
		}
	}
	runes := []rune(name)
	for i, r := range runes {
		switch {
		case !unicode.IsLetter(r):
			flush()
			continue
		case unicode.IsUpper(r) && (i > 0 && !unicode.IsUpper(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1])):
			flush()
		}
		word = append(word, r)
	}
	flush()
	return out
}

var hintNames = []string{"readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"}

// hints are the server's own claims, as far as they have the form of one.
func hints(raw json.RawMessage) map[string]string {
	annotations, _ := action.Member(raw, "annotations")
	out := map[string]string{}
	for _, name := range hintNames {
		if v, ok := action.Member(annotations, name); ok && action.TypeOf(v) == "boolean" {
			out[name] = string(v)
		}
	}
	return out
}

func claimsOf(raw json.RawMessage) []string {
	var out []string
	claims := hints(raw)
	for _, name := range hintNames {
		if v, ok := claims[name]; ok {
			out = append(out, name+" "+v)
		}
	}
	return out
}

// titleOf suggests a card's first line: the name in words, and the arguments that a
// call always has.
func titleOf(name string, args []argument) string {
	words := strings.Join(wordsOf(name), " ")
	if words == "" {
		return ""
	}
	title := strings.ToUpper(words[:1]) + words[1:]
	fields := 0
	for _, a := range args {
		plain := strings.IndexFunc(a.name, func(r rune) bool {
			return r != '_' && (r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r))
		}) < 0
		if a.required && a.scalar && plain && a.name != "" && fields < 3 {
			title += " {" + a.name + "}"
			fields++
		}
	}
	if fields == 0 {
		return ""
	}
	return title
}
