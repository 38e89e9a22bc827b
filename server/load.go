package server

import (
	"errors"
	"io"
	"net/http"
	"sync"

	"github.com/countersign-mcp/countersign/approvals/action"
)

// spareInFlight is what an actor at its limit still may send: without it, a
// client could not cancel what fills its limit.
const spareInFlight = 16

// actorShare is the part of all body bytes that one actor's may be, so that one
// alone can't lock the others out.
const actorShare = 4

// errFull says that no more body bytes are taken now; errActorFull that this
// actor has its share.
var (
	errFull      = errors.New("too many bytes are in flight")
	errActorFull = errors.New("too many bytes of this actor are in flight")
)

// load counts what is in flight over HTTP. An actor is there only while it has
// requests, so that there are never more entries than requests.
type load struct {
	mu     sync.Mutex
	actors map[string]*actorLoad
	bytes  int64

	maxRequests int   // of one actor, without the spare ones
	maxBytes    int64 // of bodies, in all
}

type actorLoad struct {
	requests int
	bytes    int64
}

func newLoad(maxRequests int, maxBytes int64) *load {
	return &load{actors: map[string]*actorLoad{}, maxRequests: maxRequests, maxBytes: maxBytes}
}

// slot is one request in flight. It belongs to one goroutine.
type slot struct {
	load  *load
	actor string
	bytes int64
	spare bool // only a message that ends by itself may use it
}

// enter takes a slot, which must be left; nil when the actor has too many.
func (l *load) enter(actor string) *slot {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.actors[actor]
	if a == nil {
		a = &actorLoad{}
		l.actors[actor] = a
	}
	if a.requests >= l.maxRequests+spareInFlight {
		return nil
	}
	a.requests++
	return &slot{load: l, actor: actor, spare: a.requests > l.maxRequests}
}

// take counts n bytes that were read. They count until the slot is left: the
// message is kept for as long as it is answered.
func (s *slot) take(n int) error {
	l := s.load
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.actors[s.actor]
	switch {
	case l.bytes+int64(n) > l.maxBytes:
		return errFull
	case a.bytes+int64(n) > l.maxBytes/actorShare:
		return errActorFull
	}
	s.bytes += int64(n)
	a.bytes += int64(n)
	l.bytes += int64(n)
	return nil
}

func (s *slot) leave() {
	l := s.load
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.actors[s.actor]
	a.requests--
	a.bytes -= s.bytes
	l.bytes -= s.bytes
	if a.requests == 0 {
		delete(l.actors, s.actor)
	}
}

// counted reads a body on a slot's account.
type counted struct {
	from io.Reader
	slot *slot
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	if full := c.slot.take(n); full != nil {
		return 0, full
	}
	return n, err
}

// admit tells whether a message that was read may be answered: the spare slots
// are for what needs no waiting.
func (s *slot) admit(w http.ResponseWriter, f action.Frame) bool {
	if s.spare && f.Kind == action.Request {
		busy(w)
		return false
	}
	return true
}

// busy answers an actor that has too much in flight.
func busy(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "1")
	problem(w, http.StatusTooManyRequests, "this caller has too many requests in flight; wait for answers, or cancel")
}
