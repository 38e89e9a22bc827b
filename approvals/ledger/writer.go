package ledger

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
)

// writer puts batches on the disk. It belongs to one goroutine.
type writer struct {
	ledger *Ledger
	cur    *segment
	part   int        // number of the last file tried
	after  *segment   // the failed file that the next one follows
	failed []*segment // kept open, and so locked, until the process ends
	buf    []byte
}

// commit makes a batch durable, or fails all of it. After a failure it tries a
// fresh file at the next batch, never the same file again: what a failed sync
// left behind is not known.
func (w *writer) commit(batch []*entry) {
	err := w.try(batch)
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrUnwritable, err)
	}
	w.report(err)
	for _, e := range batch {
		e.err = err
		close(e.done)
	}
}

func (w *writer) try(batch []*entry) error {
	if w.cur != nil {
		err := w.put(w.cur, nil, batch)
		if err != nil {
			w.failed = append(w.failed, w.cur)
			w.after, w.cur = w.cur, nil
		}
		return err
	}
	fresh, opened, err := w.fresh()
	if err != nil {
		return err
	}
	if err := w.put(fresh, &opened, batch); err != nil {
		// Nothing in this file was ever acknowledged.
		return errors.Join(err, fresh.out.Close(), w.ledger.remove(fresh.path))
	}
	w.cur = fresh
	return nil
}

// fresh makes the next file and its first record.
func (w *writer) fresh() (*segment, Record, error) {
	w.part++
	name := partName(w.ledger.id, w.part)
	path := filepath.Join(w.ledger.dir, name)
	out, err := w.ledger.create(path)
	if err != nil {
		return nil, Record{}, fmt.Errorf("new ledger file: %w", err)
	}
	opened := Record{Event: Opened}
	if w.after != nil {
		opened.File, opened.Records, opened.HeadHash = w.after.head.File, w.after.head.Seq, w.after.head.SHA256
	}
	return &segment{path: path, out: out, head: Pos{File: name, SHA256: Genesis}}, opened, nil
}

// put writes and syncs a batch, after an opening record where there is one. The
// segment's head moves only when all of it is durable.
func (w *writer) put(s *segment, opened *Record, batch []*entry) error {
	head, now := s.head, w.ledger.now()
	w.buf = w.buf[:0]
	chain := func(r *Record) {
		r.Version, r.Seq, r.Time, r.Boot, r.PrevSHA256 = Version, head.Seq+1, now, w.ledger.id, head.SHA256
		w.buf = appendLine(w.buf, r)
		head.Seq, head.SHA256 = r.Seq, r.SHA256
	}
	if opened != nil {
		chain(opened)
	}
	for _, e := range batch {
		for i := range e.recs {
			chain(&e.recs[i])
		}
		e.pos = head
	}
	if err := write(s.out, w.buf); err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(s.path), err)
	}
	if err := s.out.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", filepath.Base(s.path), err)
	}
	s.head = head
	if cap(w.buf) > 1<<20 {
		w.buf = nil
	}
	return nil
}

func write(out sink, b []byte) error {
	n, err := out.Write(b)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	return err
}

// report keeps the ledger's state and says when it changes.
func (w *writer) report(err error) {
	l := w.ledger
	before := l.Trouble()
	switch {
	case err != nil && before == nil:
		l.log.Error("the ledger can't be written; nothing runs until it can", "dir", l.dir, "error", err)
	case err == nil && before != nil:
		l.log.Warn("the ledger can be written again", "file", w.cur.head.File, "follows", w.after.head.File)
	}
	var head Pos
	if err == nil {
		head = w.cur.head
	}
	l.settled(head, err)
}

func (w *writer) close() error {
	var errs []error
	if w.cur != nil {
		errs = append(errs, w.cur.out.Close())
	}
	for _, s := range w.failed {
		_ = s.out.Close() // its trouble was reported when it happened
	}
	return errors.Join(errs...)
}
