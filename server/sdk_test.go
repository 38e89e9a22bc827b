package server

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign-mcp/countersign/approvals/action"
)

type withToken struct{ next http.RoundTripper }

func (w withToken) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+anaToken)
	return w.next.RoundTrip(r)
}

// sdkClient is the official client, which says what it was told.
type sdkClient struct {
	*mcp.ClientSession
	progress chan *mcp.ProgressNotificationParams
}

func connectSDK(t *testing.T, transport mcp.Transport, version string) sdkClient {
	t.Helper()
	c := sdkClient{progress: make(chan *mcp.ProgressNotificationParams, 100)}
	client := mcp.NewClient(&mcp.Implementation{Name: "sdk", Version: "1"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { c.progress <- r.Params },
	})
	cs, err := client.Connect(t.Context(), transport, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatalf("connect %s: %v", version, err)
	}
	t.Cleanup(func() { cs.Close() })
	c.ClientSession = cs
	return c
}

// overBoth runs a test with the official client in both eras over both
// transports.
func overBoth(t *testing.T, test func(t *testing.T, g *rig, c sdkClient, version string)) {
	for _, version := range []string{modernVersion, "2025-11-25", "2025-03-26"} {
		t.Run("http "+version, func(t *testing.T) {
			g := newRig(t)
			tr := &mcp.StreamableClientTransport{Endpoint: g.url, HTTPClient: &http.Client{Transport: withToken{g.http.Client().Transport}}}
			test(t, g, connectSDK(t, tr, version), version)
		})
		t.Run("stdio "+version, func(t *testing.T) {
			g := newRig(t)
			toServer, fromClient := io.Pipe()
			toClient, fromServer := io.Pipe()
			done := make(chan error, 1)
			check := &lineChecker{t: t, w: fromServer}
			go func() {
				err := g.srv.ServeStdio(context.Background(), toServer, check, action.Actor{ID: "ana@acme.test", Auth: "none:stdio"})
				fromServer.Close()
				done <- err
			}()
			t.Cleanup(func() {
				fromClient.Close()
				toClient.Close()
				<-done
			})
			test(t, g, connectSDK(t, &mcp.IOTransport{Reader: toClient, Writer: fromClient}, version), version)
		})
	}
}

func TestOfficialClient(t *testing.T) {
	overBoth(t, func(t *testing.T, g *rig, c sdkClient, version string) {
		if got := c.InitializeResult(); got.ProtocolVersion != version || got.ServerInfo.Name != "countersign" || got.Capabilities.Tools == nil {
			t.Errorf("handshake: %+v", got)
		}
		list, err := c.ListTools(t.Context(), nil)
		if err != nil || len(list.Tools) != 1 || list.Tools[0].Name != "ok" {
			t.Fatalf("list: %+v %v", list, err)
		}
		res, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo", Arguments: json.RawMessage(`{"n":9007199254740993}`)})
		if err != nil || len(res.Content) != 1 || res.Content[0].(*mcp.TextContent).Text != `{"n":9007199254740993}` {
			t.Errorf("echo: %+v %v", res, err)
		}
		if call := g.gate.last(t); call.Call.Version != version || call.Client != "sdk" || call.Call.Actor.ID != "ana@acme.test" {
			t.Errorf("the gate saw %+v", call)
		}
		_, err = c.CallTool(t.Context(), &mcp.CallToolParams{Name: "deny"})
		wantRefusal(t, "at once", err)
		_, err = c.CallTool(t.Context(), &mcp.CallToolParams{Name: "fault"})
		if e := (*jsonrpc.Error)(nil); !errors.As(err, &e) || e.Code != -32050 || !strings.Contains(string(e.Data), "9007199254740993") {
			t.Errorf("an upstream's error: %v", err)
		}
		if _, err := c.ListPrompts(t.Context(), nil); err == nil {
			t.Error("prompts/list was answered")
		}
		if _, err := c.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "file:///x"}); err == nil {
			t.Error("resources/read was answered")
		}
		if version != modernVersion {
			if err := c.Ping(t.Context(), nil); err != nil {
				t.Errorf("ping: %v", err)
			}
		}
		// After all those errors the connection still works.
		if _, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "ok"}); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}

func wantRefusal(t *testing.T, when string, err error) {
	t.Helper()
	e := (*jsonrpc.Error)(nil)
	if !errors.As(err, &e) || e.Code != -32602 || !strings.Contains(string(e.Data), `"reason":"denied"`) {
		t.Errorf("a refusal %s: %v", when, err)
	}
}

func TestOfficialClientHoldsAndIsRefused(t *testing.T) {
	overBoth(t, func(t *testing.T, g *rig, c sdkClient, _ string) {
		refused := make(chan error, 1)
		params := &mcp.CallToolParams{Name: "hold-deny"}
		params.SetProgressToken("tok")
		go func() {
			_, err := c.CallTool(t.Context(), params)
			refused <- err
		}()
		await(t, g.gate.held)
		first := <-c.progress
		if first.ProgressToken != "tok" || !strings.HasPrefix(first.Message, "waiting for ops (") {
			t.Errorf("told: %+v", first)
		}
		if second := <-c.progress; second.Progress != 0.5 || second.ProgressToken != "tok" {
			t.Errorf("relayed: %+v", second)
		}
		// Other calls are answered meanwhile.
		if _, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "ok"}); err != nil {
			t.Errorf("meanwhile: %v", err)
		}
		close(g.gate.release)
		wantRefusal(t, "after progress", <-refused)
	})
}

func TestOfficialClientCancels(t *testing.T) {
	overBoth(t, func(t *testing.T, g *rig, c sdkClient, _ string) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := c.CallTool(ctx, &mcp.CallToolParams{Name: "hold"})
			done <- err
		}()
		await(t, g.gate.held)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled call: %v", err)
		}
		if got := await(t, g.gate.ended); got != "hold" {
			t.Errorf("%s ended", got)
		}
		if _, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "ok"}); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}

// A session that this process doesn't know (another replica's, or an old one's)
// is one that the client opens again.
func TestOfficialClientLosesItsSession(t *testing.T) {
	g := newRig(t)
	tr := &mcp.StreamableClientTransport{Endpoint: g.url, HTTPClient: &http.Client{Transport: withToken{g.http.Client().Transport}}}
	c := connectSDK(t, tr, "2025-11-25")
	g.srv.sessions.closeAll()
	if _, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "ok"}); !errors.Is(err, mcp.ErrSessionMissing) {
		t.Errorf("a lost session: %v", err)
	}
	c = connectSDK(t, tr, "2025-11-25")
	if _, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "ok"}); err != nil {
		t.Errorf("opened again: %v", err)
	}
}

// The second lock holds even if a data frame is put on the SDK's line.
func TestDataFramesFindTheSDKLocked(t *testing.T) {
	g := newRig(t)
	ln, err := g.srv.sdk.open(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.close()
	if a := ln.ask(t.Context(), "initialize", json.RawMessage(`{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}`)); a.Error != nil {
		t.Fatal(a.Error)
	}
	for _, m := range []string{"tools/list", "tools/call", "resources/list", "prompts/list"} {
		a := ln.ask(t.Context(), m, json.RawMessage(`{"name":"ok"}`))
		if a.Error == nil || a.Error.Code != codeMethodNotFound {
			t.Errorf("%s: %+v", m, a)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if a := ln.ask(ctx, "ping", nil); a.Error != nil {
		t.Errorf("ping: %+v", a.Error)
	}
}
