package webhook

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"
)

// The caps of bodies, in bytes.
const (
	SlackBodyLimit    = 1 << 20
	CallbackBodyLimit = 64 << 10
	PageBodyLimit     = 8 << 10
	AdminBodyLimit    = 64 << 10
)

// NewServer is an http.Server with the timeouts and sizes that both handlers are
// made for. None of their requests is long.
func NewServer(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       15 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       60 * time.Second,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}

// Handler is the webhook listener's: POST /slack/interactions, POST
// /callbacks/{source}, and GET, HEAD and POST /a/{token}. What is not configured
// is not mounted.
func (s *Server) Handler() http.Handler {
	e := s.echo()
	if s.cfg.Slack != nil {
		e.POST("/slack/interactions", s.slackInteraction)
	}
	e.POST("/callbacks/:source", s.callback) // a reload may add a source
	if s.cfg.Links != nil {
		e.GET("/a/:token", s.linkShow)
		e.HEAD("/a/:token", s.linkShow)
		e.POST("/a/:token", s.linkDecide)
	}
	return e
}

// AdminHandler is the admin listener's: /healthz, /readyz, /metrics and the
// operators' API under /v1/.
func (s *Server) AdminHandler() http.Handler {
	e := s.echo()
	e.Use(s.requireToken)
	e.GET("/healthz", s.health(s.cfg.Health))
	e.GET("/readyz", s.health(s.cfg.Ready))
	if s.cfg.Metrics != nil {
		e.GET("/metrics", echo.WrapHandler(s.cfg.Metrics))
	}
	if s.cfg.Desk != nil {
		e.GET("/v1/approvals", s.adminList)
		e.GET("/v1/approvals/:id", s.adminShow)
		e.POST("/v1/approvals/:id/decision", s.adminDecide)
		e.POST("/v1/approvals/:id/revoke", s.adminRevoke)
		e.POST("/v1/approvals/:id/resolve", s.adminResolve)
	}
	return e
}

func (s *Server) echo() *echo.Echo {
	e := echo.New()
	e.HideBanner, e.HidePort = true, true
	e.Logger.SetOutput(discard{}) // everything worth saying goes through slog
	e.HTTPErrorHandler = s.handleError
	e.IPExtractor = s.ipExtractor()
	e.Use(s.requestID, s.requestLog(), s.recover, s.checkHost)
	return e
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
