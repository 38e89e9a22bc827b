package daemon

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"
)

// silent takes what the Redis client would print to stderr by itself, and says
// nothing: whoever called is told of the failure, and logs it in our form.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// silenceRedis works on the whole process, as the client's logger does; once,
// before the first client reads it.
var silenceRedis = sync.OnceFunc(func() { redis.SetLogger(silent{}) })
