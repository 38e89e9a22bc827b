package store

import (
	"context"
	"strings"
)

// Server is what a look at the server found. Fields are empty where it does not
// let us look.
type Server struct {
	Topology string // "one node", "Sentinel" or "Cluster"
	Version  string
	Eviction string // maxmemory-policy
	AOF      string // "yes" or "no": is an append-only file kept
	Fsync    string // appendfsync
	Replicas string // how many are connected
}

// Inspect makes the checks of [Store.Check] and tells what it saw, for whoever
// checks a configuration beside a gate that runs. It makes no consumer group and
// leaves no key behind, and the methods that only read work after it without
// making one; a Store that was inspected is not used to park, claim or tell. The
// error is that of Check; what is merely unwise goes to the logger.
func (s *Store) Inspect(ctx context.Context) (Server, error) {
	seen := Server{Topology: string(s.topo)}
	if err := s.checkServers(ctx); err != nil {
		return seen, unavailable("checking the server", err)
	}
	if err := s.checkRights(ctx); err != nil {
		return seen, unavailable("checking the account", err)
	}
	s.checked.Store(true) // else the first reading would make the groups
	for _, section := range []string{"server", "replication"} {
		text, err := s.rdb.Info(ctx, section).Result()
		if err != nil {
			continue // it may be forbidden, which the checks have accepted
		}
		for line := range strings.SplitSeq(text, "\r\n") {
			switch k, v, _ := strings.Cut(line, ":"); k {
			case "redis_version":
				seen.Version = v
			case "connected_slaves":
				seen.Replicas = v
			}
		}
	}
	for name, into := range map[string]*string{"maxmemory-policy": &seen.Eviction, "appendonly": &seen.AOF, "appendfsync": &seen.Fsync} {
		if m, err := s.rdb.ConfigGet(ctx, name).Result(); err == nil {
			*into = m[name]
		}
	}
	return seen, nil
}
