package server

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/countersign-mcp/countersign/approvals/action"
)

// serveHTTP is the front door: what can be told without reading the message, in
// an order that tells a stranger nothing about what is behind it.
func (s *Server) serveHTTP(w http.ResponseWriter, r *http.Request) {
	rc := http.NewResponseController(w)
	extend(rc, s.cfg.WriteLimit)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if !s.hosts.allows(r.Host) {
		problem(w, http.StatusForbidden, "this Host is not served here")
		return
	}
	if !s.originAllowed(r) {
		problem(w, http.StatusForbidden, "this Origin is not allowed")
		return
	}
	actor, ok := s.authenticate(w, r)
	if !ok {
		return
	}
	front, ok := s.front(r.URL.Path)
	if !ok {
		problem(w, http.StatusNotFound, "nothing is served at this path")
		return
	}
	if !s.begin() {
		w.Header().Set("Retry-After", "1")
		problem(w, http.StatusServiceUnavailable, "shutting down")
		return
	}
	defer s.calls.Done()
	switch r.Method {
	case http.MethodPost:
		slot := s.load.enter(actor.ID)
		if slot == nil {
			busy(w)
			return
		}
		defer slot.leave()
		until, leave, ok := s.admit(r, actor)
		if !ok {
			refuseToken(w, r)
			return
		}
		defer leave()
		s.servePost(w, r, rc, slot, caller{actor: actor, front: front, until: until})
	case http.MethodDelete:
		s.serveDelete(w, r, actor, front)
	default:
		w.Header().Set("Allow", "POST, DELETE")
		problem(w, http.StatusMethodNotAllowed, "use POST; there is no stream to GET")
	}
}

// authenticate never falls back to anybody: no token and a wrong one are the same
// 401.
func (s *Server) authenticate(w http.ResponseWriter, r *http.Request) (action.Actor, bool) {
	if token, ok := bearer(r.Header.Values("Authorization")); ok && s.cfg.Auth != nil {
		if a, ok := s.cfg.Auth.Authenticate(r.Context(), token); ok && a.ID != "" {
			return a, true
		}
	}
	refuseToken(w, r)
	return action.Actor{}, false
}

func refuseToken(w http.ResponseWriter, r *http.Request) {
	challenge := `Bearer realm="countersign"`
	if len(r.Header.Values("Authorization")) > 0 {
		challenge += `, error="invalid_token"`
	}
	w.Header().Set("WWW-Authenticate", challenge)
	problem(w, http.StatusUnauthorized, "a valid bearer token is needed")
}

func bearer(heads []string) (string, bool) {
	if len(heads) != 1 {
		return "", false
	}
	scheme, token, ok := strings.Cut(heads[0], " ")
	token = strings.TrimSpace(token)
	return token, ok && strings.EqualFold(scheme, "bearer") && token != ""
}

// front is the upstream that a path names; "" for the one that serves all.
func (s *Server) front(path string) (string, bool) {
	if path == s.cfg.Path {
		return "", true
	}
	name, ok := strings.CutPrefix(path, s.cfg.Path+"/")
	if !ok || name == "" {
		return "", false
	}
	return name, slices.Contains(s.cfg.Gate.Fronts(), name)
}

// accepts judges the headers that say what the body is and what may come back.
func accepts(w http.ResponseWriter, r *http.Request) bool {
	types := r.Header.Values("Content-Type")
	media := ""
	if len(types) == 1 {
		media, _, _ = mime.ParseMediaType(types[0])
	}
	if media != "application/json" || len(r.Header.Values("Content-Encoding")) > 0 {
		problem(w, http.StatusUnsupportedMediaType, "the body must be application/json, not encoded")
		return false
	}
	var js, events bool
	for _, v := range r.Header.Values("Accept") {
		for part := range strings.SplitSeq(v, ",") {
			base, _, _ := strings.Cut(part, ";")
			switch strings.ToLower(strings.TrimSpace(base)) {
			case "application/json", "application/*":
				js = true
			case "text/event-stream", "text/*":
				events = true
			case "*/*":
				js, events = true, true
			}
		}
	}
	if !js || !events {
		problem(w, http.StatusBadRequest, "Accept must list application/json and text/event-stream")
		return false
	}
	return true
}

// body reads the message whole, within its size and time.
func (s *Server) body(w http.ResponseWriter, r *http.Request, rc *http.ResponseController, on *slot) ([]byte, bool) {
	limit := int64(s.cfg.Limits.Bytes)
	// net/http lifts the deadline when the body has been read to its end.
	_ = rc.SetReadDeadline(time.Now().Add(s.cfg.ReadLimit)) // not every writer has one
	b, err := io.ReadAll(counted{http.MaxBytesReader(w, r.Body, limit), on})
	tooBig := (*http.MaxBytesError)(nil)
	switch {
	case err == nil:
		return b, true
	case errors.As(err, &tooBig):
		problem(w, http.StatusRequestEntityTooLarge, "the message is too long")
	case errors.Is(err, errActorFull):
		busy(w)
	case errors.Is(err, errFull):
		w.Header().Set("Retry-After", "1")
		problem(w, http.StatusServiceUnavailable, "too much is in flight here; try again soon")
	default:
		problem(w, http.StatusBadRequest, "the body could not be read")
	}
	return nil, false
}

// extend gives the next write its own time, whatever the server's WriteTimeout.
func extend(rc *http.ResponseController, d time.Duration) {
	_ = rc.SetWriteDeadline(time.Now().Add(d)) // not every writer has one
}

func isUnsupported(err error) bool { return errors.Is(err, http.ErrNotSupported) }
