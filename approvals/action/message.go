package action

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// members are the parts of a message as they were found, before it is known what
// kind of message it is.
type members struct {
	version, id, method, params, result, errorObject json.RawMessage
	name, args, meta                                 json.RawMessage
}

// Names that decide what a message is, and what the gate and the protocol read
// of its params. Keys are folded, values are as written.
var (
	envelopeNames = byFold("jsonrpc", "id", "method", "params", "result", "error")
	paramNames    = byFold("name", "arguments", "_meta", "uri", "cursor", "task", "taskId",
		"requestState", "inputResponses", "progressToken", "requestId", "protocolVersion",
		"capabilities", "clientInfo", "ref", "argument", "context", "level", "reason", "notifications")
)

// byFold holds every name as written and folded, so that a name that only looks
// like one of them is told from the name itself.
func byFold(names ...string) map[string]string {
	out := map[string]string{}
	for _, n := range names {
		a, _ := foldKeys(n)
		out[n], out[a] = n, n
	}
	return out
}

// envelope reads the value of one member of the message.
func (s *scan) envelope(m *members, name string, _ int) {
	switch name {
	case "jsonrpc":
		m.version = s.value(true)
	case "id":
		m.id = s.value(true)
	case "method":
		m.method = s.value(true)
	case "params":
		if s.dec.PeekKind() != '{' {
			m.params = s.value(true)
			s.refuse(CodeInvalidParams, "params is not an object")
			return
		}
		m.params = s.object(func(name string, _ int) { s.param(m, name) }, paramNames, true)
	case "result":
		m.result = s.value(false)
	case "error":
		m.errorObject = s.value(false)
	default:
		s.value(true)
	}
}

func (s *scan) param(m *members, name string) {
	v := s.value(true)
	switch name {
	case "name":
		m.name = v
	case "arguments":
		m.args = v
	case "_meta":
		m.meta = v
	}
}

// frame makes the message of its members, once all of them are known.
func (m *members) frame() (Frame, *Malformed) {
	invalid := func(reason string) (Frame, *Malformed) {
		return Frame{}, &Malformed{Code: CodeInvalidRequest, Reason: reason}
	}
	if v, ok := Text(m.version); !ok || v != "2.0" {
		return invalid(`jsonrpc is not "2.0"`)
	}
	if m.id != nil {
		if why := checkID(m.id); why != "" {
			return invalid(why)
		}
	}
	answer := m.result != nil || m.errorObject != nil
	switch {
	case m.method != nil && answer:
		return invalid("both a request and a response")
	case answer:
		return m.response()
	case m.method == nil:
		return invalid("neither method nor result nor error")
	}
	return m.request()
}

func (m *members) response() (Frame, *Malformed) {
	invalid := func(reason string) (Frame, *Malformed) {
		return Frame{}, &Malformed{Code: CodeInvalidRequest, Reason: reason}
	}
	switch {
	case m.result != nil && m.errorObject != nil:
		return invalid("a response with both result and error")
	case m.id == nil:
		return invalid("a response without an id")
	case m.errorObject != nil && m.errorObject[0] != '{':
		return invalid("error is not an object")
	}
	return Frame{Kind: Response, ID: m.id, Result: m.result, Error: m.errorObject}, nil
}

func (m *members) request() (Frame, *Malformed) {
	method, ok := Text(m.method)
	if !ok || method == "" {
		return Frame{}, &Malformed{Code: CodeInvalidRequest, Reason: "method is not a name"}
	}
	f := Frame{Kind: Request, ID: m.id, Method: method, Params: m.params, Args: m.args, Meta: m.meta}
	if m.id == nil {
		f.Kind = Notification
	}
	name, named := Text(m.name)
	if named {
		f.Name = name
	}
	params := func(reason string) (Frame, *Malformed) {
		return Frame{}, &Malformed{Code: CodeInvalidParams, Reason: reason}
	}
	if m.meta != nil && m.meta[0] != '{' {
		return params("_meta is not an object")
	}
	if method == "tools/call" {
		if name == "" {
			return params("a tools/call needs the tool's name")
		}
		if m.args != nil && m.args[0] != '{' {
			return params("arguments is not an object")
		}
	}
	return f, nil
}

// checkID says what is wrong with an id; "" when nothing is. An integer must fit
// 64 bits and be written in its one plain form: decoders disagree on the rest.
func checkID(id json.RawMessage) string {
	if len(id) == 0 {
		return "no id"
	}
	if id[0] == '"' {
		return ""
	}
	if bytes.ContainsAny(id, ".eE") || string(id) == "-0" {
		return "id is not a string or an integer"
	}
	if _, err := strconv.ParseInt(string(id), 10, 64); err != nil {
		return "id is not a string or an integer of 64 bits"
	}
	return ""
}
