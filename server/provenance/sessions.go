package provenance

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
)

// TTL is how long a session carries its labels after its last use.
const TTL = approvals.LabelsTTL

// Store keeps the labels of sessions for all processes. Both methods count as a
// use of the session. They may be sent twice. With an error that wraps
// approvals.Forged some of what is stored does not verify; the labels that do come
// with it.
type Store interface {
	// Labels returns what a session carries.
	Labels(ctx context.Context, actor, session string) ([]string, error)
	// AddLabels adds to what a session carries, and returns all of it. An error
	// leaves open whether they were added.
	AddLabels(ctx context.Context, actor, session string, labels []string) ([]string, error)
}

const (
	storeTimeout = time.Second
	// pause is how long a store that did not answer is left alone: a call that
	// needs nobody's yes should not wait for it each time.
	pause = 500 * time.Millisecond
	// maxSessions bounds what is remembered in this process.
	maxSessions = 10_000
	// share is the part of it, one of so many, that one actor's unwritten labels may
	// take: the others need room too.
	share = 4
	// settle is how long after an outage every session is still unknown: as long as
	// the other processes may need to write what they learned meanwhile.
	settle = FlushEvery + 3*time.Second
)

// FlushEvery is the longest that a process which holds unwritten labels may wait
// between two tries to write them.
const FlushEvery = 2 * time.Second

// Sessions knows what sessions carry. Where the store can't be reached it goes on
// from its own memory, says that more may be known, and writes what is new later;
// what it has once seen of a session it does not forget before TTL. It is safe for
// concurrent use.
type Sessions struct {
	store Store
	log   *slog.Logger
	now   func() time.Time
	most  int

	mu      sync.Mutex
	known   map[key]*entry
	pending map[string]int // by actor: sessions with labels that are in this process alone
	held    int            // all of them
	down    time.Time      // the store is not asked before
	outage  bool           // and that was said
	settled time.Time      // until then others may still be writing
	// until then labels may be missing that there was no room for: an actor's, and
	// everybody's when there are too many such actors
	lost    map[string]time.Time
	lostTil time.Time
}

type key struct{ actor, session string }

// entry is what this process has seen of a session.
type entry struct {
	labels map[string]bool // true: in the store, by its own word
	held   bool            // some are not
	used   time.Time
	part   bool // it began while labels were lost that may have been its own
	forged bool // what is stored did not verify, and that was said
}

// NewSessions makes a Sessions. It starts nothing.
func NewSessions(store Store, log *slog.Logger) *Sessions {
	return &Sessions{store: store, log: log, now: time.Now, most: maxSessions,
		known: map[key]*entry{}, pending: map[string]int{}, lost: map[string]time.Time{}}
}

// Labels is what a session carries: labels with "session:" in front, and Unknown
// where more may be known elsewhere. The list is sorted; it is nil for a session
// that carries nothing. ctx bounds the question to the store.
func (s *Sessions) Labels(ctx context.Context, actor, session string) []string {
	return s.ask(ctx, key{actor, session}, nil)
}

// Add makes a session carry labels. When it returns they are in the store, or in
// this process until Flush has written them.
func (s *Sessions) Add(ctx context.Context, actor, session string, labels []string) {
	if len(labels) > 0 {
		// The caller's leaving must not lose them.
		s.ask(context.WithoutCancel(ctx), key{actor, session}, labels)
	}
}

// Pending is how many sessions have labels that are in this process alone.
func (s *Sessions) Pending() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held
}

// tally counts an entry among those that hold something unwritten, or no more. s.mu
// is held.
func (s *Sessions) tally(k key, e *entry) {
	held := len(e.unwritten()) > 0
	if held == e.held {
		return
	}
	e.held = held
	if held {
		s.held++
		s.pending[k.actor]++
		return
	}
	s.held--
	if s.pending[k.actor]--; s.pending[k.actor] == 0 {
		delete(s.pending, k.actor)
	}
}

// Flush writes what is in this process alone. An error means that some still is.
func (s *Sessions) Flush(ctx context.Context) error {
	s.mu.Lock()
	var keys []key
	for k, e := range s.known {
		if e.held {
			keys = append(keys, k)
		}
	}
	s.down = time.Time{}
	s.mu.Unlock()
	for _, k := range keys {
		s.ask(ctx, k, nil)
		if s.blocked() {
			break
		}
	}
	if s.Pending() > 0 {
		return errors.New("labels of sessions are not written yet")
	}
	return nil
}

// ask brings store and memory together: what either knows is known to both
// afterwards, if the store answers.
func (s *Sessions) ask(ctx context.Context, k key, more []string) []string {
	s.mu.Lock()
	room := s.remember(k, more)
	write := slices.Concat(s.unwritten(k), more)
	s.mu.Unlock()
	slices.Sort(write)
	write = slices.Compact(write)

	stored, err := s.exchange(ctx, k, write)

	s.mu.Lock()
	defer s.mu.Unlock()
	s.note(k, err)
	if err == nil || errors.Is(err, approvals.Forged) {
		s.confirm(k, stored, write, err == nil)
	} else if !room && len(more) > 0 {
		s.lose(k.actor)
	}
	return s.answer(k, stored, err)
}

// exchange asks the store, in one step with what is to be written.
func (s *Sessions) exchange(ctx context.Context, k key, write []string) ([]string, error) {
	if s.blocked() {
		return nil, errPaused
	}
	one, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	var stored []string
	var err error
	if len(write) > 0 {
		stored, err = s.store.AddLabels(one, k.actor, k.session, write)
	} else {
		stored, err = s.store.Labels(one, k.actor, k.session)
	}
	if err != nil && ctx.Err() != nil {
		err = errors.Join(errLeft, err) // says nothing of the store
	}
	if err != nil || len(write) > 0 {
		return stored, err
	}
	// What the store had and has no more it is given again.
	if gone := s.missing(k, stored); len(gone) > 0 {
		return s.exchange(ctx, k, gone)
	}
	return stored, nil
}

var (
	errPaused = errors.New("the store did not answer a moment ago")
	errLeft   = errors.New("the caller left")
)

func (s *Sessions) blocked() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now().Before(s.down)
}

// unwritten are the labels of a session that are in this process alone. s.mu is
// held.
func (s *Sessions) unwritten(k key) []string {
	if e := s.known[k]; e != nil {
		return e.unwritten()
	}
	return nil
}

func (e *entry) unwritten() []string {
	var out []string
	for l, stored := range e.labels {
		if !stored {
			out = append(out, l)
		}
	}
	return out
}

// missing are the labels that are known here and not among those stored.
func (s *Sessions) missing(k key, stored []string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	if e := s.known[k]; e != nil {
		for l := range e.labels {
			if !slices.Contains(stored, l) {
				out = append(out, l)
			}
		}
	}
	return out
}

// remember puts labels into memory, as not written. It makes room if it can;
// false when there is none. s.mu is held.
func (s *Sessions) remember(k key, labels []string) bool {
	now := s.now()
	e := s.known[k]
	if e != nil && now.Sub(e.used) > TTL && len(e.unwritten()) == 0 {
		delete(s.known, k) // the store has forgotten it too
		e = nil
	}
	if e == nil {
		if len(labels) == 0 {
			return true
		}
		if s.pending[k.actor] >= max(s.most/share, 1) || !s.makeRoom(now) {
			return false
		}
		e = s.begin(k)
	}
	e.used = now
	for _, l := range labels {
		if _, known := e.labels[l]; !known {
			e.labels[l] = false
		}
	}
	s.tally(k, e)
	return true
}

// begin makes the entry of a session. s.mu is held.
func (s *Sessions) begin(k key) *entry {
	now := s.now()
	e := &entry{labels: map[string]bool{}, used: now, part: s.lossy(k.actor)}
	s.known[k] = e
	return e
}

// makeRoom drops an eighth of the sessions, those that were not used for the
// longest and are in the store. s.mu is held.
func (s *Sessions) makeRoom(now time.Time) bool {
	if len(s.known) < s.most {
		return true
	}
	var idle []key
	if s.held >= len(s.known) {
		return false
	}
	for k, e := range s.known {
		if !e.held {
			idle = append(idle, k)
		}
	}
	slices.SortFunc(idle, func(a, b key) int { return s.known[a].used.Compare(s.known[b].used) })
	for _, k := range idle[:min(len(idle), max(s.most/8, 1))] {
		delete(s.known, k)
	}
	return len(s.known) < s.most
}

// lose notes that labels of an actor could be kept nowhere: until they would have
// ended by themselves, no session of its that isn't known here is taken for clean.
// s.mu is held.
func (s *Sessions) lose(actor string) {
	now := s.now()
	if !s.lossy(actor) {
		s.log.Error("labels of sessions can be kept neither in the store nor in memory: for a day every session of this actor not remembered here counts as unknown",
			"actor", actor, "sessions", len(s.known))
	}
	if _, known := s.lost[actor]; !known && len(s.lost) >= s.most {
		maps.DeleteFunc(s.lost, func(_ string, til time.Time) bool { return !now.Before(til) })
		if len(s.lost) >= s.most {
			s.lostTil = now.Add(TTL)
			return
		}
	}
	s.lost[actor] = now.Add(TTL)
}

// lossy tells whether labels of an actor may be missing that there was no room for.
// s.mu is held.
func (s *Sessions) lossy(actor string) bool {
	now := s.now()
	return now.Before(s.lostTil) || now.Before(s.lost[actor])
}

// confirm notes what the store said. s.mu is held.
func (s *Sessions) confirm(k key, stored, wrote []string, whole bool) {
	e := s.known[k]
	if e == nil {
		if len(stored) == 0 || !s.makeRoom(s.now()) {
			return
		}
		e = s.begin(k)
	}
	for _, l := range stored {
		e.labels[l] = true
	}
	if whole {
		for _, l := range wrote {
			e.labels[l] = true
		}
		e.forged = false
	}
	s.tally(k, e)
}

// note says how the store is, once for each change. s.mu is held.
func (s *Sessions) note(k key, err error) {
	switch {
	case err == nil:
		if s.outage {
			s.log.Info("labels of sessions can be kept again")
			s.settled = s.now().Add(settle)
		}
		s.outage, s.down = false, time.Time{}
	case errors.Is(err, approvals.Forged):
		e := s.known[k]
		if e == nil && s.makeRoom(s.now()) {
			e = s.begin(k)
		}
		if e == nil || !e.forged {
			s.log.Error("labels of a session do not verify: somebody wrote into the store; the session counts as unknown",
				"actor", k.actor, "error", err)
		}
		if e != nil {
			e.forged = true
		}
	case errors.Is(err, errPaused), errors.Is(err, errLeft):
	default:
		if !s.outage {
			s.log.Warn("labels of sessions can't be read or written at the moment: sessions count as unknown", "error", err)
		}
		s.outage, s.down = true, s.now().Add(pause)
	}
}

// answer is all that is known of a session now. s.mu is held.
func (s *Sessions) answer(k key, stored []string, err error) []string {
	set := map[string]bool{}
	for _, l := range stored {
		set[l] = true
	}
	e := s.known[k]
	if e != nil {
		for l := range e.labels {
			set[l] = true
		}
	}
	if err != nil || s.now().Before(s.settled) || (e == nil || e.part) && s.lossy(k.actor) {
		set[Unknown] = true
	}
	return slices.Sorted(maps.Keys(set))
}
