package store

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strconv"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/keys"
)

const linkBytes = 32

// NewLink makes a link's token for one person and one approval, good for ttl.
// Redis gets a MAC of the token and never the token.
func (s *Store) NewLink(ctx context.Context, id, person string, ttl time.Duration) (string, error) {
	if id == "" || person == "" || ttl < time.Millisecond {
		return "", fmt.Errorf("making a link: an approval, a person and a time are needed")
	}
	now, err := s.clock(ctx)
	if err != nil {
		return "", fmt.Errorf("making a link: %w", err)
	}
	raw := make([]byte, linkBytes)
	rand.Read(raw)
	token := base64.RawURLEncoding.EncodeToString(raw)
	mac := s.opt.Ring.MAC(keys.LinkHash, []byte(token))
	until := strconv.FormatInt(now.Add(ttl).UnixMilli(), 10)
	value := s.opt.Ring.Token(keys.LinkHash, s.opt.Namespace, mac, id, person, until)
	if err := s.rdb.Set(ctx, s.k.link(mac), value, ttl).Err(); err != nil {
		return "", unavailable("making a link", err)
	}
	return token, nil
}

// Link tells what a token stands for. NotFound for an unknown or expired one,
// and Forged for an entry that somebody else wrote.
func (s *Store) Link(ctx context.Context, token string) (id, person string, err error) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(raw) != linkBytes {
		return "", "", fmt.Errorf("reading a link: %w", approvals.NotFound)
	}
	now, err := s.clock(ctx)
	if err != nil {
		return "", "", fmt.Errorf("reading a link: %w", err)
	}
	macs := s.opt.Ring.MACs(keys.LinkHash, []byte(token))
	ks := make([]string, len(macs))
	for i, mac := range macs {
		ks[i] = s.k.link(mac)
	}
	vals, err := s.rdb.MGet(ctx, ks...).Result()
	if err != nil {
		return "", "", unavailable("reading a link", err)
	}
	for i, v := range vals {
		value, ok := v.(string)
		if !ok {
			continue
		}
		f, err := s.opt.Ring.OpenToken(keys.LinkHash, value)
		if err != nil || len(f) != 5 || f[0] != s.opt.Namespace || f[1] != macs[i] {
			return "", "", fmt.Errorf("reading a link: %w", approvals.Forged)
		}
		if now.Before(parseMS(f[4])) {
			return f[2], f[3], nil
		}
	}
	return "", "", fmt.Errorf("reading a link: %w", approvals.NotFound)
}
