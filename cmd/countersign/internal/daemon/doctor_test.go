package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/approvals/keys"
	"github.com/countersign-mcp/countersign/approvals/ledger"
	"github.com/countersign-mcp/countersign/approvals/store/redistest"
	"github.com/countersign-mcp/countersign/cmd/countersign/internal/config"
	"github.com/countersign-mcp/countersign/cmd/countersign/internal/e2e/testservers"
	"github.com/countersign-mcp/countersign/notifier/slacktest"
	"github.com/countersign-mcp/countersign/server/pins"
)

// clinic is a directory with a healthy configuration, its Redis and its Slack. A
// test spoils one thing.
type clinic struct {
	t     *testing.T
	dir   string
	redis *redistest.Server
	slack *slacktest.Slack
	up    *testservers.Upstream
	key   string
	at    time.Time

	Policy string
	Edit   func(config string) string
	Start  bool // start the upstream
	Mode   os.FileMode
}

const healthyPolicy = `version: 2
tools:
  judge/read_thing: read
  judge/do_thing: destructive
  judge/hidden_thing: deny
routes:
  default: {channels: [slack:C0APPROVALS], approvers: [olga, "slack-group:S0OPS"], timeout: 1m}
cases:
  - {name: doing, call: {tool: judge/do_thing}, want: review}
`

func newClinic(t *testing.T) *clinic {
	t.Helper()
	c := &clinic{
		t: t, dir: t.TempDir(), redis: redistest.Start(t), slack: slacktest.New(t), up: testservers.NewUpstream(t),
		key: keys.NewSecret().Reveal(), at: time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC), Policy: healthyPolicy, Mode: 0o600,
	}
	c.slack.AddUser(slacktest.User{ID: "U0OLGA"})
	c.slack.AddUser(slacktest.User{ID: "U0OSKAR"})
	c.slack.AddUserGroup(slacktest.UserGroup{ID: "S0OPS", Members: []string{"U0OSKAR"}})
	c.slack.AddChannel(slacktest.Channel{ID: "C0APPROVALS"})
	return c
}

func (c *clinic) write() string {
	c.t.Helper()
	quoted := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			c.t.Fatal(err)
		}
		return string(b)
	}
	text := fmt.Sprintf(`
data_dir: data
redis: {url: %s}
keys: {current: %s}
mcp: {listen: "127.0.0.1:0", auth: {tokens: [{sha256: %s, actor: ana@acme.test}]}}
webhook: {listen: "127.0.0.1:0", public_url: "https://approvals.acme.test"}
admin: {listen: "127.0.0.1:0"}
upstreams: {judge: {command: %s, env: %s}}
slack: {bot_token: %s, signing_secrets: [%s], api_url: %s}
people: {ana: {actors: [ana@acme.test]}, olga: {slack: U0OLGA}}
`, quoted(c.redis.URL()), quoted(c.key), strings.Repeat("a1", 32), quoted(c.up.Command()), quoted(c.up.Env(false)),
		quoted(c.slack.BotToken), quoted(c.slack.SigningSecret()), quoted(c.slack.URL()))
	if c.Edit != nil {
		text = c.Edit(text)
	}
	path := filepath.Join(c.dir, "countersign.yaml")
	for name, content := range map[string]string{path: text, filepath.Join(c.dir, "policy.yaml"): c.Policy} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			c.t.Fatal(err)
		}
	}
	if err := os.Chmod(path, c.Mode); err != nil {
		c.t.Fatal(err)
	}
	return path
}

func (c *clinic) diagnose() Diagnosis {
	c.t.Helper()
	return Diagnose(within(c.t, 2*time.Minute), Checkup{
		Config: c.write(), Version: "test", NoStart: !c.Start, Now: func() time.Time { return c.at },
	})
}

// found lists a section's findings of a level.
func (d Diagnosis) found(section string, level Level) []string {
	var out []string
	for _, s := range d {
		for _, f := range s.Findings {
			if s.Name == section && f.Level == level {
				out = append(out, f.Text)
			}
		}
	}
	return out
}

// Where all is well nothing fails, what was started is named, and nothing that
// could be kept is: no key in Redis, no group, no directory, no file.
func TestDoctorFindsNothingAndChangesNothing(t *testing.T) {
	c := newClinic(t)
	c.Start = true
	d := c.diagnose()
	if d.Level() == Fail {
		t.Fatalf("%+v", d)
	}
	var names []string
	for _, s := range d {
		names = append(names, s.Name)
	}
	if diff := cmp.Diff([]string{"configuration", "keys", "policy", "listeners", "data", "ledger", "redis", "upstreams", "pins", "routes", "checklist"}, names); diff != "" {
		t.Error(diff)
	}
	for section, says := range map[string]string{
		"redis": "version ", "upstreams": "judge: the policy shows 2 of them", "routes": "Slack knows us: app " + c.slack.AppID,
		"policy": "all 1 cases come out", "data": "not there yet", "keys": "keys.current is usable",
	} {
		if !strings.Contains(strings.Join(d.found(section, Fine), "\n"), says) {
			t.Errorf("%s does not say %q: %+v", section, says, d)
		}
	}
	for _, section := range []string{"configuration", "keys", "policy", "listeners", "data", "ledger", "upstreams", "routes"} {
		if w := d.found(section, Warn); w != nil {
			t.Errorf("%s warns: %q", section, w)
		}
	}
	if left := c.redis.Client().Keys(t.Context(), "*").Val(); len(left) != 0 {
		t.Errorf("Redis keeps %q", left)
	}
	entries, err := os.ReadDir(c.dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("the directory has %v, %v", entries, err)
	}
	if m := c.slack.Messages("C0APPROVALS"); len(m) != 0 {
		t.Errorf("%d messages were posted", len(m))
	}
}

// Each thing that is wrong is found in its section, with what to do next.
func TestDoctorFinds(t *testing.T) {
	replace := func(from, to string) func(*clinic) {
		return func(c *clinic) {
			c.Edit = func(s string) string {
				if !strings.Contains(s, from) {
					c.t.Fatalf("the configuration has no %q", from)
				}
				return strings.Replace(s, from, to, 1)
			}
		}
	}
	inPolicy := func(from, to string) func(*clinic) {
		return func(c *clinic) { c.Policy = strings.Replace(c.Policy, from, to, 1) }
	}
	for name, row := range map[string]struct {
		spoil   func(*clinic)
		section string
		level   Level
		says    string
	}{
		"an unknown key":            {replace("data_dir:", "data_drr: x\ndata_dir:"), "configuration", Fail, "unknown key data_drr"},
		"a secret others read":      {func(c *clinic) { c.Mode = 0o644 }, "configuration", Warn, "others may read"},
		"a file others write":       {func(c *clinic) { c.Mode = 0o622 }, "configuration", Fail, "others may write"},
		"a typed key":               {func(c *clinic) { c.key = "cGFzc3dvcmQgcGFzc3dvcmQgcGFzc3dvcmQgcGFzc3c=" }, "keys", Fail, "keys.current does not look random"},
		"a key of one pattern":      {func(c *clinic) { c.key = "3q2+796tvu/erb7v3q2+796tvu/erb7v3q2+796tvu8=" }, "keys", Fail, "keys.current does not look random"},
		"no key":                    {func(c *clinic) { c.key = "c2hvcnQ=" }, "keys", Fail, "base64 of 32 random bytes"},
		"a policy that is broken":   {inPolicy("destructive", "dangerous"), "policy", Fail, "policy.yaml:4: a tier is"},
		"an approver who is no one": {inPolicy("olga,", "otto,"), "policy", Fail, "otto is not under people"},
		"a case that fails":         {inPolicy("want: review", "want: deny"), "policy", Fail, "do not come out as they say: doing"},
		"nothing is ever asked":     {func(c *clinic) { c.Policy = "version: 2\ntools: {judge/read_thing: read}\n" }, "policy", Warn, "no call ever needs"},
		"observing":                 {inPolicy("version: 2", "version: 2\nobserve: {upstreams: [judge], until: 2999-01-01}"), "policy", Warn, "until 2999-01-01T00:00:00Z nobody is asked about calls of judge"},
		"observed in the past":      {inPolicy("version: 2", "version: 2\nobserve: {upstreams: [judge], until: 2001-01-01}"), "policy", Warn, "has no effect"},
		"observing, all through":    {inPolicy("version: 2", "version: 2\nobserve: {upstreams: [judge], until: 2999-01-01}"), "checklist", Warn, "go through the gate only: they do, but for now"},
		"open and tokenless": {func(c *clinic) {
			c.Edit = func(s string) string {
				return strings.Replace(s, `mcp: {listen: "127.0.0.1:0", auth: {tokens: [{sha256: `+strings.Repeat("a1", 32)+`, actor: ana@acme.test}]}}`, `mcp: {listen: "0.0.0.0:0"}`, 1)
			}
		}, "listeners", Fail, "no token is configured"},
		"off loopback":        {replace(`mcp: {listen: "127.0.0.1:0"`, `mcp: {listen: "0.0.0.0:0"`), "listeners", Warn, "mcp.allowed_hosts is empty"},
		"admin off loopback":  {replace(`admin: {listen: "127.0.0.1:0"}`, `admin: {listen: "0.0.0.0:0", tokens: [{sha256: `+strings.Repeat("b2", 32)+`, person: olga}]}`), "listeners", Warn, "others can reach the operators' side"},
		"a ledger for others": {func(c *clinic) { c.mkdir("data/ledger", 0o777) }, "data", Fail, "others may write to"},
		"data is a file":      {func(c *clinic) { c.file("data", "") }, "data", Fail, "is not a directory"},
		"a changed ledger": {func(c *clinic) {
			c.mkdir("data/ledger", 0o700)
			c.file("data/ledger/20261201T000000Z-0123456789abcdef.jsonl", "{\"v\":1}\n")
		}, "ledger", Fail, "tampered"},
		"a torn ledger": {func(c *clinic) {
			c.mkdir("data/ledger", 0o700)
			c.file("data/ledger/20261201T000000Z-0123456789abcdef.jsonl", "{\"v\":1")
		}, "ledger", Warn, "torn"},
		"no Redis":            {func(*clinic) {}, "redis", Fail, "refused"},
		"a Redis that evicts": {func(c *clinic) { c.redis.Client().ConfigSet(c.t.Context(), "maxmemory-policy", "allkeys-lru") }, "redis", Fail, "maxmemory-policy is allkeys-lru"},
		"no append-only file": {func(c *clinic) { c.redis.Client().ConfigSet(c.t.Context(), "appendonly", "no") }, "redis", Fail, "redis.accept_no_aof"},
		"a store in memory": {func(c *clinic) {
			c.Edit = func(s string) string { return strings.Replace(s, "redis: {url: ", "store: ephemeral #", 1) }
		}, "configuration", Warn, "a restart forgets every approval"},
		"no channel":             {inPolicy("slack:C0APPROVALS", "slack:C0OTHER"), "routes", Fail, "slack:C0OTHER can't be reached"},
		"not in the channel":     {func(c *clinic) { c.slack.AddChannel(slacktest.Channel{ID: "C0APPROVALS", NotMember: true}) }, "routes", Fail, "not_in_channel"},
		"strangers read along":   {func(c *clinic) { c.slack.AddChannel(slacktest.Channel{ID: "C0APPROVALS", ExtShared: true}) }, "routes", Fail, "shared with another organisation"},
		"no such Slack group":    {inPolicy("S0OPS", "S0GONE"), "routes", Fail, "slack-group:S0GONE can't be read"},
		"nobody who can click":   {func(c *clinic) { c.Policy = strings.Replace(c.Policy, `[olga, "slack-group:S0OPS"]`, "[ana]", 1) }, "routes", Fail, "0 people can answer in Slack, and it takes 1"},
		"one without a slack id": {func(c *clinic) { c.Policy = strings.Replace(c.Policy, `[olga, "slack-group:S0OPS"]`, "[olga, ana]", 1) }, "routes", Warn, "ana has no slack id"},
		"a guest":                {func(c *clinic) { c.slack.AddUser(slacktest.User{ID: "U0OLGA", Restricted: true}) }, "routes", Warn, "clicks of olga are refused: guest"},
		"a token of nobody":      {func(*clinic) {}, "routes", Fail, "Slack does not say who we are"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newClinic(t)
			row.spoil(c)
			if name == "a token of nobody" {
				c.Edit = func(s string) string {
					return strings.Replace(s, "bot_token: \""+c.slack.BotToken+"\"", "bot_token: xoxb-of-nobody", 1)
				}
			}
			if name == "no Redis" {
				c.Edit = func(s string) string {
					return strings.Replace(s, "redis: {url: \""+c.redis.URL()+"\"}", "redis: {url: \"redis://127.0.0.1:1/0\"}", 1)
				}
			}
			d := c.diagnose()
			if got := d.found(row.section, row.level); !strings.Contains(strings.Join(got, "\n"), row.says) {
				t.Errorf("%s does not say %q at %s: %+v", row.section, row.says, row.level, d)
			}
			if d.Level() == Fine {
				t.Error("all is well, it says")
			}
			for _, s := range d {
				for _, f := range s.Findings {
					if f.Level == Fail && f.Do == "" {
						t.Errorf("%s: %s: nothing is said about what to do", s.Name, f.Text)
					}
				}
			}
		})
	}
}

func (c *clinic) mkdir(name string, mode os.FileMode) {
	c.t.Helper()
	path := filepath.Join(c.dir, name)
	if err := os.MkdirAll(path, 0o700); err != nil {
		c.t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil { // whatever the umask is
		c.t.Fatal(err)
	}
}

func (c *clinic) file(name, text string) {
	c.t.Helper()
	if err := os.WriteFile(filepath.Join(c.dir, name), []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
}

// Upstreams that don't start, tools that nobody listed and entries that mean no
// tool are found.
func TestDoctorLooksAtUpstreams(t *testing.T) {
	c := newClinic(t)
	c.Start = true
	c.Policy = `version: 2
tools: {judge/read_thing: read, judge/do_thing: write, judge/raed_thing: read, judge/none_*: deny}
`
	c.Edit = func(s string) string {
		return strings.Replace(s, "upstreams: {", `upstreams: {gone: {command: [/nonexistent/server]}, `, 1)
	}
	d := c.diagnose()
	for level, says := range map[Level][]string{
		Fail: {"gone: "}, Warn: {"judge: no entry lists these", "no tool is meant by these entries: judge/raed_thing"},
	} {
		all := strings.Join(d.found("upstreams", level), "\n")
		for _, s := range says {
			if !strings.Contains(all, s) {
				t.Errorf("%s: no %q: %s", level, s, all)
			}
		}
		if strings.Contains(all, "none_") {
			t.Errorf("a denial in advance is found wrong: %s", all)
		}
	}
	if all := strings.Join(d.found("checklist", Warn), "\n"); !strings.Contains(all, "run without a yes; the gate checks no outcome and keeps no repeat of these from running again: judge/do_thing") {
		t.Errorf("tools that change something: %s", all)
	}
}

// No secret is in what is printed, wherever it stands and whatever fails.
func TestDoctorPrintsNoSecret(t *testing.T) {
	c := newClinic(t)
	c.Start = true
	const canary = "CANARYx7Qz93"
	c.Edit = func(s string) string {
		s = strings.Replace(s, "\""+c.redis.URL()+"\"", "\"redis://user:"+canary+"@127.0.0.1:1/0\"", 1)
		s = strings.Replace(s, c.slack.BotToken, "xoxb-"+canary, 1)
		s = strings.Replace(s, c.slack.SigningSecret(), canary+canary, 1)
		s = strings.Replace(s, "upstreams: {", "upstreams: {leaky: {command: [/bin/sh, -c, \"echo $TOKEN >&2; echo $TOKEN; exit 1\"], env: {TOKEN: "+canary+"}}, ", 1)
		return s + "tickets: {desk: {inbound: {scheme: standard-webhooks, secrets: [whsec_" + canary + "]}}}\n"
	}
	d := c.diagnose()
	if d.Level() != Fail {
		t.Fatalf("%+v", d)
	}
	text := fmt.Sprintf("%+v", d)
	for _, secret := range []string{canary, c.key, strings.TrimRight(c.key, "="), strings.Repeat("a1", 32)} {
		if strings.Contains(text, secret) {
			t.Errorf("%s is told: %s", secret, text)
		}
	}
}

// Beside a gate that runs nothing is taken from it and nothing of it is touched:
// not its ledger, not what it reads from Redis, and it goes on.
func TestDoctorBesideAGate(t *testing.T) {
	c := newClinic(t)
	c.Start = true
	cfg, err := config.Load(c.write())
	if err != nil {
		t.Fatal(err)
	}
	d, err := New(cfg, Options{Version: "test", Log: (&notebook{}).log()})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.Stop(within(t, 30*time.Second)); err != nil {
			t.Error(err)
		}
	}()
	// Its loops make groups, consumers, the generation and the first event as they
	// begin.
	begun := func() bool {
		now, err := d.store.Generation(t.Context())
		all := strings.Join(c.shared(), "\n")
		return err == nil && now.N > 0 && strings.Count(all, " consumer ") >= 2 && strings.Contains(all, ":evn ")
	}
	for deadline := time.Now().Add(time.Minute); !begun(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the gate never began: %q", c.shared())
		}
	}
	before := c.shared()
	diagnosis := c.diagnose()
	if diagnosis.Level() == Fail {
		t.Errorf("%+v", diagnosis)
	}
	if !slices.Contains(diagnosis.found("redis", Fine), "a gate that tells people is running") {
		t.Errorf("it is not seen: %+v", diagnosis)
	}
	if diff := cmp.Diff(before, c.shared()); diff != "" {
		t.Errorf("the gate's things changed: %s", diff)
	}
	files, _ := filepath.Glob(filepath.Join(c.dir, "data", "ledger", "*"))
	if len(files) != 1 || files[0] != d.LedgerPath() {
		t.Errorf("the ledger's directory has %q", files)
	}
	if err := d.ledger.Trouble(); err != nil {
		t.Error(err)
	}
	if got := diagnosis.found("checklist", Warn); slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, "not the policy that was loaded last") }) {
		t.Errorf("the policy is the loaded one: %q", got)
	}
	if got := diagnosis.found("redis", Fine); !slices.Contains(got, "this policy is the newest on this Redis, number 1") {
		t.Errorf("the newest policy: %q", got)
	}
	if got := strings.Join(diagnosis.found("checklist", Fine), "\n"); !strings.Contains(got, "1 version is on the ledger, and countersign policy restore puts this one back") {
		t.Errorf("the archive: %s", got)
	}
	c.Policy += "# another\n"
	if got := strings.Join(c.diagnose().found("checklist", Warn), "\n"); !strings.Contains(got, "the file is not the policy that was loaded last, "+d.rules.Load().policy.Digest().Hex()[:12]) {
		t.Errorf("a file that was changed since: %s", got)
	}
	if got := strings.Join(c.diagnose().found("redis", Warn), "\n"); !strings.Contains(got, "the newest policy on this Redis is "+d.rules.Load().policy.Digest().Hex()[:12]) {
		t.Errorf("a file that is not what the gates have: %s", got)
	}
}

// shared is what the gates of a namespace read together: groups and consumers of
// the streams, and the keys that stay.
func (c *clinic) shared() []string {
	c.t.Helper()
	ctx, r := context.Background(), c.redis.Client()
	var out []string
	for _, key := range r.Keys(ctx, "*").Val() {
		kind := r.Type(ctx, key).Val()
		if !strings.Contains(key, ":hd:") { // heads of ledgers, which come and go
			out = append(out, key+" "+kind)
		}
		if kind != "stream" {
			continue
		}
		for _, g := range r.XInfoGroups(ctx, key).Val() {
			out = append(out, fmt.Sprint(key, " group ", g.Name))
			for _, consumer := range r.XInfoConsumers(ctx, key, g.Name).Val() {
				out = append(out, fmt.Sprint(key, " consumer ", consumer.Name))
			}
		}
	}
	slices.Sort(out)
	return out
}

// What is pinned decides what an upstream's tools are compared with: the file,
// or what was agreed on at run time in place of just that.
func TestDoctorComparesPins(t *testing.T) {
	tool := func(name, description string) pins.Tool {
		d, err := pins.Define(json.RawMessage(fmt.Sprintf(`{"name":%q,"description":%q}`, name, description)))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	id, other := action.Sum("test", []byte("this")), action.Sum("test", []byte("another"))
	file := &pins.File{Servers: map[string]pins.Server{"judge": {Identity: id, Tools: []pins.Tool{tool("a", "1"), tool("b", "1")}}}}
	pinned := func(name, description string, over action.Digest) approvals.Pins {
		return approvals.Pins{Tools: map[string]approvals.Pin{name: {Tool: name, Digest: tool(name, description).Digest, Identity: id, Over: over, Approval: "cs_1"}}}
	}
	overFile := func(name, description string) action.Digest {
		return (&pins.Server{Identity: id, Tools: []pins.Tool{tool(name, description)}}).Over(name)
	}
	for name, row := range map[string]struct {
		tools   []pins.Tool
		id      action.Digest
		runtime approvals.Pins
		first   bool
		level   Level
		says    string
	}{
		"the same":                  {[]pins.Tool{tool("b", "1"), tool("a", "1")}, id, approvals.Pins{}, false, Fine, "2 of 2 tools are as agreed on"},
		"changed":                   {[]pins.Tool{tool("a", "2"), tool("b", "1")}, id, approvals.Pins{}, false, Fail, "not what was agreed on, so held: a"},
		"another server":            {[]pins.Tool{tool("a", "1")}, other, approvals.Pins{}, false, Fail, "so held: a"},
		"new":                       {[]pins.Tool{tool("a", "1"), tool("c", "1")}, id, approvals.Pins{}, false, Warn, "not pinned, so held: c"},
		"new, at first use":         {[]pins.Tool{tool("a", "1"), tool("c", "1")}, id, approvals.Pins{}, true, Fine, "to be pinned when first seen: c"},
		"agreed on at run time":     {[]pins.Tool{tool("a", "2")}, id, pinned("a", "2", overFile("a", "1")), false, Fine, "1 of 1 tool is as agreed on"},
		"agreed on over another":    {[]pins.Tool{tool("a", "2")}, id, pinned("a", "2", overFile("a", "0")), false, Fail, "so held: a"},
		"seen first and changed":    {[]pins.Tool{tool("c", "2")}, id, pinned("c", "1", action.Digest{}), true, Fail, "so held: c"},
		"a pin that does not open":  {[]pins.Tool{tool("a", "1")}, id, approvals.Pins{Forged: []string{"a"}}, false, Fail, "pins that do not open: a"},
		"removed tools are no harm": {nil, id, approvals.Pins{}, false, Fine, ""},
	} {
		found := (&looked{identity: row.id, tools: row.tools}).compare("judge", file, row.runtime, row.first)
		if gravest(found) != row.level || !strings.Contains(fmt.Sprint(found), row.says) {
			t.Errorf("%s: %+v", name, found)
		}
	}
	// Without a file there is nothing that policy pin --diff could compare with.
	changed := &looked{identity: id, tools: []pins.Tool{tool("c", "2")}}
	for advice, of := range map[string]*pins.File{"policy pin --diff": file, "a route named definitions": nil} {
		if found := changed.compare("judge", of, pinned("c", "1", action.Digest{}), true); !strings.Contains(found[0].Do, advice) {
			t.Errorf("advice: %+v, want %q", found, advice)
		}
	}
}

// The ledger's records are followed from decision to result, over files.
func TestDoctorFollowsTheLedger(t *testing.T) {
	for name, row := range map[string]struct {
		events []string
		level  Level
		says   string
	}{
		"nothing":                      {nil, Fine, "nothing has run yet"},
		"an allowed call":              {[]string{"allow 1", "start 1", "result 1"}, Fine, "each of 1 started call has its decision; 0 calls have no result yet"},
		"one that still runs":          {[]string{"allow 1", "start 1"}, Fine, "1 call has no result yet"},
		"one without a decision":       {[]string{"allow 1", "start 2"}, Fail, "1 call started without a decision before it"},
		"an approved one":              {[]string{"review 1", "claimed 1", "result 1"}, Fine, "0 calls have no result yet"},
		"approved, order of two files": {[]string{"claimed 1", "result 1", "review 1"}, Fine, "has its decision; 0 calls"},
		"asked for elsewhere":          {[]string{"claimed 1", "result 1"}, Fine, "1 was decided through a gate with another ledger"},
	} {
		a := newAudit()
		for _, e := range row.events {
			_ = a.add(recordOf(e))
		}
		if f := auditLinked(&patient{audit: a}); f.Level != row.level || !strings.Contains(f.Text, row.says) {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

func recordOf(text string) ledger.Record {
	what, op, _ := strings.Cut(text, " ")
	r := ledger.Record{OperationID: op}
	switch what {
	case "start":
		r.Event = ledger.ExecStart
	case "claimed":
		r.Event, r.EnvelopeDigest = ledger.ExecStart, "k.mac"
	case "result":
		r.Event = ledger.Result
	default:
		r.Event, r.Outcome = ledger.Decision, what
	}
	return r
}
