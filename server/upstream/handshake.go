package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/countersign-mcp/countersign/approvals/action"
)

// The protocol versions that we speak to an upstream.
const (
	modernVersion = "2026-07-28"
	legacyVersion = "2025-11-25"
)

var legacyVersions = []string{"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"}

// codeVersion is the modern era's "unsupported protocol version". Whoever sends
// it is of that era, and speaks none of our versions.
const codeVersion = -32022

// identity is how a server describes itself.
type identity struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// handshake finds out which era the upstream is of: server/discover first, and
// initialize when that is answered with an error of any other kind, or not at
// all. No capability is declared, so the upstream has nothing to ask us.
func (p *peer) handshake(ctx context.Context, cfg Config) (Info, error) {
	self, err := json.Marshal(identity{Name: "countersign", Version: cfg.Version})
	if err != nil {
		return Info{}, fmt.Errorf("describing ourselves: %w", err)
	}
	p.modern = modernVersion
	p.triple = era{version: quote(modernVersion), clientInfo: self, capabilities: json.RawMessage(`{}`)}
	info, modern, err := p.discover(ctx, cfg)
	if err != nil || modern {
		return info, err
	}
	p.modern, p.triple = "", era{}
	return p.initialize(ctx, self)
}

// discover tells whether the upstream is of the modern era. An error means that
// it can't be used at all.
func (p *peer) discover(ctx context.Context, cfg Config) (Info, bool, error) {
	probe, cancel := context.WithTimeout(ctx, cfg.ProbeTimeout)
	defer cancel()
	raw, err := p.do(probe, Request{Method: "server/discover"})
	var fault *Fault
	switch {
	case err == nil:
	case errors.As(err, &fault) && fault.Code == codeVersion:
		return Info{}, false, fmt.Errorf("the upstream does not speak %s: %w", modernVersion, err)
	case errors.As(err, &fault):
		return Info{}, false, nil
	case ctx.Err() != nil || !p.alive():
		return Info{}, false, fmt.Errorf("probing the upstream: %w", err)
	default:
		return Info{}, false, nil // it did not answer the probe in time
	}
	var res struct {
		Versions     []string                   `json:"supportedVersions"`
		Instructions string                     `json:"instructions"`
		Meta         map[string]json.RawMessage `json:"_meta"`
	}
	if err := json.Unmarshal(raw, &res); err != nil || !slices.Contains(res.Versions, modernVersion) {
		return Info{}, false, nil
	}
	var self identity
	_ = json.Unmarshal(res.Meta["io.modelcontextprotocol/serverInfo"], &self) // optional
	return Info{
		Name: self.Name, Version: self.Version, Instructions: res.Instructions, Protocol: modernVersion, Capabilities: capabilities(raw),
	}, true, nil
}

func (p *peer) initialize(ctx context.Context, self json.RawMessage) (Info, error) {
	params := action.SetMember(json.RawMessage(`{}`), "protocolVersion", quote(legacyVersion))
	params = action.SetMember(params, "capabilities", json.RawMessage(`{}`))
	params = action.SetMember(params, "clientInfo", self)
	raw, err := p.do(ctx, Request{Method: "initialize", Params: params})
	if err != nil {
		return Info{}, fmt.Errorf("initializing the upstream: %w", err)
	}
	var res struct {
		Version      string   `json:"protocolVersion"`
		Server       identity `json:"serverInfo"`
		Instructions string   `json:"instructions"`
	}
	if err := json.Unmarshal(raw, &res); err != nil {
		return Info{}, fmt.Errorf("reading the upstream's answer to initialize: %w", err)
	}
	if !slices.Contains(legacyVersions, res.Version) {
		return Info{}, errors.New("the upstream answered initialize with a protocol version that we do not speak")
	}
	p.send(noticeLine("notifications/initialized", json.RawMessage(`{}`)))
	return Info{
		Name: res.Server.Name, Version: res.Server.Version, Instructions: res.Instructions, Protocol: res.Version, Capabilities: capabilities(raw),
	}, nil
}

// capabilities is that member of a handshake's answer, as it was sent.
func capabilities(answer json.RawMessage) json.RawMessage {
	c, ok := action.Member(answer, "capabilities")
	if !ok || action.TypeOf(c) != "object" {
		return nil
	}
	return bytes.Clone(c) // the answer's memory is large and lives as long
}
