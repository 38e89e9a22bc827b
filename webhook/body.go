package webhook

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/labstack/echo/v4"
)

// readRaw reads a body once, up to limit bytes.
func readRaw(c echo.Context, limit int64) ([]byte, error) {
	r := c.Request()
	if len(r.Header.Values("Content-Encoding")) > 0 {
		return nil, problem(http.StatusUnsupportedMediaType, "content-encoding", "send the body uncompressed")
	}
	body, err := io.ReadAll(http.MaxBytesReader(c.Response(), r.Body, limit))
	var tooBig *http.MaxBytesError
	if errors.As(err, &tooBig) {
		return nil, problem(http.StatusRequestEntityTooLarge, "too-large", fmt.Sprintf("a body is at most %d bytes", limit))
	}
	if err != nil {
		return nil, problem(http.StatusBadRequest, "unreadable", "the body ended early")
	}
	return body, nil
}

// mediaType tells whether the one Content-Type is want.
func mediaType(r *http.Request, want string) bool {
	v := r.Header.Values("Content-Type")
	if len(v) != 1 {
		return false
	}
	got, _, err := mime.ParseMediaType(v[0])
	return err == nil && got == want
}

// noQuery refuses a query string: no signature covers it.
func noQuery(r *http.Request) error {
	if r.URL.RawQuery != "" || r.URL.ForceQuery {
		return problem(http.StatusBadRequest, "query", "this address takes no query string")
	}
	return nil
}

// oneHeader is the value of a header that is there exactly once.
func oneHeader(h http.Header, name string) (string, bool) {
	v := h.Values(name)
	if len(v) != 1 || v[0] == "" {
		return "", false
	}
	return v[0], true
}

var errNotObject = errors.New("not a JSON object")

// members are the members of a JSON object, by their exact names.
type members map[string]json.RawMessage

// strictObject reads one JSON object that means the same to every decoder: no
// duplicate names at any depth, valid UTF-8, nothing after it, no byte order
// mark.
func strictObject(b []byte) (members, error) {
	if !jsontext.Value(b).IsValid() {
		return nil, errNotObject
	}
	m, ok := object(bytes.TrimSpace(b))
	if !ok {
		return nil, errNotObject
	}
	return m, nil
}

// object splits a value that strictObject has checked.
func object(raw json.RawMessage) (members, bool) {
	if len(raw) == 0 || raw[0] != '{' {
		return nil, false
	}
	var m members
	err := json.Unmarshal(raw, &m)
	return m, err == nil
}

// object is the member's value when it is an object.
func (m members) object(name string) (members, bool) { return object(m[name]) }

// text is the member's value when it is a string; absent is "".
func (m members) text(name string) (string, bool) {
	raw, there := m[name]
	if !there {
		return "", true
	}
	if len(raw) == 0 || raw[0] != '"' {
		return "", false
	}
	var s string
	err := json.Unmarshal(raw, &s)
	return s, err == nil
}

// must is the member's value when it is a string that is not empty.
func (m members) must(name string) (string, bool) {
	s, ok := m.text(name)
	return s, ok && s != ""
}

// absent tells whether a member is missing or null.
func (m members) absent(name string) bool {
	raw, there := m[name]
	return !there || string(raw) == "null"
}

const reasonRunes = 500

// cleanReason makes a person's words one plain line of at most 500 characters.
func cleanReason(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	s = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case approvals.Invisible(r):
			return -1 // controls, and what turns or hides text
		}
		return r
	}, s)
	s = strings.Join(strings.Fields(s), " ")
	if utf8.RuneCountInString(s) > reasonRunes {
		s = string([]rune(s)[:reasonRunes-1]) + "…"
	}
	return s
}

// elements splits an array of a value that strictObject has checked.
func elements(raw json.RawMessage) ([]json.RawMessage, bool) {
	if len(raw) == 0 || raw[0] != '[' {
		return nil, false
	}
	var out []json.RawMessage
	err := json.Unmarshal(raw, &out)
	return out, err == nil
}
