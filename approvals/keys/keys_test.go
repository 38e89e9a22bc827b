package keys

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fixed is a key whose values below were computed with another program
// (Python's hmac, after RFC 5869 and the form of a frame in this package).
const fixed = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="

const (
	knownID    = "bff33c64"
	knownMAC   = "bff33c64.JLK9D1OQCPukPDgoMXIREprrCM6J14FOH7xbxEdK9TY"
	knownToken = "YmZmMzNjNjSO2fpLqM4syc_YTHtOyzb68aLWDyXkoriH9s0KFzrnIAJ2MQRvcF8x"
)

func ring(t *testing.T, current Secret, previous ...Secret) *Ring {
	t.Helper()
	r, err := NewRing(current, previous...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func secret(t *testing.T, text string) Secret {
	t.Helper()
	s, err := ParseSecret(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestKnownAnswers(t *testing.T) {
	r := ring(t, secret(t, fixed))
	if got := r.ID(); got != knownID {
		t.Errorf("id %s, want %s", got, knownID)
	}
	if got := r.MAC(Index, []byte("a"), []byte(""), []byte("bc")); got != knownMAC {
		t.Errorf("MAC %s, want %s", got, knownMAC)
	}
	if got := r.Token(Button, "v1", "op_1"); got != knownToken {
		t.Errorf("token %s, want %s", got, knownToken)
	}
}

func TestParseSecret(t *testing.T) {
	raw := bytes.Repeat([]byte{0xfb}, Size)
	for _, ok := range []string{
		base64.StdEncoding.EncodeToString(raw), base64.RawStdEncoding.EncodeToString(raw),
		base64.URLEncoding.EncodeToString(raw), " " + base64.RawURLEncoding.EncodeToString(raw) + "\n",
	} {
		if s, err := ParseSecret(ok); err != nil || !bytes.Equal(s.key[:], raw) {
			t.Errorf("%q: %v", ok, err)
		}
	}
	for _, bad := range []string{
		"", "secret", base64.StdEncoding.EncodeToString(raw[1:]), base64.StdEncoding.EncodeToString(append(raw, 1)),
		hex.EncodeToString(raw), base64.StdEncoding.EncodeToString(make([]byte, Size)), strings.Repeat("*", 43),
	} {
		if _, err := ParseSecret(bad); !errors.Is(err, ErrSecret) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	s := NewSecret()
	if back := secret(t, s.Reveal()); *back.key != *s.key {
		t.Error("what keygen prints is not the key")
	}
	if NewSecret().Reveal() == s.Reveal() {
		t.Error("two keys are the same")
	}
}

func TestNewRingRefuses(t *testing.T) {
	a := NewSecret()
	for name, try := range map[string]func() (*Ring, error){
		"empty current":  func() (*Ring, error) { return NewRing(Secret{}) },
		"empty previous": func() (*Ring, error) { return NewRing(a, Secret{}) },
		"the same twice": func() (*Ring, error) { return NewRing(a, a) },
	} {
		if _, err := try(); err == nil {
			t.Errorf("%s makes a ring", name)
		}
	}
}

func TestSecretIsNotPrintable(t *testing.T) {
	s := secret(t, fixed)
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "key", s, "any", struct{ K Secret }{s})
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "key", s)
	printed := log.String() + fmt.Sprintf("%v %+v %#v %s %q %d %x", s, s, s, s, s, s, s) + fmt.Sprint(struct{ K Secret }{s}, &s, []Secret{s})
	r := ring(t, s)
	type holder struct{ k Secret }
	printed += fmt.Sprintf("%v %+v %#v %v %+v %#v", holder{s}, holder{s}, holder{s}, &holder{s}, r, *r)
	for _, form := range []string{fixed[:20], "AQIDBAUG", "00010203", "0 1 2 3", "0, 1, 2", "0x0, 0x1"} {
		if strings.Contains(printed, form) {
			t.Errorf("%q is in: %s", form, printed)
		}
	}
	for name, v := range map[string]any{"itself": s, "inside": map[string]Secret{"k": s}} {
		if b, err := json.Marshal(v); err == nil {
			t.Errorf("%s was encoded: %s", name, b)
		}
	}
}

func TestMAC(t *testing.T) {
	r := ring(t, NewSecret())
	fields := [][]byte{[]byte("ab"), []byte("c")}
	mac := r.MAC(VoteMAC, fields...)
	if !r.Verify(VoteMAC, mac, fields...) || mac != r.MAC(VoteMAC, fields...) {
		t.Fatal("a MAC does not verify")
	}
	for name, ok := range map[string]bool{
		"other purpose":    r.Verify(Index, mac, fields...),
		"moved boundary":   r.Verify(VoteMAC, mac, []byte("a"), []byte("bc")),
		"joined":           r.Verify(VoteMAC, mac, []byte("abc")),
		"one more":         r.Verify(VoteMAC, mac, []byte("ab"), []byte("c"), nil),
		"order":            r.Verify(VoteMAC, mac, []byte("c"), []byte("ab")),
		"none":             r.Verify(VoteMAC, mac),
		"empty":            r.Verify(VoteMAC, "", fields...),
		"id alone":         r.Verify(VoteMAC, r.ID()+".", fields...),
		"cut":              r.Verify(VoteMAC, mac[:len(mac)-1], fields...),
		"longer":           r.Verify(VoteMAC, mac+"A", fields...),
		"unknown key":      r.Verify(VoteMAC, "00000000"+mac[8:], fields...),
		"another ring":     ring(t, NewSecret()).Verify(VoteMAC, mac, fields...),
		"a token's":        r.Verify(VoteMAC, r.Token(VoteMAC, "ab", "c"), fields...),
		"without its id":   r.Verify(VoteMAC, mac[9:], fields...),
		"upper-case id":    r.Verify(VoteMAC, strings.ToUpper(mac[:8])+mac[8:], fields...) && mac[:8] != strings.ToUpper(mac[:8]),
		"text after a dot": r.Verify(VoteMAC, mac+".x", fields...),
	} {
		if ok {
			t.Errorf("%s verifies", name)
		}
	}
	for i := range mac {
		b := []byte(mac)
		b[i] ^= 1
		if r.Verify(VoteMAC, string(b), fields...) {
			t.Errorf("with character %d changed it verifies", i)
		}
	}
}

// All purposes have keys of their own: nothing made for one use passes for
// another.
func TestPurposesDiffer(t *testing.T) {
	r := ring(t, NewSecret())
	all := []Purpose{Index, Bound, Shown, Value, VoteMAC, Button, Page, Call, ViewSeal, Record, Comment, Result, Args, State, LinkHash, Captures, Labels}
	macs, tokens := map[string]Purpose{}, map[string]Purpose{}
	for _, p := range all {
		m, tok := r.MAC(p, []byte("x")), r.Token(p, "x")
		if o, dup := macs[m]; dup {
			t.Errorf("%s and %s share a MAC", p, o)
		}
		if o, dup := tokens[tok]; dup {
			t.Errorf("%s and %s share a token", p, o)
		}
		macs[m], tokens[tok] = p, p
		sealed := r.Seal(p, []byte("x"))
		for _, o := range all {
			_, err := r.Open(o, sealed)
			_, tokErr := r.OpenToken(o, tok)
			if (err == nil) != (o == p) || (tokErr == nil) != (o == p) {
				t.Errorf("made for %s, opened for %s: %v %v", p, o, err, tokErr)
			}
		}
	}
}

func TestSeal(t *testing.T) {
	r := ring(t, NewSecret())
	plain, bound := []byte("the call"), [][]byte{[]byte("ns"), []byte("id")}
	sealed := r.Seal(Call, plain, bound...)
	if bytes.Contains(sealed, plain) {
		t.Fatal("readable")
	}
	if got, err := r.Open(Call, sealed, bound...); err != nil || !bytes.Equal(got, plain) {
		t.Fatalf("%q %v", got, err)
	}
	if bytes.Equal(sealed, r.Seal(Call, plain, bound...)) {
		t.Error("two seals are the same")
	}
	for name, b := range map[string][][]byte{
		"no bound":       nil,
		"other bound":    {[]byte("ns"), []byte("other")},
		"moved boundary": {[]byte("nsi"), []byte("d")},
		"swapped":        {[]byte("id"), []byte("ns")},
		"one more":       {[]byte("ns"), []byte("id"), nil},
	} {
		if _, err := r.Open(Call, sealed, b...); !errors.Is(err, ErrSealed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for i := range sealed {
		b := bytes.Clone(sealed)
		b[i] ^= 0x10
		if _, err := r.Open(Call, b, bound...); !errors.Is(err, ErrSealed) {
			t.Errorf("byte %d changed: %v", i, err)
		}
		if _, err := r.Open(Call, sealed[:i], bound...); !errors.Is(err, ErrSealed) {
			t.Errorf("cut to %d: %v", i, err)
		}
	}
	if got, err := r.Open(Call, r.Seal(Call, nil)); err != nil || len(got) != 0 {
		t.Errorf("empty: %q %v", got, err)
	}
}

func TestToken(t *testing.T) {
	r := ring(t, NewSecret())
	for _, fields := range [][]string{{}, {""}, {"", ""}, {"v1", "op_1", "slack:C0", "approve", "n\x00\xff"}, {strings.Repeat("x", 300)}} {
		tok := r.Token(Button, fields...)
		got, err := r.OpenToken(Button, tok)
		if err != nil || !slices.Equal(got, fields) {
			t.Errorf("%q: %q %v", fields, got, err)
		}
		if strings.Trim(tok, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			t.Errorf("%q is not safe in a URL", tok)
		}
	}
	tok := r.Token(Button, "v1", "op_1", "approve")
	for i := range tok {
		b := []byte(tok)
		b[i] = map[bool]byte{true: 'B', false: 'A'}[b[i] == 'A']
		if fields, err := r.OpenToken(Button, string(b)); err == nil {
			t.Errorf("character %d changed: %q", i, fields)
		}
		if _, err := r.OpenToken(Button, tok[:i]); err == nil {
			t.Errorf("cut to %d opens", i)
		}
	}
	// The fields of one token can't be regrouped under its MAC.
	raw, _ := base64.RawURLEncoding.DecodeString(r.Token(Button, "ab", "c"))
	forged := append(bytes.Clone(raw[:8+32]), frame([][]byte{[]byte("a"), []byte("bc")})...)
	if _, err := r.OpenToken(Button, base64.RawURLEncoding.EncodeToString(forged)); !errors.Is(err, ErrSealed) {
		t.Errorf("regrouped: %v", err)
	}
}

func TestRotation(t *testing.T) {
	oldKey, newKey := NewSecret(), NewSecret()
	before, after, gone := ring(t, oldKey), ring(t, newKey, oldKey), ring(t, newKey)
	mac, sealed, tok := before.MAC(Bound, []byte("x")), before.Seal(Call, []byte("x")), before.Token(Button, "x")
	check := func(r *Ring, want bool) {
		t.Helper()
		_, sealErr := r.Open(Call, sealed)
		_, tokErr := r.OpenToken(Button, tok)
		got := []bool{r.Verify(Bound, mac, []byte("x")), sealErr == nil, tokErr == nil}
		if d := cmp.Diff([]bool{want, want, want}, got); d != "" {
			t.Errorf("-want +got:\n%s", d)
		}
	}
	check(before, true)
	check(after, true)
	check(gone, false)
	if after.MAC(Bound, []byte("x")) == mac || after.ID() == before.ID() {
		t.Error("the new key does not make values")
	}
	if d := cmp.Diff([]string{after.MAC(Bound, []byte("x")), mac}, after.MACs(Bound, []byte("x"))); d != "" {
		t.Errorf("MACs (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]string{after.ID(), before.ID()}, after.IDs()); d != "" {
		t.Errorf("ids (-want +got):\n%s", d)
	}
}

func FuzzOpen(f *testing.F) {
	s, err := ParseSecret(fixed)
	if err != nil {
		f.Fatal(err)
	}
	r, err := NewRing(s)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(r.Seal(Call, []byte("x")), r.Token(Button, "a", "b"), "x.y")
	f.Fuzz(func(t *testing.T, sealed []byte, tok, mac string) {
		if plain, err := r.Open(Comment, sealed); err == nil {
			t.Fatalf("opened %q", plain)
		}
		if fields, err := r.OpenToken(Button, tok); err == nil && r.Token(Button, fields...) != tok {
			t.Fatalf("%q is a second token of %q", tok, fields)
		}
		_ = r.Verify(Bound, mac, sealed)
	})
}
