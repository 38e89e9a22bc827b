package ledger

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// bytesRead is what this process has asked the kernel to read, and the calls.
func bytesRead(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/proc/self/io")
	if err != nil {
		t.Skip("this system does not say what a process reads")
	}
	var rchar, syscr string
	for l := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(l, "syscr:"); ok {
			syscr = strings.TrimSpace(v)
		}
		if v, ok := strings.CutPrefix(l, "rchar:"); ok {
			rchar = strings.TrimSpace(v)
		}
	}
	return rchar + " bytes in " + syscr + " calls"
}

type noDisk struct{ io.Writer }

func (noDisk) Sync() error  { return nil }
func (noDisk) Close() error { return nil }

// An append reads nothing and allocates the same, however long the file is.
func TestAppendCostDoesNotGrow(t *testing.T) {
	l := mustOpen(t, t.TempDir(), func(string) (sink, error) { return noDisk{io.Discard}, nil })
	one := func() {
		if _, err := l.Append(context.Background(), Record{Event: Decision, OperationID: "op", Outcome: Allow}); err != nil {
			t.Fatal(err)
		}
	}
	one()
	short := testing.AllocsPerRun(200, one)
	for range 50_000 {
		one()
	}
	if long := testing.AllocsPerRun(200, one); long > short+1 {
		t.Errorf("an append makes %.0f allocations at the start and %.0f after 50000", short, long)
	}
}

func TestAppendReadsNothing(t *testing.T) {
	l := mustOpen(t, t.TempDir(), create)
	mustAppend(t, l, start("first"))
	// Reading the counters counts as well: what one look costs is the base.
	look := func() (string, string) { return bytesRead(t), bytesRead(t) }
	a, b := look()
	for i := range 50 {
		mustAppend(t, l, Record{Event: Decision, OperationID: fmt.Sprint(i), Outcome: Allow})
	}
	c := bytesRead(t)
	var ab, bc, calls1, calls2, calls3 int64
	var r1, r2, r3 int64
	for _, f := range []struct {
		text     string
		r, calls *int64
	}{{a, &r1, &calls1}, {b, &r2, &calls2}, {c, &r3, &calls3}} {
		if _, err := fmt.Sscanf(f.text, "%d bytes in %d calls", f.r, f.calls); err != nil {
			t.Fatal(err)
		}
	}
	ab, bc = r2-r1, r3-r2
	if bc > ab+64 || calls3-calls2 > calls2-calls1+1 {
		t.Errorf("50 appends read %d bytes in %d calls; looking alone reads %d in %d", bc, calls3-calls2, ab, calls2-calls1)
	}
	if flags := openFlags(t, l.Path()); flags != "" && !strings.HasSuffix(flags, "1") {
		t.Errorf("the file is open with flags %s, not for writing alone", flags)
	}
}

// openFlags is the octal flags of this process's descriptor of path.
func openFlags(t *testing.T, path string) string {
	t.Helper()
	fds, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if target, _ := os.Readlink(fd); target != path {
			continue
		}
		b, err := os.ReadFile("/proc/self/fdinfo/" + filepath.Base(fd))
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(b), "flags:")
		flags, _, _ := strings.Cut(strings.TrimSpace(rest), "\n")
		return flags
	}
	t.Fatalf("no descriptor of %s", path)
	return ""
}

// The yardstick is one bare fdatasync of a small append, on the same disk and in
// the same run.
func BenchmarkBareSync(b *testing.B) {
	s, err := create(filepath.Join(b.TempDir(), "bare.jsonl"))
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	line := make([]byte, 700)
	for b.Loop() {
		if _, err := s.Write(line); err != nil {
			b.Fatal(err)
		}
		if err := s.Sync(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppend(b *testing.B) {
	for _, writers := range []int{1, 8, 256} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			h := newHeld()
			l := mustOpen(b, b.TempDir(), h.create)
			rec := Record{
				Event: Decision, OperationID: "0123456789abcdef0123456789abcdef", RequestID: "12", Actor: "ana@acme.test",
				Auth: "token", Server: "orders", Tool: "lookup_order", Tier: "read", ProtocolVersion: "2026-07-28", Outcome: Allow,
				PolicyDigest: strings.Repeat("a", 64), ArgsDigest: "k1." + strings.Repeat("a", 43), Rules: []Rule{{"tier:read", Allow}},
			}
			work := make(chan struct{})
			var wg sync.WaitGroup
			for range writers {
				wg.Go(func() {
					for range work {
						if _, err := l.Append(context.Background(), rec); err != nil {
							b.Error(err)
						}
					}
				})
			}
			b.ResetTimer()
			for range b.N {
				work <- struct{}{}
			}
			close(work)
			wg.Wait()
			b.StopTimer()
			b.ReportMetric(float64(h.syncs.Load())/float64(b.N), "syncs/op")
		})
	}
}

func BenchmarkVerify(b *testing.B) {
	text := strings.Join(chain(10_000, Genesis, 1), "")
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if rep, err := Verify(strings.NewReader(text)); err != nil || rep.Kind != OK {
			b.Fatal(rep, err)
		}
	}
}
