package testservers

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// Proxy stands between a client and a TCP server (Redis, HTTP) and loses
// things. It knows no protocol: what a client sends until the server speaks is
// a request, and what the server then sends until the client speaks again is
// its reply. That holds for clients that wait for each answer, as go-redis and
// HTTP/1.1 do; a pipeline counts as one request.
type Proxy struct {
	target string
	l      net.Listener

	mu      sync.Mutex
	cond    *sync.Cond
	links   map[*link]bool
	rules   []*rule
	refuse  bool
	closed  bool
	gone    chan struct{} // closed with the proxy
	dropped int
	replies int
}

// rule waits for the n-th reply to a request that matches.
type rule struct {
	match func(request []byte) bool
	left  int
	done  chan struct{}
	held  chan struct{} // nil: drop. Else: hold until closed
}

type link struct {
	client, server net.Conn
	frozen         bool
	asked          bool   // the client spoke since the server's last words
	request        []byte // what it said, at most maxRequest of it
}

const maxRequest = 64 << 10

// NewProxy listens on a loopback port and connects to target: "host:port", or
// "unix:/path".
func NewProxy(tb testing.TB, target string) *Proxy {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("the proxy's listener: %v", err)
	}
	p := &Proxy{target: target, l: l, links: map[*link]bool{}, gone: make(chan struct{})}
	p.cond = sync.NewCond(&p.mu)
	go p.accept()
	tb.Cleanup(p.close)
	return p
}

// Addr is the proxy's own host:port.
func (p *Proxy) Addr() string { return p.l.Addr().String() }

// DropReply swallows the n-th reply from now on (1 is the next one), on any
// connection, and closes that connection: the server carried the request out
// and the client can't know. A nil match counts every reply, another one only
// those to requests it accepts. The channel is closed when it happened.
func (p *Proxy) DropReply(n int, match func(request []byte) bool) <-chan struct{} {
	return p.add(&rule{match: match, left: n, done: make(chan struct{})})
}

// HoldReply keeps the n-th matching reply back until release is called; the
// channel is closed once the reply is here.
func (p *Proxy) HoldReply(n int, match func(request []byte) bool) (arrived <-chan struct{}, release func()) {
	held := make(chan struct{})
	return p.add(&rule{match: match, left: n, done: make(chan struct{}), held: held}), sync.OnceFunc(func() { close(held) })
}

func (p *Proxy) add(r *rule) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append(p.rules, r)
	return r.done
}

// Freeze makes every existing connection half-open: it stays open, and nothing
// comes through in either direction any more. New connections work.
func (p *Proxy) Freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.frozen = true
	}
}

// Cut closes every existing connection.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.close()
	}
}

// Refuse closes new connections at once, until it is told otherwise.
func (p *Proxy) Refuse(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = on
}

// Down is Refuse and Cut: the server is away.
func (p *Proxy) Down() {
	p.Refuse(true)
	p.Cut()
}

// Up ends Down.
func (p *Proxy) Up() { p.Refuse(false) }

// Dropped counts the replies that were swallowed.
func (p *Proxy) Dropped() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dropped
}

// Replies counts the replies that came from the server, to try n = 1, 2, …
func (p *Proxy) Replies() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.replies
}

// WaitConnections waits until at least n connections are open.
func (p *Proxy) WaitConnections(ctx context.Context, n int) error {
	stop := context.AfterFunc(ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.cond.Broadcast()
	})
	defer stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.links) < n {
		if err := context.Cause(ctx); err != nil {
			return fmt.Errorf("waiting for %d connections: %w", n, err)
		}
		p.cond.Wait()
	}
	return nil
}

func (p *Proxy) close() {
	p.l.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	close(p.gone)
	for l := range p.links {
		l.close()
	}
}

func (p *Proxy) accept() {
	for {
		c, err := p.l.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		refuse := p.refuse || p.closed
		p.mu.Unlock()
		if refuse {
			c.Close()
			continue
		}
		go p.connect(c)
	}
}

func (p *Proxy) connect(c net.Conn) {
	network, addr := "tcp", p.target
	if path, ok := strings.CutPrefix(p.target, "unix:"); ok {
		network, addr = "unix", path
	}
	srv, err := net.DialTimeout(network, addr, 5*time.Second)
	if err != nil {
		c.Close()
		return
	}
	l := &link{client: c, server: srv}
	p.mu.Lock()
	if p.refuse || p.closed { // said while we dialled
		p.mu.Unlock()
		l.close()
		return
	}
	p.links[l] = true
	p.cond.Broadcast()
	p.mu.Unlock()
	go p.pump(l, true)
	p.pump(l, false)
}

// pump copies one direction. When one end of a frozen link closes, only the
// client's end is told of it: a network that is gone tells nobody.
func (p *Proxy) pump(l *link, up bool) {
	from, to := l.server, l.client
	if up {
		from, to = l.client, l.server
	}
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && !p.pass(l, up, buf[:n], to) {
			break
		}
		if err != nil {
			break
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.frozen && !up && !p.closed {
		return
	}
	l.close()
	delete(p.links, l)
	p.cond.Broadcast()
}

// pass moves bytes on, or not, and reports whether the link lives on.
func (p *Proxy) pass(l *link, up bool, b []byte, to net.Conn) bool {
	p.mu.Lock()
	if l.frozen {
		p.mu.Unlock()
		return true
	}
	var hit *rule
	if up {
		if !l.asked {
			l.request = l.request[:0]
		}
		l.asked = true
		l.request = append(l.request, b[:min(len(b), maxRequest-len(l.request))]...)
	} else if l.asked {
		l.asked = false
		p.replies++
		hit = p.rule(l.request)
	}
	if hit != nil && hit.held == nil {
		p.dropped++
		l.close() // before done, so that who waits for it finds it so
		close(hit.done)
		p.mu.Unlock()
		return false
	}
	p.mu.Unlock()
	if hit != nil {
		close(hit.done)
		select {
		case <-hit.held:
		case <-p.gone:
		}
	}
	_, err := to.Write(b)
	return err == nil
}

// rule finds the rule that this reply completes. Needs mu.
func (p *Proxy) rule(request []byte) *rule {
	var hit *rule
	for _, r := range p.rules {
		if r.left == 0 || r.match != nil && !r.match(request) {
			continue
		}
		if r.left == 1 && hit != nil {
			continue // one fault a reply; this rule takes the next one
		}
		r.left--
		if r.left == 0 {
			hit = r
		}
	}
	return hit
}

func (l *link) close() {
	l.client.Close()
	l.server.Close()
}
