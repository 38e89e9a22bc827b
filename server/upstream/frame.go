package upstream

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"

	"github.com/countersign-mcp/countersign/approvals/action"
)

// The members of _meta that belong to one hop: a caller's are not the
// upstream's.
const (
	metaVersion      = "io.modelcontextprotocol/protocolVersion"
	metaClientInfo   = "io.modelcontextprotocol/clientInfo"
	metaCapabilities = "io.modelcontextprotocol/clientCapabilities"
	metaLogLevel     = "io.modelcontextprotocol/logLevel"
	metaProgress     = "progressToken"
)

// era is what every request to a modern upstream says of its sender.
type era struct{ version, clientInfo, capabilities json.RawMessage }

// params puts our own members into _meta. All other bytes stay as they are.
func (p *peer) params(params json.RawMessage, token string, progress bool) (json.RawMessage, error) {
	if len(bytes.TrimSpace(params)) == 0 {
		params = json.RawMessage(`{}`)
	}
	meta, had := action.Member(params, "_meta")
	if !had {
		meta = json.RawMessage(`{}`)
	}
	if len(meta) == 0 || meta[0] != '{' {
		return nil, errMeta
	}
	for _, name := range []string{metaVersion, metaClientInfo, metaCapabilities, metaLogLevel, metaProgress} {
		meta = action.DropMember(meta, name)
	}
	if progress {
		meta = action.SetMember(meta, metaProgress, quote(token))
	}
	if p.modern != "" {
		meta = action.SetMember(meta, metaVersion, p.triple.version)
		meta = action.SetMember(meta, metaClientInfo, p.triple.clientInfo)
		meta = action.SetMember(meta, metaCapabilities, p.triple.capabilities)
	}
	if string(bytes.TrimSpace(meta)) == "{}" {
		if had {
			params = action.DropMember(params, "_meta")
		}
		return params, nil
	}
	return action.SetMember(params, "_meta", meta), nil
}

var errMeta = errors.New("_meta is not an object")

func quote(s string) json.RawMessage {
	b, err := json.Marshal(s)
	if err != nil {
		panic("upstream: a string always encodes: " + err.Error())
	}
	return b
}

// line makes one line of a frame. A line break can stand only between tokens
// (in a string it is escaped), where a space means the same.
func line(parts ...[]byte) []byte {
	out := bytes.Join(parts, nil)
	for i, c := range out {
		if c == '\n' || c == '\r' {
			out[i] = ' '
		}
	}
	return append(out, '\n')
}

func requestLine(id, method string, params json.RawMessage) []byte {
	return line([]byte(`{"jsonrpc":"2.0","id":`), quote(id), []byte(`,"method":`), quote(method),
		[]byte(`,"params":`), params, []byte(`}`))
}

func noticeLine(method string, params json.RawMessage) []byte {
	return line([]byte(`{"jsonrpc":"2.0","method":`), quote(method), []byte(`,"params":`), params, []byte(`}`))
}

func resultLine(id, result json.RawMessage) []byte {
	return line([]byte(`{"jsonrpc":"2.0","id":`), id, []byte(`,"result":`), result, []byte(`}`))
}

func errorLine(id json.RawMessage, code int, message string) []byte {
	return line([]byte(`{"jsonrpc":"2.0","id":`), id, []byte(`,"error":{"code":`), strconv.AppendInt(nil, int64(code), 10),
		[]byte(`,"message":`), quote(message), []byte(`}}`))
}

// cancel tells the upstream that nobody waits for the answer any more.
func (p *peer) cancel(id string) {
	params := json.RawMessage(`{"requestId":` + string(quote(id)) + `}`)
	if p.modern != "" {
		meta := json.RawMessage(`{}`)
		meta = action.SetMember(meta, metaVersion, p.triple.version)
		params = action.SetMember(params, "_meta", meta)
	}
	p.send(noticeLine("notifications/cancelled", params))
}
