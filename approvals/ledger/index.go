package ledger

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// index is the set of approvals whose execution was started. Calls that needed
// no approval are not in it: nothing can start them again, and there are many.
type index struct {
	mu  sync.RWMutex
	ids map[string]struct{}

	reading sync.Mutex
	read    map[string]int64 // by path: bytes of whole lines whose starts are in ids
}

func newIndex() *index { return &index{ids: map[string]struct{}{}, read: map[string]int64{}} }

func (x *index) add(id string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.ids[id] = struct{}{}
}

func (x *index) has(id string) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	_, ok := x.ids[id]
	return ok
}

// follow reads what was written to another process's file since it was last read.
// A line that is being written at this moment is read the next time.
func (x *index) follow(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // its process removed a file it never used
	}
	if err != nil {
		return err
	}
	defer f.Close()
	from := x.read[path]
	if fi, err := f.Stat(); err != nil || fi.Size() == from {
		return err
	}
	if _, err := f.Seek(from, io.SeekStart); err != nil {
		return err
	}
	end, err := scanLines(f, x.note)
	if err != nil {
		return err
	}
	x.read[path] = from + end.whole
	return nil
}

// note takes a line's start in, if it is one of an approval.
func (x *index) note(line []byte) {
	if bytes.Contains(line, startMark) && bytes.Contains(line, approvalMark) {
		x.add(pick(line, operationKey))
	}
}

// A canonical line has no white space and escapes every quote inside a string,
// so these bytes can stand only where such a member is.
var (
	openedMark   = []byte(`"event":"opened"`)
	startMark    = []byte(`"event":"exec_start"`)
	approvalMark = []byte(`"approval":{`)
	resultMark   = []byte(`"event":"result"`)
	recoverMark  = []byte(`"event":"recovered"`)
	operationKey = []byte(`"operation_id":"`)
	statusKey    = []byte(`"status":"`)
	errorKey     = []byte(`"error_type":"`)
	fileKey      = []byte(`"file":"`)
	hashKey      = []byte(`"sha256":"`)
)

// pick is the value of a string member that holds no escapes.
func pick(line, key []byte) string {
	_, rest, ok := bytes.Cut(line, key)
	if !ok {
		return ""
	}
	v, _, ok := bytes.Cut(rest, []byte{'"'})
	if !ok {
		return ""
	}
	return string(v)
}

// survey reads the young files: which operations were started, and which dead
// files end in a torn line that no file tells of yet (as records to write).
func survey(dir string, young time.Duration, now time.Time, log *slog.Logger) (*index, []Record, error) {
	known, told := newIndex(), map[string]bool{}
	found, err := parts(dir, young, now)
	if err != nil {
		return nil, nil, err
	}
	var torn []Record
	for _, p := range found {
		end, err := scan(p.path, func(line []byte) {
			known.note(line)
			if bytes.Contains(line, recoverMark) {
				told[pick(line, fileKey)] = true
			}
		})
		if errors.Is(err, fs.ErrNotExist) {
			continue // a live process removed a file it never used
		}
		if err != nil {
			return nil, nil, err
		}
		known.read[p.path] = end.whole
		if end.long > 0 {
			log.Warn("a ledger file has lines that are too long to be records", "file", filepath.Base(p.path), "lines", end.long)
		}
		if end.torn == 0 {
			continue
		}
		dead, err := isDead(p.path)
		if err != nil {
			return nil, nil, err
		}
		if dead {
			torn = append(torn, Record{
				Event: Recovered, File: filepath.Base(p.path),
				Records: end.records, HeadHash: end.head, TornBytes: end.torn,
			})
		}
	}
	fresh := torn[:0]
	for _, t := range torn {
		if !told[t.File] {
			fresh = append(fresh, t)
		}
	}
	return known, fresh, nil
}

// ending is how a file ends, as far as one look without verification tells.
type ending struct {
	records uint64 // whole lines
	head    string // hash of the last whole line
	whole   int64  // bytes of the whole lines
	torn    int64  // bytes after them
	long    int    // lines that are too long to be records
}

// scan gives each whole line of a file to f.
func scan(path string, f func(line []byte)) (ending, error) {
	in, err := os.Open(path)
	if err != nil {
		return ending{}, err
	}
	defer in.Close()
	return scanLines(in, f)
}

func scanLines(in io.Reader, f func(line []byte)) (ending, error) {
	var end ending
	for l := newLines(in); ; {
		got, err := l.next()
		switch {
		case errors.Is(err, io.EOF):
			return end, nil
		case err != nil:
			return end, fmt.Errorf("read ledger file: %w", err)
		case got.torn:
			end.torn = int64(len(got.text)) + got.long
			return end, nil
		case got.long > 0:
			end.long++
			end.records++
			end.whole += got.long
			continue
		}
		end.records++
		end.whole += int64(len(got.text)) + 1
		if h := pick(got.text, hashKey); word("", h) == nil {
			end.head = h
		}
		f(got.text)
	}
}

// isDead tells whether no process holds the file. A file that is gone is not
// dead: its process took it away.
func isDead(path string) (bool, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	ok, err := lock(f)
	if err != nil {
		return false, fmt.Errorf("lock %s: %w", path, err)
	}
	return ok, nil
}
