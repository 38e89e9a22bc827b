package daemon

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/keys"
	"github.com/countersign-mcp/countersign/approvals/ledger"
	"github.com/countersign-mcp/countersign/cmd/countersign/internal/config"
	"github.com/countersign-mcp/countersign/cmd/countersign/internal/e2e/testservers"
)

func TestMain(m *testing.M) {
	testservers.Main() // a child that is an upstream never returns
	os.Exit(m.Run())
}

const token = "token-of-the-agent"

// scene is one directory with a configuration that is right. A test changes
// what it is about.
type scene struct {
	t         *testing.T
	dir       string
	upstream  *testservers.Upstream
	Store     string // configuration of the store
	MCP       string // address, and the like
	Webhook   string
	Admin     string
	Key       string
	Data      string
	Ledger    string
	Tokens    string
	Callback  string
	More      string
	Env       string // a variable of the upstream
	Upstream2 bool   // another upstream beside it
}

const goodPolicy = `version: 2
tools:
  judge/read_thing: read
  judge/do_thing: destructive
routes:
  default: {channels: [link:olga], approvers: [olga], timeout: 1m}
`

func newScene(t *testing.T) *scene {
	t.Helper()
	sum := sha256.Sum256([]byte(token))
	s := &scene{
		t: t, dir: t.TempDir(), upstream: testservers.NewUpstream(t),
		Store: "store: ephemeral", MCP: "127.0.0.1:0", Webhook: "127.0.0.1:0", Admin: "127.0.0.1:0",
		Key: keys.NewSecret().Reveal(), Data: "data", Ledger: "ledger", Callback: "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=",
		Tokens: fmt.Sprintf("[{sha256: %s, actor: ana@acme.test}]", hex.EncodeToString(sum[:])),
	}
	s.write("policy.yaml", goodPolicy)
	return s
}

func (s *scene) write(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func (s *scene) config() *config.Config {
	s.t.Helper()
	quoted := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			s.t.Fatal(err)
		}
		return string(b)
	}
	cfg, err := config.Parse(fmt.Appendf(nil, `
data_dir: %s
%s
keys: {current: %s}
mcp: {listen: %s, hold: 20s, stdio: {actor: ana@acme.test}, auth: {tokens: %s}}
webhook: {listen: %s, public_url: "http://127.0.0.1:1"}
admin: {listen: %s}
ledger: {dir: %s}
upstreams: {judge: {command: %s, env: %s}%s}
people: {ana: {actors: [ana@acme.test]}, olga: {}}
tickets: {desk: {inbound: {scheme: standard-webhooks, secrets: [%s]}}}
%s`,
		quoted(filepath.Join(s.dir, s.Data)), s.Store, quoted(s.Key), quoted(s.MCP), s.Tokens, quoted(s.Webhook), quoted(s.Admin),
		quoted(s.Ledger), quoted(s.upstream.Command()), quoted(s.env()), s.beside(), quoted(s.Callback), s.More), s.dir)
	if err != nil {
		s.t.Fatal(err)
	}
	return cfg
}

func (s *scene) env() map[string]string {
	env := s.upstream.Env(false)
	env["COUNTERSIGN_TEST_TOKEN"] = s.Env
	return env
}

func (s *scene) beside() string {
	if !s.Upstream2 {
		return ""
	}
	return ", other: {command: [true]}"
}

// asked is where links of the scene's policy go.
type asked struct {
	once sync.Once
	got  chan struct{} // closed at the first
}

func newAsked() *asked { return &asked{got: make(chan struct{})} }

func (a *asked) sink(context.Context, string, string, approvals.Ticket) error {
	a.once.Do(func() { close(a.got) })
	return nil
}

func (s *scene) options(a *asked) Options {
	o := Options{Version: "test", Log: slog.New(slog.DiscardHandler)}
	if a != nil {
		o.Links = a.sink
	}
	return o
}

// start is a daemon that serves. The test stops it.
func (s *scene) start(o Options) *Daemon {
	s.t.Helper()
	d, err := New(s.config(), o)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := d.Start(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	return d
}

// within is a context of the test with an end.
func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func (s *scene) stop(d *Daemon) {
	s.t.Helper()
	if err := d.Stop(within(s.t, 30*time.Second)); err != nil {
		s.t.Error(err)
	}
}

func (s *scene) client(d *Daemon) *testservers.HTTP {
	s.t.Helper()
	c := testservers.NewHTTP("http://"+d.Addrs().MCP+"/mcp", token, testservers.Modern)
	if _, err := c.Initialize(within(s.t, 20*time.Second)); err != nil {
		s.t.Fatal(err)
	}
	return c
}

// taken is an address that somebody else listens on, until the test is over.
func taken(t *testing.T) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	return ln.Addr().String()
}

// open counts this process's files and sockets, where that can be known.
func open(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(list)
}

// closedLedgers fails unless nobody holds a ledger file any more: each can be
// adopted, and is whole.
func closedLedgers(t *testing.T, dir string) int {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	dead, err := ledger.Adopt(dir)
	if err != nil {
		t.Error(err)
	}
	for _, d := range dead {
		d.Release()
	}
	if len(dead) != len(files) {
		t.Errorf("%d of %d ledger files are still held", len(files)-len(dead), len(files))
	}
	for _, f := range files {
		if rep, err := ledger.ReadFile(f, func(ledger.Record) error { return nil }); err != nil || rep.Kind != ledger.OK {
			t.Errorf("%s: %+v, %v", f, rep, err)
		}
	}
	return len(files)
}

// When something is wrong half way, all that was opened before is closed again:
// no goroutine, no port, no ledger is left, and once it is put right the same
// directory starts.
func TestNewClosesWhatItOpened(t *testing.T) {
	for name, spoil := range map[string]struct {
		with func(s *scene) (mend func())
		says string
	}{
		"no key": {func(s *scene) func() {
			good := s.Key
			s.Key = "c2hvcnQ="
			return func() { s.Key = good }
		}, "keygen"},
		"no policy": {func(s *scene) func() {
			if err := os.Remove(filepath.Join(s.dir, "policy.yaml")); err != nil {
				s.t.Fatal(err)
			}
			return func() { s.write("policy.yaml", goodPolicy) }
		}, "reading the policy"},
		"bad policy": {func(s *scene) func() {
			s.write("policy.yaml", "version: 2\ntools: {judge/do_thing: dangerous}\n")
			return func() { s.write("policy.yaml", goodPolicy) }
		}, "policy.yaml:2: a tier is"},
		"an approver who is nobody": {func(s *scene) func() {
			s.write("policy.yaml", strings.ReplaceAll(goodPolicy, "approvers: [olga]", "approvers: [otto]"))
			return func() { s.write("policy.yaml", goodPolicy) }
		}, "otto"},
		"data_dir is a file": {func(s *scene) func() {
			s.write("file", "")
			s.Data = "file"
			return func() { s.Data = "data" }
		}, "data_dir"},
		"the ledger's directory is a file": {func(s *scene) func() {
			s.write("file", "")
			s.Ledger = filepath.Join(s.dir, "file")
			return func() { s.Ledger = "ledger" }
		}, "ledger"},
		"the ledger can't be written": {func(s *scene) func() {
			s.Ledger = "/proc/self/countersign" // nobody can make anything there, root neither
			return func() { s.Ledger = "ledger" }
		}, "ledger"},
		"a listener for everybody and no token": {func(s *scene) func() {
			good := s.Tokens
			s.MCP, s.Tokens = "0.0.0.0:0", "[]"
			return func() { s.MCP, s.Tokens = "127.0.0.1:0", good }
		}, "token"},
		"mcp port taken": {func(s *scene) func() {
			s.MCP = taken(s.t)
			return func() { s.MCP = "127.0.0.1:0" }
		}, "mcp"},
		"webhook port taken": {func(s *scene) func() {
			s.Webhook = taken(s.t)
			return func() { s.Webhook = "127.0.0.1:0" }
		}, "webhook"},
		"admin port taken": {func(s *scene) func() {
			s.Admin = taken(s.t)
			return func() { s.Admin = "127.0.0.1:0" }
		}, "admin"},
		"a Redis that may lose claims": {func(s *scene) func() {
			s.Store = `redis: {url: "redis://127.0.0.1:1/0?master_name=m"}`
			return func() { s.Store = "store: ephemeral" }
		}, "accept_lost_claims"},
		"a callback's secret that is none": {func(s *scene) func() {
			good := s.Callback
			s.Callback = "whsec_short"
			return func() { s.Callback = good }
		}, "desk"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			links := newAsked()
			before := goleak.IgnoreCurrent()
			mend := spoil.with(s)
			if name == "the ledger can't be written" {
				if _, err := os.Stat("/proc/self"); err != nil {
					t.Skip("no /proc here")
				}
			}
			files := open(t)
			for range 3 { // the order of the ports is by chance
				d, err := New(s.config(), s.options(links))
				if err == nil {
					_ = d.Stop(t.Context())
					t.Fatal("it started")
				}
				if d != nil || !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(spoil.says)) {
					t.Errorf("%v", err)
				}
			}
			closedLedgers(t, filepath.Join(s.dir, "data", "ledger"))
			mend()
			goleak.VerifyNone(t, before)
			if n := open(t); n > files {
				t.Errorf("%d files or ports are left open", n-files)
			}
			d := s.start(s.options(links))
			s.stop(d)
			goleak.VerifyNone(t, before)
			if n := closedLedgers(t, filepath.Join(s.dir, "data", "ledger")); n == 0 {
				t.Error("there is no ledger")
			}
		})
	}
}
