package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/cmd/countersign/internal/e2e/testservers"
)

// The plain policy in other bytes, with other people, and without the tool.
func samePolicy() string { return plain + "# the same\n" }

func otherPeople(t *testing.T) string { return of(t, "[group:ops]", "[olga, oskar]") }

func withoutTool(t *testing.T) string {
	return of(t, "  judge/do_thing: {tier: destructive, title: \"Do thing {n}\"}\n", "")
}

var reloaded = regexp.MustCompile(`the configuration was reloaded|the reload was refused`)

// hangup sends SIGHUP and waits until the process has said the nth time how its
// reload went.
func (g *gate) hangup(nth int) {
	g.r.t.Helper()
	if err := g.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		g.r.t.Fatal(err)
	}
	g.stderr.find(g.r.t, reloadedTimes(nth), g.dead)
}

func reloadedTimes(n int) *regexp.Regexp {
	return regexp.MustCompile(fmt.Sprintf(`(?s)(?:(?:%s).*?){%d}`, reloaded, n))
}

// loads lists what the ledgers say of policies: the event, and of which bytes.
func (r *rig) loads() (loaded, rejected int) {
	for _, m := range r.records() {
		switch m["event"] {
		case "policy_loaded":
			loaded++
		case "policy_rejected":
			rejected++
		}
	}
	return loaded, rejected
}

func (g *gate) fetch(path string) (int, string) {
	g.r.t.Helper()
	resp, err := http.Get(g.Admin + path)
	if err != nil {
		g.r.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		g.r.t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// The policy file is read at the start and at SIGHUP, and at no other time; a bad
// one changes nothing and is on the ledger.
func TestReloadOfThePolicy(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Policy: plain, Hold: time.Second})
	g := r.start("a", "")
	c := g.client(testservers.Modern)
	r.write("policy.yaml", withoutTool(t))
	waiting(t, send(t, c, `{"n":1}`, testservers.Extra{})) // the file alone changes nothing
	g.hangup(1)
	if res := send(t, c, `{"n":2}`, testservers.Extra{}); res.Reason() != "unknown_tool" {
		t.Errorf("after the reload: %s", res.Body)
	}
	r.write("policy.yaml", "version: 2\ntools: {judge/do_thing: dangerous}\n")
	g.hangup(2)
	if res := send(t, c, `{"n":2}`, testservers.Extra{}); res.Reason() != "unknown_tool" {
		t.Errorf("after a bad file: %s", res.Body)
	}
	r.write("policy.yaml", plain)
	g.hangup(3)
	waiting(t, send(t, c, `{"n":2}`, testservers.Extra{}))
	if loaded, rejected := r.loads(); loaded != 3 || rejected != 1 {
		t.Errorf("%d loaded, %d rejected", loaded, rejected)
	}
	if _, metrics := g.fetch("/metrics"); !strings.Contains(metrics, `countersign_policy_reloads_total{outcome="rejected"} 1`) {
		t.Error("the refused reload is not counted")
	}
	for _, m := range r.records() {
		if m["event"] == "policy_rejected" && strings.Contains(fmt.Sprint(m), "dangerous") {
			t.Errorf("a word of the file is on the ledger: %v", m)
		}
	}
	r.verify()
}

// A policy of version 1 is reloaded like any other.
func TestReloadOfAVersion1Policy(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Policy: `{"version": 1, "allow": ["read_thing"], "deny": []}`})
	g := r.start("a", "")
	c := g.client(testservers.Legacy)
	if res := send(t, c, `{"n":1}`, testservers.Extra{}); res.Reason() != "unknown_tool" {
		t.Fatalf("before: %s", res.Body)
	}
	r.write("policy.yaml", `{"version": 1, "allow": ["read_thing", "do_thing"], "deny": []}`)
	g.hangup(1)
	if res := send(t, c, `{"n":1}`, testservers.Extra{}); !runs(res) || r.ran(1) != 1 {
		t.Errorf("after: %s", res.Body)
	}
	r.write("policy.yaml", `{"version": 1, "allow": ["do_thing"], "deny": ["do_thing"]}`)
	g.hangup(2)
	if res := send(t, c, `{"n":2}`, testservers.Extra{}); res.Error == nil || r.ran(2) != 0 {
		t.Errorf("a deny beats an allow: %s", res.Body)
	}
}

// What was parked under another policy: with the same routes it is still good, else
// it is void, and the card and the caller are told.
func TestReloadWithSomethingParked(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Policy: plain, Hold: time.Second})
	g := r.start("a", "")
	c := g.client(testservers.Modern)
	good := waiting(t, send(t, c, `{"n":1}`, testservers.Extra{}))
	bad := waiting(t, send(t, c, `{"n":2}`, testservers.Extra{}))
	r.write("policy.yaml", samePolicy())
	g.hangup(1)
	r.approve(r.cardOf(1).TS)
	if res := comeBack(t, c, good); !runs(res) || r.ran(1) != 1 {
		t.Errorf("the same routes: ran %d times; %s", r.ran(1), res.Body)
	}
	r.write("policy.yaml", otherPeople(t))
	g.hangup(2)
	card := r.cardOf(2)
	r.approve(card.TS)
	res := comeBack(t, c, bad)
	if res.Approval().Status != "void" || !strings.Contains(res.Text(), "the policy changed after people agreed") {
		t.Errorf("other people: %s", res.Body)
	}
	r.settled(card.TS, "the policy changed")
	if r.ran(2) != 0 {
		t.Error("it ran")
	}
	if again := waiting(t, send(t, c, `{"n":2}`, testservers.Extra{})); again == bad {
		t.Error("the same call found the void one")
	}
	r.verify()
}

// Two gates on one Redis. The one that was not reloaded refuses what needs a yes,
// serves the rest, and says so everywhere; one reload later both serve all.
func TestTwoGatesAndOneReload(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Policy: plain, Hold: time.Second})
	a, b := r.start("a", ""), r.start("b", "")
	ca, cb := a.client(testservers.Modern), b.client(testservers.Legacy)
	asked := waiting(t, send(t, cb, `{"n":1}`, testservers.Extra{}))
	r.write("policy.yaml", samePolicy())
	a.hangup(1)

	res := send(t, cb, `{"n":2}`, testservers.Extra{})
	if res.Reason() != "policy_behind" || !strings.Contains(string(res.Error), "SIGHUP") {
		t.Errorf("the gate that is behind: %s", res.Body)
	}
	if res, err := cb.Call(within(t, 20*time.Second), "read_thing", json.RawMessage(`{"id":"1"}`), testservers.Extra{}); err != nil || !runs(res) {
		t.Errorf("a call that needs nobody: %v %s", err, res.Body)
	}
	b.stderr.find(t, regexp.MustCompile(`another process has loaded another policy since`), b.dead)
	a.stderr.find(t, regexp.MustCompile(`this process's policy is the newest now`), a.dead)
	if status, text := b.fetch("/readyz"); status != 503 || !strings.Contains(text, "policy") {
		t.Errorf("/readyz: %d %s", status, text)
	}
	if _, metrics := b.fetch("/metrics"); !strings.Contains(metrics, "countersign_policy_behind 1") {
		t.Error("the metric does not say it")
	}
	// It was asked for before: it is waited for and collected there, and run by the
	// newest alone.
	r.approve(r.cardOf(1).TS)
	if res := collect(t, cb, asked); res.Approval().Status != "approved" || !strings.Contains(res.Text(), "SIGHUP") {
		t.Errorf("collected from the gate that is behind: %s", res.Body)
	}
	if r.ran(1) != 0 {
		t.Fatal("the gate that is behind ran it")
	}
	if res := comeBack(t, ca, asked); !runs(res) || r.ran(1) != 1 {
		t.Errorf("collected from the newest: ran %d times; %s", r.ran(1), res.Body)
	}

	b.hangup(1)
	waiting(t, send(t, cb, `{"n":2}`, testservers.Extra{}))
	if status, text := b.fetch("/readyz"); status != 200 {
		t.Errorf("/readyz after its reload: %d %s", status, text)
	}
	// A gate that starts with the old file is the last loader, and both sides say so.
	r.write("policy.yaml", plain)
	d := r.start("c", "")
	d.stderr.find(t, regexp.MustCompile(`this process's policy is the newest now`), d.dead)
	if res := send(t, ca, `{"n":3}`, testservers.Extra{}); res.Reason() != "policy_behind" {
		t.Errorf("the gate that was the newest: %s", res.Body)
	}
	r.verify()
}

// Killed between publishing and taking over: the other gate stays behind until it
// is reloaded, and the killed one starts with what it had published.
func TestKilledInTheMiddleOfAReload(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Policy: plain, Hold: time.Second})
	a, b := r.start("a", ""), r.start("b", "reload.published=kill")
	ca := a.client(testservers.Modern)
	r.write("policy.yaml", samePolicy())
	if err := b.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	b.died()
	if res := send(t, ca, `{"n":1}`, testservers.Extra{}); res.Reason() != "policy_behind" {
		t.Errorf("the other gate: %s", res.Body)
	}
	b = r.start("b", "")
	cb := b.client(testservers.Modern)
	id := waiting(t, send(t, cb, `{"n":1}`, testservers.Extra{}))
	a.hangup(1)
	if again := waiting(t, send(t, ca, `{"n":1}`, testservers.Extra{})); again != id {
		t.Errorf("after its reload the other one asks again: %s, %s", again, id)
	}
	r.approve(r.cardOf(1).TS)
	if res := comeBack(t, ca, id); !runs(res) || r.ran(1) != 1 {
		t.Errorf("ran %d times; %s", r.ran(1), res.Body)
	}
	r.verify()
}

// A token that is taken out of the configuration: its session and its waits end at
// the reload, what it had asked for is void; another's goes on.
func TestReloadTakesATokenAway(t *testing.T) {
	t.Parallel()
	taken := false
	r := newRig(t, rigOptions{Policy: plain})
	r.o.Edit = func(config string) string {
		config = strings.Replace(config, "stdio: {actor: ana@acme.test}", "stdio: {}", 1)
		if taken {
			config = strings.Replace(config, fmt.Sprintf("      - {sha256: %s, actor: ana@acme.test}\n", hash(anaToken)), "", 1)
		}
		return config
	}
	g := r.start("a", "")
	anas := call(g.client(testservers.Legacy), testservers.Do{N: 1}, testservers.Extra{})
	card := r.cardOf(1)
	bots := call(g.client(testservers.Modern, botToken), testservers.Do{N: 2}, testservers.Extra{})
	other := r.cardOf(2)
	taken = true
	r.config("a")
	g.hangup(1)
	if res := await(t, anas); !strings.Contains(string(res.Body), "the token of this caller was removed or changed") {
		t.Errorf("who waited: %s", res.Body)
	}
	c := testservers.NewHTTP(g.MCP, anaToken, testservers.Modern)
	if res, err := c.Call(within(t, 20*time.Second), "read_thing", json.RawMessage(`{"id":"1"}`), testservers.Extra{}); err == nil && res.Status != 401 {
		t.Errorf("the removed token: %d %s", res.Status, res.Body)
	}
	r.approve(other.TS)
	if res := await(t, bots); !runs(res) || r.ran(2) != 1 {
		t.Errorf("another's call: %s", res.Body)
	}
	r.approve(card.TS)
	if r.ran(1) != 0 {
		t.Error("the call of the removed token ran")
	}
	r.verify()
}

// policy restore puts back what was loaded before; the reload that takes it over
// is on the ledger.
func TestRestoreAndReload(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Policy: plain, Hold: time.Second})
	g := r.start("a", "")
	c := g.client(testservers.Modern)
	r.write("policy.yaml", withoutTool(t))
	g.hangup(1)
	list := func() (kept []struct {
		Digest  string
		Current bool
	}) {
		t.Helper()
		out, errs, code := countersign(within(t, 20*time.Second), nil, "policy", "restore", "--config", filepath.Join(r.dir, "a.yaml"), "--json")
		if err := json.Unmarshal([]byte(out), &kept); code != 0 || err != nil {
			t.Fatalf("exit %d, %v\n%s%s", code, err, out, errs)
		}
		return kept
	}
	kept := list()
	if len(kept) != 2 || !kept[0].Current || kept[1].Current {
		t.Fatalf("kept: %v", kept)
	}
	out, errs, code := countersign(within(t, 20*time.Second), nil, "policy", "restore", "--config", filepath.Join(r.dir, "a.yaml"), kept[1].Digest[:10])
	if code != 0 || !strings.Contains(out, "SIGHUP") {
		t.Fatalf("exit %d\n%s%s", code, out, errs)
	}
	if b, err := os.ReadFile(filepath.Join(r.dir, "policy.yaml")); err != nil || string(b) != plain {
		t.Errorf("the file: %v\n%s", err, b)
	}
	if b, err := os.ReadFile(filepath.Join(r.dir, "policy.yaml.replaced")); err != nil || string(b) != withoutTool(t) {
		t.Errorf("the replaced file: %v\n%s", err, b)
	}
	if res := send(t, c, `{"n":1}`, testservers.Extra{}); res.Reason() != "unknown_tool" {
		t.Errorf("before the reload: %s", res.Body)
	}
	g.hangup(2)
	waiting(t, send(t, c, `{"n":1}`, testservers.Extra{}))
	var digests []string
	for _, m := range r.records() {
		if m["event"] == "policy_loaded" {
			digests = append(digests, fmt.Sprint(m["policy_digest"]))
		}
	}
	if len(digests) != 3 || digests[2] != kept[1].Digest || digests[0] != digests[2] || digests[1] == digests[0] {
		t.Errorf("on the ledger: %v", digests)
	}
	r.verify()
}

// A terminal that goes away does not end `countersign stdio`: it reads its policy
// again, and its client goes on.
func TestReloadOfStdio(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Policy: plain})
	p := r.stdio("pipes", testservers.Legacy)
	read := func() testservers.Reply {
		t.Helper()
		res, err := p.Call(within(t, 30*time.Second), "read_thing", json.RawMessage(`{"id":"x"}`), testservers.Extra{})
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	if res := read(); !runs(res) {
		t.Fatalf("before: %s %s", res.Result, res.Error)
	}
	r.write("policy.yaml", of(t, "judge/read_thing: read", "judge/read_thing: deny"))
	if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	p.stderr.find(t, regexp.MustCompile(`the configuration was reloaded`), p.dead)
	if res := read(); res.Reason() != "unknown_tool" {
		t.Errorf("after: %s %s", res.Result, res.Error)
	}
	p.close()
	r.verify()
}

// Fifty callers while the policy is reloaded again and again: each call is answered
// by the one policy or the other, what is asked for is asked for once, and nothing
// runs without a yes.
func TestReloadsUnderLoad(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Policy: plain, Hold: time.Second})
	g := r.start("a", "")
	stop, done := make(chan struct{}), make(chan int)
	go func() {
		for i := 1; ; i++ {
			select {
			case <-stop:
				done <- i - 1
				return
			default:
			}
			r.write("policy.yaml", []string{plain, samePolicy()}[i%2])
			g.hangup(i)
		}
	}()
	answers := make(chan answer, 50)
	for i := range 50 {
		c := g.client([]testservers.Era{testservers.Modern, testservers.Legacy}[i%2], []string{anaToken, botToken}[i/2%2])
		go func() {
			ctx := within(t, 90*time.Second)
			if i%3 == 0 {
				res, err := c.Call(ctx, "read_thing", json.RawMessage(`{"id":"x"}`), testservers.Extra{})
				answers <- answer{res, err}
				return
			}
			res, err := c.Call(ctx, "do_thing", testservers.Do{N: i % 5}.Args(), testservers.Extra{})
			answers <- answer{res, err}
		}()
	}
	asked := map[string]bool{}
	for range 50 {
		a := <-answers
		switch {
		case a.err != nil:
			t.Error(a.err)
		case runs(a.Reply):
		case a.Approval().Status == "pending":
			asked[a.Approval().ID] = true
		default:
			t.Errorf("neither a result nor a pending one: %s %s", a.Result, a.Error)
		}
	}
	close(stop)
	if n := <-done; n < 2 {
		t.Errorf("%d reloads in all that time", n)
	}
	if r.judge(0, "without a yes"); len(asked) != 10 { // five calls of two callers
		t.Errorf("%d things were asked for", len(asked))
	}
	r.verify()
}

// Without Redis a reload takes the policy over all the same; what needs a yes is
// refused until Redis is back, and asked for by the new policy then.
func TestReloadWithoutRedis(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Own: true, Policy: of(t, "judge/read_thing: read", "judge/read_thing: deny"), Hold: time.Second})
	g := r.start("a", "")
	c := g.client(testservers.Modern)
	r.redis.Kill()
	r.write("policy.yaml", plain)
	g.hangup(1)
	if res, err := c.Call(within(t, 30*time.Second), "read_thing", json.RawMessage(`{"id":"x"}`), testservers.Extra{}); err != nil || !runs(res) {
		t.Errorf("allowed by the new policy: %v %s", err, res.Body)
	}
	if res := send(t, c, `{"n":1}`, testservers.Extra{}); res.Reason() != "store_unavailable" {
		t.Errorf("a review call: %s", res.Body)
	}
	r.restartRedis()
	for deadline := time.Now().Add(60 * time.Second); ; {
		res := send(t, c, `{"n":1}`, testservers.Extra{})
		if res.Approval().Status == "pending" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("with Redis back: %s", res.Body)
		}
	}
	if strings.Contains(g.stderr.String(), "another process has loaded") {
		t.Error("it takes itself for one that is behind")
	}
	if r.ran(1) != 0 {
		t.Error("it ran without a yes")
	}
	r.verify()
}
