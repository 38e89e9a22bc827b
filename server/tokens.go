package server

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/countersign-mcp/countersign/approvals/action"
)

// Token is one static bearer token: only its hash is known here.
type Token struct {
	SHA256 string // hex of the SHA-256 of the token
	Actor  string // whom it stands for
	Roles  []string
	Owners []string // people answerable for a service actor
}

// Tokens is a set of static tokens that can be replaced while it is in use.
type Tokens struct{ set atomic.Pointer[[]tokenEntry] }

type tokenEntry struct {
	sum   [sha256.Size]byte
	actor action.Actor
}

// NewTokens reads a list of tokens.
func NewTokens(list []Token) (*Tokens, error) {
	t := &Tokens{}
	if err := t.Replace(list); err != nil {
		return nil, err
	}
	return t, nil
}

// Replace swaps the whole set at once. On an error the old set stays.
func (t *Tokens) Replace(list []Token) error {
	set := make([]tokenEntry, 0, len(list))
	for i, in := range list {
		var e tokenEntry
		if len(in.SHA256) != 2*sha256.Size {
			return fmt.Errorf("token %d: sha256 is not 64 hex digits", i+1)
		}
		if _, err := hex.Decode(e.sum[:], []byte(in.SHA256)); err != nil {
			return fmt.Errorf("token %d: sha256 is not 64 hex digits", i+1)
		}
		if in.Actor == "" {
			return fmt.Errorf("token %d: no actor", i+1)
		}
		if slices.ContainsFunc(set, func(o tokenEntry) bool { return o.sum == e.sum }) {
			return fmt.Errorf("token %d: listed twice", i+1)
		}
		e.actor = action.Actor{
			ID: in.Actor, Roles: slices.Clone(in.Roles), Owners: slices.Clone(in.Owners), Auth: "token",
		}
		set = append(set, e)
	}
	t.set.Store(&set)
	return nil
}

// Len is the number of tokens.
func (t *Tokens) Len() int {
	if t == nil {
		return 0
	}
	if set := t.set.Load(); set != nil {
		return len(*set)
	}
	return 0
}

// Knows tells whether any token stands for this actor.
func (t *Tokens) Knows(actor string) bool {
	return t.Len() > 0 && slices.ContainsFunc(*t.set.Load(), func(e tokenEntry) bool { return e.actor.ID == actor })
}

// Authenticate finds the actor of a token. It compares with every entry, so that
// its time tells nothing about which one was near.
func (t *Tokens) Authenticate(_ context.Context, token string) (action.Actor, bool) {
	if t.Len() == 0 {
		return action.Actor{}, false
	}
	sum := sha256.Sum256([]byte(token))
	set := *t.set.Load()
	found := -1
	for i := range set {
		hit := subtle.ConstantTimeCompare(sum[:], set[i].sum[:])
		found = subtle.ConstantTimeSelect(hit, i, found)
	}
	if found < 0 {
		return action.Actor{}, false
	}
	a := set[found].actor
	a.Roles, a.Owners = slices.Clone(a.Roles), slices.Clone(a.Owners)
	return a, true
}
