package webhook

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"runtime"
	"strings"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
)

const requestIDKey = "countersign.request"

// requestID gives each request an id of ours. An id that a client sent is not
// repeated: it would be a stranger's text in our log.
func (s *Server) requestID(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		var b [10]byte
		rand.Read(b[:])
		id := hex.EncodeToString(b[:])
		c.Set(requestIDKey, id)
		c.Response().Header().Set("X-Request-Id", id)
		return next(c)
	}
}

func requestIDOf(c echo.Context) string {
	id, _ := c.Get(requestIDKey).(string)
	return id
}

// requestLog logs the route and never the URI: a link's token is in the path.
func (s *Server) requestLog() echo.MiddlewareFunc {
	return middleware.RequestLoggerWithConfig(middleware.RequestLoggerConfig{
		LogRoutePath: true, LogMethod: true, LogStatus: true, LogLatency: true, LogRemoteIP: true,
		HandleError: true,
		LogValuesFunc: func(c echo.Context, v middleware.RequestLoggerValues) error {
			route := v.RoutePath
			if route == "" {
				route = "(none)"
			}
			s.log.LogAttrs(c.Request().Context(), slog.LevelInfo, "request",
				slog.String("request", requestIDOf(c)), slog.String("method", v.Method), slog.String("route", route),
				slog.Int("status", v.Status), slog.Duration("took", v.Latency), slog.String("ip", v.RemoteIP))
			return nil
		},
	})
}

// recover turns a panic into a 500. The panic's value is not logged, since it may
// hold what a person sent; its type and place are.
func (s *Server) recover(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) (err error) {
		defer func() {
			r := recover()
			if r == nil {
				return
			}
			if r == http.ErrAbortHandler {
				panic(r)
			}
			stack := make([]byte, 4<<10)
			stack = stack[:runtime.Stack(stack, false)]
			s.log.Error("panic in a handler", "request", requestIDOf(c), "type", fmt.Sprintf("%T", r), "stack", frames(stack))
			err = echo.NewHTTPError(http.StatusInternalServerError)
		}()
		return next(c)
	}
}

// frames keeps the file:line lines of a stack: the others print arguments.
func frames(stack []byte) []string {
	var out []string
	for line := range strings.Lines(string(stack)) {
		if strings.HasPrefix(line, "\t") {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return out
}

// checkHost refuses a Host that is not ours (DNS rebinding) and an Origin that is
// not ours (another site's page).
func (s *Server) checkHost(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		if !s.hostAllowed(r) {
			s.cfg.Observe("any", "foreign_host")
			return problem(http.StatusForbidden, "foreign-host", "")
		}
		if !s.originAllowed(r) {
			s.cfg.Observe("any", "foreign_origin")
			return problem(http.StatusForbidden, "foreign-origin", "")
		}
		return next(c)
	}
}

func (s *Server) hostAllowed(r *http.Request) bool {
	if s.hosts[normalHost(r.Host)] {
		return true
	}
	return loopbackHost(hostname(r.Host)) && onLoopback(r)
}

func (s *Server) originAllowed(r *http.Request) bool {
	values := r.Header.Values("Origin")
	if len(values) == 0 {
		return true
	}
	if len(values) > 1 {
		return false
	}
	if s.origin != "" && values[0] == s.origin {
		return true
	}
	u, err := url.Parse(values[0])
	return err == nil && u.Scheme == "http" && u.Host == r.Host && loopbackHost(u.Hostname()) && onLoopback(r)
}

// onLoopback tells whether the request came in on a loopback address.
func onLoopback(r *http.Request) bool {
	addr, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return false
	}
	ap, err := netip.ParseAddrPort(addr.String())
	return err == nil && ap.Addr().Unmap().IsLoopback()
}

func loopbackHost(name string) bool {
	if strings.EqualFold(name, "localhost") {
		return true
	}
	a, err := netip.ParseAddr(name)
	return err == nil && a.Unmap().IsLoopback()
}

func hostname(hostport string) string {
	u := url.URL{Host: hostport}
	return u.Hostname()
}

// normalHost lowers a Host value and drops the port that its scheme implies.
func normalHost(h string) string {
	h = strings.ToLower(h)
	h = strings.TrimSuffix(h, ":443")
	return strings.TrimSuffix(h, ":80")
}

// originHost is u's host as a browser writes it in an Origin.
func originHost(u *url.URL) string {
	h := strings.ToLower(u.Host)
	if u.Scheme == "https" {
		return strings.TrimSuffix(h, ":443")
	}
	return strings.TrimSuffix(h, ":80")
}

func (s *Server) ipExtractor() echo.IPExtractor {
	if len(s.cfg.TrustedProxies) == 0 {
		return echo.ExtractIPDirect()
	}
	opts := []echo.TrustOption{echo.TrustLoopback(false), echo.TrustLinkLocal(false), echo.TrustPrivateNet(false)}
	for _, p := range s.cfg.TrustedProxies {
		p = p.Masked()
		bits := p.Addr().BitLen()
		opts = append(opts, echo.TrustIPRange(&net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), bits)}))
	}
	return echo.ExtractIPFromXFFHeader(opts...)
}
