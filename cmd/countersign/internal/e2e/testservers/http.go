package testservers

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Client is what both raw clients can do.
type Client interface {
	// Initialize opens the conversation as the era does: initialize and its
	// notification, or server/discover.
	Initialize(ctx context.Context) (Reply, error)
	ListTools(ctx context.Context) (Reply, error)
	// Call calls a tool with exactly these argument bytes. The error is of
	// the transport only: a JSON-RPC error is in the Reply.
	Call(ctx context.Context, name string, args json.RawMessage, x Extra) (Reply, error)
	// Request sends any method; params is an object without _meta.
	Request(ctx context.Context, method string, params json.RawMessage, x Extra) (Reply, error)
}

// HTTP is a raw client of a streamable HTTP endpoint. It is safe for
// concurrent use after Initialize.
type HTTP struct {
	URL   string
	Token string // bearer token; "" sends none
	Era   Era

	client  *http.Client
	mu      sync.Mutex
	session string
	id      int
}

// NewHTTP makes a client with connections of its own, so that a proxy or a
// killed server between them hits nobody else.
func NewHTTP(url, token string, era Era) *HTTP {
	return &HTTP{URL: url, Token: token, Era: era, client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
}

// Session is the session id of the older era.
func (c *HTTP) Session() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session
}

// SetSession takes another client's session, or forgets it.
func (c *HTTP) SetSession(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.session = id
}

// Initialize implements Client.
func (c *HTTP) Initialize(ctx context.Context) (Reply, error) {
	if c.Era == Modern {
		return c.Request(ctx, "server/discover", nil, Extra{})
	}
	c.SetSession("")
	r, err := c.Request(ctx, "initialize", initializeParams(), Extra{})
	if err != nil || r.Result == nil {
		return r, err
	}
	c.SetSession(r.Header.Get("Mcp-Session-Id"))
	if n, err := c.Send(ctx, []byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`), Extra{}); err != nil || n.Status != http.StatusAccepted {
		return r, fmt.Errorf("notifications/initialized: status %d: %w", n.Status, err)
	}
	return r, nil
}

// ListTools implements Client.
func (c *HTTP) ListTools(ctx context.Context) (Reply, error) {
	return c.Request(ctx, "tools/list", nil, Extra{})
}

// Call implements Client.
func (c *HTTP) Call(ctx context.Context, name string, args json.RawMessage, x Extra) (Reply, error) {
	params, err := callParams(name, args)
	if err != nil {
		return Reply{}, err
	}
	return c.Request(ctx, "tools/call", params, x)
}

// Request implements Client.
func (c *HTTP) Request(ctx context.Context, method string, params json.RawMessage, x Extra) (Reply, error) {
	id := x.ID
	if id == nil {
		c.mu.Lock()
		c.id++
		id = json.RawMessage(strconv.Itoa(c.id))
		c.mu.Unlock()
	}
	body, err := request(c.Era, id, method, params, x)
	if err != nil {
		return Reply{}, err
	}
	return c.Send(ctx, body, x)
}

// Send posts any bytes with the headers that fit them and reads all that comes
// back. What came before an error is in the Reply.
func (c *HTTP) Send(ctx context.Context, body []byte, x Extra) (Reply, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL, bytes.NewReader(body))
	if err != nil {
		return Reply{}, fmt.Errorf("building the request: %w", err)
	}
	c.headers(req, body, x)
	start := time.Now()
	res, err := c.client.Do(req)
	if err != nil {
		return Reply{Took: time.Since(start)}, fmt.Errorf("sending the request: %w", err)
	}
	defer res.Body.Close()
	r := Reply{Status: res.StatusCode, Header: res.Header, Headers: time.Since(start)}
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")) // no type is no stream
	if kind == "text/event-stream" {
		err = r.readStream(res.Body, start, x.On)
	} else {
		err = r.readBody(res.Body, start, x.On)
	}
	r.Took = time.Since(start)
	return r, err
}

func (c *HTTP) headers(req *http.Request, body []byte, x Extra) {
	h := req.Header
	h.Set("Content-Type", "application/json")
	h.Set("Accept", "application/json, text/event-stream")
	method, name := mirrored(body)
	if c.Era == Modern {
		h.Set("Mcp-Method", method)
		if name != "" {
			h.Set("Mcp-Name", name)
		}
	}
	if method != "initialize" {
		h.Set("Mcp-Protocol-Version", string(c.Era))
	}
	if s := c.Session(); s != "" {
		h.Set("Mcp-Session-Id", s)
	}
	token := c.Token
	if x.Token != "" {
		token = x.Token
	}
	if token != "" {
		h.Set("Authorization", "Bearer "+token)
	}
	for k, v := range x.Header {
		h[k] = v
	}
	if host := x.Header.Get("Host"); host != "" {
		req.Host = host
	}
}

func (r *Reply) readBody(in io.Reader, start time.Time, on func(Frame)) error {
	var err error
	if r.Body, err = io.ReadAll(in); err != nil {
		return fmt.Errorf("reading the answer: %w", err)
	}
	if len(r.Body) > 0 && r.answer(r.Body) {
		r.take(Frame{Data: bytes.Clone(r.Body), After: time.Since(start)}, on)
	}
	return nil
}

func (r *Reply) take(f Frame, on func(Frame)) {
	r.Frames = append(r.Frames, f)
	if on != nil {
		on(f)
	}
}

// ErrNoAnswer means that a stream ended before the answer came.
var ErrNoAnswer = errors.New("the stream ended without an answer")

// readStream reads server-sent events until the stream ends. A line that is no
// field, a comment or empty is an error: some clients would wait for ever on it.
func (r *Reply) readStream(in io.Reader, start time.Time, on func(Frame)) error {
	var f Frame
	var data []string
	answered := false
	br := bufio.NewReader(in)
	for {
		line, err := br.ReadString('\n')
		r.Body = append(r.Body, line...)
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("reading the stream: %w", err)
		}
		whole := err == nil
		line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case !whole && line == "":
			if !answered {
				return ErrNoAnswer
			}
			return nil
		case !whole:
			return fmt.Errorf("the stream ended inside a line: %q", line)
		case strings.HasPrefix(line, ":"):
			r.Comments++
		case line == "":
			if len(data) > 0 {
				f.Data, f.After = json.RawMessage(strings.Join(data, "\n")), time.Since(start)
				answered = r.answer(f.Data) || answered
				r.take(f, on)
			}
			f, data = Frame{}, nil
		case field == "event":
			f.Event = value
		case field == "id":
			f.ID = value
		case field == "data":
			data = append(data, value)
		case field == "retry":
		default:
			return fmt.Errorf("the stream has a line that is no event: %q", line)
		}
	}
}
