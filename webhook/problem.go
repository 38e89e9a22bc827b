package webhook

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/labstack/echo/v4"
)

// Problem is an RFC 9457 problem detail, and the error of [Client].
type Problem struct {
	Type     string `json:"type"` // "/problems/NAME", or "about:blank"
	Title    string `json:"title"`
	Status   int    `json:"status"`
	Detail   string `json:"detail,omitempty"`
	Instance string `json:"instance,omitempty"` // "urn:request:ID", as in the log

	// Conflict and State say what an approval was found to be.
	Conflict approvals.Conflict `json:"conflict,omitempty"`
	State    approvals.State    `json:"state,omitempty"`
}

func (p *Problem) Error() string {
	if p.Detail == "" {
		return p.Title
	}
	return p.Title + ": " + p.Detail
}

// Unwrap lets errors.Is find the Conflict.
func (p *Problem) Unwrap() error {
	if p.Conflict == "" {
		return nil
	}
	return p.Conflict
}

// problem makes one; name is the last part of its type.
func problem(status int, name, detail string) *Problem {
	return &Problem{Type: "/problems/" + name, Title: http.StatusText(status), Status: status, Detail: detail}
}

// handleError is the only place that answers an error. What it doesn't know, it
// does not repeat.
func (s *Server) handleError(err error, c echo.Context) {
	if c.Response().Committed {
		return
	}
	var p *Problem
	var he *echo.HTTPError
	switch {
	case errors.As(err, &p):
	case errors.As(err, &he):
		p = &Problem{Type: "about:blank", Title: http.StatusText(he.Code), Status: he.Code}
	default:
		p = &Problem{Type: "about:blank", Title: http.StatusText(http.StatusInternalServerError), Status: http.StatusInternalServerError}
	}
	out := *p
	out.Instance = "urn:request:" + requestIDOf(c)
	h := c.Response().Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if out.Status == http.StatusServiceUnavailable {
		h.Set("Retry-After", "5")
	}
	body, _ := json.Marshal(out) // strings and a number
	c.Response().WriteHeader(out.Status)
	if c.Request().Method != http.MethodHead {
		_, _ = c.Response().Write(body)
	}
}
