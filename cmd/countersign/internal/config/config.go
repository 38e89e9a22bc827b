// Package config reads countersign.yaml. The file is strict: an unknown or
// doubled key, an unset variable and a value of the wrong kind are errors with
// the line they stand on. Every default is the safe one; reference.yaml lists
// all keys with their defaults and is what `countersign config --defaults`
// prints.
package config

import "time"

// Config is the whole file. Load returns it validated.
type Config struct {
	DataDir   string              `yaml:"data_dir"`
	MCP       MCP                 `yaml:"mcp"`
	Webhook   Webhook             `yaml:"webhook"`
	Admin     Admin               `yaml:"admin"`
	Redis     Redis               `yaml:"redis"`
	Store     string              `yaml:"store"` // "" or "ephemeral"
	Keys      Keys                `yaml:"keys"`
	Approvals Approvals           `yaml:"approvals"`
	Policy    string              `yaml:"policy"` // path, relative to the configuration file
	Pins      Pins                `yaml:"pins"`
	Ledger    Ledger              `yaml:"ledger"`
	Upstreams map[string]Upstream `yaml:"upstreams"`
	Slack     *Slack              `yaml:"slack"`
	People    map[string]Person   `yaml:"people"`
	Groups    map[string][]string `yaml:"groups"`
	Tickets   map[string]Ticket   `yaml:"tickets"`

	dir string // of the file; relative paths start here
}

// MCP is the side that agents connect to.
type MCP struct {
	Listen         string                   `yaml:"listen"`
	Path           string                   `yaml:"path"`
	AllowedHosts   []string                 `yaml:"allowed_hosts"`
	AllowedOrigins []string                 `yaml:"allowed_origins"`
	Hold           time.Duration            `yaml:"hold"`
	Holds          map[string]time.Duration `yaml:"holds"`
	RefusalStyle   string                   `yaml:"refusal_style"` // "result" or "error"
	CollectTool    bool                     `yaml:"collect_tool"`
	SessionIdle    time.Duration            `yaml:"session_idle"`
	MaxInFlight    int                      `yaml:"max_in_flight"` // requests of one actor at once, over HTTP
	Stdio          Stdio                    `yaml:"stdio"`
	Auth           Auth                     `yaml:"auth"`
}

// Stdio is who calls over standard input: this cannot be verified, so it is
// stated here and recorded as such.
type Stdio struct {
	Actor  string   `yaml:"actor"`
	Roles  []string `yaml:"roles"`
	Owners []string `yaml:"owners"`
}

// Auth is how callers over HTTP prove who they are.
type Auth struct {
	Tokens []Token `yaml:"tokens"`
}

// Token is one caller's bearer token, by its SHA-256 in hex.
type Token struct {
	SHA256 string   `yaml:"sha256"`
	Actor  string   `yaml:"actor"`
	Roles  []string `yaml:"roles"`
	Owners []string `yaml:"owners"` // people answerable for a service actor; they count as requesters
}

// Webhook is the side that people and other systems answer to.
type Webhook struct {
	Listen         string   `yaml:"listen"`
	PublicURL      string   `yaml:"public_url"`
	TrustedProxies []string `yaml:"trusted_proxies"` // CIDRs
}

// Admin is the operators' side.
type Admin struct {
	Listen string       `yaml:"listen"`
	Tokens []AdminToken `yaml:"tokens"`
}

// AdminToken is one operator's bearer token, by its SHA-256 in hex.
type AdminToken struct {
	SHA256 string `yaml:"sha256"`
	Person string `yaml:"person"`
}

// Redis is where approvals are parked.
type Redis struct {
	URL              Secret `yaml:"url"` // a secret, since it may carry a password
	Namespace        string `yaml:"namespace"`
	WaitReplicas     int    `yaml:"wait_replicas"`
	AcceptNoAOF      bool   `yaml:"accept_no_aof"`
	AcceptLostClaims bool   `yaml:"accept_lost_claims"`
	AcceptUnchecked  bool   `yaml:"accept_unchecked"`
}

// Keys seal and sign everything; see package keys.
type Keys struct {
	Current  Secret   `yaml:"current"`
	Previous []Secret `yaml:"previous"`
}

// Approvals are the times of an approval after the decision.
type Approvals struct {
	ClaimTTL    time.Duration `yaml:"claim_ttl"`
	ExecTimeout time.Duration `yaml:"exec_timeout"`
	ResultTTL   time.Duration `yaml:"result_ttl"`
	DenyTTL     time.Duration `yaml:"deny_ttl"`
	Lease       time.Duration `yaml:"lease"`
	NotifyLease time.Duration `yaml:"notify_lease"`
}

// Pins say what the upstreams' tools were agreed to be.
type Pins struct {
	File     string        `yaml:"file"`      // path, relative to the configuration file
	FirstUse bool          `yaml:"first_use"` // what the file lacks is pinned as first seen
	MaxAge   time.Duration `yaml:"max_age"`   // of the list that an allowed call is compared with
	AskEvery time.Duration `yaml:"ask_every"` // at most, about one upstream's tools
}

// Ledger is where this machine's evidence is written.
type Ledger struct {
	Dir string `yaml:"dir"` // relative to data_dir
}

// Upstream is one MCP server behind the gate.
type Upstream struct {
	Command []string          `yaml:"command"`
	Dir     string            `yaml:"dir"` // absolute once loaded; empty: the directory we were started in
	Env     map[string]Secret `yaml:"env"`
}

// Slack is the app that asks in Slack.
type Slack struct {
	BotToken       Secret   `yaml:"bot_token"`
	SigningSecrets []Secret `yaml:"signing_secrets"`
	APIURL         string   `yaml:"api_url"`
}

// Person is one human with all their names.
type Person struct {
	Actors []string
	Slack  string
	// Names are the person's ids in ticketing systems, by the name of the
	// tickets entry.
	Names map[string]string

	lines map[string]int
}

// Ticket is one system that may send decisions back.
type Ticket struct {
	Inbound *Inbound `yaml:"inbound"`
}

// Inbound says how a callback proves where it comes from.
type Inbound struct {
	Scheme  string   `yaml:"scheme"` // "standard-webhooks"
	Secrets []Secret `yaml:"secrets"`
}
