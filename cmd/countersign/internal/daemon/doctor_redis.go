package daemon

import (
	"context"
	"errors"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/store"
)

// look opens the store for reading only; nil when there is none to open.
func (p *patient) look(notes *notebook) (*store.Store, error) {
	if p.cfg.Store == "ephemeral" || p.ring == nil {
		return nil, nil
	}
	return store.Open(context.Background(), store.Options{
		URL: p.cfg.Redis.URL.Reveal(), Namespace: p.cfg.Redis.Namespace, Ring: p.ring, Log: notes.log(),
		WaitReplicas: p.cfg.Redis.WaitReplicas, AcceptNoAOF: p.cfg.Redis.AcceptNoAOF,
		AcceptLostClaims: p.cfg.Redis.AcceptLostClaims, AcceptUnchecked: p.cfg.Redis.AcceptUnchecked,
	})
}

func lookAtRedis(ctx context.Context, p *patient) []Finding {
	notes := &notebook{}
	s, err := p.look(notes)
	if err != nil {
		return []Finding{unfit(err)}
	}
	if s == nil {
		return nil
	}
	defer s.Close()
	seen, err := s.Inspect(ctx)
	if err != nil {
		return append([]Finding{unfit(err)}, notes.findings()...)
	}
	found := []Finding{fine("%s, version %s; eviction %s; append-only file %s, appendfsync %s",
		seen.Topology, said(seen.Version), said(seen.Eviction), said(seen.AOF), said(seen.Fsync))}
	if seen.AOF == "no" {
		found = append(found, warn("turn appendonly on", "redis.accept_no_aof: a restart of the server forgets approvals"))
	}
	found = append(found, notes.findings()...)
	found = append(found, standing(ctx, s)...)
	return append(found, p.newest(ctx, s)...)
}

// newest compares the policy file with what the gates of this Redis judge by.
func (p *patient) newest(ctx context.Context, s *store.Store) []Finding {
	now, err := s.Generation(ctx)
	switch {
	case err != nil:
		return []Finding{fail("see that the server runs", "%v", err)}
	case now.N == 0 || p.policy == nil:
		return nil
	case now.Policy != p.policy.Digest().Hex():
		return []Finding{warn("give the gates one policy and send each SIGHUP; a gate with an older one refuses calls that need a yes",
			"the newest policy on this Redis is %.12s, loaded at %s; this file is another", now.Policy, now.At.UTC().Format(time.RFC3339))}
	}
	return []Finding{fine("this policy is the newest on this Redis, number %d", now.N)}
}

// unfit is a server that can't be used.
func unfit(err error) Finding {
	var no *store.Refusal
	if errors.As(err, &no) {
		return fail("change the server's settings, or the key that it names", "%s", no)
	}
	return fail("see that the server runs and that redis.url is right; until then calls that need a yes are refused", "%v", err)
}

func said(s string) string {
	if s == "" {
		return "not known"
	}
	return s
}

// standing says who is there and what waits for a person.
func standing(ctx context.Context, s *store.Store) []Finding {
	var found []Finding
	switch alive, err := s.NotifierAlive(ctx); {
	case err != nil:
		return []Finding{fail("see that the server runs", "%v", err)}
	case alive:
		found = append(found, fine("a gate that tells people is running"))
	default:
		found = append(found, fine("no gate that tells people is running now; without one calls that need a yes are refused"))
	}
	const most = 1000
	tickets, err := s.List(ctx, []approvals.State{approvals.Pending, approvals.Unknown}, most)
	if err != nil {
		return append(found, fail("see that the server runs", "%v", err))
	}
	unknown := 0
	for _, t := range tickets {
		if t.State == approvals.Unknown {
			unknown++
		}
	}
	found = append(found, fine("%s for an answer", count(len(tickets)-unknown, "call waits", "calls wait")))
	if unknown > 0 {
		found = append(found, warn("find out whether they ran, then: countersign approvals resolve ID --ran or --not-run",
			"nobody knows whether %s ran", count(unknown, "call", "calls")))
	}
	return found
}
