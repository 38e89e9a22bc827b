package ledger

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Ext is how the names of ledger files end.
const Ext = ".jsonl"

// sink is where lines go. It can't read, seek or cut: what is written stays.
type sink interface {
	Write([]byte) (int, error)
	Sync() error
	Close() error
}

// creator makes a new, locked, empty sink whose name is durable.
type creator func(path string) (sink, error)

// segment is one file of this process's ledger and the end of its chain.
type segment struct {
	path string
	out  sink
	head Pos // of the last acknowledged record
}

// file is the sink on a real disk.
type file struct {
	*os.File
	path string
	self fs.FileInfo // the file that path named when it was made
}

// Sync makes what was written durable, under its name: a file that was deleted, or
// whose directory was, takes every byte without complaint and keeps none.
func (f file) Sync() error {
	if err := syncData(f.File); err != nil {
		return err
	}
	now, err := os.Lstat(f.path)
	switch {
	case err != nil:
		return fmt.Errorf("the file is gone from its directory: %w", err)
	case !os.SameFile(now, f.self):
		return errors.New("another file has taken its name")
	}
	return nil
}

// create makes path for appending only, mode 0600, locks it and makes its
// directory entry durable. The file gets its name when it is locked already:
// an unlocked ledger file is a dead process's.
func create(path string) (sink, error) {
	unnamed := path + ".new"
	f, err := os.OpenFile(unnamed, os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	if err := settle(f, path); err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(unnamed))
	}
	self, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(path))
	}
	return file{File: f, path: path, self: self}, nil
}

func settle(f *os.File, path string) error {
	switch ok, err := lock(f); {
	case err != nil:
		return fmt.Errorf("lock %s: %w", f.Name(), err)
	case !ok:
		return fmt.Errorf("lock %s: another process took it", f.Name())
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// makeDir makes dir, mode 0700, and its entry durable. A directory that is
// there already is taken as it is.
func makeDir(dir string) error {
	if fi, err := os.Stat(dir); err == nil {
		if !fi.IsDir() {
			return &fs.PathError{Op: "open", Path: dir, Err: errors.New("not a directory")}
		}
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return syncDir(filepath.Dir(filepath.Clean(dir)))
}

// newID names a process's ledger. The time makes a listing readable; the random
// part makes the name one of its own.
func newID(now time.Time) string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the process instead
	return now.UTC().Format("20060102T150405Z") + "-" + hex.EncodeToString(b[:])
}

// partName is the name of the n-th file of a ledger; 1 is the first.
func partName(id string, n int) string {
	if n == 1 {
		return id + Ext
	}
	return id + "." + strconv.Itoa(n) + Ext
}

// parsePart reads what partName wrote.
func parsePart(name string) (id string, n int, ok bool) {
	base, isLedger := strings.CutSuffix(name, Ext)
	if !isLedger || base == "" {
		return "", 0, false
	}
	id, part, several := strings.Cut(base, ".")
	if !several {
		return id, 1, id != ""
	}
	n, err := strconv.Atoi(part)
	return id, n, err == nil && n >= 2 && id != "" && strconv.Itoa(n) == part
}

// Files lists the ledger files of a directory, oldest names first and the parts
// of one ledger in their order. A directory that is not there has none.
func Files(dir string) ([]string, error) {
	found, err := parts(dir, 0, time.Time{})
	if err != nil {
		return nil, err
	}
	var out []string
	for _, p := range found {
		out = append(out, p.path)
	}
	return out, nil
}

// part is a file found in a directory.
type part struct {
	path string
	id   string
	n    int
}

// parts finds the files written to within young before now; 0 finds all.
func parts(dir string, young time.Duration, now time.Time) ([]part, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []part
	for _, e := range entries {
		id, n, ok := parsePart(e.Name())
		if !ok || !e.Type().IsRegular() {
			continue
		}
		if young > 0 {
			fi, err := e.Info()
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return nil, err
			}
			if now.Sub(fi.ModTime()) > young {
				continue
			}
		}
		out = append(out, part{filepath.Join(dir, e.Name()), id, n})
	}
	slices.SortFunc(out, func(a, b part) int {
		if c := strings.Compare(a.id, b.id); c != 0 {
			return c
		}
		return a.n - b.n
	})
	return out, nil
}
