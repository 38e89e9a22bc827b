package e2e

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/approvals/keys"
	"github.com/countersign-mcp/countersign/approvals/store/redistest"
	"github.com/countersign-mcp/countersign/cmd/countersign/internal/e2e/testservers"
	"github.com/countersign-mcp/countersign/notifier/slacktest"
)

// People and tokens of every rig. Ana asks through her agent; Olga and Oskar are
// on call; Mallory is in the channel and on no route.
const (
	anaToken     = "token-of-anas-agent"
	botToken     = "token-of-another-agent"
	olgaAdmin    = "admin-token-of-olga"
	channel      = "C0APPROVALS"
	anaSlack     = "U0ANA"
	olgaSlack    = "U0OLGA"
	oskarSlack   = "U0OSKAR"
	mallorySlack = "U0MALLORY"
	deskSecret   = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
)

// rig is one namespace on a Redis, one Slack, one upstream that judges, and any
// number of gates.
type rig struct {
	t         testing.TB
	dir       string
	slack     *slacktest.Slack
	redis     *redistest.Server
	upstream  *testservers.Upstream
	key       string
	namespace string
	redisURL  string // what gates are told; a test may put a proxy here before start
	o         rigOptions
}

// rigOptions change what gates are configured with. Zero means the defaults
// below, which suit tests: short leases, a hold long enough to click.
type rigOptions struct {
	Hold     time.Duration // default 20 s
	Timeout  time.Duration // of the route; default 60 s
	ClaimTTL time.Duration
	Lease    time.Duration // default 3 s
	Exec     time.Duration
	Quorum   int
	Modern   bool              // the upstream speaks 2026-07-28
	Own      bool              // a Redis of its own, which the test may kill
	Route    string            // more keys of the route, one a line, indented by four
	Config   string            // more configuration, appended
	Tokens   string            // more mcp.auth.tokens, one a line, indented by six
	People   string            // more people, one a line, indented by two
	Policy   string            // instead of the policy below
	Upstream map[string]string // more environment for the upstream
	Beside   string            // more upstreams, in flow style, each after a comma

	// Edit changes a gate's whole configuration last, where the above can't.
	Edit func(config string) string
}

func newRig(t testing.TB, o rigOptions) *rig {
	t.Helper()
	if shared == nil {
		t.Skip("no redis-server on the PATH")
	}
	r := &rig{
		t: t, dir: t.TempDir(), slack: slacktest.New(t), upstream: testservers.NewUpstream(t), redis: shared,
		key: keys.NewSecret().Reveal(), namespace: "t" + rand.Text()[:12], o: o,
	}
	if o.Own {
		r.redis = redistest.Start(t)
	}
	r.redisURL = r.redis.URL()
	for _, u := range []string{anaSlack, olgaSlack, oskarSlack, mallorySlack} {
		r.slack.AddUser(slacktest.User{ID: u})
	}
	r.slack.AddChannel(slacktest.Channel{ID: channel})
	r.write("policy.yaml", r.policy())
	return r
}

func (r *rig) write(name, text string) string {
	r.t.Helper()
	path := filepath.Join(r.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
	return path
}

func (r *rig) policy() string {
	if r.o.Policy != "" {
		return r.o.Policy
	}
	return fmt.Sprintf(`version: 2
tools:
  judge/read_thing: read
  judge/do_thing: {tier: destructive, title: "Do thing {n}"}
routes:
  default:
    channels: [slack:%s]
    approvers: [group:ops]
    quorum: %d
    timeout: %s
    allow_requester: false
%s`, channel, max(r.o.Quorum, 1), or(r.o.Timeout, time.Minute), r.o.Route)
}

func or(d, otherwise time.Duration) time.Duration {
	if d == 0 {
		return otherwise
	}
	return d
}

func quoted(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func hash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// config is one gate's configuration. Gates of a rig share the data directory of
// their name only.
func (r *rig) config(name string) string {
	claim, exec := or(r.o.ClaimTTL, time.Hour), or(r.o.Exec, time.Minute)
	edit := r.o.Edit
	if edit == nil {
		edit = func(config string) string { return config }
	}
	return r.write(name+".yaml", edit(fmt.Sprintf(`
data_dir: %s
policy: policy.yaml
redis: {url: %s, namespace: %s}
keys: {current: %s}
mcp:
  listen: 127.0.0.1:0
  hold: %s
  stdio: {actor: ana@acme.test}
  auth:
    tokens:
      - {sha256: %s, actor: ana@acme.test}
      - {sha256: %s, actor: bot@acme.test}
%s
webhook: {listen: "127.0.0.1:0", public_url: "http://127.0.0.1:1"}
admin: {listen: "127.0.0.1:0", tokens: [{sha256: %s, person: olga}]}
approvals: {claim_ttl: %s, exec_timeout: %s, lease: %s, notify_lease: 2s}
upstreams: {judge: {command: %s, env: %s}%s}
slack: {bot_token: %s, signing_secrets: [%s], api_url: %s}
people:
  ana: {actors: [ana@acme.test], slack: %s, desk: ana}
  bob: {actors: [bot@acme.test]}
  olga: {slack: %s, desk: olga}
  oskar: {slack: %s, desk: oskar}
%s
groups: {ops: [ana, olga, oskar]}
tickets: {desk: {inbound: {scheme: standard-webhooks, secrets: [%s]}}}
%s`,
		quoted(filepath.Join(r.dir, name+"-data")), quoted(r.redisURL), r.namespace, quoted(r.key),
		or(r.o.Hold, 20*time.Second), hash(anaToken), hash(botToken), r.o.Tokens, hash(olgaAdmin),
		claim, exec, or(r.o.Lease, 3*time.Second), quoted(r.upstream.Command()), quoted(r.env()), r.o.Beside,
		quoted(r.slack.BotToken), quoted(r.slack.SigningSecret()), quoted(r.slack.URL()),
		anaSlack, olgaSlack, oskarSlack, r.o.People, deskSecret, r.o.Config)))
}

func (r *rig) env() map[string]string {
	env := r.upstream.Env(r.o.Modern)
	for k, v := range r.o.Upstream {
		env[k] = v
	}
	return env
}

// verify checks every ledger file of the rig's gates.
func (r *rig) verify() {
	r.t.Helper()
	dirs, _ := filepath.Glob(filepath.Join(r.dir, "*-data", "ledger"))
	if len(dirs) == 0 {
		r.t.Fatal("there is no ledger")
	}
	out, errs, code := countersign(within(r.t, 20*time.Second), nil, append([]string{"ledger", "verify"}, dirs...)...)
	if code != 0 && code != 3 { // a kill may leave a torn line
		r.t.Errorf("ledger verify: exit %d\n%s%s", code, out, errs)
	}
}

// records reads all ledger lines of the rig as maps, in the files' order.
func (r *rig) records() []map[string]any {
	r.t.Helper()
	files, _ := filepath.Glob(filepath.Join(r.dir, "*-data", "ledger", "*.jsonl"))
	var out []map[string]any
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			r.t.Fatal(err)
		}
		for line := range strings.SplitSeq(string(b), "\n") {
			var m map[string]any
			if line != "" && json.Unmarshal([]byte(line), &m) == nil {
				out = append(out, m)
			}
		}
	}
	return out
}

// card waits for the only card of an approval that is open in the channel.
func (r *rig) card() slacktest.Message {
	r.t.Helper()
	m, err := r.slack.WaitMessage(within(r.t, 20*time.Second), channel, func(m slacktest.Message) bool { return len(m.Buttons()) > 0 })
	if err != nil {
		r.t.Fatal(err)
	}
	return m
}

// settled waits until a card has no buttons and holds every word.
func (r *rig) settled(ts string, words ...string) slacktest.Message {
	r.t.Helper()
	m, err := r.slack.WaitMessage(within(r.t, 20*time.Second), channel, func(m slacktest.Message) bool {
		if m.TS != ts || len(m.Buttons()) > 0 {
			return false
		}
		for _, w := range words {
			if !strings.Contains(m.Plain(), w) && !strings.Contains(m.Text, w) {
				return false
			}
		}
		return true
	})
	if err != nil {
		now, _ := r.slack.Message(channel, ts)
		r.t.Fatalf("the card never said %q: %v\nit says: %s\n%s", words, err, now.Text, now.Plain())
	}
	return m
}

// click is one person's tap on a card.
func (r *rig) click(user, ts, verdict string) slacktest.Answer {
	r.t.Helper()
	return r.slack.Click(within(r.t, 20*time.Second), slacktest.Click{User: user, Channel: channel, TS: ts, Verdict: verdict})
}

// answer of a call that runs in the background.
type answer struct {
	testservers.Reply
	err error
}

// call starts do_thing and gives its answer later.
func call(c testservers.Client, do testservers.Do, x testservers.Extra) <-chan answer {
	out := make(chan answer, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
		defer cancel()
		r, err := c.Call(ctx, "do_thing", do.Args(), x)
		out <- answer{r, err}
	}()
	return out
}

// await is the answer, or the end of the test.
func await(t testing.TB, c <-chan answer) testservers.Reply {
	t.Helper()
	select {
	case a := <-c:
		if a.err != nil {
			t.Fatalf("the call failed: %v", a.err)
		}
		return a.Reply
	case <-time.After(90 * time.Second):
		t.Fatal("the call was never answered")
	}
	panic("unreachable")
}

// within is a context that ends with the test, or after d.
func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// withAddr is the URL of a Redis, or a proxy, at an address.
func withAddr(t testing.TB, addr string) string {
	t.Helper()
	u := url.URL{Scheme: "redis", Host: addr, Path: "/0"}
	return u.String()
}
