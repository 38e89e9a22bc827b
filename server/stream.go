package server

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/countersign-mcp/countersign/server/gate"
)

// httpStream answers one POST: one JSON body, or an event stream from the first
// thing that had to be sent before the answer.
type httpStream struct {
	w      http.ResponseWriter
	rc     *http.ResponseController
	limit  time.Duration // for one write
	modern bool
	sse    bool
}

func (h *httpStream) commit() {
	if h.sse {
		return
	}
	h.sse = true
	head := h.w.Header()
	head.Set("Content-Type", "text/event-stream")
	head.Set("Cache-Control", "no-cache, no-transform")
	head.Set("X-Accel-Buffering", "no")
	h.w.WriteHeader(http.StatusOK)
}

// write sends bytes now, under a deadline of their own.
func (h *httpStream) write(parts ...string) error {
	extend(h.rc, h.limit)
	for _, p := range parts {
		if _, err := h.w.Write([]byte(p)); err != nil {
			return err
		}
	}
	return h.flush()
}

func (h *httpStream) flush() error {
	err := h.rc.Flush()
	if isUnsupported(err) {
		return nil // a recorder, or a middleware that buffers: it is sent at the end
	}
	return err
}

func (h *httpStream) comment() error {
	h.commit()
	return h.write(": waiting\n\n")
}

func (h *httpStream) event(frame []byte) error {
	h.commit()
	return h.write("event: message\ndata: ", string(frame), "\n\n")
}

func (h *httpStream) notify(method string, params json.RawMessage) error {
	return h.event(notificationFrame(method, params))
}

func (h *httpStream) answer(id json.RawMessage, a gate.Answer) error {
	if h.sse {
		return h.event(responseFrame(id, a))
	}
	return h.json(httpStatus(h.modern, a.Error), id, a)
}

func (h *httpStream) json(status int, id json.RawMessage, a gate.Answer) error {
	extend(h.rc, h.limit)
	h.w.Header().Set("Content-Type", "application/json")
	h.w.Header().Set("Cache-Control", "no-store")
	h.w.WriteHeader(status)
	_, err := h.w.Write(responseFrame(id, a))
	return err
}

// silent ends without an answer: an event stream with no event is the one body
// that says nothing.
func (h *httpStream) silent() { h.commit() }
