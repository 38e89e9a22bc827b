package server

import (
	"context"
	"fmt"
	"net"
)

// OpenListenerError says that a listener off loopback was refused because nobody
// could authenticate to it, so that it would either serve no one or, after a slip
// elsewhere, everyone.
type OpenListenerError struct{ Addr string }

func (e *OpenListenerError) Error() string {
	return fmt.Sprintf("%s is reachable from other machines and no token is configured: add mcp.auth, or listen on 127.0.0.1", e.Addr)
}

// Validate refuses, with an [*OpenListenerError], an address off loopback when
// nobody can authenticate. Call it before listening and before a reload that
// takes tokens away.
func Validate(addr string, auth Authenticator) error {
	if canAuthenticate(auth) || loopbackAddr(addr) {
		return nil
	}
	return &OpenListenerError{Addr: addr}
}

// Listen validates addr and listens on it (TCP). What the name resolved to is
// checked once more.
func (s *Server) Listen(ctx context.Context, addr string) (net.Listener, error) {
	if err := Validate(addr, s.cfg.Auth); err != nil {
		return nil, err
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen for MCP: %w", err)
	}
	if err := Validate(ln.Addr().String(), s.cfg.Auth); err != nil {
		_ = ln.Close()
		return nil, err
	}
	return ln, nil
}

func canAuthenticate(auth Authenticator) bool {
	if auth == nil {
		return false
	}
	if t, ok := auth.(*Tokens); ok {
		return t.Len() > 0
	}
	return true
}

// loopbackAddr tells whether a listen address stays on this machine. An empty
// host means all interfaces; of names only localhost is known to stay.
func loopbackAddr(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
