package store

import (
	"cmp"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countersign-mcp/countersign/approvals/keys"
)

// Options say where the store is and how long it keeps what. Zero durations mean
// the default.
type Options struct {
	// URL of the server:
	//   - one node: redis://, rediss://, unix:///path
	//   - Sentinel: redis://sentinel:26379/0?master_name=NAME&addr=sentinel2:26379
	//   - Cluster: redis://node:6379?addr=node2:6379, or ?cluster=true for one address
	URL       string
	Namespace string // default "countersign"; without braces
	Ring      *keys.Ring
	Log       *slog.Logger

	Owner string // the claimer's ledger file id; needed by Claim

	ClaimTTL  time.Duration // from the decision to the latest claim; default 1 h
	ResultTTL time.Duration // a result, or "it ran", is given again for so long; default 1 h
	DenyTTL   time.Duration // a denial is given again for so long; default 1 h
	MissTTL   time.Duration // "expired" or "undelivered" is given again for so long; default 5 m
	Lease     time.Duration // of a claim, renewed by its owner; default 30 s
	Retain    time.Duration // an ended record is kept for so long; default 24 h, never less than the above
	NudgeIdle time.Duration // an outbox entry or event taken and not done is given to another; default 60 s

	// WaitReplicas is how many replicas must confirm a claim. It must cover
	// those that could be promoted.
	WaitReplicas int
	// WaitTimeout is how long a claim waits for them; default 1 s.
	WaitTimeout time.Duration

	AcceptNoAOF      bool // redis.accept_no_aof
	AcceptLostClaims bool // redis.accept_lost_claims
	AcceptUnchecked  bool // redis.accept_unchecked: the server does not let us look
	// Embedded says that the server is miniredis in this process: it has no
	// INFO and CONFIG to check and no script flags, and a restart forgets all.
	Embedded bool

	// Hooks go on every client, for metrics and for tests that lose replies.
	Hooks []redis.Hook
}

// MaxResult is the largest answer that is kept, in bytes of its JSON.
const MaxResult = 1 << 20

func (o Options) withDefaults() (Options, error) {
	o.Namespace = cmp.Or(o.Namespace, "countersign")
	o.ClaimTTL = cmp.Or(o.ClaimTTL, time.Hour)
	o.ResultTTL = cmp.Or(o.ResultTTL, time.Hour)
	o.DenyTTL = cmp.Or(o.DenyTTL, time.Hour)
	o.MissTTL = cmp.Or(o.MissTTL, 5*time.Minute)
	o.Lease = cmp.Or(o.Lease, 30*time.Second)
	o.NudgeIdle = cmp.Or(o.NudgeIdle, time.Minute)
	o.WaitTimeout = cmp.Or(o.WaitTimeout, time.Second)
	// A record outlives everything that leads back to it.
	o.Retain = max(cmp.Or(o.Retain, 24*time.Hour), o.ResultTTL, o.DenyTTL, o.MissTTL)
	switch {
	case o.URL == "":
		return o, errors.New("store: no URL")
	case o.Ring == nil:
		return o, errors.New("store: no keys")
	case o.Log == nil:
		return o, errors.New("store: no logger")
	case strings.ContainsAny(o.Namespace, "{}"):
		return o, errors.New("store: a namespace has no braces")
	}
	for _, d := range []time.Duration{o.ClaimTTL, o.ResultTTL, o.DenyTTL, o.MissTTL, o.Lease, o.NudgeIdle, o.WaitTimeout} {
		if d < time.Millisecond {
			return o, errors.New("store: a duration is shorter than a millisecond")
		}
	}
	if o.WaitReplicas < 0 {
		return o, errors.New("store: wait_replicas is negative")
	}
	return o, nil
}
