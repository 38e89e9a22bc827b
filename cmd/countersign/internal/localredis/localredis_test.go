package localredis

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestServer(t *testing.T) {
	s, err := Start()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	opt, err := redis.ParseURL(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(opt)
	defer c.Close()
	if err := c.Set(t.Context(), "k", "v", 50*time.Millisecond).Err(); err != nil {
		t.Fatal(err)
	}
	for c.Exists(t.Context(), "k").Val() == 1 { // until the ticker has aged it
		if t.Context().Err() != nil {
			t.Fatal("the key never expired")
		}
	}

	opt.Password = ""
	stranger := redis.NewClient(opt)
	defer stranger.Close()
	if err := stranger.Get(t.Context(), "k").Err(); err == nil || err == redis.Nil {
		t.Error("a client without the password was served")
	}
}
