package testservers

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// serve answers every POST with what script writes.
func serve(t *testing.T, script func(w http.ResponseWriter, r *http.Request, body []byte)) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		script(w, r, b)
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

func TestHTTPReadsAStreamInOrder(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		fmt.Fprint(w, ": keepalive\n\n")
		fmt.Fprint(w, "event: message\nid: 1\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\ndata: \"params\":{\"progress\":1}}\n\n")
		fmt.Fprint(w, "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32602,\"message\":\"no\",\"data\":{\"reason\":\"frozen\"}}}\n\n")
	})
	var seen []string
	r, err := NewHTTP(url, "tok", Modern).Call(t.Context(), "do_thing", json.RawMessage(`{"n":1}`), Extra{On: func(f Frame) { seen = append(seen, f.Method()) }})
	if err != nil {
		t.Fatal(err)
	}
	if r.Code() != -32602 || r.Reason() != "frozen" || r.Text() != "no" || r.Comments != 1 || len(r.Frames) != 2 {
		t.Errorf("reply %+v", r)
	}
	if r.Frames[0].ID != "1" || len(r.Progress()) != 1 || len(seen) != 2 || seen[0] != "notifications/progress" {
		t.Errorf("frames %+v, seen %q", r.Frames, seen)
	}
}

func TestHTTPFindsABrokenStream(t *testing.T) {
	for name, tail := range map[string]string{
		"unframed JSON": `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no"}}` + "\n\n",
		"half a line":   `data: {"jsonrpc"`,
		"no answer":     ": keepalive\n\n",
		"half an event": `data: {"jsonrpc":"2.0","id":1,"result":{}}` + "\n",
	} {
		url := serve(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, ": keepalive\n\n"+tail)
		})
		r, err := NewHTTP(url, "", Modern).Call(t.Context(), "x", nil, Extra{})
		if err == nil {
			t.Errorf("%s: no error; result %s", name, r.Result)
		}
		if name == "no answer" && !errors.Is(err, ErrNoAnswer) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestHTTPSpeaksBothEras(t *testing.T) {
	var got []*http.Request
	var bodies []string
	url := serve(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
		got, bodies = append(got, r), append(bodies, string(body))
		if strings.Contains(string(body), "notifications/") {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Mcp-Session-Id", "s-1")
		fmt.Fprint(w, `{"jsonrpc":"2.0","id":1,"result":{"n":9007199254740993}}`)
	})
	c := NewHTTP(url, "secret", Legacy)
	if _, err := c.Initialize(t.Context()); err != nil {
		t.Fatal(err)
	}
	args := `{"a" : 1.0,"b":9007199254740993}`
	r, err := c.Call(t.Context(), "do_thing", json.RawMessage(args), Extra{Progress: "p", Meta: json.RawMessage(`{"countersign/idempotency-key":"k"}`)})
	if err != nil || string(r.Result) != `{"n":9007199254740993}` || r.Status != 200 {
		t.Fatalf("reply %+v, %v", r, err)
	}
	last := got[2]
	if last.Header.Get("Mcp-Session-Id") != "s-1" || last.Header.Get("Authorization") != "Bearer secret" ||
		last.Header.Get("Mcp-Protocol-Version") != "2025-11-25" || last.Header.Get("Mcp-Method") != "" {
		t.Errorf("headers %v", last.Header)
	}
	if got[0].Header.Get("Mcp-Protocol-Version") != "" || got[0].Header.Get("Mcp-Session-Id") != "" {
		t.Errorf("initialize has headers of a session: %v", got[0].Header)
	}
	want := `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"do_thing","arguments":` + args +
		`,"_meta":{"progressToken":"p","countersign/idempotency-key":"k"}}}`
	if bodies[2] != want {
		t.Errorf("body\n%s\nwant\n%s", bodies[2], want)
	}

	m := NewHTTP(url, "", Modern)
	if _, err := m.Call(t.Context(), "do_thing", nil, Extra{Token: "other", Header: http.Header{"Origin": {"https://evil.test"}}}); err != nil {
		t.Fatal(err)
	}
	last = got[3]
	if last.Header.Get("Mcp-Method") != "tools/call" || last.Header.Get("Mcp-Name") != "do_thing" || last.Header.Get("Mcp-Session-Id") != "" ||
		last.Header.Get("Authorization") != "Bearer other" || last.Header.Get("Origin") != "https://evil.test" {
		t.Errorf("headers %v", last.Header)
	}
	if !json.Valid([]byte(bodies[3])) || !strings.Contains(bodies[3], `"io.modelcontextprotocol/protocolVersion":"2026-07-28"`) {
		t.Errorf("body %s", bodies[3])
	}
}

func TestReplyReadsTheGatesWords(t *testing.T) {
	r := Reply{Result: json.RawMessage(`{"isError":true,"content":[{"type":"text","text":"Waiting"},{"type":"text","text":"for ana"}],
		"_meta":{"countersign/approval":{"id":"apr-1","status":"pending","retry_after_ms":5000}}}`)}
	if a := r.Approval(); a.ID != "apr-1" || a.Status != "pending" || a.RetryAfterMS != 5000 {
		t.Errorf("approval %+v", a)
	}
	if !r.IsError() || r.Text() != "Waiting\nfor ana" || r.Code() != 0 {
		t.Errorf("reply %q", r.Text())
	}
}
