package ledger

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
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

	mu   sync.Mutex
	err  error           // nothing they say can be relied on
	seen map[string]*ran // what was loaded
}

// ran is what is said of one operation.
type ran struct {
	started bool
	end     *End
}

// End is what an operation's result record says.
type End struct{ Status, ErrorType string }

// Adopt takes the ledgers in dir whose processes are dead and that were written
// to within AdoptWithin. Those of living processes, this one included, and
// those that another process is settling are left out. Call Release on each.
//
// With an error, those that could be taken whole are returned too.
func Adopt(dir string) ([]*Dead, error) { return adoptBy(take, dir) }

func adoptBy(take func(path string) (*os.File, bool, error), dir string) ([]*Dead, error) {
	found, err := recent(dir, time.Now())
	if err != nil {
		return nil, fmt.Errorf("adopt ledgers: %w", err)
	}
	var out []*Dead
	var errs []error
	left := map[string]bool{}
	for _, p := range found {
		if left[p.id] {
			continue
		}
		f, dead, err := take(p.path)
		if err != nil {
			errs = append(errs, fmt.Errorf("adopt %s: %w", filepath.Base(p.path), err))
		}
		mine := len(out) > 0 && out[len(out)-1].ID == p.id
		switch {
		case err != nil || !dead:
			left[p.id] = true
			if mine { // the whole ledger is as alive, or as unknown, as one of its parts
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
	return out, errors.Join(errs...)
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

// add takes the n-th part in; parts come in their order. Numbers may be left out:
// a file that could not be used has one, too. But each part says which one it
// follows, and that one must be here.
func (d *Dead) add(f *os.File, n int) {
	follows, begun, err := opening(f)
	switch {
	case err != nil:
		d.err = err
	case len(d.files) == 0 && (n != 1 || !begun), len(d.files) > 0 && begun && !d.has(follows):
		d.err = errMissing
	}
	d.files = append(d.files, f)
}

func (d *Dead) has(name string) bool {
	return slices.ContainsFunc(d.files, func(f *os.File) bool { return filepath.Base(f.Name()) == name })
}

// opening is which file a part follows. A part that is not begun has no whole line:
// nothing in it was acknowledged.
func opening(f io.Reader) (follows string, begun bool, err error) {
	first, err := newLines(f).next()
	switch {
	case errors.Is(err, io.EOF), err == nil && first.torn:
		return "", false, nil
	case err != nil:
		return "", false, err
	case !bytes.Contains(first.text, openedMark):
		return "", false, errMissing // its beginning was cut off
	}
	return pick(first.text, fileKey), true, nil
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

// Load reads the files once for these operations, and keeps nothing of others: a
// ledger may be long. Started and Result do it where it was not done. An error
// means that what the files say can't be relied on: nothing may be settled by it.
func (d *Dead) Load(ids ...string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.load(ids...)
}

// load is Load with d.mu held.
func (d *Dead) load(ids ...string) error {
	want := map[string]*ran{}
	for _, id := range ids {
		if d.seen[id] == nil {
			want[id] = &ran{}
		}
	}
	if d.err != nil || len(want) == 0 {
		return d.err
	}
	for _, f := range d.files {
		if _, d.err = f.Seek(0, io.SeekStart); d.err != nil {
			return d.err
		}
		if _, d.err = scanLines(f, func(line []byte) { note(want, line) }); d.err != nil {
			return d.err
		}
	}
	if d.seen == nil {
		d.seen = want
	} else {
		maps.Copy(d.seen, want)
	}
	return nil
}

// note keeps what is said of the executions that are asked for. A result without a
// start before it is no execution's: it is the answer to a call that was refused.
func note(want map[string]*ran, line []byte) {
	start, result := bytes.Contains(line, startMark), bytes.Contains(line, resultMark)
	if !start && !result {
		return
	}
	switch op := want[pick(line, operationKey)]; {
	case op == nil:
	case start:
		op.started = true
	case op.started:
		op.end = &End{Status: pick(line, statusKey), ErrorType: pick(line, errorKey)}
	}
}

// Started tells whether the operation's exec_start is in these files. When they
// can't be read it is true: better an unknown outcome than a call taken for one
// that never ran.
func (d *Dead) Started(id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.load(id) != nil || d.seen[id].started
}

// Result is what the operation's result record says; false when there is none.
func (d *Dead) Result(id string) (End, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.load(id) != nil || d.seen[id].end == nil {
		return End{}, false
	}
	return *d.seen[id].end, true
}

// Release gives the lock up.
func (d *Dead) Release() {
	for _, f := range d.files {
		_ = f.Close() // it was only read
	}
	d.files = nil
}
