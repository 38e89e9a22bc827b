package store

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// onceBefore does something right before a script is sent for the first time.
type onceBefore struct {
	script *script
	do     func()
	done   bool
}

func (h *onceBefore) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *onceBefore) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); !h.done && strings.HasPrefix(strings.ToLower(cmd.Name()), "eval") && len(args) > 1 && args[1] == h.script.Hash() {
			h.done = true
			h.do()
		}
		return next(ctx, cmd)
	}
}

func (h *onceBefore) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// errLost is what a lost reply looks like.
var errLost = errors.New("the reply was lost")

// loser loses the n-th command of what is under way: unsent, or carried out with
// its reply dropped.
type loser struct {
	mu     sync.Mutex
	armed  bool
	n      int
	sent   bool // the command is carried out all the same
	struck bool
}

func (h *loser) arm(n int, sent bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.armed, h.n, h.sent, h.struck = true, n, sent, false
}

// disarm tells whether the fault happened.
func (h *loser) disarm() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.armed = false
	return h.struck
}

func (h *loser) strike() (now, sent bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.armed {
		return false, false
	}
	h.n--
	if h.n != 0 {
		return false, false
	}
	h.struck = true
	return true, h.sent
}

func (h *loser) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *loser) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		now, sent := h.strike()
		if !now {
			return next(ctx, cmd)
		}
		if sent {
			err := next(ctx, cmd)
			if redis.HasErrorPrefix(err, "NOSCRIPT") {
				return err // it was not carried out; the text follows
			}
		}
		cmd.SetErr(errLost)
		return errLost
	}
}

func (h *loser) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		now, sent := h.strike()
		if !now {
			return next(ctx, cmds)
		}
		if sent {
			_ = next(ctx, cmds)
		}
		for _, c := range cmds {
			c.SetErr(errLost)
		}
		return errLost
	}
}

// proxy passes bytes between a loopback port and a server. Frozen, the
// connections that exist stay open and pass nothing; new ones are as before.
type proxy struct {
	net.Listener
	dial  func() (net.Conn, error)
	mu    sync.Mutex
	links []*pipe
	wg    sync.WaitGroup
}

type pipe struct {
	ends [2]net.Conn
	mu   sync.Mutex
	cond *sync.Cond
	held bool
	over bool
	gone chan struct{} // the server has closed its side
}

func newProxy(dial func() (net.Conn, error)) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{Listener: l, dial: dial}
	p.wg.Go(p.accept)
	return p, nil
}

func (p *proxy) accept() {
	for {
		c, err := p.Accept()
		if err != nil {
			return
		}
		up, err := p.dial()
		if err != nil {
			c.Close()
			continue
		}
		k := &pipe{ends: [2]net.Conn{c, up}, gone: make(chan struct{})}
		k.cond = sync.NewCond(&k.mu)
		p.mu.Lock()
		p.links = append(p.links, k)
		p.mu.Unlock()
		p.wg.Go(func() { k.copy(c, up, k.gone) })
		p.wg.Go(func() { k.copy(up, c, nil) })
	}
}

func (k *pipe) copy(dst io.WriteCloser, src io.ReadCloser, gone chan struct{}) {
	defer dst.Close()
	defer src.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		if err != nil && gone != nil {
			close(gone)
		}
		k.mu.Lock()
		for k.held && !k.over {
			k.cond.Wait()
		}
		k.mu.Unlock()
		if n > 0 {
			if _, err := dst.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (k *pipe) hold(held, over bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.held, k.over = held, k.over || over
	k.cond.Broadcast()
}

// freeze holds the connections that exist now; thaw lets them go on.
func (p *proxy) freeze() { p.each(func(k *pipe) { k.hold(true, false) }) }
func (p *proxy) thaw()   { p.each(func(k *pipe) { k.hold(false, false) }) }

func (p *proxy) each(do func(*pipe)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range p.links {
		do(k)
	}
}

func (p *proxy) stop() {
	p.Close()
	p.each(func(k *pipe) {
		k.hold(false, true)
		k.ends[0].Close()
		k.ends[1].Close()
	})
	p.wg.Wait()
}

// thawClosed lets those frozen connections end whose server side has gone; the
// others stay frozen.
func (p *proxy) thawClosed() {
	p.each(func(k *pipe) {
		select {
		case <-k.gone:
			k.hold(false, true)
			k.ends[0].Close()
			k.ends[1].Close()
		default:
		}
	})
}

// afterRead says when the first script's reply has come.
type afterRead struct {
	once sync.Once
	seen chan struct{}
}

func (h *afterRead) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *afterRead) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if err == nil && strings.HasPrefix(strings.ToLower(cmd.Name()), "eval") {
			h.once.Do(func() { close(h.seen) })
		}
		return err
	}
}

func (h *afterRead) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// cutter swallows a reply of the server and closes its connection, once each
// time it is armed. The reply is the one to the next script that is sent.
type cutter struct {
	mu    sync.Mutex
	armed bool
	n     int
}

func (c *cutter) arm() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed = true
}

func (c *cutter) cuts() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

func (c *cutter) strike() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.armed {
		return false
	}
	c.armed, c.n = false, c.n+1
	return true
}

func (c *cutter) wrap(conn net.Conn) net.Conn {
	if conn == nil {
		return nil
	}
	return &cutConn{Conn: conn, cutter: c}
}

type cutConn struct {
	net.Conn
	cutter *cutter
	mu     sync.Mutex
	writes bool // a script that writes is on its way
}

func (c *cutConn) Write(b []byte) (int, error) {
	s := string(b)
	c.mu.Lock()
	for _, arg := range []string{"park-op-", "approve", "file-a", "succeeded"} { // only in the four scripts' arguments
		c.writes = c.writes || strings.Contains(s, "evalsha") && strings.Contains(s, arg)
	}
	c.mu.Unlock()
	return c.Conn.Write(b)
}

func (c *cutConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.mu.Lock()
	writes := c.writes
	c.writes = false
	c.mu.Unlock()
	if writes && n > 0 && !strings.HasPrefix(string(b[:n]), "-NOSCRIPT") && c.cutter.strike() {
		c.Conn.Close()
		return 0, io.EOF
	}
	return n, err
}
