package gate

import (
	"encoding/json"
	"strings"
	"testing"
)

// seen is an answer as a client would read it.
type seen struct {
	Content []struct{ Type, Text string }
	IsError bool
	Meta    map[string]struct {
		ID, Status string
		Expires    string `json:"expires_at"`
		Retry      int    `json:"retry_after_ms"`
	} `json:"_meta"`
}

func read(t *testing.T, a Answer) seen {
	t.Helper()
	if a.Error != nil {
		t.Fatalf("an error: %d %s %s %s", a.Error.Code, a.Error.Message, a.Error.Data, a.Error.Raw)
	}
	var s seen
	if err := json.Unmarshal(a.Result, &s); err != nil {
		t.Fatalf("%v: %s", err, a.Result)
	}
	return s
}

func (s seen) status() string { return s.Meta[metaApproval].Status }
func (s seen) text() string {
	var all []string
	for _, c := range s.Content {
		all = append(all, c.Text)
	}
	return strings.Join(all, "\n")
}

func wantRefusal(t *testing.T, a Answer, code int, reason string) {
	t.Helper()
	if a.Error == nil {
		t.Fatalf("no error but %s", a.Result)
	}
	var d struct{ Reason string }
	_ = json.Unmarshal(a.Error.Data, &d)
	if a.Error.Code != code || d.Reason != reason {
		t.Fatalf("refused with %d %s (%s), want %d %s", a.Error.Code, a.Error.Data, a.Error.Message, code, reason)
	}
}

func wantEnd(t *testing.T, a Answer, status string) seen {
	t.Helper()
	s := read(t, a)
	if !s.IsError || s.status() != status || !strings.HasPrefix(s.text(), "Not an argument error; do not vary the call.") {
		t.Fatalf("got %s, want the end %s", a.Result, status)
	}
	return s
}
