package testservers

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

func TestMain(m *testing.M) {
	Main()
	os.Exit(m.Run())
}

func start(t *testing.T, u *Upstream, era Era) *Stdio {
	t.Helper()
	cmd := exec.Command(u.Command()[0], u.Command()[1:]...)
	cmd.Env = os.Environ()
	for k, v := range u.Env(era == Modern) {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	cmd.Stderr = t.Output()
	return StartStdio(t, cmd, era)
}

func TestUpstreamInBothEras(t *testing.T) {
	for _, era := range []Era{Legacy, Modern} {
		t.Run(string(era), func(t *testing.T) {
			u := NewUpstream(t)
			c := start(t, u, era)
			if r, err := c.Initialize(t.Context()); err != nil || r.Result == nil {
				t.Fatalf("opening: %s %v", r.Error, err)
			}
			r, err := c.ListTools(t.Context())
			if err != nil || !slices.Equal(r.Tools(), []string{"read_thing", "do_thing", "hidden_thing"}) {
				t.Fatalf("tools %v, %v", r.Tools(), err)
			}
			args := `{"n":7,  "big":9007199254740993}`
			if r, err = c.Call(t.Context(), "do_thing", []byte(args), Extra{}); err != nil || r.Text() != "do_thing done, n=7" || r.IsError() {
				t.Fatalf("call: %q %v", r.Text(), err)
			}
			ran := u.Executions()
			if len(ran) != 1 || ran[0].Tool != "do_thing" || !strings.Contains(string(ran[0].Args), "9007199254740993") {
				t.Errorf("the judge says %+v", ran)
			}
			if len(c.Noise()) != 0 || len(c.Other()) != 0 {
				t.Errorf("noise %q, other %q", c.Noise(), c.Other())
			}
		})
	}
}

func TestUpstreamOfTheOlderEraKnowsNoDiscover(t *testing.T) {
	c := start(t, NewUpstream(t), Legacy)
	if r, err := c.Request(t.Context(), "server/discover", nil, Extra{}); err != nil || r.Code() != -32601 {
		t.Errorf("answer %s %v", r.Error, err)
	}
}

func TestUpstreamAnswers(t *testing.T) {
	u := NewUpstream(t)
	c := start(t, u, Legacy)
	do := func(d Do, x Extra) Reply {
		t.Helper()
		r, err := c.Call(t.Context(), "do_thing", d.Args(), x)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := do(Do{Fail: "no"}, Extra{}); !r.IsError() || r.Text() != "no" {
		t.Errorf("fail: %s", r.Result)
	}
	if r := do(Do{Fault: -32000}, Extra{}); r.Code() != -32000 || !strings.Contains(string(r.Error), "9007199254740993") {
		t.Errorf("fault: %s", r.Error)
	}
	if r := do(Do{Odd: true}, Extra{}); string(r.Result) != OddResult {
		t.Errorf("odd: %s", r.Result)
	}
	r := do(Do{Progress: 3}, Extra{Progress: "tok"})
	if p := r.Progress(); len(p) != 3 || !strings.Contains(string(p[2]), `"progress":3`) || len(r.Frames) != 4 {
		t.Errorf("progress: %s", p)
	}
	if r := do(Do{Progress: 3}, Extra{}); len(r.Frames) != 1 {
		t.Errorf("progress without a token: %d frames", len(r.Frames))
	}
	if r := do(Do{Size: 70_000}, Extra{}); len(r.Text()) != 70_000 {
		t.Errorf("size: %d", len(r.Text()))
	}
	if n := u.Ran("do_thing"); n != 6 {
		t.Errorf("%d executions, want 6", n)
	}
}

func TestUpstreamWaitsForItsRelease(t *testing.T) {
	u := NewUpstream(t)
	c := start(t, u, Legacy)
	done := make(chan Reply, 1)
	go func() {
		r, _ := c.Call(t.Context(), "do_thing", Do{Wait: "go"}.Args(), Extra{})
		done <- r
	}()
	if err := u.WaitRan(t.Context(), "do_thing", 1); err != nil {
		t.Fatal(err)
	}
	// Another call gets by meanwhile.
	if _, err := c.Call(t.Context(), "read_thing", nil, Extra{}); err != nil {
		t.Fatal(err)
	}
	select {
	case r := <-done:
		t.Fatalf("answered before the release: %s", r.Result)
	default:
	}
	if err := u.Release("go"); err != nil {
		t.Fatal(err)
	}
	if r := <-done; r.IsError() || r.Result == nil {
		t.Errorf("answer %s", r.Result)
	}
}

func TestUpstreamObeysACancellation(t *testing.T) {
	u := NewUpstream(t)
	c := start(t, u, Legacy)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := c.Call(ctx, "do_thing", Do{Wait: "never"}.Args(), Extra{ID: []byte(`"mine"`)})
		done <- err
	}()
	if err := u.WaitRan(t.Context(), "do_thing", 1); err != nil {
		t.Fatal(err)
	}
	if err := c.Line([]byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"mine"}}`)); err != nil {
		t.Fatal(err)
	}
	if err := u.WaitReceived(t.Context(), "notifications/cancelled", 1); err != nil {
		t.Fatal(err)
	}
	// The child takes its lines in order: after this answer it has obeyed.
	if _, err := c.Request(t.Context(), "ping", nil, Extra{}); err != nil {
		t.Fatal(err)
	}
	if err := u.Release("never"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Call(t.Context(), "do_thing", Do{Wait: "never"}.Args(), Extra{}); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled call was answered: %v", err)
	}
}

func TestUpstreamCrashes(t *testing.T) {
	for when, want := range map[string]int{"before": 0, "after": 1} {
		u := NewUpstream(t)
		c := start(t, u, Legacy)
		if _, err := c.Call(t.Context(), "do_thing", Do{Crash: when}.Args(), Extra{}); !errors.Is(err, ErrClosed) {
			t.Errorf("%s: error %v", when, err)
		}
		if n := u.Ran("do_thing"); n != want {
			t.Errorf("%s: %d executions, want %d", when, n, want)
		}
		// Another process goes on in the same directory.
		if _, err := start(t, u, Legacy).Call(t.Context(), "do_thing", Do{N: 1}.Args(), Extra{}); err != nil {
			t.Error(err)
		}
		if n := u.Ran("do_thing"); n != want+1 {
			t.Errorf("%s: %d executions after the restart", when, n)
		}
	}
}

func TestUpstreamChangesItsTools(t *testing.T) {
	u := NewUpstream(t)
	c := start(t, u, Legacy)
	list := func() string {
		t.Helper()
		r, err := c.ListTools(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return string(r.Result)
	}
	first := list()
	if err := u.ChangeTools(true); err != nil {
		t.Fatal(err)
	}
	if second := list(); second == first || !strings.Contains(second, "stranger") {
		t.Errorf("the definition stayed: %s", second)
	}
	if err := u.ChangeTools(false); err != nil {
		t.Fatal(err)
	}
	if third := list(); third != first {
		t.Errorf("the definition didn't come back: %s", third)
	}
}
