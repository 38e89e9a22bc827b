package e2e

import (
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/approvals/store/redistest"
	"github.com/countersign-mcp/countersign/cmd/countersign/internal/e2e/testservers"
)

// launch is start for a gate that may not become ready.
func (r *rig) launch(name string) *gate {
	r.t.Helper()
	g := &gate{r: r, name: name, stderr: newTail(), dead: make(chan struct{})}
	g.cmd = exec.Command(binary, "serve", "--config", r.config(name), "--log-level", "debug")
	g.cmd.Env = os.Environ()
	g.cmd.Stderr = g.stderr
	dieWithUs(g.cmd)
	if err := g.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	go func() { _ = g.cmd.Wait(); close(g.dead) }()
	r.t.Cleanup(g.stop)
	m := g.stderr.find(r.t, listening, g.dead)
	g.MCP, g.Webhook, g.Admin = m[1], m[2], m[3]
	r.slack.SetInteractions(g.interactions())
	return g
}

// readiness is what /readyz says now.
func (g *gate) readiness() (status int, body string) {
	g.r.t.Helper()
	req, err := http.NewRequestWithContext(within(g.r.t, 20*time.Second), http.MethodGet, g.Admin+"/readyz", nil)
	if err != nil {
		g.r.t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		g.r.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		g.r.t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

// becomesReady waits for /readyz, as whatever sends work to a gate does.
func (g *gate) becomesReady() {
	g.r.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	end := time.After(30 * time.Second)
	for {
		status, body := g.readiness()
		if status == http.StatusOK {
			return
		}
		select {
		case <-tick.C:
		case <-end:
			g.r.t.Fatalf("gate %s is never ready: %d %s", g.name, status, body)
		}
	}
}

// notReady fails unless /readyz says no, and names what is missing.
func (g *gate) notReady(missing string) {
	g.r.t.Helper()
	if status, body := g.readiness(); status != http.StatusServiceUnavailable || !strings.Contains(body, missing) {
		g.r.t.Errorf("/readyz says %d %s", status, body)
	}
}

// reads makes a call that needs nobody's yes.
func (g *gate) reads() testservers.Reply {
	g.r.t.Helper()
	res, err := g.client(testservers.Modern).Call(within(g.r.t, 30*time.Second), "read_thing", []byte(`{"id":"x"}`), testservers.Extra{})
	if err != nil {
		g.r.t.Fatal(err)
	}
	return res
}

// withoutStore is what holds while Redis is away: harmless calls are served, the
// others are refused for a reason that is said, and the gate is not ready.
func (g *gate) withoutStore() {
	g.r.t.Helper()
	if res := g.reads(); res.IsError() || res.Error != nil {
		g.r.t.Errorf("a harmless call: %s", res.Body)
	}
	res := g.again(testservers.Do{N: 99})
	if res.Reason() != "store_unavailable" || !strings.Contains(res.Text(), "Nothing was run") {
		g.r.t.Errorf("a call that needs a yes: %s", res.Body)
	}
	if n := g.r.ran(99); n != 0 {
		g.r.t.Errorf("it ran %d times without an approval", n)
	}
	g.notReady("redis")
}

// Without Redis nothing that needs a yes runs, at start and later, and the gate
// works again by itself when Redis is back.
func TestRedisAway(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	proxy := r.behindProxy()
	proxy.Down()
	g := r.launch("a")
	g.withoutStore()
	proxy.Up()
	g.becomesReady()
	r.runsAnew(g, testservers.Do{N: 1}, 0)
	proxy.Down()
	g.withoutStore()
	proxy.Up()
	g.becomesReady()
	r.runsAnew(g, testservers.Do{N: 2}, 1)
	r.verify()
}

// Redis is killed and comes back while a call is parked, while it is approved,
// and while it runs. Nothing is lost and nothing runs twice.
func TestRedisRestarts(t *testing.T) {
	t.Parallel()
	t.Run("parked", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, rigOptions{Own: true, Hold: time.Minute})
		g := r.start("a", "")
		got := call(g.client(testservers.Modern), testservers.Do{N: 1}, testservers.Extra{})
		card := r.card()
		r.restartRedis()
		g.becomesReady()
		r.approve(card.TS)
		if res := await(t, got); res.IsError() || res.Text() != "do_thing done, n=1" {
			t.Errorf("the call got %s", res.Body)
		}
		r.wentWell(g, card.TS)
	})
	t.Run("approved", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, rigOptions{Own: true, Hold: 2 * time.Second})
		g := r.start("a", "")
		if res := g.again(testservers.Do{N: 1}); res.Approval().Status != "pending" {
			t.Fatalf("it is not parked: %s", res.Body)
		}
		card := r.card()
		r.approve(card.TS)
		r.restartRedis()
		g.becomesReady()
		if res := g.again(testservers.Do{N: 1}); res.IsError() || res.Text() != "do_thing done, n=1" {
			t.Errorf("the retry got %s", res.Body)
		}
		r.wentWell(g, card.TS)
	})
	t.Run("running", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, rigOptions{Own: true, Hold: time.Minute})
		g := r.start("a", "")
		do := testservers.Do{N: 1, Wait: "the end"}
		got := call(g.client(testservers.Modern), do, testservers.Extra{})
		card := r.card()
		r.approve(card.TS)
		if err := r.upstream.WaitRan(within(t, 20*time.Second), "do_thing", 1); err != nil {
			t.Fatal(err)
		}
		r.redis.Kill()
		if err := r.upstream.Release("the end"); err != nil {
			t.Fatal(err)
		}
		// It ran and is on the ledger, so its caller need not wait for Redis.
		if res := await(t, got); res.IsError() || res.Text() != "do_thing done, n=1" {
			t.Errorf("the call got %s", res.Body)
		}
		r.restartRedis()
		r.wentWell(g, card.TS)
		if res := g.again(do); res.IsError() || !strings.Contains(res.Text(), "not run again") {
			t.Errorf("a retry got %s", res.Body)
		}
		r.judge(1, "after the retry")
	})
}

func (r *rig) restartRedis() {
	r.t.Helper()
	if err := r.redis.Restart(); err != nil {
		r.t.Fatal(err)
	}
}

// wentWell is the end of a story in which the call ran once.
func (r *rig) wentWell(g *gate, card string) {
	r.t.Helper()
	r.settled(card, "It ran", "success")
	g.stands("succeeded", "")
	r.judge(1, "in the end")
	r.verify()
}

// A Redis that could lose or invent approvals is not used: the process stops,
// says what is wrong and, where somebody may accept it, by which key.
func TestRedisRefused(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		args []string
		says []string
	}{
		"evicts":  {[]string{"--maxmemory-policy", "allkeys-lru"}, []string{"maxmemory-policy is allkeys-lru", "must be noeviction"}},
		"forgets": {[]string{"--appendonly", "no"}, []string{"no append-only file", "redis.accept_no_aof"}},
		"follows": {[]string{"--replicaof", "127.0.0.1 1"}, []string{"is a slave, not a master"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, rigOptions{})
			r.redisURL = redistest.Start(t, row.args...).URL()
			_, errs, code := countersign(within(t, 60*time.Second), nil, "serve", "--config", r.config("a"))
			if code == 0 || code == -1 {
				t.Errorf("it ended with %d", code)
			}
			told(t, errs, row.says...)
		})
	}
	// The check is not only made at start: a Redis that comes later is looked at
	// before anything is kept in it.
	t.Run("comes later", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, rigOptions{})
		bad := redistest.Start(t, "--maxmemory-policy", "volatile-ttl")
		r.redis = bad
		proxy := r.behindProxy()
		proxy.Down()
		g := r.launch("a")
		g.withoutStore()
		proxy.Up()
		g.died()
		told(t, g.stderr.String(), "maxmemory-policy is volatile-ttl")
	})
}

const anySize = ^uint64(0)

// Nothing runs that can't be recorded, whatever the policy says of it: callers
// are told why, the gate is not ready, and goes on by itself when the disk does.
func TestLedgerUnwritable(t *testing.T) {
	t.Parallel()
	t.Run("calls", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, rigOptions{})
		g := r.start("a", "")
		g.reads() // the upstream is up
		g.fileSize(0)
		for name, res := range map[string]testservers.Reply{"read": g.reads(), "review": g.again(testservers.Do{N: 1})} {
			if res.Reason() != "ledger_unavailable" || !strings.Contains(res.Text(), "was not run") {
				t.Errorf("%s: %s", name, res.Body)
			}
		}
		g.notReady("ledger")
		if n := r.upstream.Ran("read_thing"); n != 1 {
			t.Errorf("a call ran without a record: %d", n)
		}
		if list := g.standings(); len(list) != 0 {
			t.Errorf("something was parked: %+v", list)
		}
		r.judge(0, "without a ledger")
		g.fileSize(anySize)
		g.becomesReady() // without any call
		r.runsAnew(g, testservers.Do{N: 1}, 0)
		if res := g.reads(); res.IsError() || res.Error != nil {
			t.Errorf("a harmless call: %s", res.Body)
		}
		r.verify()
	})
	t.Run("approved", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, rigOptions{Hold: time.Minute})
		g := r.start("a", "")
		got := call(g.client(testservers.Modern), testservers.Do{N: 1}, testservers.Extra{})
		card := r.card()
		g.fileSize(0)
		r.approve(card.TS)
		res := await(t, got)
		if !res.IsError() || res.Approval().Status != "not_run" || !strings.Contains(res.Text(), "could not be recorded") {
			t.Errorf("the caller was told: %s", res.Body)
		}
		r.settled(card.TS, "It was not run", "the ledger could not be written")
		r.judge(0, "without its start on the ledger")
		g.fileSize(anySize)
		g.becomesReady()
		r.runsAnew(g, testservers.Do{N: 1}, 0)
		r.verify()
	})
	t.Run("running", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, rigOptions{Hold: time.Minute})
		g := r.start("a", "")
		do := testservers.Do{N: 1, Wait: "the end"}
		got := call(g.client(testservers.Modern), do, testservers.Extra{})
		card := r.card()
		r.approve(card.TS)
		if err := r.upstream.WaitRan(within(t, 20*time.Second), "do_thing", 1); err != nil {
			t.Fatal(err)
		}
		g.fileSize(0)
		if err := r.upstream.Release("the end"); err != nil {
			t.Fatal(err)
		}
		res := await(t, got)
		if !res.IsError() || res.Approval().Status != "unknown" || !strings.Contains(res.Text(), "could not be recorded") {
			t.Errorf("the caller was told: %s", res.Body)
		}
		r.settled(card.TS, "It is not known whether it ran", "the ledger could not be written")
		g.fileSize(anySize)
		g.becomesReady()
		if res := g.again(do); res.Approval().Status != "unknown" {
			t.Errorf("a retry was told: %s", res.Body)
		}
		r.judge(1, "in the end")
		r.verify()
	})
}
