package policy

import (
	"encoding/json"
	"regexp"
	"strings"
)

// host is a machine that a URL may name.
type host struct {
	name string // in lower case
	sub  bool   // any name below it, but not itself
	port string // empty: the scheme's own
}

var (
	hostForm = regexp.MustCompile(`^(\*\.)?([a-z0-9]([a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*)(?::([1-9][0-9]{0,4}))?$`)
	// authority is all that may stand between // and the path: a name in ASCII and
	// a port. No user, no brackets, no escapes.
	authority = regexp.MustCompile(`^([A-Za-z0-9.-]+)(?::([1-9][0-9]{0,4}))?$`)
)

// ports are the schemes that a URL may have, with their ports.
var ports = map[string]string{"http": "80", "https": "443", "ws": "80", "wss": "443"}

func newHost(text string) (host, bool) {
	m := hostForm.FindStringSubmatch(text)
	if m == nil {
		return host{}, false
	}
	return host{name: m[2], sub: m[1] != "", port: m[4]}, true
}

// onHosts wants a URL of one of the hosts. It takes fewer writings of a URL than
// the standards do: those that every reader takes for the same host.
type onHosts struct{ allowed []host }

func (h onHosts) judge(raw json.RawMessage, _ *steps) string { return ofText(raw, h.check) }

func (h onHosts) check(url string) string {
	scheme, rest, ok := strings.Cut(url, "://")
	own, known := ports[strings.ToLower(scheme)]
	if !ok || !known {
		return "is not a URL with http, https, ws or wss"
	}
	// Some readers drop tabs and line breaks, and take a backslash for a slash.
	if strings.ContainsFunc(url, func(r rune) bool { return r <= ' ' || r == '\\' || r == 0x7f }) {
		return "has a blank, a backslash or a control character"
	}
	where, after := rest, ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		where, after = rest[:i], rest[i:]
	}
	m := authority.FindStringSubmatch(where)
	// Where no slash follows the host, some read on up to an @.
	if m == nil || after != "" && after[0] != '/' && strings.Contains(after, "@") {
		return "is not a URL whose host is plain to see"
	}
	name, port := strings.ToLower(m[1]), m[2]
	if port == "" {
		port = own
	}
	for _, may := range h.allowed {
		if may.matches(name, port, own) {
			return ""
		}
	}
	return "is not a URL of a host that it may be of"
}

func (h host) matches(name, port, own string) bool {
	want := h.port
	if want == "" {
		want = own
	}
	if want != port {
		return false
	}
	if h.sub {
		sub, ok := strings.CutSuffix(name, "."+h.name)
		return ok && !strings.Contains("."+sub+".", "..")
	}
	return name == h.name
}
