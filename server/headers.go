package server

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"

	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/server/gate"
)

// Headers that mirror the body.
const (
	headVersion = "Mcp-Protocol-Version"
	headMethod  = "Mcp-Method"
	headName    = "Mcp-Name"
	headSession = "Mcp-Session-Id"
)

// one is a header that must not stand twice: two readers could take two values.
func one(h http.Header, name string) (value string, ok bool) {
	switch v := h.Values(name); len(v) {
	case 0:
		return "", true
	case 1:
		return v[0], true
	default:
		return "", false
	}
}

func mismatch(format string, args ...any) *gate.Error {
	return failure(codeHeaderMismatch, "header mismatch: "+fmt.Sprintf(format, args...))
}

// checkMirror judges the headers of a 2026-07-28 request against its body. The
// body alone decides what is done; the headers may only agree.
func checkMirror(h http.Header, f action.Frame) *gate.Error {
	method, ok := one(h, headMethod)
	switch {
	case !ok:
		return mismatch("%s is given twice", headMethod)
	case method == "":
		return mismatch("%s is missing", headMethod)
	case method != f.Method:
		return mismatch("%s is not the body's method", headMethod)
	}
	if f.Method != methodCall {
		return nil
	}
	raw, ok := one(h, headName)
	switch {
	case !ok:
		return mismatch("%s is given twice", headName)
	case raw == "":
		return mismatch("%s is missing", headName)
	}
	name, ok := decodeHeader(raw)
	switch {
	case !ok:
		return mismatch("%s is not a valid header value", headName)
	case name != f.Name:
		return mismatch("%s is not the body's params.name", headName)
	}
	return nil
}

// decodeHeader reads a value that is plain ASCII or base64 in the protocol's
// marks, whose case counts.
func decodeHeader(v string) (string, bool) {
	for i := range len(v) {
		if c := v[i]; (c < 0x20 && c != '\t') || c > 0x7e {
			return "", false
		}
	}
	enc, ok := strings.CutPrefix(v, "=?base64?")
	if !ok {
		return v, true
	}
	if enc, ok = strings.CutSuffix(enc, "?="); !ok {
		return v, true
	}
	b, err := base64.StdEncoding.Strict().DecodeString(enc)
	return string(b), err == nil
}
