package ledger

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// AdoptWithin is how long after its last write a dead file is still adopted.
// What an older one left open, the end of its lease has settled long ago.
const AdoptWithin = 7 * 24 * time.Hour

// Dead is the ledger of a process that is no more. Its files are locked until
// Release, so that one process alone settles what it left.
type Dead struct {
	// ID is the ledger's id, which is the owner of the claims it made.
	ID    string
	files []*os.File

	once    sync.Once
	err     error
	started map[string]bool
	results map[string]string
}

// Adopt takes the ledgers in dir whose processes are dead and that were written
// to within AdoptWithin. Those of living processes, this one included, and
// those that another process is settling are left out. Call Release on each.
//
// With an error, those adopted so far are returned too.
func Adopt(dir string) ([]*Dead, error) {
	found, err := recent(dir, time.Now())
	if err != nil {
		return nil, fmt.Errorf("adopt ledgers: %w", err)
	}
	var out []*Dead
	alive := map[string]bool{}
	for _, p := range found {
		if alive[p.id] {
			continue
		}
		f, dead, err := take(p.path)
		if err != nil {
			return out, fmt.Errorf("adopt %s: %w", filepath.Base(p.path), err)
		}
		mine := len(out) > 0 && out[len(out)-1].ID == p.id
		switch {
		case !dead:
			alive[p.id] = true
			if mine { // one living part makes the whole ledger alive
				out[len(out)-1].Release()
				out = out[:len(out)-1]
			}
		case mine:
			d := out[len(out)-1]
			d.add(f, p.n)
		default:
			d := &Dead{ID: p.id}
			d.add(f, p.n)
			out = append(out, d)
		}
	}
	return out, nil
}

// recent finds all parts of the ledgers that were written to within AdoptWithin: an
// old part says what happened as much as the one that follows it.
func recent(dir string, now time.Time) ([]part, error) {
	young, err := parts(dir, AdoptWithin, now)
	if err != nil {
		return nil, err
	}
	ids := map[string]bool{}
	for _, p := range young {
		ids[p.id] = true
	}
	all, err := parts(dir, 0, now)
	return slices.DeleteFunc(all, func(p part) bool { return !ids[p.id] }), err
}

// errMissing: what a part that is gone said nobody knows, so nothing may be
// settled by the others.
var errMissing = errors.New("a part of the ledger is missing")

// add takes the n-th part in; parts come in their order.
func (d *Dead) add(f *os.File, n int) {
	d.files = append(d.files, f)
	if n != len(d.files) {
		d.err = errMissing
	}
}

// take opens and locks a file, if nobody holds it.
func take(path string) (*os.File, bool, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	ok, err := lock(f)
	if err != nil || !ok {
		return nil, false, errors.Join(err, f.Close())
	}
	return f, true, nil
}

// Load reads the files; Started and Result do it when it was not done. An error
// means that what they say can't be relied on: nothing may be settled by it.
func (d *Dead) Load() error {
	d.once.Do(func() {
		d.started, d.results = map[string]bool{}, map[string]string{}
		if d.err != nil {
			return
		}
		for _, f := range d.files {
			if _, err := f.Seek(0, io.SeekStart); err != nil {
				d.err = err
				return
			}
			if _, err := scanLines(f, d.note); err != nil {
				d.err = err
				return
			}
		}
	})
	return d.err
}

// note keeps what is said of executions. A result without a start before it is no
// execution's: it is the answer to a call that was refused.
func (d *Dead) note(line []byte) {
	op := pick(line, operationKey)
	switch {
	case bytes.Contains(line, startMark):
		d.started[op] = true
	case bytes.Contains(line, resultMark) && d.started[op]:
		d.results[op] = pick(line, statusKey)
	}
}

// Started tells whether the operation's exec_start is in these files. When they
// can't be read it is true: better an unknown outcome than a call taken for one
// that never ran.
func (d *Dead) Started(id string) bool {
	if d.Load() != nil {
		return true
	}
	return d.started[id]
}

// Result is the status that the operation's result record carries.
func (d *Dead) Result(id string) (status string, ok bool) {
	if d.Load() != nil {
		return "", false
	}
	status, ok = d.results[id]
	return status, ok
}

// Release gives the lock up.
func (d *Dead) Release() {
	for _, f := range d.files {
		_ = f.Close() // it was only read
	}
	d.files = nil
}
