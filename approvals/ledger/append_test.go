package ledger

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func start(id string) Record {
	return Record{Event: ExecStart, OperationID: id, Approval: &Approval{ID: id}}
}

func mustOpen(t testing.TB, dir string, c creator) *Ledger {
	t.Helper()
	l, err := open(dir, Options{Log: slog.New(slog.NewTextHandler(t.Output(), nil))}, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func mustAppend(t testing.TB, l *Ledger, recs ...Record) Pos {
	t.Helper()
	pos, err := l.Append(t.Context(), recs...)
	if err != nil {
		t.Fatal(err)
	}
	return pos
}

func verifyOK(t testing.TB, path string, records uint64) Report {
	t.Helper()
	reps, err := VerifyFiles(path)
	if err != nil {
		t.Fatal(err)
	}
	if reps[0].Kind != OK || reps[0].Records != records {
		t.Fatalf("%s, want ok with %d records", reps[0], records)
	}
	return reps[0]
}

func TestAppendAndVerify(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "ledger")
	l := mustOpen(t, dir, create)
	first := mustAppend(t, l, Record{Event: Decision, OperationID: "op-1", Outcome: Review, RequestID: "\"a\u2028b\u0022"})
	if first.Seq != 2 || first.File != l.ID()+Ext {
		t.Errorf("the first record after the opening is at %+v", first)
	}
	pos := mustAppend(t, l, start("op-1"), Record{Event: Result, OperationID: "op-1", Status: StatusOK})
	if pos.Seq != 4 || pos != l.Head() {
		t.Errorf("two records end at %+v, head %+v", pos, l.Head())
	}
	rep := verifyOK(t, l.Path(), 4) // while it is open
	if rep.Head != pos.SHA256 {
		t.Errorf("head %s, want %s", rep.Head, pos.SHA256)
	}
	if nothing := mustAppend(t, l); nothing != pos {
		t.Errorf("appending nothing moved the head to %+v", nothing)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Errorf("a second Close: %v", err)
	}
	if _, err := l.Append(t.Context(), start("op-2")); !errors.Is(err, ErrClosed) {
		t.Errorf("append after Close: %v", err)
	}
	verifyOK(t, l.Path(), 4)
	for path, want := range map[string]fs.FileMode{dir: 0o700 | fs.ModeDir, l.Path(): 0o600} {
		fi, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if fi.Mode() != want {
			t.Errorf("%s has mode %s, want %s", path, fi.Mode(), want)
		}
	}
}

func TestInvalidWritesNothing(t *testing.T) {
	l := mustOpen(t, t.TempDir(), create)
	var invalid *Invalid
	_, err := l.Append(t.Context(), start("op-1"), Record{Event: Decision, OperationID: "op-1"})
	if !errors.As(err, &invalid) || errors.Is(err, ErrUnwritable) {
		t.Errorf("append = %v", err)
	}
	if isStarted(t, l, "op-1") {
		t.Error("a record that was refused counts as a start")
	}
	mustAppend(t, l, start("op-2"))
	verifyOK(t, l.Path(), 2)
}

// The caller may do what it likes with its record once Append has returned,
// also when only its waiting was ended.
func TestAppendCopies(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		h := newHeld()
		l, err := open(dir, Options{}, h.create)
		if err != nil {
			t.Fatal(err)
		}
		h.hold()
		go func() { _, _ = l.Append(context.Background(), start("op-0")) }()
		<-h.syncing
		rec := Record{
			Event: ApprovalVote, Rules: []Rule{{"kept", Allow}},
			Approval: &Approval{ID: "kept", Votes: []Vote{{Person: "kept", Verdict: "approve"}}},
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error)
		go func() {
			_, err := l.Append(ctx, rec)
			ended <- err
		}()
		synctest.Wait() // it waits for the sync
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Fatalf("append = %v, want the context's error", err)
		}
		rec.Rules[0].ID, rec.Approval.ID, rec.Approval.Votes[0].Person = "changed", "changed", "changed"
		h.release()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(l.Path())
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(b), "changed") || strings.Count(string(b), "kept") != 3 {
			t.Errorf("the record as it was given is not what was written:\n%s", b)
		}
	})
}

func TestEndedContextWritesNothing(t *testing.T) {
	l := mustOpen(t, t.TempDir(), create)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Append(ctx, start("op-1")); !errors.Is(err, context.Canceled) {
		t.Errorf("append = %v", err)
	}
	verifyOK(t, l.Path(), 1)
	if isStarted(t, l, "op-1") {
		t.Error("it counts as started")
	}
}

// heldSink is a real file whose syncs a test can hold and count.
type heldSink struct {
	sink
	h *held
}

type held struct {
	syncs   atomic.Int64
	writes  atomic.Int64
	holding atomic.Bool
	syncing chan struct{} // a held sync has begun
	gate    chan struct{}
}

func newHeld() *held {
	return &held{syncing: make(chan struct{}, 1000), gate: make(chan struct{}, 1000)}
}

func (h *held) hold()    { h.holding.Store(true) }
func (h *held) release() { h.holding.Store(false); h.gate <- struct{}{} }
func (h *held) one()     { h.gate <- struct{}{} }

func (h *held) create(path string) (sink, error) {
	s, err := create(path)
	if err != nil {
		return nil, err
	}
	return heldSink{s, h}, nil
}

func (s heldSink) Write(b []byte) (int, error) {
	s.h.writes.Add(1)
	return s.sink.Write(b)
}

func (s heldSink) Sync() error {
	s.h.syncs.Add(1)
	if s.h.holding.Load() {
		s.h.syncing <- struct{}{}
		<-s.h.gate
	}
	return s.sink.Sync()
}

// 256 appends that come while a sync runs need one sync more, not 256.
func TestOneSyncForAllThatWait(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		h := newHeld()
		l, err := open(dir, Options{}, h.create)
		if err != nil {
			t.Fatal(err)
		}
		h.hold()
		var acked atomic.Int64
		add := func(id string) {
			if _, err := l.Append(context.Background(), start(id)); err != nil {
				t.Error(err)
			}
			acked.Add(1)
		}
		go add("first")
		<-h.syncing
		for i := range 256 {
			go add(fmt.Sprint(i))
		}
		synctest.Wait()
		if acked.Load() != 0 {
			t.Errorf("%d appends returned before any sync did", acked.Load())
		}
		h.one()
		<-h.syncing // the next sync has begun, so the first append was told
		synctest.Wait()
		if acked.Load() != 1 {
			t.Errorf("%d appends returned after the first sync, want 1", acked.Load())
		}
		h.one()
		synctest.Wait()
		if acked.Load() != 257 {
			t.Errorf("%d appends returned after the second sync, want 257", acked.Load())
		}
		if s, w := h.syncs.Load(), h.writes.Load(); s != 3 || w != 3 {
			t.Errorf("%d syncs and %d writes, want 3: the opening, the first, all the others", s, w)
		}
		h.holding.Store(false)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		verifyOK(t, l.Path(), 258)
	})
}

func TestManyWriters(t *testing.T) {
	h := newHeld()
	l := mustOpen(t, t.TempDir(), h.create)
	const writers, each = 256, 20
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			var last uint64
			for i := range each {
				pos, err := l.Append(context.Background(), start(fmt.Sprintf("%d-%d", w, i)))
				if err != nil {
					t.Error(err)
					return
				}
				if pos.Seq <= last {
					t.Errorf("record %d after record %d of the same writer", pos.Seq, last)
				}
				last = pos.Seq
			}
		})
	}
	wg.Wait()
	verifyOK(t, l.Path(), 1+writers*each)
	for w := range writers {
		if !isStarted(t, l, fmt.Sprintf("%d-%d", w, each-1)) {
			t.Fatalf("a start of writer %d is not known", w)
		}
	}
	if s := h.syncs.Load(); s >= writers*each/2 {
		t.Errorf("%d syncs for %d appends: they are not grouped", s, writers*each)
	}
	t.Logf("%d appends, %d syncs", writers*each, h.syncs.Load())
}

func TestQueueIsBounded(t *testing.T) {
	h := newHeld()
	l := mustOpen(t, t.TempDir(), h.create)
	h.hold()
	var wg sync.WaitGroup
	wg.Go(func() { mustAppend(t, l, start("first")) })
	<-h.syncing
	many := make([]Record, maxQueued)
	for i := range many {
		many[i] = start("op")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := l.Append(ctx, many...); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("filling the queue: %v", err)
	}
	if _, err := l.Append(t.Context(), start("late")); !errors.Is(err, ErrUnwritable) {
		t.Errorf("append to a full queue = %v", err)
	}
	if isStarted(t, l, "late") {
		t.Error("what was refused counts as started")
	}
	h.release()
	wg.Wait()
}

// Two ledgers in one directory, in one process or two, never share a file.
func TestTwoLedgersOneDir(t *testing.T) {
	dir := t.TempDir()
	a, b := mustOpen(t, dir, create), mustOpen(t, dir, create)
	if a.ID() == b.ID() {
		t.Fatal("both have the same file")
	}
	mustAppend(t, a, start("op-a"))
	mustAppend(t, b, start("op-b"), start("op-c"))
	verifyOK(t, a.Path(), 2)
	verifyOK(t, b.Path(), 3)
	files, err := Files(dir)
	if err != nil || len(files) != 2 {
		t.Errorf("Files = %v, %v", files, err)
	}
}

func TestUnwritableDir(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{file, filepath.Join(file, "below")} {
		if l, err := Open(dir, Options{}); err == nil {
			t.Errorf("a ledger in %s was opened: %s", dir, l.Path())
		}
	}
	if os.Geteuid() == 0 {
		t.Skip("root may write anywhere; the mode of a directory is not tried")
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, Options{}); !errors.Is(err, fs.ErrPermission) || !errors.Is(err, ErrUnwritable) {
		t.Errorf("Open of a directory without write permission: %v", err)
	}
}
