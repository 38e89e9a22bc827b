package testservers

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Era is a generation of the protocol.
type Era string

// The two eras that the tests speak.
const (
	Legacy Era = "2025-11-25"
	Modern Era = "2026-07-28"
)

// Extra is what may go along with a call. The zero value is a plain call.
type Extra struct {
	Progress string          // progress token; "" asks for none
	Meta     json.RawMessage // members for _meta, as a JSON object
	Token    string          // bearer token instead of the client's own
	ID       json.RawMessage // request id instead of a fresh number
	Caps     json.RawMessage // client capabilities of this request (modern); default {}
	Header   http.Header     // set on the HTTP request after our own
	On       func(Frame)     // called for each frame as it arrives, from the call's goroutine
}

// Frame is one message from the server.
type Frame struct {
	Event string // SSE's event name; "" when it didn't come by SSE
	ID    string // SSE's id
	Data  json.RawMessage
	After time.Duration // since the request was sent
}

// Method is the method of a notification or request, "" for an answer.
func (f Frame) Method() string {
	var m struct {
		Method string `json:"method"`
	}
	_ = json.Unmarshal(f.Data, &m) // a frame that isn't JSON has no method
	return m.Method
}

// Reply is all that came back for one request.
type Reply struct {
	Result json.RawMessage // the bytes as sent; nil with Error
	Error  json.RawMessage
	ID     json.RawMessage // of the answer
	Frames []Frame         // in order of arrival, the answer last

	// HTTP only.
	Status   int
	Header   http.Header
	Body     []byte // raw, SSE framing included
	Comments int    // SSE comments, which keep a held call's connection alive
	Headers  time.Duration
	Took     time.Duration
}

// Progress lists the params of the progress notifications, in order.
func (r Reply) Progress() []json.RawMessage {
	var out []json.RawMessage
	for _, f := range r.Frames {
		if f.Method() != "notifications/progress" {
			continue
		}
		var m struct {
			Params json.RawMessage `json:"params"`
		}
		if json.Unmarshal(f.Data, &m) == nil {
			out = append(out, m.Params)
		}
	}
	return out
}

// IsError says whether the result is one of a tool that failed.
func (r Reply) IsError() bool {
	var m struct {
		IsError bool `json:"isError"`
	}
	return json.Unmarshal(r.Result, &m) == nil && m.IsError
}

// Text joins the result's text blocks, or is the error's message.
func (r Reply) Text() string {
	var m struct {
		Content []struct {
			Text string `json:"text"`
		} `json:"content"`
		Message string `json:"message"`
	}
	raw := r.Result
	if r.Error != nil {
		raw = r.Error
	}
	_ = json.Unmarshal(raw, &m) // what has no text has no text
	var parts []string
	for _, c := range m.Content {
		parts = append(parts, c.Text)
	}
	if m.Message != "" {
		parts = append(parts, m.Message)
	}
	return strings.Join(parts, "\n")
}

// Code is the error's code, 0 without an error.
func (r Reply) Code() int {
	var m struct {
		Code int `json:"code"`
	}
	_ = json.Unmarshal(r.Error, &m) // no error, no code
	return m.Code
}

// Reason is the error's data.reason.
func (r Reply) Reason() string {
	var m struct {
		Data struct {
			Reason string `json:"reason"`
		} `json:"data"`
	}
	_ = json.Unmarshal(r.Error, &m) // no error, no reason
	return m.Data.Reason
}

// Approval is what the gate says of the call's approval.
type Approval struct {
	ID           string `json:"id"`
	Status       string `json:"status"`
	ExpiresAt    any    `json:"expires_at"`
	RetryAfterMS int    `json:"retry_after_ms"`
}

// Approval reads _meta["countersign/approval"] of the result, the zero value
// without one.
func (r Reply) Approval() Approval {
	var m struct {
		Meta struct {
			Approval Approval `json:"countersign/approval"`
		} `json:"_meta"`
	}
	_ = json.Unmarshal(r.Result, &m)
	return m.Meta.Approval
}

// Tools lists the names in a tools/list result.
func (r Reply) Tools() []string {
	var m struct {
		Tools []struct {
			Name string `json:"name"`
		} `json:"tools"`
	}
	_ = json.Unmarshal(r.Result, &m)
	var out []string
	for _, t := range m.Tools {
		out = append(out, t.Name)
	}
	return out
}

// answer takes the answer out of a frame and reports whether it was one.
func (r *Reply) answer(data json.RawMessage) bool {
	var m struct {
		Method string          `json:"method"`
		ID     json.RawMessage `json:"id"`
		Result json.RawMessage `json:"result"`
		Error  json.RawMessage `json:"error"`
	}
	if json.Unmarshal(data, &m) != nil || m.Method != "" || m.Result == nil && m.Error == nil {
		return false
	}
	r.ID, r.Result, r.Error = m.ID, m.Result, m.Error
	return true
}

const clientInfo = `{"name":"e2e","version":"1"}`

// request builds the bytes of a request. params is an object without _meta.
func request(era Era, id json.RawMessage, method string, params json.RawMessage, x Extra) ([]byte, error) {
	var meta []string
	if era == Modern {
		caps := x.Caps
		if caps == nil {
			caps = json.RawMessage(`{}`)
		}
		meta = append(meta,
			fmt.Sprintf(`"io.modelcontextprotocol/protocolVersion":%q`, string(era)),
			`"io.modelcontextprotocol/clientInfo":`+clientInfo,
			`"io.modelcontextprotocol/clientCapabilities":`+string(caps))
	}
	if x.Progress != "" {
		token, err := json.Marshal(x.Progress)
		if err != nil {
			return nil, fmt.Errorf("encoding the progress token: %w", err)
		}
		meta = append(meta, `"progressToken":`+string(token))
	}
	if own := inner(x.Meta); own != "" {
		meta = append(meta, own)
	}
	body := inner(params)
	if len(meta) > 0 {
		if body != "" {
			body += ","
		}
		body += `"_meta":{` + strings.Join(meta, ",") + `}`
	}
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"method":%q,"params":{%s}}`, id, method, body), nil
}

// inner is an object's text between its braces.
func inner(obj json.RawMessage) string {
	s := strings.TrimSpace(string(obj))
	return strings.TrimSpace(strings.TrimSuffix(strings.TrimPrefix(s, "{"), "}"))
}

// callParams keeps the argument bytes as they are.
func callParams(name string, args json.RawMessage) (json.RawMessage, error) {
	n, err := json.Marshal(name)
	if err != nil {
		return nil, fmt.Errorf("encoding the tool's name: %w", err)
	}
	if args == nil {
		args = json.RawMessage(`{}`)
	}
	return json.RawMessage(`{"name":` + string(n) + `,"arguments":` + string(args) + `}`), nil
}

// method and tool of a request, for the headers that mirror them.
func mirrored(body []byte) (method, name string) {
	var m struct {
		Method string `json:"method"`
		Params struct {
			Name string `json:"name"`
		} `json:"params"`
	}
	_ = json.Unmarshal(body, &m) // a malformed body has nothing to mirror
	return m.Method, m.Params.Name
}

// initializeParams is what a client of the older era says first.
func initializeParams() json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"protocolVersion":%q,"capabilities":{},"clientInfo":%s}`, string(Legacy), clientInfo))
}
