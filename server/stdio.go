package server

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/server/gate"
)

// ServeStdio serves one client over newline-delimited messages: in is its voice,
// and out carries protocol lines and nothing else. Everything it asks is asked as
// actor. A bad line is answered and the next one is read.
//
// It returns nil when in has ended: calls that wait for a person are then let go
// at once, others have Config.Drain to be answered. It returns nil after Close, and
// ctx's error when that ends first; a Read of in that blocks is then left behind, since there is no
// way to end it. An error of in or out is returned.
func (s *Server) ServeStdio(ctx context.Context, in io.Reader, out io.Writer, actor action.Actor) error {
	if actor.ID == "" {
		return errors.New("server: stdio needs an actor")
	}
	if !s.begin() {
		return errShutdown
	}
	defer s.calls.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer s.endWith(s.base, cancel)()
	c := &stdioConn{
		s: s, out: &lineWriter{w: out, failed: cancel},
		who:   caller{actor: actor},
		slots: make(chan struct{}, s.cfg.MaxInFlight),
		sess:  &session{actor: actor.ID},
	}
	c.sess.ctx, c.sess.stop = context.WithCancelCause(context.WithoutCancel(ctx))
	defer c.sess.end()
	return c.serve(ctx, in)
}

// stdioConn is one stdio client. Lines are read and lifecycle messages answered
// on one goroutine, so that their order holds; data requests run at once.
type stdioConn struct {
	s     *Server
	out   *lineWriter
	who   caller
	sess  *session
	slots chan struct{}
	calls sync.WaitGroup

	mu    sync.Mutex
	ended bool // in has ended: nobody is left to wait
}

var errTooLong = &action.Malformed{Code: codeInvalidRequest, Reason: "the message is too long"}

type inputLine struct {
	text []byte
	long bool
	err  error
}

func (c *stdioConn) serve(ctx context.Context, in io.Reader) error {
	lines := make(chan inputLine)
	gone := make(chan struct{})
	defer close(gone)
	go readLines(in, c.s.cfg.Limits.Bytes, lines, gone)
	for {
		select {
		case <-ctx.Done():
			c.sess.flights.cancelAll(false, context.Cause(ctx))
			c.calls.Wait()
			if cause := context.Cause(ctx); cause != errShutdown {
				return cause
			}
			return nil
		case l := <-lines:
			switch {
			case l.err == io.EOF:
				return c.drain(ctx)
			case l.err != nil:
				_ = c.drain(ctx)
				return fmt.Errorf("read stdin: %w", l.err)
			case l.long:
				e, id := c.s.malformed(ctx, c.who, errTooLong)
				c.out.refuse(id, e)
			default:
				c.line(ctx, l.text)
			}
		}
	}
}

// drain lets go of what waits for a person and gives the rest a moment.
func (c *stdioConn) drain(ctx context.Context) error {
	c.mu.Lock()
	c.ended = true
	c.mu.Unlock()
	c.sess.flights.cancelAll(true, errGone)
	done := make(chan struct{})
	go func() {
		c.calls.Wait()
		close(done)
	}()
	t := time.NewTimer(c.s.cfg.Drain)
	defer t.Stop()
	select {
	case <-done:
		return c.out.err()
	case <-t.C:
	case <-ctx.Done():
	}
	c.sess.flights.cancelAll(false, errGone)
	<-done
	return c.out.err()
}

// held notes that a call waits for a person; with nobody left to hear of it, the
// wait ends.
func (c *stdioConn) held(fl *flight) {
	c.sess.flights.setWaiting(fl)
	c.mu.Lock()
	ended := c.ended
	c.mu.Unlock()
	if ended {
		fl.cancel(errGone)
	}
}

func (c *stdioConn) line(ctx context.Context, text []byte) {
	f, err := action.Parse(text, c.s.cfg.Limits)
	if err != nil {
		e, id := c.s.malformed(ctx, c.who, err)
		c.out.refuse(id, e)
		return
	}
	switch f.Kind {
	case action.Response: // nothing was asked of this client
	case action.Notification:
		if strings.HasPrefix(f.Method, "notifications/") {
			c.s.notified(ctx, c.sess, f)
			return
		}
		c.out.refuse(nil, failure(codeInvalidRequest, "a request needs an id"))
	default:
		c.request(ctx, f)
	}
}

// request decides the era of one request by its _meta.
func (c *stdioConn) request(ctx context.Context, f action.Frame) {
	said, bad := readClaim(f.Meta)
	if bad == nil && modern(said.version) {
		bad = checkTriple(f.Meta, said)
	}
	if bad != nil {
		c.s.misfit(ctx, c.who, f, bad)
		c.out.refuse(f.ID, bad)
		return
	}
	who := c.who
	if modern(said.version) {
		who.modern, who.version, who.client = true, said.version, said.client
	} else {
		who.version, who.client = c.sess.version, c.sess.client
	}
	switch {
	case f.Method == methodList || f.Method == methodCall:
		if !who.modern && c.sess.line == nil {
			c.out.refuse(f.ID, failure(codeInvalidRequest, "initialize first"))
			return
		}
		c.start(ctx, who, f)
	case who.modern && f.Method == "server/discover":
		c.out.respond(f.ID, c.s.sdk.discover(ctx, who.front, f.Params))
	case !who.modern && f.Method == "initialize":
		c.out.respond(f.ID, c.initialize(ctx, who, f))
	case !who.modern && f.Method == "ping":
		c.ping(ctx, f)
	default:
		c.out.refuse(f.ID, failure(codeMethodNotFound, "method not found"))
	}
}

func (c *stdioConn) initialize(ctx context.Context, who caller, f action.Frame) gate.Answer {
	if c.sess.line != nil {
		return gate.Answer{Error: failure(codeInvalidRequest, "this session is initialized")}
	}
	sess, a := c.s.openSession(ctx, who, f)
	if sess != nil {
		c.sess.version, c.sess.client, c.sess.line = sess.version, sess.client, sess.line
	}
	return a
}

// ping is allowed before initialize, which is when the SDK has nothing to say yet.
func (c *stdioConn) ping(ctx context.Context, f action.Frame) {
	if c.sess.line == nil {
		c.out.respond(f.ID, gate.Answer{Result: json.RawMessage("{}")})
		return
	}
	c.out.respond(f.ID, c.sess.line.ask(ctx, f.Method, f.Params))
}

// start answers a data request on a goroutine of its own.
func (c *stdioConn) start(ctx context.Context, who caller, f action.Frame) {
	select {
	case c.slots <- struct{}{}:
	default:
		c.out.refuse(f.ID, failure(codeInternal, "too many requests are in flight"))
		return
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	fl, ok := c.sess.flights.add(f.ID, cancel)
	if !ok {
		<-c.slots
		cancel(nil)
		c.out.refuse(f.ID, failure(codeInvalidRequest, "a request with this id is in flight"))
		return
	}
	c.calls.Add(1)
	go func() {
		defer c.calls.Done()
		defer func() { <-c.slots }()
		defer cancel(nil)
		defer c.sess.flights.remove(fl)
		c.s.data(ctx, who, f, &exchange{
			s: c.s, out: &lineStream{c.out},
			held:   func() { c.held(fl) },
			landed: func() { c.sess.flights.remove(fl) },
		})
	}()
}

// readLines reads messages until in ends. A line that is too long is skipped to
// its end and reported; blank lines are nothing.
func readLines(in io.Reader, limit int, to chan<- inputLine, gone <-chan struct{}) {
	send := func(l inputLine) bool {
		select {
		case to <- l:
			return true
		case <-gone:
			return false
		}
	}
	r := bufio.NewReaderSize(in, 64<<10)
	for {
		text, long, err := readLine(r, limit)
		if blank := strings.TrimSpace(string(text)) == ""; long || !blank {
			if !send(inputLine{text: text, long: long}) {
				return
			}
		}
		if err != nil {
			send(inputLine{err: err})
			return
		}
	}
}

func readLine(r *bufio.Reader, limit int) (text []byte, long bool, err error) {
	for {
		part, err := r.ReadSlice('\n')
		if !long {
			text = append(text, part...)
			if n := len(text); n > limit+2 || (n > limit && len(trimBreak(text)) > limit) {
				text, long = nil, true
			}
		}
		if err != bufio.ErrBufferFull {
			return trimBreak(text), long, err
		}
	}
}

func trimBreak(b []byte) []byte {
	if n := len(b); n > 0 && b[n-1] == '\n' {
		b = b[:n-1]
	}
	if n := len(b); n > 0 && b[n-1] == '\r' {
		b = b[:n-1]
	}
	return b
}

// lineWriter is the only writer of a stdio client's output: whole lines, one at a
// time.
type lineWriter struct {
	mu     sync.Mutex
	w      io.Writer
	broken error
	failed context.CancelCauseFunc
}

func (l *lineWriter) write(frame []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken != nil {
		return l.broken
	}
	if _, err := l.w.Write(append(frame, '\n')); err != nil {
		l.broken = fmt.Errorf("write stdout: %w", err)
		l.failed(l.broken)
		return l.broken
	}
	return nil
}

func (l *lineWriter) err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.broken
}

func (l *lineWriter) respond(id json.RawMessage, a gate.Answer) {
	_ = l.write(responseFrame(id, a)) // the writer keeps the error and ends the connection
}

func (l *lineWriter) refuse(id json.RawMessage, e *gate.Error) {
	l.respond(id, gate.Answer{Error: e})
}

// lineStream is one stdio request's way back. A line can't carry a comment, so
// without a progress token a waiting call is silent.
type lineStream struct{ out *lineWriter }

func (l *lineStream) comment() error { return nil }
func (l *lineStream) silent()        {}

func (l *lineStream) notify(method string, params json.RawMessage) error {
	return l.out.write(notificationFrame(method, params))
}

func (l *lineStream) answer(id json.RawMessage, a gate.Answer) error {
	return l.out.write(responseFrame(id, a))
}
