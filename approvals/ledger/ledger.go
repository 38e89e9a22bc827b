package ledger

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

var (
	// ErrUnwritable means that the record is not known to be durable: whatever
	// it was to precede must not happen. The cause is wrapped with it.
	ErrUnwritable = errors.New("the ledger can't be written")
	// ErrClosed means that Close was called.
	ErrClosed = errors.New("the ledger is closed")
)

// maxQueued bounds the records that wait for a disk that does not keep up.
const maxQueued = 1 << 14

// Options adjust a ledger. The zero value works.
type Options struct {
	Log *slog.Logger     // default: nothing is logged
	Now func() time.Time // default: time.Now
	// Young is how long the start of an execution must be remembered: the
	// longest route timeout + claim_ttl + exec_timeout. Files not written to
	// for longer are not read. 0 reads all.
	Young time.Duration
}

// Pos is a place in a ledger file: that of its record Seq.
type Pos struct {
	File   string // base name
	Seq    uint64
	SHA256 string
}

// Ledger is this process's own ledger. All methods may be called concurrently.
type Ledger struct {
	dir, id string
	log     *slog.Logger
	now     func() time.Time
	create  creator
	remove  func(path string) error
	started *index
	young   atomic.Int64 // nanoseconds; see Options

	mu      sync.Mutex
	waiting *sync.Cond // of the writer, on queue and closed
	queue   []*entry
	queued  int // records in queue
	closed  bool
	head    Pos
	trouble error // why the last write failed; nil when it did not

	writer writer // used by the writing goroutine alone
	done   chan struct{}
}

// entry is one Append on its way.
type entry struct {
	recs []Record
	pos  Pos
	err  error
	done chan struct{}
}

// Open starts this process's ledger in dir, making the directory if needed. It
// reads the young files that are there, so that Started knows their starts, and
// writes the first record, so that a directory that can't be written is found
// now. The file is locked until Close.
func Open(dir string, o Options) (*Ledger, error) {
	return open(dir, o, create)
}

func open(dir string, o Options, c creator) (*Ledger, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	if err := makeDir(dir); err != nil {
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	known, torn, err := survey(dir, o.Young, o.Now(), o.Log)
	if err != nil {
		return nil, fmt.Errorf("read the ledger's earlier files: %w", err)
	}
	l := &Ledger{
		dir: dir, id: newID(o.Now()), log: o.Log, now: o.Now, create: c, remove: os.Remove,
		started: known, done: make(chan struct{}),
	}
	l.young.Store(int64(o.Young))
	l.waiting = sync.NewCond(&l.mu)
	l.writer.ledger = l
	first := &entry{done: make(chan struct{})}
	for _, t := range torn {
		l.log.Warn("an earlier ledger file ends in a torn line; it stays as it is",
			"file", t.File, "records", t.Records, "torn_bytes", t.TornBytes)
		first.recs = append(first.recs, t)
	}
	l.writer.commit([]*entry{first})
	if first.err != nil {
		return nil, fmt.Errorf("open ledger in %s: %w", dir, first.err)
	}
	go l.write()
	return l, nil
}

// ID names this ledger: the name of its first file without ".jsonl". It does
// not change while the process lives.
func (l *Ledger) ID() string { return l.id }

// Path is the first file's path.
func (l *Ledger) Path() string { return filepath.Join(l.dir, partName(l.id, 1)) }

// Dir is where the ledger's files are.
func (l *Ledger) Dir() string { return l.dir }

// Head is the last acknowledged record's place.
func (l *Ledger) Head() Pos {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.head
}

// Trouble is why the last write failed, or nil when the ledger works. Only a
// write finds out that the disk works again: an append, or Retry.
func (l *Ledger) Trouble() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.trouble
}

// Append writes the records in their order, next to each other, and returns the
// last one's place when all of them are durable. An error means that nothing
// may run on the strength of them: [ErrUnwritable], [ErrClosed], *[Invalid]
// (nothing of them was written) or the context's. A process that dies meanwhile
// may leave only the first of several.
//
// The context ends only the waiting: when Append returns its error after it
// began, the records may still become durable. With a context that has ended
// already nothing is written. The records are copied; the caller may reuse them.
func (l *Ledger) Append(ctx context.Context, recs ...Record) (Pos, error) {
	if err := ctx.Err(); err != nil {
		return Pos{}, err
	}
	if len(recs) == 0 {
		return l.Head(), nil
	}
	for i := range recs {
		if err := recs[i].check(); err != nil {
			return Pos{}, err
		}
	}
	e := &entry{recs: make([]Record, len(recs)), done: make(chan struct{})}
	for i := range recs {
		e.recs[i] = recs[i].clone()
	}
	if err := l.enqueue(e); err != nil {
		return Pos{}, err
	}
	select {
	case <-e.done:
		return e.pos, e.err
	case <-ctx.Done():
	}
	select {
	case <-e.done: // both at once: the truth is better
		return e.pos, e.err
	default:
		return Pos{}, ctx.Err()
	}
}

// Retry tries to write again after a failure, and returns why that fails too.
// It writes nothing while the ledger works. A process that gets no calls because
// it is not ready would otherwise never find out that it could be.
func (l *Ledger) Retry(ctx context.Context) error {
	if l.Trouble() == nil {
		return nil
	}
	e := &entry{done: make(chan struct{})}
	if err := l.enqueue(e); err != nil {
		return err
	}
	select {
	case <-e.done:
		return e.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *Ledger) enqueue(e *entry) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return ErrClosed
	case l.queued+len(e.recs) > maxQueued:
		return fmt.Errorf("%w: %d records wait already", ErrUnwritable, l.queued)
	}
	// Before the write: a start that is on the disk but was never
	// acknowledged must be refused as well.
	for i := range e.recs {
		if e.recs[i].Event == ExecStart && e.recs[i].Approval != nil {
			l.started.add(e.recs[i].OperationID)
		}
	}
	l.queue = append(l.queue, e)
	l.queued += len(e.recs)
	l.waiting.Signal()
	return nil
}

// Remember makes Options.Young longer while the ledger is open: a new
// configuration may let an approval live longer. It is never made shorter, since
// what was begun under the old one lives as long as it did.
func (l *Ledger) Remember(young time.Duration) {
	for {
		now := l.young.Load()
		if now == 0 || int64(young) <= now || l.young.CompareAndSwap(now, int64(young)) {
			return
		}
	}
}

// Started tells whether an exec_start of this approval is in a young file of the
// directory, another living process's too, or was given to Append, durable or
// not. A start without an approval is not remembered. An error means that some
// file could not be read, so that nobody knows.
func (l *Ledger) Started(id string) (bool, error) {
	if l.started.has(id) {
		return true, nil
	}
	l.started.reading.Lock()
	defer l.started.reading.Unlock()
	found, err := parts(l.dir, time.Duration(l.young.Load()), l.now())
	if err != nil {
		return false, fmt.Errorf("look for other ledgers: %w", err)
	}
	for _, p := range found {
		if p.id == l.id {
			continue // what it holds was added when it was given to Append
		}
		if err := l.started.follow(p.path); err != nil {
			return false, fmt.Errorf("read the ledger %s: %w", filepath.Base(p.path), err)
		}
	}
	return l.started.has(id), nil
}

// Close writes what waits, then closes the file and gives up its lock. Later
// appends return ErrClosed. A second Close does nothing.
func (l *Ledger) Close() error {
	l.mu.Lock()
	again := l.closed
	l.closed = true
	l.waiting.Signal()
	l.mu.Unlock()
	<-l.done
	if again {
		return nil
	}
	return l.writer.close()
}

// write is the one goroutine that touches the disk.
func (l *Ledger) write() {
	defer close(l.done)
	for {
		batch := l.next()
		if batch == nil {
			return
		}
		l.writer.commit(batch)
	}
}

// next waits for something to write and takes all of it; nil when the ledger is
// closed and nothing waits.
func (l *Ledger) next() []*entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.queue) == 0 && !l.closed {
		l.waiting.Wait()
	}
	batch := l.queue
	l.queue, l.queued = nil, 0
	return batch
}

// settled tells the world how a write went.
func (l *Ledger) settled(head Pos, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		l.head = head
	}
	l.trouble = err
}

func (r *Record) clone() Record {
	c := *r
	c.Rules = slices.Clone(r.Rules)
	if r.Approval != nil {
		a := *r.Approval
		a.Routes, a.Votes = slices.Clone(a.Routes), slices.Clone(a.Votes)
		c.Approval = &a
	}
	return c
}
