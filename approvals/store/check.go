package store

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countersign-mcp/countersign/approvals"
)

// Refusal says that the server must not be used as it is set up. A process that
// meets one stops. It counts as [approvals.StoreUnavailable] for whoever asked.
type Refusal struct {
	Reason   string
	Override string // the configuration key that accepts it; "" when none does
}

func (r *Refusal) Error() string {
	if r.Override == "" {
		return "store: refused: " + r.Reason
	}
	return fmt.Sprintf("store: refused: %s (to accept it, set %s: true)", r.Reason, r.Override)
}

// Is makes a Refusal a StoreUnavailable: nothing was parked, decided or claimed.
func (r *Refusal) Is(target error) bool { return target == approvals.StoreUnavailable }

// ready makes the checks at the first contact. Until they have passed no method
// does anything.
func (s *Store) ready(ctx context.Context) error {
	if s.checked.Load() {
		return nil
	}
	select {
	case s.checking <- struct{}{}:
		defer func() { <-s.checking }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if s.checked.Load() {
		return nil
	}
	return s.Check(ctx)
}

// Check looks at the server and makes the consumer groups. It returns a
// [*Refusal] when the server must not be used, and an error that wraps
// [approvals.StoreUnavailable] when it can't be reached. The methods make the
// same check at their first contact, so calling it is for a start-up that wants
// to know.
func (s *Store) Check(ctx context.Context) error {
	if !s.opt.Embedded {
		if err := s.checkServers(ctx); err != nil {
			return unavailable("checking the server", err)
		}
		if !s.checked.Load() { // once: it writes
			if err := s.checkRights(ctx); err != nil {
				return unavailable("checking the account", err)
			}
		}
	}
	for stream, group := range map[string]string{s.k.outbox(): nudgeGroup, s.k.events(): eventGroup} {
		if err := s.makeGroup(ctx, stream, group); err != nil {
			return unavailable("making the consumer group", err)
		}
	}
	s.checked.Store(true)
	return nil
}

func (s *Store) checkServers(ctx context.Context) error {
	if c, ok := s.rdb.(*redis.ClusterClient); ok {
		return c.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return s.checkServer(ctx, node) })
	}
	return s.checkServer(ctx, s.rdb)
}

func (s *Store) checkServer(ctx context.Context, c redis.UniversalClient) error {
	if err := s.checkInfo(ctx, c); err != nil {
		return err
	}
	policy, err := s.setting(ctx, c, "maxmemory-policy")
	if err != nil {
		return err
	}
	if policy != "" && policy != "noeviction" {
		return &Refusal{Reason: "maxmemory-policy is " + policy + ": the server may throw approvals away; it must be noeviction"}
	}
	s.warnOfSync(ctx, c)
	s.warnOfClock(ctx, c)
	return nil
}

func (s *Store) checkInfo(ctx context.Context, c redis.UniversalClient) error {
	info := map[string]string{}
	for _, section := range []string{"server", "replication", "persistence"} {
		text, err := c.Info(ctx, section).Result()
		if err != nil {
			if notPermitted(err) {
				return s.unchecked("INFO")
			}
			return err
		}
		for line := range strings.SplitSeq(text, "\r\n") {
			if k, v, ok := strings.Cut(line, ":"); ok {
				info[k] = v
			}
		}
	}
	if v := info["redis_version"]; !atLeast7(v) {
		return &Refusal{Reason: "the server is " + v + "; 7.0 is the oldest that will do"}
	}
	if role := info["role"]; role != "master" {
		return &Refusal{Reason: "the server is a " + role + ", not a master"}
	}
	if info["aof_enabled"] != "1" && !s.opt.AcceptNoAOF {
		return &Refusal{Reason: "the server keeps no append-only file: a restart forgets approvals", Override: "redis.accept_no_aof"}
	}
	if status := info["aof_last_write_status"]; status != "" && status != "ok" {
		return &Refusal{Reason: "the server can't write its append-only file (aof_last_write_status " + status + ")"}
	}
	if n, _ := strconv.Atoi(info["connected_slaves"]); n < s.opt.WaitReplicas {
		s.opt.Log.Warn("fewer replicas are connected than a claim waits for: nothing can be claimed",
			"wait_replicas", s.opt.WaitReplicas, "connected", n)
	}
	return nil
}

func (s *Store) setting(ctx context.Context, c redis.UniversalClient, name string) (string, error) {
	m, err := c.ConfigGet(ctx, name).Result()
	switch {
	case err == nil && m[name] != "":
		return m[name], nil
	case err == nil || notPermitted(err):
		return "", s.unchecked("CONFIG GET " + name)
	}
	return "", err
}

// unchecked is what a server that does not let us look comes to.
func (s *Store) unchecked(command string) error {
	if s.opt.AcceptUnchecked {
		s.opt.Log.Warn("the server does not let us check its settings; taken as they are", "command", command)
		return nil
	}
	return &Refusal{
		Reason:   command + " is not permitted, so eviction and durability can't be checked",
		Override: "redis.accept_unchecked",
	}
}

func notPermitted(err error) bool {
	return redis.HasErrorPrefix(err, "NOPERM") || redis.HasErrorPrefix(err, "unknown command") // it cuts "ERR " off
}

func atLeast7(version string) bool {
	major, _, _ := strings.Cut(version, ".")
	n, err := strconv.Atoi(major)
	return err == nil && n >= 7
}

// warnOfSync says once that a power cut can take the last second with it. It only
// warns: a claim that is forgotten so is still on the ledger of its claimer.
func (s *Store) warnOfSync(ctx context.Context, c redis.UniversalClient) {
	m, err := c.ConfigGet(ctx, "append*").Result()
	if err != nil || m["appendonly"] != "yes" || m["appendfsync"] == "" || m["appendfsync"] == "always" {
		return
	}
	s.syncTold.Do(func() {
		s.opt.Log.Warn("the server writes its append-only file late: a power cut can make it forget the last approvals and claims; set appendfsync to always",
			"appendfsync", m["appendfsync"])
	})
}

// warnOfClock only warns: the store never mixes the two clocks, but a person
// reading both would be misled.
func (s *Store) warnOfClock(ctx context.Context, c redis.UniversalClient) {
	before := time.Now()
	t, err := c.Time(ctx).Result()
	if err != nil {
		return
	}
	if skew := t.Sub(before.Add(time.Since(before) / 2)); skew.Abs() > time.Second {
		s.opt.Log.Warn("the server's clock differs from this machine's", "by", skew.Round(time.Millisecond))
	}
}
