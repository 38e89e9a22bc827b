package upstream_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/server/upstream"
	"github.com/countersign-mcp/countersign/server/upstream/upstreamtest"
)

func TestEnvironmentIsScrubbed(t *testing.T) {
	t.Setenv("COUNTERSIGN_KEY", "canary-7321")
	t.Setenv("LC_ALL", "C.UTF-8")
	dir := upstreamtest.NewDir(t, oneTool)
	u := start(t, dir, "OWN", "yes")
	res, err := u.Do(t.Context(), upstream.Request{Method: "tools/call", Params: callParams("env", `,"arguments":{}`)})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(res), "canary-7321") {
		t.Error("the child has our key")
	}
	for _, want := range []string{"OWN=yes", "LC_ALL=C.UTF-8", "PATH="} {
		if !strings.Contains(string(res), want) {
			t.Errorf("the child lacks %s", want)
		}
	}
}

func TestCloseStopsAChildThatIgnoresItsStdin(t *testing.T) {
	u, err := upstream.New(upstream.Config{
		Name: "stubborn", StopGrace: 100 * time.Millisecond,
		Command: []string{"/bin/sh", "-c", `trap "" TERM; while read line; do case "$line" in *discover*) echo '{"jsonrpc":"2.0","id":"cs-1","result":{"supportedVersions":["2026-07-28"]}}';; esac; done; sleep 600`},
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := u.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{})
	go func() { u.Close(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(10 * time.Second):
		t.Fatal("Close did not return")
	}
	if _, err := u.Do(t.Context(), upstream.Request{Method: "ping"}); !errors.Is(err, upstream.ErrNotSent) {
		t.Errorf("after Close: %v", err)
	}
}

func TestCloseDoesNotWaitForAHandshake(t *testing.T) {
	began := filepath.Join(t.TempDir(), "began")
	u, err := upstream.New(upstream.Config{
		Name: "mute", StopGrace: 100 * time.Millisecond, Command: []string{"/bin/sh", "-c", `: >"$0"; exec sleep 600`, began},
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	started := make(chan error, 1)
	go func() { started <- u.Start(t.Context()) }()
	for ctx := t.Context(); ctx.Err() == nil; time.Sleep(time.Millisecond) {
		if _, err := os.Stat(began); err == nil {
			break
		}
	}
	closed := make(chan struct{})
	go func() { u.Close(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(5 * time.Second):
		t.Fatal("Close waits for a server that does not answer")
	}
	if err := <-started; !errors.Is(err, upstream.ErrNotSent) {
		t.Errorf("the start ended with %v", err)
	}
}

func TestAContextThatHasEndedSendsNothing(t *testing.T) {
	dir := upstreamtest.NewDir(t, oneTool)
	u := start(t, dir)
	if err := u.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := u.Do(ctx, upstream.Request{Method: "tools/call", Params: callParams("echo", `,"arguments":{}`)}); !errors.Is(err, upstream.ErrNotSent) {
		t.Errorf("got %v", err)
	}
	if calls := dir.Calls(); calls != nil {
		t.Errorf("ran: %v", calls)
	}
}

func TestNothingIsWrittenAfterItsMoment(t *testing.T) {
	dir := upstreamtest.NewDir(t, oneTool)
	u := start(t, dir)
	if err := u.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err := u.Do(t.Context(), upstream.Request{Method: "tools/call", Params: callParams("echo", `,"arguments":{}`), Before: time.Now()})
	if !errors.Is(err, upstream.ErrTooLate) || !errors.Is(err, upstream.ErrNotSent) {
		t.Errorf("got %v", err)
	}
	if _, err := u.Do(t.Context(), upstream.Request{Method: "tools/call", Params: callParams("echo", `,"arguments":{}`), Before: time.Now().Add(time.Hour)}); err != nil {
		t.Error(err)
	}
	if n := len(dir.Calls()); n != 1 {
		t.Errorf("ran %d times, want 1", n)
	}
}

func TestIdentityNamesNoSecret(t *testing.T) {
	id := func(command []string, env map[string]string) string {
		u, err := upstream.New(upstream.Config{Name: "x", Command: command, Env: env}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		return u.Identity().Hex()
	}
	a := id([]string{"s", "x"}, map[string]string{"TOKEN": "1"})
	if a != id([]string{"s", "x"}, map[string]string{"TOKEN": "2"}) {
		t.Error("a secret's value moves the identity")
	}
	if a == id([]string{"s", "y"}, map[string]string{"TOKEN": "1"}) || a == id([]string{"s", "x"}, nil) {
		t.Error("another command or environment has the same identity")
	}
}

// An update is the same server; what it says of itself is kept as it was sent.
func TestIdentityIsWithoutTheVersion(t *testing.T) {
	dir := upstreamtest.NewDir(t, oneTool)
	ids := map[string]string{}
	for _, era := range []string{"legacy", "modern"} { // versions 1.2 and 2.0 of "desk"
		cfg := upstream.Config{Name: "desk", Command: dir.Command(), Env: dir.Env(upstreamtest.EraVar, era)}
		u, err := upstream.New(cfg, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { u.Close() })
		if err := u.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		ids[era] = u.Identity().Hex()
		if want := action.ServerID(cfg.Command, "", slices.Sorted(maps.Keys(cfg.Env)), "desk").Hex(); ids[era] != want {
			t.Errorf("%s: the identity is not that of command, directory, variables and name", era)
		}
		want := map[string]string{"legacy": `{"tools":{"listChanged":true}}`, "modern": `{"tools":{}}`}[era]
		if got := string(u.Info().Capabilities); got != want {
			t.Errorf("%s: capabilities %s, want %s", era, got, want)
		}
	}
	if ids["legacy"] != ids["modern"] {
		t.Error("another version has another identity")
	}
}

func TestListSurvivesACrash(t *testing.T) {
	dir := upstreamtest.NewDir(t, oneTool)
	u := start(t, dir)
	for range 5 {
		crashed := make(chan struct{})
		go func() {
			defer close(crashed)
			_, _ = u.Do(context.Background(), upstream.Request{Method: "tools/call", Params: callParams("crash", `,"arguments":{}`)})
		}()
		if _, err := u.Tools(t.Context()); err != nil {
			t.Errorf("a crash of another's call: %v", err)
		}
		<-crashed
		if _, err := u.Do(t.Context(), upstream.Request{Method: "tools/call", Params: callParams("echo", `,"arguments":{}`)}); err != nil {
			t.Error(err) // and the failures in a row are forgotten
		}
	}
}
