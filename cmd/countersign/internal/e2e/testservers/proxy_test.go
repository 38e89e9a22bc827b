package testservers

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// echo answers each line with it and counts what it has seen.
type echo struct {
	net.Listener
	mu   sync.Mutex
	seen []string
}

func newEcho(t *testing.T) *echo {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := &echo{Listener: l}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				r := bufio.NewReader(c)
				for {
					s, err := r.ReadString('\n')
					if err != nil {
						return
					}
					e.mu.Lock()
					e.seen = append(e.seen, strings.TrimSpace(s))
					e.mu.Unlock()
					fmt.Fprint(c, "re "+s)
				}
			}()
		}
	}()
	return e
}

func (e *echo) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.seen)
}

type conn struct {
	net.Conn
	r *bufio.Reader
}

func dial(t *testing.T, p *Proxy) *conn {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &conn{c, bufio.NewReader(c)}
}

func (c *conn) ask(s string) (string, error) {
	if _, err := fmt.Fprintln(c, s); err != nil {
		return "", err
	}
	out, err := c.r.ReadString('\n')
	return strings.TrimSpace(out), err
}

func TestProxyDropsTheNthReply(t *testing.T) {
	e := newEcho(t)
	p := NewProxy(t, e.Addr().String())
	c := dial(t, p)
	dropped := p.DropReply(3, nil)
	for i := range 2 {
		if got, err := c.ask("x"); got != "re x" || err != nil {
			t.Fatalf("reply %d: %q %v", i+1, got, err)
		}
	}
	if got, err := c.ask("lost"); err == nil || got != "" {
		t.Fatalf("third reply came: %q", got)
	}
	<-dropped
	if e.count() != 3 || p.Dropped() != 1 || p.Replies() != 3 {
		t.Errorf("server saw %d, dropped %d of %d", e.count(), p.Dropped(), p.Replies())
	}
	if got, err := dial(t, p).ask("again"); got != "re again" || err != nil {
		t.Errorf("a new connection: %q %v", got, err)
	}
}

func TestProxyDropsByRequest(t *testing.T) {
	e := newEcho(t)
	p := NewProxy(t, e.Addr().String())
	c := dial(t, p)
	p.DropReply(2, func(req []byte) bool { return bytes.Contains(req, []byte("CLAIM")) })
	for _, s := range []string{"GET", "CLAIM 1", "GET"} {
		if _, err := c.ask(s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
	if _, err := c.ask("CLAIM 2"); err == nil {
		t.Error("the second claim's reply came")
	}
}

func TestProxyFreezeIsHalfOpen(t *testing.T) {
	e := newEcho(t)
	p := NewProxy(t, e.Addr().String())
	c := dial(t, p)
	if _, err := c.ask("x"); err != nil {
		t.Fatal(err)
	}
	p.Freeze()
	c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if _, err := c.ask("x"); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a frozen connection: %v", err)
	}
	if e.count() != 1 {
		t.Errorf("the server saw %d lines", e.count())
	}
	if _, err := dial(t, p).ask("x"); err != nil {
		t.Errorf("a new connection: %v", err)
	}
}

func TestProxyRefusesAndCuts(t *testing.T) {
	e := newEcho(t)
	p := NewProxy(t, e.Addr().String())
	c := dial(t, p)
	if _, err := c.ask("x"); err != nil {
		t.Fatal(err)
	}
	p.Refuse(true)
	if _, err := c.ask("x"); err != nil {
		t.Errorf("refusing new ones cut an old one: %v", err)
	}
	if _, err := dial(t, p).ask("x"); err == nil {
		t.Error("a new connection got through")
	}
	p.Down()
	if _, err := c.ask("x"); err == nil {
		t.Error("a cut connection got through")
	}
	p.Up()
	if _, err := dial(t, p).ask("x"); err != nil {
		t.Error(err)
	}
}

func TestProxyHoldsAReply(t *testing.T) {
	e := newEcho(t)
	p := NewProxy(t, e.Addr().String())
	c := dial(t, p)
	arrived, release := p.HoldReply(1, nil)
	done := make(chan string, 1)
	go func() {
		s, _ := c.ask("x")
		done <- s
	}()
	<-arrived
	select {
	case s := <-done:
		t.Fatalf("a held reply came: %q", s)
	default:
	}
	release()
	if s := <-done; s != "re x" {
		t.Errorf("reply %q", s)
	}
}

func TestProxyWithHTTP(t *testing.T) {
	served := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		served++
		io.WriteString(w, strings.Repeat("x", 100_000))
	}))
	defer srv.Close()
	p := NewProxy(t, strings.TrimPrefix(srv.URL, "http://"))
	p.DropReply(1, nil)
	post := func() (int, error) {
		res, err := http.Post("http://"+p.Addr(), "text/plain", strings.NewReader(strings.Repeat("y", 200_000)))
		if err != nil {
			return 0, err
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		return len(b), err
	}
	if _, err := post(); err == nil {
		t.Error("the lost reply came")
	}
	if n, err := post(); n != 100_000 || err != nil {
		t.Errorf("next reply: %d bytes, %v", n, err)
	}
	if served != 2 {
		t.Errorf("served %d", served)
	}
}

func TestProxyWaitsForConnections(t *testing.T) {
	p := NewProxy(t, newEcho(t).Addr().String())
	dial(t, p)
	if err := p.WaitConnections(t.Context(), 1); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.WaitConnections(ctx, 2); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}
