package pins

import (
	"bytes"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/server/redact"
)

// Start is how an upstream is started. Env has the variables' values: they are
// looked for in what is written, and never written.
type Start struct {
	Command []string
	Dir     string
	Env     map[string]string
}

// Describe is the server that is started so and calls itself name, with what its
// command says of it. The rest is for the caller to add.
func Describe(s Start, name string) Server {
	env := slices.Sorted(maps.Keys(s.Env))
	out := Server{
		Transport: "stdio", Command: s.written(), Dir: s.Dir, Env: env, Name: name,
		Identity: action.ServerID(s.Command, s.Dir, env, name),
	}
	out.Package = packageOf(out.Command)
	for _, e := range env {
		if credential(e) {
			out.AuthPath = append(out.AuthPath, e)
		}
	}
	return out
}

// Leaks names the credentials whose values stand in a text, as they are or as JSON.
// Short values are not looked for: they stand anywhere.
func (s Start) Leaks(text []byte) []string {
	var out []string
	for _, e := range slices.Sorted(maps.Keys(s.Env)) {
		v := s.Env[e]
		if !credential(e) || len(v) < telling {
			continue
		}
		q := quote(v)
		if bytes.Contains(text, []byte(v)) || bytes.Contains(text, q[1:len(q)-1]) {
			out = append(out, e)
		}
	}
	return out
}

// telling is how long a variable's value must be to be told from other text.
const telling = 8

// written is the command without what looks like a secret: by how it looks, by the
// flag before it, or because it is a credential's value.
func (s Start) written() []string {
	out := slices.Clone(s.Command)
	for i, arg := range out {
		flag, value, joined := strings.Cut(arg, "=")
		switch {
		case i > 0 && joined && value != "" && credential(flag):
			out[i] = flag + "=" + Hidden
		case i > 0 && !strings.HasPrefix(arg, "-") && strings.HasPrefix(out[i-1], "-") && !strings.Contains(out[i-1], "=") && credential(out[i-1]):
			out[i] = Hidden
		case redact.Secret(arg), len(s.Leaks([]byte(arg))) > 0:
			out[i] = Hidden
		}
	}
	return out
}

// more are last words of names that often stand for a credential, beside those that
// are masked in calls.
var more = regexp.MustCompile(`(?i)(^|[_-])(key|pat|dsn|creds|cert|certificate|keyfile|connection_?string|database_?url|auth(_.*)?)$`)

func credential(name string) bool {
	name = strings.TrimLeft(name, "-")
	return redact.SecretName(name) || more.MatchString(name)
}
