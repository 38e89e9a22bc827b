package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/keys"
)

// Labels returns what a session of an actor carries, sorted; asking keeps it for
// [approvals.LabelsTTL]. An error that wraps [approvals.Forged] means that some of what is
// stored does not verify, or that something else is there; the labels that verify
// come with it.
func (s *Store) Labels(ctx context.Context, actor, session string) ([]string, error) {
	return s.labels(ctx, "reading a session's labels", actor, session, nil)
}

// AddLabels adds labels to what a session carries and returns all of it, as
// [Store.Labels] does. It may be sent twice, and several may add at once: nothing
// is ever taken away.
func (s *Store) AddLabels(ctx context.Context, actor, session string, labels []string) ([]string, error) {
	return s.labels(ctx, "adding to a session's labels", actor, session, labels)
}

func (s *Store) labels(ctx context.Context, doing, actor, session string, add []string) ([]string, error) {
	macs := s.opt.Ring.MACs(keys.Labels, []byte("session"), []byte(actor), []byte(session))
	ks := make([]string, len(macs))
	for i, mac := range macs {
		ks[i] = s.k.labels(mac)
	}
	args := []any{ms(approvals.LabelsTTL)}
	for _, l := range add {
		field := s.opt.Ring.MAC(keys.Labels, []byte("label"), []byte(actor), []byte(session), []byte(l))
		args = append(args, field, s.opt.Ring.Seal(keys.Labels, []byte(l), s.labelPlace(macs[0], field)...))
	}
	if err := s.ready(ctx); err != nil {
		return nil, unavailable(doing, err)
	}
	reply, err := s.sc.labels.Run(ctx, s.rdb, ks, args...).StringSlice()
	if err != nil {
		return nil, unavailable(doing, err)
	}
	if len(reply) == 2 && reply[0] == "broken" {
		return nil, fmt.Errorf("%s: the key %s holds something else: %w", doing, reply[1], approvals.Forged)
	}
	current, older, err := s.openLabels(macs, reply)
	if err != nil {
		err = fmt.Errorf("%s: %w", doing, err)
	}
	out := slices.Sorted(maps.Keys(older))
	// What is under an older key moves on: that key will be taken off the ring.
	out = slices.DeleteFunc(out, func(l string) bool { return current[l] })
	if len(out) > 0 && add == nil && err == nil {
		return s.labels(ctx, doing, actor, session, out)
	}
	for l := range current {
		out = append(out, l)
	}
	slices.Sort(out)
	return out, err
}

// labelPlace is what a sealed label is bound to: it can't be moved to another
// session, place or namespace.
func (s *Store) labelPlace(mac, field string) [][]byte {
	return [][]byte{[]byte(s.opt.Namespace), []byte(mac), []byte(field)}
}

// openLabels opens the script's reply: what is kept under the current key, and
// what under older ones.
func (s *Store) openLabels(macs, reply []string) (current, older map[string]bool, err error) {
	current, older = map[string]bool{}, map[string]bool{}
	if len(reply) == 0 || reply[0] != "ok" {
		return nil, nil, unavailable("a reply without an ok", errors.New("the script was changed"))
	}
	into, rest := current, reply[1:]
	for _, mac := range macs {
		if len(rest) == 0 {
			return current, older, unavailable("a short reply", errors.New("the script was changed"))
		}
		n, convErr := strconv.Atoi(rest[0])
		rest = rest[1:]
		if convErr != nil || n < 0 || 2*n > len(rest) {
			return current, older, unavailable("a short reply", errors.New("the script was changed"))
		}
		for ; n > 0; n, rest = n-1, rest[2:] {
			label, openErr := s.opt.Ring.Open(keys.Labels, []byte(rest[1]), s.labelPlace(mac, rest[0])...)
			if openErr != nil {
				err = fmt.Errorf("one of them does not open: %w", approvals.Forged)
				continue
			}
			into[string(label)] = true
		}
		into = older
	}
	return current, older, err
}
