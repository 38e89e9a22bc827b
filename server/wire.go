package server

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/countersign-mcp/countersign/server/gate"
)

// JSON-RPC and MCP error codes.
const (
	codeParse              = -32700
	codeInvalidRequest     = -32600
	codeMethodNotFound     = -32601
	codeInvalidParams      = -32602
	codeInternal           = -32603
	codeHeaderMismatch     = -32020
	codeMissingCapability  = -32021
	codeUnsupportedVersion = -32022
)

func failure(code int, message string) *gate.Error { return &gate.Error{Code: code, Message: message} }

// errorBytes is an error member. An upstream's own goes out as it came.
func errorBytes(e *gate.Error) json.RawMessage {
	if len(e.Raw) > 0 {
		return e.Raw
	}
	b := append([]byte(`{"code":`), strconv.Itoa(e.Code)...)
	b = append(b, `,"message":`...)
	b = append(b, quote(e.Message)...)
	if len(e.Data) > 0 {
		b = append(b, `,"data":`...)
		b = append(b, e.Data...)
	}
	return append(b, '}')
}

// quote writes a JSON string without the HTML escapes of json.Marshal.
func quote(s string) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string always encodes
	return bytes.TrimRight(b.Bytes(), "\n")
}

// responseFrame is one line: line breaks between tokens (inside strings they can
// only be escaped) become spaces.
func responseFrame(id json.RawMessage, a gate.Answer) []byte {
	if len(id) == 0 {
		id = json.RawMessage("null")
	}
	b := append([]byte(`{"jsonrpc":"2.0","id":`), id...)
	if a.Error != nil {
		b = append(b, `,"error":`...)
		b = append(b, errorBytes(a.Error)...)
	} else {
		b = append(b, `,"result":`...)
		b = append(b, a.Result...)
	}
	return flat(append(b, '}'))
}

func notificationFrame(method string, params json.RawMessage) []byte {
	b := append([]byte(`{"jsonrpc":"2.0","method":`), quote(method)...)
	b = append(b, `,"params":`...)
	b = append(b, params...)
	return flat(append(b, '}'))
}

func flat(b []byte) []byte {
	for i, c := range b {
		if c == '\n' || c == '\r' {
			b[i] = ' '
		}
	}
	return b
}

// httpStatus is for the answer to a well-formed request that nothing was streamed
// before. Older clients read 404 as a lost session and 400 as a broken transport,
// so for them it is always 200.
func httpStatus(modern bool, e *gate.Error) int {
	if e == nil || !modern {
		return http.StatusOK
	}
	switch e.Code {
	case codeMethodNotFound:
		return http.StatusNotFound
	case codeInvalidParams, codeInvalidRequest, codeHeaderMismatch, codeMissingCapability, codeUnsupportedVersion:
		return http.StatusBadRequest
	}
	return http.StatusOK
}

// problem writes a refusal that is about HTTP and not about a message.
func problem(w http.ResponseWriter, status int, detail string) {
	b := append([]byte(`{"title":`), quote(http.StatusText(status))...)
	b = append(b, `,"status":`...)
	b = append(b, strconv.Itoa(status)...)
	b = append(b, `,"detail":`...)
	b = append(b, quote(detail)...)
	b = append(b, '}')
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(b) // a client that is gone can't be told
}
