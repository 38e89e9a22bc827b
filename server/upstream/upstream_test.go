package upstream_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-mcp/countersign/server/upstream"
	"github.com/countersign-mcp/countersign/server/upstream/upstreamtest"
)

func TestMain(m *testing.M) {
	upstreamtest.Main()
	os.Exit(m.Run())
}

const oneTool = `[{"name":"echo","inputSchema":{"type":"object"}}]`

func start(t *testing.T, dir upstreamtest.Dir, env ...string) *upstream.Upstream {
	t.Helper()
	u, err := upstream.New(upstream.Config{
		Name: "desk", Command: dir.Command(), Env: dir.Env(env...), Version: "test", StopGrace: 3 * time.Second,
		ProbeTimeout: 5 * time.Second,
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { u.Close() })
	return u
}

func callParams(tool, rest string) json.RawMessage {
	return json.RawMessage(`{"name":"` + tool + `"` + rest + `}`)
}

func TestBytesPassUnchangedBothWays(t *testing.T) {
	for _, era := range []string{"legacy", "modern"} {
		t.Run(era, func(t *testing.T) {
			dir := upstreamtest.NewDir(t, oneTool)
			u := start(t, dir, upstreamtest.EraVar, era)
			args := `{ "z":9007199254740993, "a":1.0e2,  "s":"\u003c<&>","nested":{"b":1,"a":[ ]} }`
			res, err := u.Do(t.Context(), upstream.Request{
				Method: "tools/call",
				Params: callParams("echo", `, "arguments":`+args+`,"future":{"x":1.50},"_meta":{"trace":"a","io.modelcontextprotocol/protocolVersion":"2025-01-01","io.modelcontextprotocol/clientInfo":{"name":"spy"},"progressToken":7}`),
			})
			if err != nil {
				t.Fatal(err)
			}
			want := `{"content":[{"type":"text","text":"ran"}],  "echo": ` + args + `,"unknownField":{"n":9007199254740993}}`
			if string(res) != want {
				t.Errorf("result\n got %s\nwant %s", res, want)
			}
			frames := dir.Lines("frames.log")
			sent := frames[len(frames)-1]
			if !strings.Contains(sent, `"arguments":`+args) || !strings.Contains(sent, `"future":{"x":1.50}`) {
				t.Errorf("the frame lost bytes: %s", sent)
			}
			if strings.Contains(sent, "spy") || strings.Contains(sent, "2025-01-01") || strings.Contains(sent, "progressToken") {
				t.Errorf("the caller's own hop members went up: %s", sent)
			}
			if !strings.Contains(sent, `"trace":"a"`) {
				t.Errorf("the caller's other _meta is gone: %s", sent)
			}
			if got := strings.Contains(sent, `"io.modelcontextprotocol/clientInfo":{"name":"countersign","version":"test"}`); got != (era == "modern") {
				t.Errorf("our own clientInfo in the frame: %v, want it in the modern era only: %s", got, sent)
			}
		})
	}
}

func TestLineBreaksBetweenTokensDoNotSplitAFrame(t *testing.T) {
	dir := upstreamtest.NewDir(t, oneTool)
	u := start(t, dir)
	if _, err := u.Do(t.Context(), upstream.Request{Method: "tools/call", Params: json.RawMessage("{\n \"name\":\"echo\",\r\n\"arguments\":{\n\"a\":\"x\\ny\"}}")}); err != nil {
		t.Fatal(err)
	}
	if bad := dir.Lines("bad.log"); bad != nil {
		t.Errorf("the upstream could not read: %v", bad)
	}
	if diff := cmp.Diff([]string{`echo { "a":"x\ny"}`}, dir.Calls()); diff != "" {
		t.Error(diff)
	}
}

func TestHandshakeByEra(t *testing.T) {
	tests := []struct {
		era, protocol, name string
		frames              []string // methods sent before the first request
		fails               bool
	}{
		{era: "legacy", protocol: "2025-11-25", name: "desk", frames: []string{"server/discover", "initialize", "notifications/initialized"}},
		{era: "silent", protocol: "2025-11-25", name: "desk", frames: []string{"server/discover", "notifications/cancelled", "initialize", "notifications/initialized"}},
		{era: "modern", protocol: "2026-07-28", name: "desk", frames: []string{"server/discover"}},
		{era: "refuses", frames: []string{"server/discover"}, fails: true},
	}
	for _, tt := range tests {
		t.Run(tt.era, func(t *testing.T) {
			dir := upstreamtest.NewDir(t, oneTool)
			probe := 5 * time.Second
			if tt.era == "silent" {
				probe = 500 * time.Millisecond
			}
			u, err := upstream.New(upstream.Config{
				Name: "desk", Command: dir.Command(), Env: dir.Env(upstreamtest.EraVar, tt.era), ProbeTimeout: probe,
			}, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			defer u.Close()
			_, err = u.Tools(t.Context())
			if (err != nil) != tt.fails {
				t.Fatalf("Tools: %v", err)
			}
			if tt.fails && !errors.Is(err, upstream.ErrNotSent) {
				t.Errorf("a failed handshake is %v, want ErrNotSent", err)
			}
			if info := u.Info(); info.Protocol != tt.protocol || info.Name != tt.name {
				t.Errorf("Info = %+v", info)
			}
			var methods []string
			for _, l := range dir.Await("frames.log", len(tt.frames)) {
				var f struct {
					Method string
					Params struct{ Capabilities json.RawMessage }
				}
				if err := json.Unmarshal([]byte(l), &f); err != nil {
					t.Fatal(err)
				}
				if f.Method == "initialize" && string(f.Params.Capabilities) != "{}" {
					t.Errorf("capabilities declared: %s", f.Params.Capabilities)
				}
				if f.Method != "tools/list" {
					methods = append(methods, f.Method)
				}
			}
			if diff := cmp.Diff(tt.frames, methods); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestErrorsSayWhetherItMayHaveRun(t *testing.T) {
	t.Run("crash in the middle of a call", func(t *testing.T) {
		dir := upstreamtest.NewDir(t, oneTool)
		u := start(t, dir)
		_, err := u.Do(t.Context(), upstream.Request{Method: "tools/call", Params: callParams("crash", `,"arguments":{}`)})
		if !errors.Is(err, upstream.ErrLost) || errors.Is(err, upstream.ErrNotSent) {
			t.Errorf("got %v, want ErrLost", err)
		}
		if n := len(dir.Calls()); n != 1 {
			t.Errorf("ran %d times, want 1: a lost call is never sent again", n)
		}
		if _, err := u.Do(t.Context(), upstream.Request{Method: "tools/call", Params: callParams("echo", `,"arguments":{}`)}); err != nil {
			t.Errorf("after the crash it was not restarted: %v", err)
		}
	})
	t.Run("a program that does not exist", func(t *testing.T) {
		u, err := upstream.New(upstream.Config{Name: "x", Command: []string{"/nonexistent/server"}}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if _, err := u.Do(t.Context(), upstream.Request{Method: "tools/call"}); !errors.Is(err, upstream.ErrNotSent) {
				t.Errorf("got %v, want ErrNotSent", err)
			}
		}
	})
	t.Run("a program that ends at once", func(t *testing.T) {
		u, err := upstream.New(upstream.Config{Name: "x", Command: []string{"/bin/sh", "-c", "exit 1"}}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := u.Do(t.Context(), upstream.Request{Method: "tools/call"}); !errors.Is(err, upstream.ErrNotSent) {
			t.Errorf("got %v, want ErrNotSent", err)
		}
	})
	t.Run("killed from outside", func(t *testing.T) {
		dir := upstreamtest.NewDir(t, oneTool)
		u := start(t, dir)
		errs := make(chan error, 1)
		go func() {
			_, err := u.Do(context.Background(), upstream.Request{Method: "tools/call", Params: callParams("hang", `,"arguments":{}`)})
			errs <- err
		}()
		dir.Await("calls.log", 1)
		kill(t, dir)
		if err := <-errs; !errors.Is(err, upstream.ErrLost) {
			t.Errorf("got %v, want ErrLost", err)
		}
	})
	for _, tool := range []string{"garbage", "twice"} {
		t.Run("a line that can't be trusted: "+tool, func(t *testing.T) {
			dir := upstreamtest.NewDir(t, oneTool)
			u := start(t, dir)
			_, err := u.Do(t.Context(), upstream.Request{Method: "tools/call", Params: callParams(tool, `,"arguments":{}`)})
			if !errors.Is(err, upstream.ErrLost) {
				t.Errorf("got %v, want ErrLost", err)
			}
			if _, err := u.Tools(t.Context()); err != nil {
				t.Errorf("not restarted: %v", err)
			}
			if n := len(dir.Lines("starts.log")); n != 2 {
				t.Errorf("%d processes, want 2: the first is not to be used again", n)
			}
		})
	}
}

func kill(t *testing.T, dir upstreamtest.Dir) {
	t.Helper()
	pids := dir.Lines("starts.log")
	var pid int
	if err := json.Unmarshal([]byte(pids[len(pids)-1]), &pid); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

func TestCancelReachesTheUpstream(t *testing.T) {
	dir := upstreamtest.NewDir(t, oneTool)
	u := start(t, dir)
	ctx, cancel := context.WithCancel(t.Context())
	errs := make(chan error, 1)
	go func() {
		_, err := u.Do(ctx, upstream.Request{Method: "tools/call", Params: callParams("hang", `,"arguments":{}`)})
		errs <- err
	}()
	dir.Await("calls.log", 1)
	cancel()
	if err := <-errs; !errors.Is(err, upstream.ErrLost) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want ErrLost and the context's error", err)
	}
	dir.Await("cancelled.log", 1)
}

func TestFaultIsPassedAsItWasSent(t *testing.T) {
	dir := upstreamtest.NewDir(t, oneTool)
	u := start(t, dir)
	_, err := u.Do(t.Context(), upstream.Request{Method: "tools/call", Params: callParams("rpcerror", `,"arguments":{}`)})
	var f *upstream.Fault
	if !errors.As(err, &f) {
		t.Fatalf("got %v", err)
	}
	if want := `{"code":-32050,"message":"own code","data":{"n":9007199254740993},"extra":true}`; f.Code != -32050 || string(f.Raw) != want {
		t.Errorf("got %d %s", f.Code, f.Raw)
	}
	if errors.Is(err, upstream.ErrLost) || errors.Is(err, upstream.ErrNotSent) {
		t.Error("an answered call is neither lost nor unsent")
	}
}

func TestUpstreamsRequestsAreRefused(t *testing.T) {
	dir := upstreamtest.NewDir(t, oneTool)
	u := start(t, dir)
	res, err := u.Do(t.Context(), upstream.Request{Method: "tools/call", Params: callParams("ask", `,"arguments":{}`)})
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Answers []struct{ Code int }
	}
	if err := json.Unmarshal(res, &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Answers) != 3 || got.Answers[0].Code != -32601 || got.Answers[1].Code != -32601 || got.Answers[2].Code != 0 {
		t.Errorf("got %s, want two refusals and an answered ping", res)
	}
}

func TestProgressGoesToItsOwnCall(t *testing.T) {
	dir := upstreamtest.NewDir(t, oneTool)
	u := start(t, dir)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			var got []string
			_, err := u.Do(t.Context(), upstream.Request{
				Method: "tools/call", Params: callParams("progress", `,"arguments":{}`),
				Progress: func(p json.RawMessage) { got = append(got, string(p)) },
			})
			if err != nil || len(got) != 3 || !strings.Contains(got[0], `"progress":1,"big":9007199254740993`) {
				t.Errorf("%v: %v", err, got)
			}
		})
	}
	wg.Wait()
}

func TestToolsReadsAllPages(t *testing.T) {
	dir := upstreamtest.NewDir(t, `[{"name":"a", "x":9007199254740993},{"name":"b"},{"name":"c"}]`)
	u := start(t, dir, upstreamtest.PageVar, "1")
	tools, err := u.Tools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, tool := range tools {
		got = append(got, string(tool))
	}
	if diff := cmp.Diff([]string{`{"name":"a", "x":9007199254740993}`, `{"name":"b"}`, `{"name":"c"}`}, got); diff != "" {
		t.Error(diff)
	}
}

// A list has an end, on one page as on many.
func TestToolsRefusesAListWithoutEnd(t *testing.T) {
	for name, n := range map[string]int{"too many tools on one page": 10_001, "as many as may be": 10_000} {
		t.Run(name, func(t *testing.T) {
			u := start(t, upstreamtest.NewDir(t, "["+strings.Repeat(`{"name":"a"},`, n-1)+`{"name":"a"}]`))
			tools, err := u.Tools(t.Context())
			if (err == nil) != (n == 10_000) || err == nil && len(tools) != n {
				t.Errorf("%d tools: %v", len(tools), err)
			}
		})
	}
	t.Run("too many pages", func(t *testing.T) {
		u := start(t, upstreamtest.NewDir(t, "["+strings.Repeat(`{"name":"a"},`, 100)+`{"name":"a"}]`), upstreamtest.PageVar, "1")
		if tools, err := u.Tools(t.Context()); err == nil {
			t.Errorf("%d tools", len(tools))
		}
	})
}
