package server

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"sync"
	"time"

	"github.com/countersign-mcp/countersign/approvals/action"
)

// session is what an older client opened with initialize, or one stdio
// connection. It belongs to one actor and one front.
type session struct {
	id      string
	actor   string
	front   string
	version string // negotiated
	client  string // clientInfo.name
	line    *line

	ctx  context.Context // ends with the session
	stop context.CancelCauseFunc

	flights flights

	// Guarded by sessions.mu.
	busy int
	used time.Time
	idle *time.Timer
}

// sessions are the HTTP sessions of this process.
type sessions struct {
	idle          time.Duration
	max, perActor int

	mu  sync.Mutex
	all map[string]*session
	own map[string]int // sessions by actor
}

func newSessions(idle time.Duration, maxAll, perActor int) *sessions {
	return &sessions{idle: idle, max: maxAll, perActor: perActor, all: map[string]*session{}, own: map[string]int{}}
}

// add registers a session and gives it its id. False when there is no room: the
// actor's own idle sessions make room, another actor's never do.
func (t *sessions) add(s *session) bool {
	t.mu.Lock()
	var out *session
	if t.own[s.actor] >= t.perActor || len(t.all) >= t.max {
		if out = t.oldestIdle(s.actor); out == nil {
			t.mu.Unlock()
			return false
		}
		t.remove(out)
	}
	s.id = rand.Text()
	s.used = time.Now()
	t.all[s.id] = s
	t.own[s.actor]++
	s.idle = time.AfterFunc(t.idle, func() { t.expire(s) })
	t.mu.Unlock()
	if out != nil {
		out.end()
	}
	return true
}

func (t *sessions) oldestIdle(actor string) *session {
	var out *session
	for _, s := range t.all {
		if s.actor == actor && s.busy == 0 && (out == nil || s.used.Before(out.used)) {
			out = s
		}
	}
	return out
}

// remove takes s out of the table. The caller holds mu and ends s afterwards.
func (t *sessions) remove(s *session) {
	if t.all[s.id] != s {
		return
	}
	delete(t.all, s.id)
	if t.own[s.actor]--; t.own[s.actor] == 0 {
		delete(t.own, s.actor)
	}
	s.idle.Stop()
}

func (t *sessions) expire(s *session) {
	t.mu.Lock()
	if t.all[s.id] != s || s.busy > 0 || time.Since(s.used) < t.idle {
		t.mu.Unlock()
		return
	}
	t.remove(s)
	t.mu.Unlock()
	s.end()
}

// use finds a session and keeps it from ending of idleness until release.
func (t *sessions) use(id string) *session {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.all[id]
	if s == nil {
		return nil
	}
	s.busy++
	s.idle.Stop()
	return s
}

func (t *sessions) release(s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.busy--
	s.used = time.Now()
	if s.busy == 0 && t.all[s.id] == s {
		s.idle.Reset(t.idle)
	}
}

// drop ends a session for good.
func (t *sessions) drop(s *session) {
	t.mu.Lock()
	t.remove(s)
	t.mu.Unlock()
	s.end()
}

func (t *sessions) closeAll() { t.dropAll(func(*session) bool { return true }) }

// dropAll ends all sessions of which which is true.
func (t *sessions) dropAll(which func(*session) bool) {
	t.mu.Lock()
	list := make([]*session, 0, len(t.all))
	for _, s := range t.all {
		if which(s) {
			list = append(list, s)
		}
	}
	for _, s := range list {
		t.remove(s)
	}
	t.mu.Unlock()
	for _, s := range list {
		s.end()
	}
}

func (t *sessions) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.all)
}

// end ends the session's waits and its line.
func (s *session) end() {
	s.stop(errEnded)
	if s.line != nil {
		s.line.close()
	}
}

// flights are the requests of one session that are not answered yet, by the
// decoded value of their id: "a" and "\u0061" are the same request.
type flights struct {
	mu  sync.Mutex
	all map[string]*flight
}

type flight struct {
	key     string
	cancel  context.CancelCauseFunc
	waiting bool // its call is parked or held
}

// add registers a request; false when its id is in flight already.
func (f *flights) add(id json.RawMessage, cancel context.CancelCauseFunc) (*flight, bool) {
	key, ok := idKey(id)
	if !ok {
		return nil, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, busy := f.all[key]; busy {
		return nil, false
	}
	if f.all == nil {
		f.all = map[string]*flight{}
	}
	fl := &flight{key: key, cancel: cancel}
	f.all[key] = fl
	return fl, true
}

// remove forgets a request; once is enough, and twice is harmless.
func (f *flights) remove(fl *flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.all[fl.key] == fl {
		delete(f.all, fl.key)
	}
}

// cancel ends the request that id names, if it is still in flight, and frees its
// id: nothing will be answered to it. Both happen under the lock that remove
// takes, so that a request is either answered or cancelled.
func (f *flights) cancel(id json.RawMessage, why error) {
	key, ok := idKey(id)
	if !ok {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if fl := f.all[key]; fl != nil {
		delete(f.all, key)
		fl.cancel(why)
	}
}

// setWaiting marks a request as one that waits for a person.
func (f *flights) setWaiting(fl *flight) {
	f.mu.Lock()
	fl.waiting = true
	f.mu.Unlock()
}

// cancelAll ends all requests, or only those that wait for a person.
func (f *flights) cancelAll(onlyWaiting bool, why error) {
	f.mu.Lock()
	var list []*flight
	for _, fl := range f.all {
		if fl.waiting || !onlyWaiting {
			list = append(list, fl)
		}
	}
	f.mu.Unlock()
	for _, fl := range list {
		fl.cancel(why)
	}
}

// idKey is an id's decoded value, with its type. An integer has one writing only
// (action.Parse sees to that for requests; a cancellation's is compared as it is).
func idKey(id json.RawMessage) (string, bool) {
	if len(id) == 0 {
		return "", false
	}
	if text, ok := action.Text(id); ok {
		return "s" + text, true
	}
	if c := id[0]; c == '-' || ('0' <= c && c <= '9') {
		return "n" + string(id), true
	}
	return "", false
}
