package server

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
)

// hostList are the Host headers that are served. A page that rebinds a name of
// its own to this machine sends that name, and gets nothing.
type hostList struct{ names map[string]bool }

func newHostList(hosts []string) (hostList, error) {
	l := hostList{names: map[string]bool{}}
	for _, h := range hosts {
		h = strings.ToLower(strings.TrimSpace(h))
		if h == "" || strings.ContainsAny(h, "/*@ ") {
			return l, fmt.Errorf("allowed host %q is not a name or name:port", h)
		}
		l.names[h] = true
	}
	return l, nil
}

// CheckNames says what New would refuse of Config.AllowedHosts and
// Config.AllowedOrigins.
func CheckNames(hosts, origins []string) error {
	_, hostFault := newHostList(hosts)
	_, originFault := newOrigins(origins)
	return errors.Join(hostFault, originFault)
}

func (l hostList) allows(host string) bool {
	host = strings.ToLower(host)
	if l.names[host] {
		return true
	}
	name, ok := hostName(host)
	if !ok {
		return false
	}
	if name == "localhost" || l.names[name] {
		return true
	}
	ip := net.ParseIP(name)
	return ip != nil && ip.IsLoopback()
}

// hostName is a Host header without its port and brackets.
func hostName(host string) (string, bool) {
	if name, _, err := net.SplitHostPort(host); err == nil {
		return name, name != ""
	}
	if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		return host[1 : len(host)-1], true
	}
	if host == "" || strings.ContainsAny(host, ":[]") {
		return "", false
	}
	return host, true
}

func newOrigins(list []string) (map[string]bool, error) {
	out := map[string]bool{}
	for _, o := range list {
		u, err := url.Parse(o)
		if err != nil || u.Scheme == "" || u.Host == "" || u.Path != "" || u.RawQuery != "" || u.User != nil {
			return nil, fmt.Errorf("allowed origin %q is not scheme://host[:port]", o)
		}
		out[strings.ToLower(o)] = true
	}
	return out, nil
}

// originAllowed: no Origin at all (not a page), a configured one, or the one of
// the host that was asked, whose name has been checked before.
func (s *Server) originAllowed(r *http.Request) bool {
	origins := r.Header.Values("Origin")
	switch len(origins) {
	case 0:
		return true
	case 1:
	default:
		return false
	}
	o := strings.ToLower(origins[0])
	if s.origins[o] {
		return true
	}
	host := strings.ToLower(r.Host)
	return o == "http://"+host || o == "https://"+host
}
