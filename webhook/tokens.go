package webhook

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// Token is an operator's token as it is configured: only its hash.
type Token struct {
	SHA256 string // hex
	Person string // id under people
}

// Tokens finds the person behind a bearer token. It is immutable.
type Tokens struct{ people map[[sha256.Size]byte]string }

// NewTokens refuses a hash that is not one, one that is listed twice, and a token
// of nobody.
func NewTokens(list []Token) (*Tokens, error) {
	t := &Tokens{people: map[[sha256.Size]byte]string{}}
	for i, e := range list {
		var sum [sha256.Size]byte
		b, err := hex.DecodeString(e.SHA256)
		if err != nil || len(b) != len(sum) {
			return nil, fmt.Errorf("admin token %d: sha256 is not 64 hex digits; make one with: countersign token new", i+1)
		}
		copy(sum[:], b)
		if _, dup := t.people[sum]; dup {
			return nil, fmt.Errorf("admin token %d is listed twice", i+1)
		}
		if e.Person == "" {
			return nil, fmt.Errorf("admin token %d has no person", i+1)
		}
		t.people[sum] = e.Person
	}
	return t, nil
}

// person is looked up by hash, so the time it takes tells nothing of a token.
func (t *Tokens) person(token string) string {
	if t == nil {
		return ""
	}
	return t.people[sha256.Sum256([]byte(token))]
}

var errBearer = errors.New("no bearer token")

// bearer is the token of the one Authorization header.
func bearer(h http.Header) (string, error) {
	v, ok := oneHeader(h, "Authorization")
	if !ok {
		return "", errBearer
	}
	scheme, token, ok := strings.Cut(v, " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") || token == "" {
		return "", errBearer
	}
	return token, nil
}
