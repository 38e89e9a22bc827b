package ledger

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

var errDisk = errors.New("input/output error")

// disk is a real directory whose files fail on demand.
type disk struct {
	mu       sync.Mutex
	noCreate bool
	noWrite  bool
	half     bool // a failing write leaves half of it
	noSync   bool
	made     []string
}

func (d *disk) set(f func(*disk)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(d)
}

func (d *disk) create(path string) (sink, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.noCreate {
		return nil, errDisk
	}
	d.made = append(d.made, filepath.Base(path))
	s, err := create(path)
	if err != nil {
		return nil, err
	}
	return faulty{s, d}, nil
}

type faulty struct {
	sink
	d *disk
}

func (f faulty) Write(b []byte) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if !f.d.noWrite {
		return f.sink.Write(b)
	}
	if !f.d.half {
		return 0, errDisk
	}
	n, err := f.sink.Write(b[:len(b)/2])
	return n, errors.Join(err, errDisk)
}

func (f faulty) Sync() error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if f.d.noSync {
		return errDisk
	}
	return f.sink.Sync()
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestFailureAndRecovery(t *testing.T) {
	for _, row := range []struct {
		name  string
		fail  func(*disk)
		first Kind // of the failed file, for good
	}{
		{"nothing written", func(d *disk) { d.noWrite = true }, OK},
		{"half written", func(d *disk) { d.noWrite, d.half = true, true }, Torn},
		{"not synced", func(d *disk) { d.noSync = true }, OK},
	} {
		t.Run(row.name, func(t *testing.T) {
			dir, d := t.TempDir(), &disk{}
			l := mustOpen(t, dir, d.create)
			good := mustAppend(t, l, start("before"))
			d.set(row.fail)
			for i := range 3 {
				id := fmt.Sprint("during-", i)
				if _, err := l.Append(t.Context(), start(id)); !errors.Is(err, ErrUnwritable) || !errors.Is(err, errDisk) {
					t.Fatalf("append on a broken disk = %v", err)
				}
				if !isStarted(t, l, id) {
					t.Errorf("%s may be on the disk, and is not known as started", id)
				}
			}
			if l.Trouble() == nil || l.Head() != good {
				t.Errorf("trouble %v, head %+v", l.Trouble(), l.Head())
			}
			if got := names(t, dir); len(got) != 1 {
				t.Errorf("files that were never used are left behind: %v", got)
			}
			d.set(func(d *disk) { d.noWrite, d.noSync, d.half = false, false, false })
			pos := mustAppend(t, l, start("after"))
			if pos.File == good.File || l.Trouble() != nil || l.Head() != pos {
				t.Errorf("after: %+v, trouble %v", pos, l.Trouble())
			}
			if l.ID()+Ext != good.File {
				t.Errorf("the id became %s", l.ID())
			}
			rep, err := ReadFile(filepath.Join(dir, good.File), nil)
			if err != nil || rep.Kind != row.first || rep.Records < good.Seq {
				t.Errorf("the failed file: %s, %v", rep, err)
			}
			var opened Record
			if _, err := ReadFile(filepath.Join(dir, pos.File), func(r Record) error {
				if r.Event == Opened {
					opened = r
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if opened.File != good.File || opened.Records != good.Seq || opened.HeadHash != good.SHA256 {
				t.Errorf("the new file follows %s %d %s, want %+v", opened.File, opened.Records, opened.HeadHash, good)
			}
			verifyOK(t, filepath.Join(dir, pos.File), 2)
		})
	}
}

// A ledger that nobody appends to finds out that its disk works again.
func TestRetry(t *testing.T) {
	dir, d := t.TempDir(), &disk{}
	l := mustOpen(t, dir, d.create)
	good := mustAppend(t, l, start("before"))
	if err := l.Retry(t.Context()); err != nil || l.Head() != good {
		t.Fatalf("a retry without trouble: %v, head %+v", err, l.Head())
	}
	d.set(func(d *disk) { d.noWrite = true })
	if _, err := l.Append(t.Context(), start("x")); !errors.Is(err, ErrUnwritable) {
		t.Fatalf("append = %v", err)
	}
	if err := l.Retry(t.Context()); !errors.Is(err, errDisk) || l.Trouble() == nil {
		t.Fatalf("a retry on a broken disk: %v, trouble %v", err, l.Trouble())
	}
	d.set(func(d *disk) { d.noWrite = false })
	if err := l.Retry(t.Context()); err != nil || l.Trouble() != nil {
		t.Fatalf("a retry on a good disk: %v, trouble %v", err, l.Trouble())
	}
	verifyOK(t, filepath.Join(dir, l.Head().File), 1)
	mustAppend(t, l, start("after"))
}

func TestNoNewFileCanBeMade(t *testing.T) {
	dir, d := t.TempDir(), &disk{}
	l := mustOpen(t, dir, d.create)
	d.set(func(d *disk) { d.noSync, d.noCreate = true, true })
	for range 3 {
		if _, err := l.Append(t.Context(), start("x")); !errors.Is(err, ErrUnwritable) {
			t.Fatalf("append = %v", err)
		}
	}
	d.set(func(d *disk) { d.noSync, d.noCreate = false, false })
	mustAppend(t, l, start("y"))
	if len(d.made) != 2 {
		t.Errorf("files made: %v", d.made)
	}
	if _, err := open(dir, Options{}, func(string) (sink, error) { return nil, errDisk }); !errors.Is(err, ErrUnwritable) {
		t.Errorf("Open on a broken disk = %v", err)
	}
}

// All appends of a failed batch fail, also those that only shared its sync.
func TestABatchFailsAsOne(t *testing.T) {
	h, d := newHeld(), &disk{}
	l := mustOpen(t, t.TempDir(), func(path string) (sink, error) {
		s, err := d.create(path)
		if err != nil {
			return nil, err
		}
		return heldSink{s, h}, nil
	})
	h.hold()
	d.set(func(d *disk) { d.noSync = true })
	errs := make(chan error, 100)
	add := func() {
		_, err := l.Append(t.Context(), start("x"))
		errs <- err
	}
	go add()
	<-h.syncing
	for range 99 {
		go add()
	}
	h.release()
	for range 100 {
		if err := <-errs; !errors.Is(err, ErrUnwritable) {
			t.Fatalf("append = %v", err)
		}
	}
}

// The lock of a failed file stays while its process lives: what it holds is not
// a dead process's.
func TestFailedFileStaysLocked(t *testing.T) {
	dir, d := t.TempDir(), &disk{}
	l := mustOpen(t, dir, d.create)
	d.set(func(d *disk) { d.noWrite, d.half = true, true })
	_, _ = l.Append(t.Context(), start("lost"))
	d.set(func(d *disk) { d.noWrite = false })
	mustAppend(t, l, start("kept"))
	if dead, err := Adopt(dir); err != nil || len(dead) != 0 {
		t.Fatalf("Adopt took a living process's files: %v, %v", dead, err)
	}
	other := mustOpen(t, dir, create) // it may not call the living's file torn
	verifyOK(t, other.Path(), 1)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	dead, err := Adopt(dir)
	if err != nil || len(dead) != 1 || dead[0].ID != l.ID() {
		t.Fatalf("Adopt = %v, %v", dead, err)
	}
	defer dead[0].Release()
	if !dead[0].Started("kept") {
		t.Error("the second file's start is not known")
	}
	if dead[0].Started("lost") {
		t.Error("a torn start counts as one")
	}
}

func TestTornTailIsToldOnce(t *testing.T) {
	dir := t.TempDir()
	lines := strings.Join(chain(3, Genesis, 1), "")
	torn := filepath.Join(dir, "20200101T000000Z-00"+Ext)
	if err := os.WriteFile(torn, []byte(lines[:len(lines)-7]), 0o600); err != nil {
		t.Fatal(err)
	}
	var told []Record
	l := mustOpen(t, dir, create)
	if _, err := ReadFile(l.Path(), func(r Record) error {
		if r.Event == Recovered {
			told = append(told, r)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	rep, err := ReadFile(torn, nil)
	if err != nil || rep.Kind != Torn || rep.Records != 2 {
		t.Errorf("the torn file was touched: %s, %v", rep, err)
	}
	if len(told) != 1 || told[0].File != filepath.Base(torn) || told[0].Records != 2 ||
		told[0].HeadHash != rep.Head || told[0].TornBytes != rep.TornBytes {
		t.Errorf("told %+v of %+v", told, rep)
	}
	if isStarted(t, l, "op-3") || !isStarted(t, l, "op-2") {
		t.Error("starts: a torn one counts, or a whole one does not")
	}
	again := mustOpen(t, dir, create)
	verifyOK(t, again.Path(), 1)
}

// A file that was taken away keeps nothing, though it can still be written: such a
// record counts as not written, and the next one goes to a file that is there.
func TestDeletedFileKeepsNothing(t *testing.T) {
	for name, take := range map[string]func(path string) error{
		"deleted": os.Remove,
		"moved":   func(path string) error { return os.Rename(path, path+".old") },
		"replaced": func(path string) error {
			return errors.Join(os.Rename(path, path+".old"), os.WriteFile(path, nil, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			l := mustOpen(t, dir, create)
			mustAppend(t, l, start("a"))
			gone := l.Path()
			if err := take(gone); err != nil {
				t.Fatal(err)
			}
			if _, err := l.Append(t.Context(), start("b")); !errors.Is(err, ErrUnwritable) {
				t.Fatalf("a record in a %s file: %v", name, err)
			}
			pos := mustAppend(t, l, start("c"))
			if pos.File == filepath.Base(gone) {
				t.Error("the next record went there, too")
			}
			if rep, err := ReadFile(filepath.Join(dir, pos.File), nil); err != nil || rep.Kind != OK {
				t.Errorf("%+v, %v", rep, err)
			}
		})
	}
}

// Without its directory a ledger takes nothing.
func TestDeletedDirectoryKeepsNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ledger")
	l := mustOpen(t, dir, create)
	mustAppend(t, l, start("a"))
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := l.Append(t.Context(), start("b")); !errors.Is(err, ErrUnwritable) {
			t.Fatalf("a record without a directory: %v", err)
		}
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, start("c"))
}
