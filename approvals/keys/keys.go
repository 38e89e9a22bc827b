// Package keys is the one place where secrets become ciphertext, MACs and
// tokens. A [Ring] holds the current 32-byte key and the previous ones; every
// use names a [Purpose], and each purpose has a subkey of its own (HKDF-SHA-256,
// RFC 5869), so that a value made for one use never verifies for another.
//
// Everything a Ring makes carries the id of the key it was made with. Opening
// and verifying accept every key of the ring; making uses the current one.
// A Ring is immutable and safe for concurrent use.
package keys

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"
)

// Purpose separates the uses of a key.
type Purpose string

// The purposes in use. A new use gets a new purpose.
const (
	Index    Purpose = "index"    // the match key under which a parked call is found again
	Bound    Purpose = "bound"    // the envelope digest as approvers, callbacks and the ledger see it
	Shown    Purpose = "shown"    // the digest of what an approver was shown
	Value    Purpose = "value"    // the digest of one masked argument
	VoteMAC  Purpose = "vote"     // a vote in the store
	Button   Purpose = "button"   // the value of a button on a card
	Page     Purpose = "page"     // the nonce of a decision page
	Call     Purpose = "call"     // sealed: the envelope with its arguments
	ViewSeal Purpose = "view"     // sealed: title and view
	Record   Purpose = "record"   // sealed: the fixed part of an approval's record
	Comment  Purpose = "comment"  // sealed: a person's words
	Result   Purpose = "result"   // sealed: an upstream's answer
	Args     Purpose = "args"     // the arguments' digest on the ledger
	State    Purpose = "state"    // sealed: what a client carries for us between two requests
	LinkHash Purpose = "link"     // the stored form of a link's token
	PinSeal  Purpose = "pin"      // sealed: what a tool was pinned to
	Captures Purpose = "captures" // sealed: what a ticketing system answered
	Labels   Purpose = "labels"   // sealed: what a session carries; also the names under which it is kept
)

// Size is the length of a key in bytes.
const Size = 32

// Secret is a key. It can't be printed, logged or encoded by accident: the bytes
// are behind a pointer, which fmt does not follow where it can't call a method
// (in an unexported field of somebody's struct). The zero value is no key.
type Secret struct{ key *[Size]byte }

// ErrSecret says that a key is not usable.
var ErrSecret = errors.New("a key is base64 of 32 random bytes; make one with: countersign keygen")

// ParseSecret reads base64 (standard or URL alphabet, padded or not) of 32 bytes.
func ParseSecret(text string) (Secret, error) {
	text = strings.TrimRight(strings.TrimSpace(text), "=")
	enc := base64.RawStdEncoding
	if strings.ContainsAny(text, "-_") {
		enc = base64.RawURLEncoding
	}
	b, err := enc.DecodeString(text)
	if err != nil || len(b) != Size || bytes.Equal(b, make([]byte, Size)) {
		return Secret{}, ErrSecret
	}
	return Secret{(*[Size]byte)(b)}, nil
}

// NewSecret draws a key.
func NewSecret() Secret {
	var b [Size]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	return Secret{&b}
}

// Reveal returns the key as base64, for keygen and for a file that holds it.
func (s Secret) Reveal() string {
	if s.key == nil {
		return ""
	}
	return base64.StdEncoding.EncodeToString(s.key[:])
}

// Format hides the key from every verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("<secret>")) }

// String hides the key.
func (s Secret) String() string { return "<secret>" }

// LogValue hides the key.
func (s Secret) LogValue() slog.Value { return slog.StringValue("<secret>") }

// MarshalText refuses: a key is never written by an encoder.
func (s Secret) MarshalText() ([]byte, error) {
	return nil, errors.New("keys: a secret can't be encoded")
}

// Ring holds the current key and the previous ones.
type Ring struct {
	keys []ringKey // current first
}

type ringKey struct {
	id   string
	root *[Size]byte // behind a pointer, as in Secret
}

// NewRing refuses an empty secret and two secrets that are the same.
func NewRing(current Secret, previous ...Secret) (*Ring, error) {
	r := &Ring{}
	for _, s := range append([]Secret{current}, previous...) {
		if s.key == nil {
			return nil, ErrSecret
		}
		id := keyID(s.key)
		for _, k := range r.keys {
			if k.id == id {
				return nil, fmt.Errorf("keys: the key %s is listed twice", id)
			}
		}
		r.keys = append(r.keys, ringKey{id: id, root: s.key})
	}
	return r, nil
}

func keyID(root *[Size]byte) string {
	return hex.EncodeToString(derive(root, "id"))[:8]
}

func derive(root *[Size]byte, purpose Purpose) []byte {
	sub, err := hkdf.Key(sha256.New, root[:], nil, "countersign/v1/"+string(purpose), Size)
	if err != nil {
		panic("keys: hkdf: " + err.Error()) // only for a length that can't be asked for
	}
	return sub
}

// ID is the current key's id: 8 hex digits, derived from the key.
func (r *Ring) ID() string { return r.keys[0].id }

// IDs lists the ids of all keys, the current one first.
func (r *Ring) IDs() []string {
	out := make([]string, len(r.keys))
	for i, k := range r.keys {
		out[i] = k.id
	}
	return out
}

func (r *Ring) find(id string) (ringKey, bool) {
	for _, k := range r.keys {
		if k.id == id {
			return k, true
		}
	}
	return ringKey{}, false
}

// frame joins fields so that no two different lists give the same bytes.
func frame(fields [][]byte) []byte {
	var out []byte
	for _, f := range fields {
		out = binary.AppendUvarint(out, uint64(len(f)))
		out = append(out, f...)
	}
	return out
}

func (k ringKey) sum(p Purpose, fields [][]byte) []byte {
	m := hmac.New(sha256.New, derive(k.root, p))
	m.Write(frame(fields))
	return m.Sum(nil)
}

// MAC is HMAC-SHA-256 over the fields, as "keyid.base64url". It may be written
// and shown: without the key it tells nothing about the fields, not even by
// guessing them.
func (r *Ring) MAC(p Purpose, fields ...[]byte) string {
	return r.keys[0].mac(p, fields)
}

func (k ringKey) mac(p Purpose, fields [][]byte) string {
	return k.id + "." + base64.RawURLEncoding.EncodeToString(k.sum(p, fields))
}

// MACs gives the MAC under every key of the ring, the current one first: an
// index made before a rotation is found under an older key.
func (r *Ring) MACs(p Purpose, fields ...[]byte) []string {
	out := make([]string, len(r.keys))
	for i, k := range r.keys {
		out[i] = k.mac(p, fields)
	}
	return out
}

// Verify tells in constant time whether mac was made over the fields by a key
// of this ring.
func (r *Ring) Verify(p Purpose, mac string, fields ...[]byte) bool {
	id, _, ok := strings.Cut(mac, ".")
	if !ok {
		return false
	}
	k, ok := r.find(id)
	return ok && hmac.Equal([]byte(k.mac(p, fields)), []byte(mac))
}

// ErrSealed says that a sealed value or a token is not ours: altered, of another
// purpose, bound to something else, or made with a key that is not on the ring.
var ErrSealed = errors.New("keys: the value was not made by a key on this ring for this purpose")

const sealIDLen = 8

// Seal encrypts plain with AES-256-GCM. The bound fields are authenticated and
// must be given again to Open.
func (r *Ring) Seal(p Purpose, plain []byte, bound ...[]byte) []byte {
	k := r.keys[0]
	aead := k.aead(p)
	out := make([]byte, sealIDLen+aead.NonceSize(), sealIDLen+aead.NonceSize()+len(plain)+aead.Overhead())
	copy(out, k.id)
	nonce := out[sealIDLen:]
	rand.Read(nonce)
	return aead.Seal(out, nonce, plain, frame(bound))
}

// Open decrypts what Seal made with the same purpose and bound fields.
func (r *Ring) Open(p Purpose, sealed []byte, bound ...[]byte) ([]byte, error) {
	if len(sealed) < sealIDLen {
		return nil, ErrSealed
	}
	k, ok := r.find(string(sealed[:sealIDLen]))
	if !ok {
		return nil, ErrSealed
	}
	aead := k.aead(p)
	rest := sealed[sealIDLen:]
	if len(rest) < aead.NonceSize() {
		return nil, ErrSealed
	}
	plain, err := aead.Open(nil, rest[:aead.NonceSize()], rest[aead.NonceSize():], frame(bound))
	if err != nil {
		return nil, ErrSealed
	}
	return plain, nil
}

func (k ringKey) aead(p Purpose) cipher.AEAD {
	block, err := aes.NewCipher(derive(k.root, "seal/"+p))
	if err != nil {
		panic("keys: aes: " + err.Error()) // only for a wrong key length
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic("keys: gcm: " + err.Error())
	}
	return aead
}

// Token carries fields in the open, with a MAC: whoever holds it can read it,
// nobody else can make or alter it. It is URL-safe text.
func (r *Ring) Token(p Purpose, fields ...string) string {
	raw := make([][]byte, len(fields))
	for i, f := range fields {
		raw[i] = []byte(f)
	}
	k := r.keys[0]
	body := frame(raw)
	out := append([]byte(k.id), k.sum("token/"+p, raw)...)
	return base64.RawURLEncoding.EncodeToString(append(out, body...))
}

// OpenToken returns the fields of a token that a key of this ring made for this
// purpose.
func (r *Ring) OpenToken(p Purpose, token string) ([]string, error) {
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(b) < sealIDLen+sha256.Size {
		return nil, ErrSealed
	}
	k, ok := r.find(string(b[:sealIDLen]))
	if !ok {
		return nil, ErrSealed
	}
	raw, ok := unframe(b[sealIDLen+sha256.Size:])
	if !ok || !hmac.Equal(k.sum("token/"+p, raw), b[sealIDLen:sealIDLen+sha256.Size]) {
		return nil, ErrSealed
	}
	fields := make([]string, len(raw))
	for i, f := range raw {
		fields[i] = string(f)
	}
	return fields, nil
}

func unframe(b []byte) ([][]byte, bool) {
	var out [][]byte
	for len(b) > 0 {
		n, used := binary.Uvarint(b)
		if used <= 0 || n > uint64(len(b)-used) {
			return nil, false
		}
		out = append(out, b[used:used+int(n)])
		b = b[used+int(n):]
	}
	return out, true
}
