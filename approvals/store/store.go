package store

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Store keeps approvals. It is safe for concurrent use; any number of processes
// may share a namespace.
type Store struct {
	opt  Options
	k    keyspace
	sc   *scripts
	topo topology

	rdb     redis.UniversalClient // all but what follows
	stream  redis.UniversalClient // reads that block
	claimer redis.UniversalClient // claims that wait for replicas: never retried by itself

	checked  atomic.Bool
	checking chan struct{}
	syncTold sync.Once
	wake     *wake
	taken    *taken

	// The number of the last generation that was seen; 0 before the first.
	seen atomic.Uint64
}

// Open makes the clients and contacts nobody: a server that is down at the start
// is met at the first call, and so are the checks (see [Store.Check]). Close the
// Store when done.
func Open(_ context.Context, o Options) (*Store, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	d, err := parseURL(o.URL)
	if err != nil {
		return nil, err
	}
	if d.topology != oneNode && o.WaitReplicas == 0 && !o.AcceptLostClaims {
		return nil, &Refusal{
			Reason:   "with " + string(d.topology) + " a claim can be lost with its master: set redis.wait_replicas to the number of replicas that could be promoted",
			Override: "redis.accept_lost_claims",
		}
	}
	s := &Store{
		opt: o, k: newKeyspace(o.Namespace), sc: loadScripts(o.Embedded), topo: d.topology,
		rdb:      d.dial(3, 0, readTimeout),
		stream:   d.dial(3, 4, readTimeout),
		claimer:  d.dial(-1, 0, readTimeout+o.WaitTimeout),
		checking: make(chan struct{}, 1),
		wake:     newWake(), taken: newTaken(),
	}
	for _, c := range []redis.UniversalClient{s.rdb, s.stream, s.claimer} {
		for _, h := range o.Hooks {
			c.AddHook(h)
		}
	}
	return s, nil
}

// Close closes the connections. Calls that are under way fail.
func (s *Store) Close() error {
	return errors.Join(s.rdb.Close(), s.stream.Close(), s.claimer.Close())
}

func ms(d time.Duration) int64 { return d.Milliseconds() }

func fromMS(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.UnixMilli(n).UTC()
}
