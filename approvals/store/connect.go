package store

import (
	"fmt"
	"net/url"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// topology says what stands behind a URL.
type topology string

const (
	oneNode  topology = "one node"
	sentinel topology = "Sentinel"
	cluster  topology = "Cluster"
)

// dialer makes clients of one server that differ in what they are for.
type dialer struct {
	topology topology
	dial     func(retries, pool int, read time.Duration) redis.UniversalClient
}

// A client that waits for a context only by its deadline would hang on a server
// that does not answer; each client therefore honours it, and no read waits
// longer than readTimeout.
const readTimeout = 3 * time.Second

func parseURL(raw string) (dialer, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return dialer{}, fmt.Errorf("store: the URL can't be read") // its text may hold a password
	}
	q := u.Query()
	switch {
	case q.Has("master_name"):
		return sentinelDialer(raw)
	case q.Has("cluster") || q.Has("addr"):
		q.Del("cluster")
		u.RawQuery = q.Encode()
		return clusterDialer(u.String())
	}
	base, err := redis.ParseURL(raw)
	if err != nil {
		return dialer{}, fmt.Errorf("store: the URL can't be used: %w", hideURL(err))
	}
	return dialer{oneNode, func(retries, pool int, read time.Duration) redis.UniversalClient {
		o := *base
		o.MaxRetries, o.PoolSize, o.ReadTimeout, o.ContextTimeoutEnabled = retries, pool, read, true
		o.Protocol, o.MaintNotificationsConfig = 2, noMaintenance()
		return redis.NewClient(&o)
	}}, nil
}

func sentinelDialer(raw string) (dialer, error) {
	base, err := redis.ParseFailoverURL(raw)
	if err != nil {
		return dialer{}, fmt.Errorf("store: the Sentinel URL can't be used: %w", hideURL(err))
	}
	return dialer{sentinel, func(retries, pool int, read time.Duration) redis.UniversalClient {
		o := *base
		o.MaxRetries, o.PoolSize, o.ReadTimeout, o.ContextTimeoutEnabled = retries, pool, read, true
		o.Protocol = 2
		return redis.NewFailoverClient(&o)
	}}, nil
}

func clusterDialer(raw string) (dialer, error) {
	base, err := redis.ParseClusterURL(raw)
	if err != nil {
		return dialer{}, fmt.Errorf("store: the Cluster URL can't be used: %w", hideURL(err))
	}
	return dialer{cluster, func(retries, pool int, read time.Duration) redis.UniversalClient {
		o := *base
		o.MaxRetries, o.PoolSize, o.ReadTimeout, o.ContextTimeoutEnabled = retries, pool, read, true
		o.Protocol, o.MaintNotificationsConfig = 2, noMaintenance()
		return redis.NewClusterClient(&o)
	}}, nil
}

func noMaintenance() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

// hideURL keeps the reason of a *url.Error and drops the URL.
func hideURL(err error) error {
	if e, ok := err.(*url.Error); ok {
		return e.Err
	}
	return err
}
