package ledger

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"
)

// Kind is what a verification came to.
type Kind string

// The kinds.
const (
	OK        Kind = "ok"
	Tampered  Kind = "tampered"
	Truncated Kind = "truncated" // whole, but shorter than an anchor says
	Torn      Kind = "torn"      // whole up to a last line that was not finished
)

// Report is what Verify found.
type Report struct {
	File    string `json:"file,omitempty"`
	Kind    Kind   `json:"kind"`
	Records uint64 `json:"records"`           // good ones, up to the first problem
	Head    string `json:"head"`              // hash of the last of them; Genesis when there is none
	Line    int    `json:"line,omitempty"`    // the first line that is wrong, from 1
	Problem string `json:"problem,omitempty"` // what is wrong with it, as a sentence
	// TornBytes is what follows the last newline.
	TornBytes int64 `json:"torn_bytes,omitempty"`
}

// String is the report on one line.
func (r Report) String() string {
	s := string(r.Kind)
	if r.File != "" {
		s = r.File + ": " + s
	}
	if r.Kind == OK {
		return fmt.Sprintf("%s, %d records, head %s", s, r.Records, r.Head)
	}
	return fmt.Sprintf("%s: line %d %s (%d good records before it)", s, r.Line, r.Problem, r.Records)
}

// ExitCode is what a command ends with: 0 ok, 1 tampered, 2 truncated, 3 torn.
func (r Report) ExitCode() int { return exitCodes[r.Kind] }

var exitCodes = map[Kind]int{OK: 0, Tampered: 1, Truncated: 2, Torn: 3}

// ExitCode is the code for several files: that of the gravest finding.
func ExitCode(reports []Report) int {
	for _, k := range []Kind{Tampered, Truncated, Torn} {
		for _, r := range reports {
			if r.Kind == k {
				return r.ExitCode()
			}
		}
	}
	return 0
}

// Verify reads one ledger file and says whether every line is canonical, has
// the hash it carries and follows the one before it, and if not, which line is
// the first wrong one and how. It holds one line at a time. The error is r's;
// what is wrong with the ledger is in the Report.
func Verify(r io.Reader) (Report, error) { return read(r, nil) }

// Read is Verify, and gives each good record to f in order, until the first
// problem. An error of f ends it and is returned.
func Read(r io.Reader, f func(Record) error) (Report, error) { return read(r, f) }

// VerifyFiles verifies each file. It needs no lock and works on a file that is
// being written: a last line without its newline is given a second to become
// whole.
func VerifyFiles(paths ...string) ([]Report, error) {
	var out []Report
	for _, path := range paths {
		rep, err := ReadFile(path, nil)
		if err != nil {
			return out, err
		}
		out = append(out, rep)
	}
	return out, nil
}

// ReadFile is Read on a file, as VerifyFiles reads it.
func ReadFile(path string, f func(Record) error) (Report, error) {
	in, err := os.Open(path)
	if err != nil {
		return Report{}, fmt.Errorf("verify: %w", err)
	}
	defer in.Close()
	rep, err := read(&patient{in: in}, f)
	rep.File = path
	if err != nil {
		return rep, fmt.Errorf("verify %s: %w", path, err)
	}
	return rep, nil
}

// patient gives a writer time to finish its line: it reports the end of the
// file in the middle of a line only when that did not move for a second.
type patient struct {
	in   io.Reader
	last byte
	any  bool
}

func (p *patient) Read(b []byte) (int, error) {
	const pause, tries = 20 * time.Millisecond, 50
	for try := 0; ; try++ {
		n, err := p.in.Read(b)
		if n > 0 {
			p.last, p.any = b[n-1], true
			return n, err
		}
		whole := !p.any || p.last == '\n'
		if !errors.Is(err, io.EOF) || whole || try == tries {
			return n, err
		}
		time.Sleep(pause)
	}
}

// verifier walks the chain.
type verifier struct {
	rep    Report
	parser parser
	lines  *lines
}

func read(r io.Reader, f func(Record) error) (Report, error) {
	v := &verifier{rep: Report{Kind: OK, Head: Genesis}, lines: newLines(r)}
	for n := 1; ; n++ {
		got, err := v.lines.next()
		if errors.Is(err, io.EOF) {
			return v.rep, nil
		}
		if err != nil {
			return v.rep, err
		}
		rec, whole := v.line(n, got)
		if !whole {
			return v.rep, nil
		}
		if rec.seq != n || rec.prev != v.rep.Head {
			return v.rep, v.misplaced(n, rec)
		}
		if f != nil {
			if err := give(got.text, f); err != nil {
				return v.rep, err
			}
		}
		v.rep.Records, v.rep.Head = v.rep.Records+1, rec.hash
	}
}

func (v *verifier) wrong(kind Kind, n int, format string, args ...any) {
	v.rep.Kind, v.rep.Line, v.rep.Problem = kind, n, fmt.Sprintf(format, args...)
}

// link is what a line says of its place in the chain.
type link struct {
	seq        int
	prev, hash string
}

// line checks one line by itself.
func (v *verifier) line(n int, got line) (link, bool) {
	switch {
	case got.torn:
		v.rep.TornBytes = int64(len(got.text)) + got.long
		v.wrong(Torn, n, "is torn: it ends after %d bytes without a newline, as a crash or a full disk leaves it; what it held was never acknowledged", v.rep.TornBytes)
		return link{}, false
	case got.long > 0:
		v.wrong(Tampered, n, "is %d bytes long, more than a record can be", got.long)
		return link{}, false
	}
	rec, problem := v.parse(got.text)
	if problem != "" {
		v.wrong(Tampered, n, "%s", problem)
	}
	return rec, problem == ""
}

// parse reads a line's link and checks its hash. The problem is a predicate
// about the line.
func (v *verifier) parse(text []byte) (link, string) {
	top, err := v.parser.parse(text)
	if err != nil {
		return link{}, "was edited or is no record: " + err.Error()
	}
	var out link
	var cut span
	version := ""
	for _, m := range top {
		switch string(m.key) {
		case "seq":
			out.seq, _ = strconv.Atoi(string(m.value)) // 0 is no record's number
		case "prev_sha256":
			out.prev = hash(m.value)
		case "sha256":
			out.hash, cut = hash(m.value), m
		case "v":
			version = string(m.value)
		}
	}
	switch {
	case out.seq < 1:
		return out, "was edited or is no record: it has no number (seq)"
	case out.prev == "" || out.hash == "":
		return out, "was edited or is no record: prev_sha256 and sha256 must be 64 lower-case hex digits each"
	case out.hash != sum(out.prev, text, cut):
		return out, "was edited: its content does not have the hash it carries"
	case version != strconv.Itoa(Version):
		return out, fmt.Sprintf("has format version %q; this program knows version %d", version, Version)
	}
	return out, ""
}

// sum is the hash of a line without its sha256 member.
func sum(prev string, text []byte, cut span) string {
	before, after := text[:cut.start], text[cut.end:]
	if bytes.HasSuffix(before, []byte{','}) {
		before = before[:len(before)-1]
	} else {
		after = bytes.TrimPrefix(after, []byte{','})
	}
	h := sha256.New()
	h.Write([]byte(prev))
	h.Write(before)
	h.Write(after)
	return hex.EncodeToString(h.Sum(nil))
}

// hash reads a quoted hash; empty when it is not one.
func hash(value []byte) string {
	if len(value) != 2*sha256.Size+2 {
		return ""
	}
	inner := value[1 : len(value)-1]
	for _, c := range inner {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return ""
		}
	}
	return string(inner)
}

// misplaced says how a line that is whole by itself came to stand where it
// does. It may read on to find the record that is missing here.
func (v *verifier) misplaced(n int, rec link) error {
	switch {
	case rec.seq < n:
		v.wrong(Tampered, n, "is out of order: it is record %d, moved or copied to where record %d belongs", rec.seq, n)
	case rec.seq == n && n == 1:
		v.wrong(Tampered, n, "is not the beginning of a chain: its prev_sha256 is not the genesis")
	case rec.seq == n:
		v.wrong(Tampered, n, "does not follow line %d: that line was changed, added or replaced, and given a hash of its own", n-1)
	default:
		at, err := v.seek(n, n)
		if err != nil {
			return err
		}
		if at > 0 {
			v.wrong(Tampered, n, "is out of order: it is record %d, and record %d stands at line %d", rec.seq, n, at)
			return nil
		}
		v.wrong(Tampered, n, "is record %d where record %d belongs: %s removed before it", rec.seq, n, lost(rec.seq-n))
	}
	return nil
}

func lost(n int) string {
	if n == 1 {
		return "1 record was"
	}
	return strconv.Itoa(n) + " records were"
}

// seek looks for a record's number in the lines after line n; 0 is nowhere.
func (v *verifier) seek(n, seq int) (int, error) {
	for n++; ; n++ {
		got, err := v.lines.next()
		if errors.Is(err, io.EOF) {
			return 0, nil
		}
		if err != nil {
			return 0, err
		}
		if rec, problem := v.parse(got.text); problem == "" && rec.seq == seq {
			return n, nil
		}
	}
}

func give(text []byte, f func(Record) error) error {
	var r Record
	if err := json.Unmarshal(text, &r); err != nil {
		return fmt.Errorf("a record of another shape: %w", err)
	}
	return f(r)
}
