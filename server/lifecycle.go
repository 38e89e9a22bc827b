package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/server/gate"
)

// lifecycle is the SDK's part of the edge: version negotiation, initialize,
// discover and ping. It sees nothing else.
type lifecycle struct {
	gate    Gate
	version string

	mu      sync.Mutex
	servers map[string]sdkServer // by front
}

type sdkServer struct {
	info gate.Info
	srv  *mcp.Server
}

func newLifecycle(g Gate, version string) *lifecycle {
	return &lifecycle{gate: g, version: version, servers: map[string]sdkServer{}}
}

// server is the front's SDK server; a new one when the upstream says something
// new of itself, for the SDK fixes that at creation.
func (l *lifecycle) server(front string) *mcp.Server {
	info := l.gate.Info(front)
	l.mu.Lock()
	defer l.mu.Unlock()
	if have, ok := l.servers[front]; ok && have.info == info {
		return have.srv
	}
	impl := &mcp.Implementation{Name: info.Name, Version: info.Version}
	if impl.Name == "" {
		impl.Name, impl.Version = "countersign", l.version
	}
	srv := mcp.NewServer(impl, &mcp.ServerOptions{
		Instructions:              info.Instructions,
		Capabilities:              &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}},
		SupportedProtocolVersions: supportedVersions,
		SetCacheable: func(_ context.Context, _ mcp.Request, c *mcp.Cacheable) {
			c.CacheScope = "private" // what is listed depends on who asks
		},
	})
	srv.AddReceivingMiddleware(secondLock)
	l.servers[front] = sdkServer{info: info, srv: srv}
	return srv
}

// secondLock keeps data methods out of the SDK even if a frame took a wrong turn
// in this package.
func secondLock(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		switch method {
		case "initialize", "notifications/initialized", "server/discover", "ping":
			return next(ctx, method, req)
		}
		return nil, &jsonrpc.Error{Code: codeMethodNotFound, Message: "method not found"}
	}
}

// discover asks on a line of its own: the SDK remembers a discover as the
// session's handshake and would refuse an initialize after it.
func (l *lifecycle) discover(ctx context.Context, front string, params json.RawMessage) gate.Answer {
	ln, err := l.open(ctx, front)
	if err != nil {
		return gate.Answer{Error: failure(codeInternal, "the handshake could not be served")}
	}
	defer ln.close()
	return ln.ask(ctx, "server/discover", params)
}

// open connects a line to the front's SDK server. It stays open until close,
// whatever becomes of ctx.
func (l *lifecycle) open(ctx context.Context, front string) (*line, error) {
	ln := &line{in: make(chan jsonrpc.Message), done: make(chan struct{}), waiting: map[string]chan gate.Answer{}}
	ss, err := l.server(front).Connect(context.WithoutCancel(ctx), lineTransport{ln}, nil)
	if err != nil {
		return nil, fmt.Errorf("connect the handshake: %w", err)
	}
	ln.session = ss
	return ln, nil
}

// line is the SDK server session's connection: messages go in one at a time and
// its responses are handed to whoever asked. Ids on it are our own, so that the
// SDK never reads a caller's.
type line struct {
	session *mcp.ServerSession
	in      chan jsonrpc.Message
	once    sync.Once
	done    chan struct{}

	mu      sync.Mutex
	next    int
	waiting map[string]chan gate.Answer
}

type lineTransport struct{ ln *line }

func (t lineTransport) Connect(context.Context) (mcp.Connection, error) { return t.ln, nil }

// Read implements mcp.Connection.
func (ln *line) Read(ctx context.Context) (jsonrpc.Message, error) {
	select {
	case m := <-ln.in:
		return m, nil
	case <-ln.done:
		return nil, io.EOF
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Write implements mcp.Connection. The SDK's server has nothing to ask or tell
// here beside its responses.
func (ln *line) Write(_ context.Context, m jsonrpc.Message) error {
	resp, ok := m.(*jsonrpc.Response)
	if !ok {
		return errors.New("only responses leave the handshake")
	}
	id, _ := resp.ID.Raw().(string)
	ln.mu.Lock()
	ch := ln.waiting[id]
	delete(ln.waiting, id)
	ln.mu.Unlock()
	if ch == nil {
		return nil
	}
	ch <- answerOf(resp) // has room for it
	return nil
}

// Close implements mcp.Connection.
func (ln *line) Close() error {
	ln.once.Do(func() { close(ln.done) })
	return nil
}

// SessionID implements mcp.Connection.
func (ln *line) SessionID() string { return "" }

// answerOf lets the SDK encode its response and reads that with our parser.
func answerOf(resp *jsonrpc.Response) gate.Answer {
	b, err := jsonrpc.EncodeMessage(resp)
	if err != nil {
		return gate.Answer{Error: failure(codeInternal, "the handshake's answer could not be written")}
	}
	f, err := action.Parse(b, action.Limits{})
	if err != nil || f.Kind != action.Response {
		return gate.Answer{Error: failure(codeInternal, "the handshake's answer could not be read")}
	}
	if f.Error == nil {
		return gate.Answer{Result: f.Result}
	}
	var e struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	}
	if err := json.Unmarshal(f.Error, &e); err != nil {
		return gate.Answer{Error: failure(codeInternal, "the handshake's error could not be read")}
	}
	if e.Code == 0 { // a plain error of the SDK's
		return gate.Answer{Error: failure(codeInvalidRequest, e.Message)}
	}
	return gate.Answer{Error: &gate.Error{Code: e.Code, Message: e.Message, Raw: f.Error}}
}

func (ln *line) ask(ctx context.Context, method string, params json.RawMessage) gate.Answer {
	ch := make(chan gate.Answer, 1)
	ln.mu.Lock()
	ln.next++
	id := strconv.Itoa(ln.next)
	ln.waiting[id] = ch
	ln.mu.Unlock()
	defer func() {
		ln.mu.Lock()
		delete(ln.waiting, id)
		ln.mu.Unlock()
	}()
	rid, err := jsonrpc.MakeID(id)
	if err != nil {
		return gate.Answer{Error: failure(codeInternal, "the handshake could not be asked")}
	}
	if !ln.send(ctx, &jsonrpc.Request{ID: rid, Method: method, Params: params}) {
		return gate.Answer{Error: failure(codeInternal, "the session has ended")}
	}
	select {
	case a := <-ch:
		return a
	case <-ln.done:
	case <-ctx.Done():
	}
	return gate.Answer{Error: failure(codeInternal, "the session has ended")}
}

func (ln *line) notify(ctx context.Context, method string, params json.RawMessage) bool {
	return ln.send(ctx, &jsonrpc.Request{Method: method, Params: params})
}

func (ln *line) send(ctx context.Context, m jsonrpc.Message) bool {
	select {
	case ln.in <- m:
		return true
	case <-ln.done:
	case <-ctx.Done():
	}
	return false
}

func (ln *line) close() {
	_ = ln.Close()
	if ln.session != nil {
		_ = ln.session.Close() // it has nothing of ours to lose
	}
}
