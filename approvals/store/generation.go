package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/action"
)

// publishRemembered is how long the nonce of a publication is known.
const publishRemembered = 24 * time.Hour

// Publish makes a policy the one by which all processes of the namespace are to
// judge, and returns the newest generation. replaced is the digest, in hex, of the
// policy that it took the place of; empty when the policy was the newest already
// or the first.
//
// The same nonce publishes once: sent again after another process has published,
// it changes nothing and returns what is the newest then. StoreUnavailable when it
// is not known whether it was published; repeat with the same nonce.
func (s *Store) Publish(ctx context.Context, policy action.Digest, nonce string) (now approvals.Generation, replaced string, err error) {
	if policy.IsZero() || nonce == "" {
		return now, "", errors.New("publishing: a policy and a nonce are needed")
	}
	r, err := s.run(ctx, s.sc.publish, []string{s.k.published(nonce), s.k.generation()}, "", "", ms(publishRemembered), policy.Hex())
	if err != nil {
		return now, "", fmt.Errorf("publishing: %w", err)
	}
	part := strings.Split(r.text, " ")
	switch {
	case r.code == "new" && len(part) == 4:
		replaced = part[3]
	case (r.code == "same" || r.code == "again") && len(part) == 3:
	default:
		return now, "", unexpected("publishing", r)
	}
	now, err = s.generation(part[0], part[1], part[2])
	return now, replaced, err
}

// Generation is the newest one; its N is 0 where none was published or Redis has
// forgotten it.
func (s *Store) Generation(ctx context.Context) (approvals.Generation, error) {
	if err := s.ready(ctx); err != nil {
		return approvals.Generation{}, unavailable("reading the generation", err)
	}
	v, err := s.rdb.HMGet(ctx, s.k.generation(), "n", "d", "at").Result()
	if err != nil {
		return approvals.Generation{}, unavailable("reading the generation", err)
	}
	var text [3]string
	for i := range v {
		text[i], _ = v[i].(string)
	}
	if text == [3]string{} {
		return approvals.Generation{}, nil
	}
	return s.generation(text[0], text[1], text[2])
}

func (s *Store) generation(n, policy, at string) (approvals.Generation, error) {
	number, err := strconv.ParseUint(n, 10, 64)
	if err != nil {
		return approvals.Generation{}, fmt.Errorf("reading the generation: %w: its number is none", approvals.StoreUnavailable)
	}
	when, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		return approvals.Generation{}, fmt.Errorf("reading the generation: %w: its time is none", approvals.StoreUnavailable)
	}
	if number > 0 {
		s.seen.Store(number)
	}
	return approvals.Generation{N: number, Policy: policy, At: fromMS(when)}, nil
}

// judgedBy are the last arguments of the scripts that compare generations.
func (s *Store) judgedBy(policy action.Digest) []any {
	known := "0"
	if s.seen.Load() > 0 {
		known = "1"
	}
	return []any{policy.Hex(), known}
}

// behind is the error of a script that found another policy the newest.
func (s *Store) behind(doing string, r reply) error {
	if n, err := strconv.ParseUint(r.text, 10, 64); err == nil && n > 0 {
		s.seen.Store(n)
	}
	return fmt.Errorf("%s: generation %s is of another policy: %w", doing, r.text, approvals.Behind)
}
