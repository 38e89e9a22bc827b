package testservers

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// A lost reply of a script, as the real client sees it: the script ran.
func TestProxyLosesARedisReply(t *testing.T) {
	srv := miniredis.RunT(t)
	p := NewProxy(t, srv.Addr())
	c := redis.NewClient(&redis.Options{Addr: p.Addr(), MaxRetries: -1, ReadTimeout: 5 * time.Second})
	defer c.Close()
	script := redis.NewScript(`return redis.call("INCR", KEYS[1])`)
	if err := script.Load(t.Context(), c).Err(); err != nil {
		t.Fatal(err)
	}
	dropped := p.DropReply(2, func(req []byte) bool { return bytes.Contains(bytes.ToLower(req), []byte("evalsha")) })
	if err := script.Run(t.Context(), c, []string{"n"}).Err(); err != nil {
		t.Fatal(err)
	}
	if err := script.Run(t.Context(), c, []string{"n"}).Err(); err == nil {
		t.Error("the second reply came")
	}
	<-dropped
	if got, err := c.Get(t.Context(), "n").Int(); got != 2 || err != nil {
		t.Errorf("the script ran %d times, %v", got, err)
	}
}

// A subscription on a frozen connection hears nothing and isn't told so.
func TestProxyFreezesASubscription(t *testing.T) {
	srv := miniredis.RunT(t)
	p := NewProxy(t, srv.Addr())
	c := redis.NewClient(&redis.Options{Addr: p.Addr(), MaxRetries: -1})
	defer c.Close()
	sub := c.Subscribe(t.Context(), "wake")
	defer sub.Close()
	if _, err := sub.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	srv.Publish("wake", "1")
	if m, err := sub.ReceiveMessage(t.Context()); err != nil || m.Payload != "1" {
		t.Fatal(m, err)
	}
	p.Freeze()
	srv.Publish("wake", "2")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if m, err := sub.ReceiveTimeout(ctx, 100*time.Millisecond); err == nil {
		t.Errorf("heard %v", m)
	}
}
