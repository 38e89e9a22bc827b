package server

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// rawPost writes a request by hand and hands over the connection, so that a test
// sees the bytes and their time, not a client's idea of them.
func (g *rig) rawPost(body string, head http.Header) (net.Conn, *bufio.Reader) {
	g.t.Helper()
	conn, err := net.Dial("tcp", g.http.Listener.Addr().String())
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		g.t.Fatal(err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "POST /mcp HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n", conn.RemoteAddr(), len(body))
	h := headers("Content-Type", "application/json", "Accept", "application/json, text/event-stream", "Authorization", "Bearer "+anaToken)
	for k, v := range head {
		h[k] = v
	}
	if err := h.Write(&b); err != nil {
		g.t.Fatal(err)
	}
	b.WriteString("\r\n" + body)
	if _, err := io.WriteString(conn, b.String()); err != nil {
		g.t.Fatal(err)
	}
	return conn, bufio.NewReader(conn)
}

func readHead(t *testing.T, r *bufio.Reader) string {
	t.Helper()
	var b strings.Builder
	for {
		l, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("after %q: %v", b.String(), err)
		}
		if l == "\r\n" {
			return b.String()
		}
		b.WriteString(l)
	}
}

// newChunkReader undoes the chunked transfer coding.
func newChunkReader(r *bufio.Reader) io.Reader {
	resp, err := http.ReadResponse(bufio.NewReader(io.MultiReader(strings.NewReader("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"), r)), nil)
	if err != nil {
		return strings.NewReader(err.Error())
	}
	return resp.Body
}
