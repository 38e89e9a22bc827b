package server

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/server/gate"
)

// The version that began the stateless era, and the one that a request without a
// version header is taken for.
const (
	modernVersion  = "2026-07-28"
	assumedVersion = "2025-03-26"
)

// supportedVersions, newest first.
var supportedVersions = []string{modernVersion, "2025-11-25", "2025-06-18", assumedVersion, "2024-11-05"}

// Members of _meta that belong to the era and not to the call.
const (
	metaVersion      = "io.modelcontextprotocol/protocolVersion"
	metaClientInfo   = "io.modelcontextprotocol/clientInfo"
	metaCapabilities = "io.modelcontextprotocol/clientCapabilities"
	metaLogLevel     = "io.modelcontextprotocol/logLevel"
	metaProgress     = "progressToken"
)

func modern(version string) bool { return version >= modernVersion }

// claim is what a request says of itself in _meta.
type claim struct {
	version string // "" when _meta has none
	client  string
}

// readClaim reads the era's members without judging the version. A version that
// is not a string could be read as one era here and as the other elsewhere, so it
// is refused.
func readClaim(meta json.RawMessage) (claim, *gate.Error) {
	var c claim
	raw, ok := action.Member(meta, metaVersion)
	if !ok {
		return c, nil
	}
	if c.version, ok = action.Text(raw); !ok || c.version == "" {
		return c, failure(codeInvalidParams, fmt.Sprintf("missing or invalid _meta field %q", metaVersion))
	}
	if info, ok := action.Member(meta, metaClientInfo); ok {
		name, _ := action.Member(info, "name")
		c.client, _ = action.Text(name)
	}
	return c, nil
}

// checkTriple judges the members that a 2026-07-28 request must carry.
func checkTriple(meta json.RawMessage, c claim) *gate.Error {
	if c.version == "" {
		return failure(codeInvalidParams, fmt.Sprintf("missing or invalid _meta field %q", metaVersion))
	}
	if !slices.Contains(supportedVersions, c.version) {
		return unsupportedVersion(c.version)
	}
	if caps, _ := action.Member(meta, metaCapabilities); len(caps) == 0 || caps[0] != '{' {
		return failure(codeInvalidParams, fmt.Sprintf("missing or invalid _meta field %q", metaCapabilities))
	}
	if info, ok := action.Member(meta, metaClientInfo); ok {
		if name, has := action.Member(info, "name"); info[0] != '{' || (has && !isText(name)) {
			return failure(codeInvalidParams, fmt.Sprintf("invalid _meta field %q", metaClientInfo))
		}
	}
	return nil
}

func isText(raw json.RawMessage) bool {
	_, ok := action.Text(raw)
	return ok
}

func unsupportedVersion(requested string) *gate.Error {
	data, err := json.Marshal(map[string]any{"supported": supportedVersions, "requested": requested})
	if err != nil {
		data = nil // strings always encode
	}
	return &gate.Error{Code: codeUnsupportedVersion, Message: "unsupported protocol version", Data: data}
}

func initializeClient(params json.RawMessage) string {
	info, _ := action.Member(params, "clientInfo")
	name, _ := action.Member(info, "name")
	s, _ := action.Text(name)
	return s
}
