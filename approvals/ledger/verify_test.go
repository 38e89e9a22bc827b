package ledger

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// chain makes n records' lines, with newlines.
func chain(n int, from string, seq int) []string {
	var out []string
	for i := range n {
		r := Record{
			Version: Version, Seq: uint64(seq + i), Boot: "b", PrevSHA256: from, Event: ExecStart,
			OperationID: fmt.Sprintf("op-%d", seq+i), RequestID: "\"x\u2028y\"",
			Approval: &Approval{ID: fmt.Sprintf("op-%d", seq+i)},
		}
		out = append(out, string(appendLine(nil, &r)))
		from = r.SHA256
	}
	return out
}

// rehash gives an edited line the hash of what it says now.
func rehash(t *testing.T, line string) string {
	t.Helper()
	var r Record
	if err := give([]byte(strings.TrimSuffix(line, "\n")), func(got Record) error { r = got; return nil }); err != nil {
		t.Fatal(err)
	}
	return string(appendLine(nil, &r))
}

func TestVerifyNamesTheLine(t *testing.T) {
	good := chain(6, Genesis, 1)
	edit := func(n int, old, new string) []string {
		out := slices.Clone(good)
		if !strings.Contains(out[n-1], old) {
			t.Fatalf("line %d does not contain %q", n, old)
		}
		out[n-1] = strings.Replace(out[n-1], old, new, 1)
		return out
	}
	reseal := func(n int, old, new string) []string {
		out := edit(n, old, new)
		out[n-1] = rehash(t, out[n-1])
		return out
	}
	swap := func(a, b int) []string {
		out := slices.Clone(good)
		out[a-1], out[b-1] = out[b-1], out[a-1]
		return out
	}
	without := func(from, to int) []string { return slices.Delete(slices.Clone(good), from-1, to) }
	insert := func(at int, lines ...string) []string { return slices.Insert(slices.Clone(good), at-1, lines...) }
	head := func(n int) string { return pick([]byte(good[n-1]), hashKey) }

	for _, row := range []struct {
		name  string
		lines []string
		kind  Kind
		line  int
		says  string
	}{
		{"whole", good, OK, 0, ""},
		{"empty", nil, OK, 0, ""},
		{"value edited", edit(3, "op-3", "op-9"), Tampered, 3, "was edited"},
		{"first edited", edit(1, "op-1", "op-9"), Tampered, 1, "was edited"},
		{"last edited", edit(6, "op-6", "op-9"), Tampered, 6, "was edited"},
		{"hash edited", edit(4, head(4)[:8], "00000000"), Tampered, 4, "was edited"},
		{"hash in capitals", edit(2, head(2), strings.ToUpper(head(2))), Tampered, 2, "64 lower-case hex"},
		{"edited and hashed anew", reseal(3, "op-3", "op-9"), Tampered, 4, "line 3"},
		{"last edited and hashed anew", reseal(6, "op-6", "op-9"), OK, 0, ""}, // needs an anchor
		{"number edited and hashed anew", reseal(3, `"seq":3`, `"seq":30`), Tampered, 3, "27 records were removed"},
		{"one removed", without(3, 3), Tampered, 3, "1 record was removed before it"},
		{"two removed", without(2, 3), Tampered, 2, "2 records were removed before it"},
		{"first removed", without(1, 1), Tampered, 1, "1 record was removed before it"},
		{"tail removed", without(5, 6), OK, 0, ""}, // needs an anchor
		{"neighbours swapped", swap(3, 4), Tampered, 3, "record 3 stands at line 4"},
		{"far swap", swap(2, 5), Tampered, 2, "record 2 stands at line 5"},
		{"copied", insert(5, good[1]), Tampered, 5, "it is record 2"},
		{"doubled", insert(3, good[1]), Tampered, 3, "it is record 2"},
		{"forged and chained", insert(4, chain(1, head(3), 4)...), Tampered, 5, "out of order"},
		{"stranger inserted", insert(4, "hello\n"), Tampered, 4, "was edited or is no record"},
		{"blank line", insert(4, "\n"), Tampered, 4, "was edited or is no record"},
		{"other chain", chain(3, head(2), 1), Tampered, 1, "not the beginning of a chain"},
		{"key twice", edit(3, `"event":"exec_start",`, `"event":"exec_start","event":"exec_start",`), Tampered, 3, `the key "event" is there twice`},
		{"key twice, apart", edit(3, `"v":1`, `"v":1,"event":"result"`), Tampered, 3, `the key "event" is there twice`},
		{"hash twice", edit(3, `"v":1`, `"sha256":"`+head(3)+`","v":1`), Tampered, 3, `the key "sha256" is there twice`},
		{"key in capitals", edit(3, `"boot"`, `"Boot"`), Tampered, 3, "key"},
		{"folded key", edit(3, `"seq":3`, `"seq":3,"ſeq":4`), Tampered, 3, "key"},
		{"white space", edit(3, `"seq":3`, `"seq": 3`), Tampered, 3, "was edited"},
		{"carriage return", edit(3, "}\n", "}\r\n"), Tampered, 3, "something follows"},
		{"needless escape", edit(3, "op-3", `\u006fp-3`), Tampered, 3, "escape"},
		{"number as a fraction", edit(3, `"seq":3`, `"seq":3.0`), Tampered, 3, "was edited"},
		{"number with an exponent", edit(3, `"seq":3`, `"seq":3e0`), Tampered, 3, "was edited"},
		{"byte order mark", edit(1, "{", "\ufeff{"), Tampered, 1, "was edited"},
		{"bad UTF-8", edit(3, "op-3", "op-\xff"), Tampered, 3, "UTF-8"},
		{"NUL", edit(3, "op-3", "op-\x00"), Tampered, 3, "control"},
		{"no number", edit(3, `"seq":3,`, ""), Tampered, 3, "no number"},
		{"no hash", edit(3, `"sha256":"`+head(3)+`",`, ""), Tampered, 3, "sha256"},
		{"newer format", reseal(3, `"v":1`, `"v":2`), Tampered, 3, "format version"},
		{"too long", insert(3, strings.Repeat("x", maxLine+9)+"\n"), Tampered, 3, "bytes long"},
		{"deep", insert(3, strings.Repeat(`{"a":`, 100000)+"\n"), Tampered, 3, "deep"},
		{"last newline missing", edit(6, "\n", ""), Torn, 6, "is torn"},
		{"half a line", append(slices.Clone(good), good[0][:40]), Torn, 7, "after 40 bytes"},
		{"one byte", append(slices.Clone(good), "{"), Torn, 7, "after 1 bytes"},
		{"edited and torn", append(edit(2, "op-2", "op-9"), "{"), Tampered, 2, "was edited"},
		{"split line", edit(3, "op-3", "op-\n3"), Tampered, 3, "ends inside a string"},
	} {
		t.Run(row.name, func(t *testing.T) {
			in := strings.Join(row.lines, "")
			rep, err := Verify(strings.NewReader(in))
			if err != nil {
				t.Fatal(err)
			}
			if rep.Kind != row.kind || rep.Line != row.line || !strings.Contains(rep.Problem, row.says) {
				t.Errorf("got %s, want %s at line %d saying %q", rep, row.kind, row.line, row.says)
			}
			if row.line > 0 && rep.Records != uint64(row.line-1) {
				t.Errorf("%d good records before line %d", rep.Records, row.line)
			}
			slow, err := Verify(iotest.OneByteReader(strings.NewReader(in)))
			if err != nil || slow != rep {
				t.Errorf("byte by byte: %v, %v", slow, err)
			}
		})
	}
}

func TestExitCodes(t *testing.T) {
	for kind, want := range map[Kind]int{OK: 0, Tampered: 1, Truncated: 2, Torn: 3} {
		if got := (Report{Kind: kind}).ExitCode(); got != want {
			t.Errorf("%s: %d", kind, got)
		}
	}
	if got := ExitCode([]Report{{Kind: OK}, {Kind: Torn}, {Kind: Tampered}}); got != 1 {
		t.Errorf("several: %d", got)
	}
	if got := ExitCode(nil); got != 0 {
		t.Errorf("none: %d", got)
	}
}

// Wherever a file is cut, what is left is whole or torn, never tampered.
func TestCutAnywhere(t *testing.T) {
	whole := vector(t)
	for n := range len(whole) {
		rep, err := Verify(bytes.NewReader(whole[:n]))
		if err != nil {
			t.Fatal(err)
		}
		want := Torn
		if n == 0 || whole[n-1] == '\n' {
			want = OK
		}
		if rep.Kind != want || rep.Records != uint64(bytes.Count(whole[:n], []byte("\n"))) {
			t.Fatalf("cut at %d: %s, want %s", n, rep, want)
		}
	}
}

// Every single-byte change is found, and found at its line.
func TestFlipAnyByte(t *testing.T) {
	whole := vector(t)
	last := bytes.LastIndexByte(whole[:len(whole)-1], '\n')
	for n := range whole {
		b := bytes.Clone(whole)
		b[n] ^= 0x01
		rep, err := Verify(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		at := bytes.Count(whole[:n], []byte("\n")) + 1
		if n == len(whole)-1 { // the last newline is gone: a torn tail
			if rep.Kind != Torn || rep.Line != at {
				t.Errorf("last newline changed: %s", rep)
			}
			continue
		}
		if rep.Kind != Tampered || rep.Line != at {
			t.Errorf("byte %d (line %d, last line from %d): %s", n, at, last+1, rep)
		}
	}
}

func TestVerifyReportsReadErrors(t *testing.T) {
	in := io.MultiReader(bytes.NewReader(vector(t)), iotest.ErrReader(io.ErrUnexpectedEOF))
	if _, err := Verify(in); err == nil {
		t.Error("a file that can't be read to its end was called verified")
	}
	if _, err := VerifyFiles(filepath.Join(t.TempDir(), "none.jsonl")); err == nil {
		t.Error("a file that is not there was called verified")
	}
}

// A line that is being written is not a torn one.
func TestVerifyWaitsForALiveLine(t *testing.T) {
	lines := chain(2, Genesis, 1)
	path := filepath.Join(t.TempDir(), "a.jsonl")
	if err := os.WriteFile(path, []byte(lines[0]+lines[1][:50]), 0o600); err != nil {
		t.Fatal(err)
	}
	in, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	// The rest of the line arrives when the reader has come to its torn end.
	finish := readerFunc(func(b []byte) (int, error) {
		n, err := in.Read(b)
		if n == 0 && err == io.EOF && lines[1] != "" {
			if _, err := out.WriteString(lines[1][50:]); err != nil {
				t.Error(err)
			}
			lines[1] = ""
		}
		return n, err
	})
	rep, err := read(&patient{in: finish}, nil)
	if err != nil || rep.Kind != OK || rep.Records != 2 {
		t.Errorf("%s, %v", rep, err)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }
