package pins_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/server/pins"
)

// What is read is written again to the same value, and nothing else is ever
// accepted without its digests fitting.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"version":1,"servers":{}}`))
	f.Add([]byte(`{"version":1,"servers":{"a":{"transport":"stdio"}}}`))
	f.Add([]byte(`{"version":1,"version":1,"servers":{}}`))
	f.Add([]byte(`{"servers":{"a\u0000b":[]},"version":1}`))
	good, err := (&pins.File{Servers: map[string]pins.Server{"a": desk(f, cancel, `{"name":"look","x":[1e400,"\u202e"]}`)}}).Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(bytes.Replace(good, []byte("one order"), []byte("an order"), 1))
	f.Add(bytes.ReplaceAll(good, []byte("  "), nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := pins.Parse(b)
		var bad *pins.Invalid
		if err != nil {
			if !errors.As(err, &bad) || bad.Line < 1 || bad.Line > 1+bytes.Count(b, []byte("\n")) {
				t.Fatalf("an error without its line: %v", err)
			}
			if strings.ContainsFunc(err.Error(), approvals.Invisible) {
				t.Fatalf("an error that is not plain: %q", err)
			}
			return
		}
		out, err := file.Encode()
		if err != nil {
			t.Fatal(err)
		}
		plain(t, out)
		again, err := pins.Parse(out)
		if err != nil {
			t.Fatalf("what was written can't be read: %v\n%s", err, out)
		}
		for name, s := range file.Servers {
			for _, tool := range s.Tools {
				if d, err := pins.Define(tool.Raw); err != nil || d.Digest != tool.Digest || d.Name != tool.Name {
					t.Fatalf("the digest of %q is not its definition's", tool.Name)
				}
			}
			if c := pins.Diff(s, again.Servers[name]); !c.Empty() {
				t.Fatalf("came back changed:\n%s", c.Text())
			}
			_ = pins.Diff(pins.Server{}, s).Text()
		}
		twice, err := again.Encode()
		if err != nil || !bytes.Equal(out, twice) {
			t.Fatalf("two writings differ: %v", err)
		}
	})
}

func plain(t *testing.T, out []byte) {
	t.Helper()
	for _, r := range string(out) {
		if r != '\n' && approvals.Invisible(r) {
			t.Fatalf("%U stands in the file as it is", r)
		}
	}
}

// Plain changes how a JSON text is written, and not what it says.
func FuzzPlain(f *testing.F) {
	for _, s := range []string{`"\u202e"`, "\"\u202e\U000E0041x\u200b\"", `{"a":"é","b":[1]}`, "\"\x7f\"", `"\\` + "\u2028" + `"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var compact bytes.Buffer
		if !utf8.Valid(b) || json.Compact(&compact, b) != nil {
			return
		}
		out := pins.Plain(compact.Bytes())
		plain(t, out)
		var was, is any
		if err := json.Unmarshal(b, &was); err != nil {
			return // a number that is no float64
		}
		if err := json.Unmarshal(out, &is); err != nil {
			t.Fatalf("%q is no JSON any more: %v", out, err)
		}
		x, _ := json.Marshal(was)
		y, _ := json.Marshal(is)
		if !bytes.Equal(x, y) {
			t.Fatalf("%s became %s", x, y)
		}
	})
}
