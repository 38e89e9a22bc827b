package action

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// vector is a line of testdata/envelope_vectors.json, which an independent
// program computed.
type vector struct {
	Name     string
	Envelope struct {
		OperationID string `json:"operation_id"`
		Server      string
		Tool        string
		Args        *string
		Meta        *string
		Extra       *string
		Actor       string
		Roles       []string
		Owners      []string
		Auth        string
		Session     string
		Workflow    string
		IdemKey     string `json:"idem_key"`
		Version     string
		RequestID   *string `json:"request_id"`
		Tier        string
		ServerID    string `json:"server_id"`
		ServerName  string `json:"server_name"`
		Manifest    string
		ToolDef     string `json:"tool_def"`
		Policy      string
		Rules       []string
		Routes      []string
		Provenance  map[string][]string
		Evidence    []string
	}
	Encoded, Match, Digest string
}

func (v vector) envelope(t *testing.T) Envelope {
	raw := func(s *string) json.RawMessage {
		if s == nil {
			return nil
		}
		return json.RawMessage(*s)
	}
	digest := func(s string) Digest {
		d, err := ParseDigest(s)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	e := v.Envelope
	return Envelope{
		V: EnvelopeVersion, OperationID: e.OperationID,
		Call: Call{
			Server: e.Server, Tool: e.Tool, Args: raw(e.Args), Meta: raw(e.Meta), Extra: raw(e.Extra),
			Actor:   Actor{ID: e.Actor, Roles: e.Roles, Owners: e.Owners, Auth: e.Auth},
			Session: e.Session, Workflow: e.Workflow, IdemKey: e.IdemKey, Version: e.Version, RequestID: raw(e.RequestID),
		},
		Tier: e.Tier, ServerID: digest(e.ServerID), ServerName: e.ServerName, Manifest: digest(e.Manifest),
		ToolDef: digest(e.ToolDef), Policy: digest(e.Policy), Rules: e.Rules, Routes: e.Routes,
		Provenance: e.Provenance, Evidence: e.Evidence,
	}
}

func vectors(t *testing.T) []vector {
	t.Helper()
	b, err := os.ReadFile("testdata/envelope_vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var out []vector
	if err := json.Unmarshal(b, &out); err != nil || len(out) == 0 {
		t.Fatalf("%d vectors, %v", len(out), err)
	}
	return out
}

func TestEnvelopeKnownAnswers(t *testing.T) {
	for _, v := range vectors(t) {
		t.Run(v.Name, func(t *testing.T) {
			e := v.envelope(t)
			if got := hex.EncodeToString(e.Encode()); got != v.Encoded {
				t.Errorf("encoded\n got %s\nwant %s", got, v.Encoded)
			}
			if got := e.Match().Hex(); got != v.Match {
				t.Errorf("match %s, want %s", got, v.Match)
			}
			if got := e.Digest().Hex(); got != v.Digest {
				t.Errorf("digest %s, want %s", got, v.Digest)
			}
			back, err := DecodeEnvelope(e.Encode())
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(e, back, cmpopts.EquateEmpty(), cmp.AllowUnexported(Digest{})); d != "" {
				t.Errorf("decoded (-want +got):\n%s", d)
			}
			if back.Digest() != e.Digest() || !bytes.Equal(back.Call.Args, e.Call.Args) {
				t.Error("the decoded envelope is another one")
			}
		})
	}
}

// fields lists every field of an envelope, nested ones too, by walking its type:
// a field that someone adds is tested without anyone thinking of it.
func fields(v reflect.Value, path string, visit func(path string, v reflect.Value)) {
	if v.Kind() == reflect.Struct && v.Type() != reflect.TypeFor[Digest]() {
		for i := range v.NumField() {
			fields(v.Field(i), path+"."+v.Type().Field(i).Name, visit)
		}
		return
	}
	visit(path, v)
}

// alter changes a field to another value.
func alter(v reflect.Value) {
	switch x := v.Addr().Interface().(type) {
	case *string:
		*x += "\xff!"
	case *json.RawMessage:
		*x = append(json.RawMessage(" "), *x...)
	case *[]string:
		*x = append(*x, "more")
	case *map[string][]string:
		*x = map[string][]string{"/new": {"user"}}
	case *Digest:
		*x = Sum("another", x.Bytes())
	case *int:
		*x = 2
	default:
		panic(fmt.Sprintf("no way to alter %T", x))
	}
}

func TestDigestCoversEveryField(t *testing.T) {
	matching := map[string]bool{
		".Call.Server": true, ".Call.Tool": true, ".Call.Actor.ID": true, ".Call.IdemKey": true,
	}
	base := vectors(t)[1].envelope(t)
	count := 0
	fields(reflect.ValueOf(&base).Elem(), "", func(path string, _ reflect.Value) {
		count++
		e := vectors(t)[1].envelope(t)
		fields(reflect.ValueOf(&e).Elem(), "", func(p string, v reflect.Value) {
			if p == path {
				alter(v)
			}
		})
		if e.Digest() == base.Digest() {
			t.Errorf("%s is not in the digest", path)
		}
		if got := e.Match() != base.Match(); got != matching[path] {
			t.Errorf("%s changes the match key: %v, want %v", path, got, matching[path])
		}
	})
	if count < 25 {
		t.Errorf("only %d fields were tried", count)
	}
}

// A retry whose arguments differ in writing only is the same call to find, and
// another one to bind.
func TestRetryVariants(t *testing.T) {
	base := Envelope{Call: Call{Server: "desk", Tool: "pay", Args: json.RawMessage(`{"amount":10,"to":"A"}`), Actor: Actor{ID: "ana"}}}
	for _, tc := range []struct {
		name, args string
		twin       bool
	}{
		{"the same", `{"amount":10,"to":"A"}`, true},
		{"blanks", `{ "amount" : 10, "to":"A" }`, true},
		{"order", `{"to":"A","amount":10}`, true},
		{"escape", `{"amount":10,"to":"\u0041"}`, true},
		{"one byte", `{"amount":10,"to":"B"}`, false},
		{"number form", `{"amount":10.0,"to":"A"}`, false},
		{"exponent", `{"amount":1e1,"to":"A"}`, false},
		{"type", `{"amount":"10","to":"A"}`, false},
		{"more", `{"amount":10,"to":"A","cc":"B"}`, false},
		{"less", `{"amount":10}`, false},
		{"composed", `{"amount":10,"to":"A\u0301"}`, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := base
			e.Call.Args = json.RawMessage(tc.args)
			if got := e.Match() == base.Match(); got != tc.twin {
				t.Errorf("found as the same call: %v, want %v", got, tc.twin)
			}
			if same := tc.args == string(base.Call.Args); (e.Digest() == base.Digest()) != same {
				t.Errorf("bound as the same call: %v, want %v", !same, same)
			}
		})
	}
	absent := Envelope{Call: Call{Server: "desk", Tool: "list"}}
	empty := absent
	empty.Call.Args = json.RawMessage(`{}`)
	if absent.Match() != empty.Match() {
		t.Error("no arguments and empty arguments are one call")
	}
}

// Fields can't run into each other.
func TestMatchIsInjective(t *testing.T) {
	a := Envelope{Call: Call{Actor: Actor{ID: "ana"}, Server: "desk", Tool: "pay"}}
	b := Envelope{Call: Call{Actor: Actor{ID: "anad"}, Server: "esk", Tool: "pay"}}
	if a.Match() == b.Match() {
		t.Error("two calls share a match key")
	}
	c := Envelope{Call: Call{Actor: Actor{ID: "ana"}, Server: "desk", Tool: "pay", Args: json.RawMessage(`{"a":`)}}
	d := c
	d.Call.Args = json.RawMessage(`{"a": `)
	if c.Match() == d.Match() {
		t.Error("arguments without a canonical form are told apart by their bytes")
	}
}

func TestDecodeEnvelopeRefuses(t *testing.T) {
	e := vectors(t)[1].envelope(t)
	good := e.Encode()
	for i := range good {
		if _, err := DecodeEnvelope(good[:i]); err == nil {
			t.Fatalf("the first %d bytes decode", i)
		}
	}
	for name, b := range map[string][]byte{
		"trailing":      append(bytes.Clone(good), 0),
		"other version": append([]byte("CSENV\x02"), good[6:]...),
		"long varint":   append([]byte("CSENV\x81\x00"), good[6:]...),
		"other magic":   append([]byte("CSENW"), good[5:]...),
	} {
		if _, err := DecodeEnvelope(b); err == nil {
			t.Errorf("%s decodes", name)
		}
	}
}

func FuzzDecodeEnvelope(f *testing.F) {
	e := Envelope{OperationID: "op", Call: Call{Args: json.RawMessage(`{"a":1}`)}, Provenance: map[string][]string{"/a": {"user"}}}
	f.Add(e.Encode())
	f.Add([]byte("CSENV\x01"))
	f.Add((&Envelope{}).Encode())
	f.Add((&Envelope{Call: Call{Args: json.RawMessage{}, Meta: json.RawMessage("null")}, Rules: []string{"", "a"}}).Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := DecodeEnvelope(b)
		if err != nil {
			if !reflect.DeepEqual(got, Envelope{}) {
				t.Fatalf("what is refused left %+v", got)
			}
			return
		}
		if !bytes.Equal(got.Encode(), b) {
			t.Fatal("two encodings of one envelope")
		}
		again, err := DecodeEnvelope(got.Encode())
		if err != nil || again.Digest() != got.Digest() || again.Match() != got.Match() {
			t.Fatalf("the digests of %q are not its own: %v", b, err)
		}
	})
}

func TestDigestIsNotWritten(t *testing.T) {
	d := Sum("d", []byte("secret"))
	for _, s := range []string{fmt.Sprint(d), fmt.Sprintf("%v %+v %#v %s %q %x", d, d, d, d, d, d), fmt.Sprintf("%d %v", d, Envelope{ToolDef: d}), d.LogValue().String()} {
		if bytes.Contains([]byte(s), []byte(d.Hex()[:8])) || bytes.Contains([]byte(s), []byte(fmt.Sprint(d.Bytes()[0], d.Bytes()[1]))) {
			t.Errorf("printed: %s", s)
		}
	}
	if _, err := json.Marshal(d); err == nil {
		t.Error("a plain digest was encoded")
	}
	back, err := ParseDigest(d.Hex())
	if err != nil || back != d || d.IsZero() || !(Digest{}).IsZero() {
		t.Error("hex does not come back")
	}
	for _, bad := range []string{"", "00", d.Hex()[1:] + "g", d.Hex() + "00"} {
		if _, err := ParseDigest(bad); err == nil {
			t.Errorf("%q parsed", bad)
		}
	}
}

// frozen is the SHA-256 of the vectors of version 1. What is sealed under it must
// be readable and keep its digests for ever: a change of the form is a new version,
// with vectors of its own.
const frozen = "4ae83b984f1454b5d82f3d3d71db284670d05cb4b795a812c8febcf2b6c71d41"

func TestVersion1IsFrozen(t *testing.T) {
	b, err := os.ReadFile("testdata/envelope_vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != frozen {
		t.Errorf("testdata/envelope_vectors.json is not the frozen one (%x): version 1 of the envelope must not change", sum)
	}
	if EnvelopeVersion != 1 {
		t.Error("a new version needs vectors of its own, and must still decode version 1")
	}
	full := vectors(t)[1].envelope(t)
	empty := 0
	fields(reflect.ValueOf(&full).Elem(), "", func(path string, v reflect.Value) {
		if v.IsZero() {
			empty++
			t.Errorf("%s is empty in the full vector, so its form is not frozen", path)
		}
	})
}

// A digest of one kind is never one of another, whatever the parts.
func TestDomainsAreApart(t *testing.T) {
	e := vectors(t)[1].envelope(t)
	parts := [][]byte{e.Match().Bytes(), e.Encode()}
	if Sum(envelopeDomain, parts...) != e.Digest() {
		t.Error("the envelope's digest is not the sum of match key and encoding")
	}
	seen := map[Digest]string{}
	for _, domain := range []string{matchDomain, envelopeDomain, "countersign/match/v2", "countersign/envelope/v2", "", "countersign/match/v1\x00", "countersign/envelope/v1\x0032:"} {
		for name, p := range map[string][][]byte{"none": nil, "one": {[]byte("ab")}, "two": {[]byte("a"), []byte("b")}, "empty": {nil}, "empties": {nil, nil}, "lengths": {[]byte("1:a")}, "joined": {append(bytes.Clone(parts[0]), parts[1]...)}, "both": parts} {
			d := Sum(domain, p...)
			if other, twice := seen[d]; twice {
				t.Errorf("%q %s is %s too", domain, name, other)
			}
			seen[d] = fmt.Sprintf("%q %s", domain, name)
		}
	}
}
