package testservers

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"
)

// Stdio is a raw client of a server on pipes. It is safe for concurrent use.
type Stdio struct {
	Era Era

	in   io.WriteCloser
	cmd  *exec.Cmd
	done chan struct{}

	write   sync.Mutex // apart from mu: a full pipe must not stop the reader
	mu      sync.Mutex
	id      int
	waiting map[string]*waiter // by id
	other   []json.RawMessage
	noise   []string
	err     error
}

type waiter struct {
	reply  Reply
	token  json.RawMessage // progress token as JSON
	start  time.Time
	frames chan Frame
}

// ErrClosed means that the server ended.
var ErrClosed = errors.New("the server closed its output")

// StartStdio starts cmd and talks to it over its stdin and stdout. It is
// killed when the test ends, if it still runs then.
func StartStdio(tb testing.TB, cmd *exec.Cmd, era Era) *Stdio {
	tb.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatalf("stdin of the server: %v", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatalf("stdout of the server: %v", err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatalf("starting the server: %v", err)
	}
	c := NewStdio(in, out, era)
	c.cmd = cmd
	tb.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended by itself
		<-c.done
		_ = cmd.Wait()
	})
	return c
}

// NewStdio talks over any two pipes.
func NewStdio(in io.WriteCloser, out io.Reader, era Era) *Stdio {
	c := &Stdio{Era: era, in: in, done: make(chan struct{}), waiting: map[string]*waiter{}}
	go c.read(out)
	return c
}

// Initialize implements Client.
func (c *Stdio) Initialize(ctx context.Context) (Reply, error) {
	if c.Era == Modern {
		return c.Request(ctx, "server/discover", nil, Extra{})
	}
	r, err := c.Request(ctx, "initialize", initializeParams(), Extra{})
	if err != nil || r.Result == nil {
		return r, err
	}
	return r, c.Line([]byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))
}

// ListTools implements Client.
func (c *Stdio) ListTools(ctx context.Context) (Reply, error) {
	return c.Request(ctx, "tools/list", nil, Extra{})
}

// Call implements Client.
func (c *Stdio) Call(ctx context.Context, name string, args json.RawMessage, x Extra) (Reply, error) {
	params, err := callParams(name, args)
	if err != nil {
		return Reply{}, err
	}
	return c.Request(ctx, "tools/call", params, x)
}

// Request implements Client. When ctx ends it stops waiting; it sends no
// cancellation.
func (c *Stdio) Request(ctx context.Context, method string, params json.RawMessage, x Extra) (Reply, error) {
	c.mu.Lock()
	id := x.ID
	if id == nil {
		c.id++
		id = json.RawMessage(strconv.Itoa(c.id))
	}
	body, err := request(c.Era, id, method, params, x)
	if err != nil {
		c.mu.Unlock()
		return Reply{}, err
	}
	w := &waiter{start: time.Now(), frames: make(chan Frame, 1024)}
	if x.Progress != "" {
		w.token, _ = json.Marshal(x.Progress) // request has encoded it already
	}
	c.waiting[string(id)] = w
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.waiting, string(id))
	}()
	if err := c.Line(body); err != nil {
		return Reply{}, err
	}
	return c.collect(ctx, w, x.On)
}

func (c *Stdio) collect(ctx context.Context, w *waiter, on func(Frame)) (Reply, error) {
	for {
		var f Frame
		select {
		case f = <-w.frames:
		case <-ctx.Done():
			return w.reply, fmt.Errorf("waiting for the answer: %w", context.Cause(ctx))
		case <-c.done:
			select { // what came before the end counts
			case f = <-w.frames:
			default:
				return w.reply, c.Err()
			}
		}
		w.reply.take(f, on)
		if w.reply.answer(f.Data) {
			w.reply.Took = time.Since(w.start)
			return w.reply, nil
		}
	}
}

// Line writes any bytes and a line end.
func (c *Stdio) Line(b []byte) error {
	c.write.Lock()
	defer c.write.Unlock()
	if _, err := c.in.Write(append(bytes.Clone(b), '\n')); err != nil {
		return fmt.Errorf("writing to the server: %w", err)
	}
	return nil
}

// CloseInput tells the server that nothing more comes.
func (c *Stdio) CloseInput() error { return c.in.Close() }

// Done is closed when the server's output ended.
func (c *Stdio) Done() <-chan struct{} { return c.done }

// Err says why the output ended: ErrClosed, or a read error.
func (c *Stdio) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Process is the server's process; nil with NewStdio.
func (c *Stdio) Process() *exec.Cmd { return c.cmd }

// Other lists the messages that belonged to no request of ours, in order.
func (c *Stdio) Other() []json.RawMessage {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]json.RawMessage(nil), c.other...)
}

// Noise lists the lines that were no JSON object. A server must write none.
func (c *Stdio) Noise() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.noise...)
}

func (c *Stdio) read(out io.Reader) {
	defer close(c.done)
	r := bufio.NewReaderSize(out, 1<<20)
	for {
		line, err := r.ReadBytes('\n')
		if len(line) > 0 {
			c.deliver(bytes.TrimSuffix(line, []byte("\n")), err == nil)
		}
		if err != nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.err = ErrClosed
			if !errors.Is(err, io.EOF) {
				c.err = fmt.Errorf("%w: %w", ErrClosed, err)
			}
			return
		}
	}
}

// deliver gives a line to the request it belongs to.
func (c *Stdio) deliver(line []byte, whole bool) {
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params struct {
			Token json.RawMessage `json:"progressToken"`
		} `json:"params"`
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !whole || json.Unmarshal(line, &m) != nil || len(line) == 0 || line[0] != '{' {
		c.noise = append(c.noise, string(line))
		return
	}
	for id, w := range c.waiting {
		if m.Method == "" && id == string(m.ID) ||
			m.Method != "" && w.token != nil && bytes.Equal(w.token, m.Params.Token) {
			select {
			case w.frames <- Frame{Data: line, After: time.Since(w.start)}:
			default:
				c.noise = append(c.noise, "too many frames for one request")
			}
			return
		}
	}
	c.other = append(c.other, line)
}
