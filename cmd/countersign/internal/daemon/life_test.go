package daemon

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/countersign-mcp/countersign/approvals/ledger"
	"github.com/countersign-mcp/countersign/approvals/store"
	"github.com/countersign-mcp/countersign/approvals/store/redistest"
	"github.com/countersign-mcp/countersign/cmd/countersign/internal/e2e/testservers"
)

// Addresses are known before anything is served, each is another one, and there
// are only those that the way of running needs.
func TestAddrs(t *testing.T) {
	for name, c := range map[string]struct {
		store string
		stdio bool
		want  int
	}{
		"serve":            {"store: ephemeral", false, 3},
		"stdio alone":      {"store: ephemeral", true, 2}, // it tells and listens by itself
		"stdio with Redis": {`redis: {url: "redis://127.0.0.1:1/0"}`, true, 0},
		"serve with Redis": {`redis: {url: "redis://127.0.0.1:1/0"}`, false, 3},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.Store = c.store
			o := s.options(newAsked())
			o.Stdio = c.stdio
			d, err := New(s.config(), o)
			if err != nil {
				t.Fatal(err)
			}
			defer s.stop(d)
			seen := map[string]bool{}
			for _, a := range []string{d.Addrs().MCP, d.Addrs().Webhook, d.Addrs().Admin} {
				if a == "" {
					continue
				}
				if host, port, err := net.SplitHostPort(a); err != nil || host != "127.0.0.1" || port == "0" {
					t.Errorf("%q is no address", a)
				}
				seen[a] = true
			}
			if len(seen) != c.want || c.stdio && d.Addrs().MCP != "" {
				t.Errorf("%+v", d.Addrs())
			}
		})
	}
}

// Stop may come at any time, any number of times and from several sides; it
// leaves no goroutine, no port and no ledger behind.
func TestStopTwice(t *testing.T) {
	for name, started := range map[string]bool{"started": true, "never started": false} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			before := goleak.IgnoreCurrent()
			d, err := New(s.config(), s.options(newAsked()))
			if err != nil {
				t.Fatal(err)
			}
			if started {
				if err := d.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				if res, err := s.client(d).Call(within(t, 20*time.Second), "read_thing", []byte(`{}`), testservers.Extra{}); err != nil || res.IsError() {
					t.Fatalf("%v: %s", err, res.Body)
				}
			}
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() { s.stop(d) })
			}
			all.Wait()
			s.stop(d)
			for _, a := range []string{d.Addrs().MCP, d.Addrs().Webhook, d.Addrs().Admin} {
				if c, err := net.Dial("tcp", a); err == nil {
					_ = c.Close()
					t.Errorf("%s still answers", a)
				}
			}
			goleak.VerifyNone(t, before)
			closedLedgers(t, filepath.Join(s.dir, "data", "ledger"))
		})
	}
}

// A stop lets what runs end and be recorded, answers who waits for a person, and
// closes the ledger last: the record of the late result is on it.
func TestStopLetsCallsEnd(t *testing.T) {
	s := newScene(t)
	links := newAsked()
	before := goleak.IgnoreCurrent()
	s.write("policy.yaml", `version: 2
tools: {judge/do_thing: write, judge/hidden_thing: destructive}
routes:
  default: {channels: [link:olga], approvers: [olga], timeout: 1m}
`)
	d := s.start(s.options(links))
	c := s.client(d)
	type answer struct {
		testservers.Reply
		err error
	}
	call := func(tool, args string) <-chan answer {
		out := make(chan answer, 1)
		go func() {
			res, err := c.Call(within(t, time.Minute), tool, []byte(args), testservers.Extra{})
			out <- answer{res, err}
		}()
		return out
	}
	parked, running := call("hidden_thing", `{}`), call("do_thing", `{"n":1,"wait":"the stop"}`)
	if err := s.upstream.WaitRan(within(t, 20*time.Second), "do_thing", 1); err != nil {
		t.Fatal(err)
	}
	select {
	case <-links.got:
	case <-time.After(20 * time.Second):
		t.Fatal("nobody was asked")
	}
	stopped := make(chan error, 1)
	go func() { stopped <- d.Stop(within(t, 30*time.Second)) }()
	if a := <-parked; a.err != nil || a.Approval().Status != "pending" {
		t.Errorf("who waited for a person got %v: %s", a.err, a.Body)
	}
	select {
	case err := <-stopped:
		t.Fatalf("it stopped while a call ran: %v", err)
	default:
	}
	if err := s.upstream.Release("the stop"); err != nil {
		t.Fatal(err)
	}
	if a := <-running; a.err != nil || a.IsError() || a.Text() != "do_thing done, n=1" {
		t.Errorf("the running call got %v: %s", a.err, a.Body)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	goleak.VerifyNone(t, before)
	closedLedgers(t, filepath.Join(s.dir, "data", "ledger"))
	ok := false
	if _, err := ledger.ReadFile(d.LedgerPath(), func(r ledger.Record) error {
		ok = ok || r.Event == ledger.Result && r.Tool == "do_thing" && r.Status == ledger.StatusOK
		return nil
	}); err != nil || !ok {
		t.Errorf("the result is not on the ledger: %v", err)
	}
}

// A stop whose time is up says so and still closes everything.
func TestStopInAHurry(t *testing.T) {
	s := newScene(t)
	before := goleak.IgnoreCurrent()
	s.write("policy.yaml", "version: 2\ntools: {judge/do_thing: write}\n")
	d := s.start(s.options(nil))
	c := s.client(d)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = c.Call(within(t, time.Minute), "do_thing", []byte(`{"silent":true}`), testservers.Extra{}) // whatever it is told
	}()
	if err := s.upstream.WaitRan(within(t, 20*time.Second), "do_thing", 1); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.Stop(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	select {
	case <-gone:
	case <-time.After(20 * time.Second):
		t.Error("the caller still waits")
	}
	goleak.VerifyNone(t, before)
	closedLedgers(t, filepath.Join(s.dir, "data", "ledger"))
}

// get reads an operators' page.
func get(t *testing.T, url string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(within(t, 20*time.Second), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{DisableKeepAlives: true}
	res, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

// Without Redis at the start it serves what needs nobody, refuses what needs
// somebody and says that it is not ready; when Redis comes all of it works,
// without a restart.
func TestStoreComesLater(t *testing.T) {
	redis := redistest.Start(t)
	proxy := testservers.NewProxy(t, "unix:"+redis.Addr)
	proxy.Down()
	s := newScene(t)
	s.Store = `redis: {url: "redis://` + proxy.Addr() + `/0"}`
	before := goleak.IgnoreCurrent()
	links := newAsked()
	d := s.start(s.options(links))
	c := s.client(d)
	ctx := within(t, time.Minute)
	if res, err := c.Call(ctx, "read_thing", []byte(`{}`), testservers.Extra{}); err != nil || res.IsError() || res.Result == nil {
		t.Errorf("reading: %v: %s", err, res.Body)
	}
	if res, err := c.Call(ctx, "do_thing", []byte(`{"n":1}`), testservers.Extra{}); err != nil || res.Reason() != "store_unavailable" {
		t.Errorf("asking: %v: %s", err, res.Body)
	}
	if code, text := get(t, "http://"+d.Addrs().Admin+"/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(text, "redis") {
		t.Errorf("/readyz: %d %s", code, text)
	}
	if code, _ := get(t, "http://"+d.Addrs().Admin+"/healthz"); code != http.StatusOK {
		t.Errorf("/healthz: %d", code)
	}
	proxy.Up()
	for code, text := 0, ""; code != http.StatusOK; code, text = get(t, "http://"+d.Addrs().Admin+"/readyz") {
		if ctx.Err() != nil {
			t.Fatalf("it never became ready: %d %s", code, text)
		}
		time.Sleep(20 * time.Millisecond) // it can only be asked again
	}
	waiting := make(chan testservers.Reply, 1)
	go func() {
		res, _ := c.Call(ctx, "do_thing", []byte(`{"n":1}`), testservers.Extra{}) // an error leaves it empty
		waiting <- res
	}()
	select {
	case <-links.got:
	case <-ctx.Done():
		t.Fatal("nobody was asked")
	}
	s.stop(d)
	if res := <-waiting; res.Approval().Status != "pending" {
		t.Errorf("the caller got %s", res.Body)
	}
	if s.upstream.Ran("do_thing") != 0 {
		t.Error("it ran")
	}
	select {
	case err := <-d.Failed():
		t.Errorf("it failed: %v", err)
	default:
	}
	goleak.VerifyNone(t, before)
}

// A Redis that would lose approvals is no place to keep them: the process says
// why and gives up, also when it meets that Redis late.
func TestStoreThatForgets(t *testing.T) {
	redis := redistest.Start(t, "--maxmemory-policy", "allkeys-lru")
	proxy := testservers.NewProxy(t, "unix:"+redis.Addr)
	proxy.Down()
	s := newScene(t)
	s.Store = `redis: {url: "redis://` + proxy.Addr() + `/0"}`
	before := goleak.IgnoreCurrent()
	d := s.start(s.options(newAsked()))
	select {
	case err := <-d.Failed():
		t.Fatalf("it failed before it had met Redis: %v", err)
	default:
	}
	proxy.Up()
	select {
	case err := <-d.Failed():
		var refused *store.Refusal
		if !errors.As(err, &refused) || !strings.Contains(err.Error(), "allkeys-lru") {
			t.Errorf("%v", err)
		}
	case <-time.After(30 * time.Second):
		t.Error("it goes on with a Redis that evicts")
	}
	if res, err := s.client(d).Call(within(t, 20*time.Second), "do_thing", []byte(`{"n":1}`), testservers.Extra{}); err != nil || res.Reason() != "store_unavailable" {
		t.Errorf("asking: %v: %s", err, res.Body)
	}
	s.stop(d)
	goleak.VerifyNone(t, before)
}

// Who calls over standard input can't be verified, so it has to be stated.
func TestStdioNeedsAnActor(t *testing.T) {
	s := newScene(t)
	cfg := s.config()
	cfg.MCP.Stdio.Actor = ""
	o := s.options(newAsked())
	o.Stdio = true
	if _, err := New(cfg, o); err == nil || !strings.Contains(err.Error(), "mcp.stdio.actor") {
		t.Errorf("%v", err)
	}
}
