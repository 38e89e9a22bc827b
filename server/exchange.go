package server

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/server/gate"
)

// stream is one request's way back to its caller. Its methods are called from one
// goroutine. Their errors mean that the caller can't be reached any more.
type stream interface {
	comment() error
	notify(method string, params json.RawMessage) error
	answer(id json.RawMessage, a gate.Answer) error
	silent() // the request was cancelled: end without an answer
}

// exchange is one request that is being answered.
type exchange struct {
	s      *Server
	out    stream
	token  json.RawMessage // the client's progress token; nil when none
	held   func()          // called when the call waits for a person; may be nil
	lost   func(error)     // called when the caller can't be reached; may be nil
	landed func()          // called before the answer is written; may be nil
	broken bool            // it can't
	box    mailbox         // news from the gate
	wait   gate.Update     // the last word on what the call waits for
	until  time.Time       // when the wait ends by itself
	last   float64         // progress value sent last
	sent   bool            // one was
}

// run asks and keeps the stream alive until there is an answer. All writing is
// done here, on the caller's goroutine.
func (x *exchange) run(ask func(tell func(gate.Update)) gate.Answer) gate.Answer {
	x.box.ready = make(chan struct{}, 1)
	done := make(chan gate.Answer, 1)
	go func() { done <- x.s.guarded(func() gate.Answer { return ask(x.box.put) }) }()

	keep := time.NewTicker(x.s.cfg.Keepalive)
	defer keep.Stop()
	var beat <-chan time.Time
	for {
		select {
		case a := <-done:
			x.news() // what was told before the answer goes out before it
			return a
		case <-x.box.ready:
			if x.news() && beat == nil && x.token != nil {
				t := time.NewTicker(x.s.cfg.Progress)
				defer t.Stop()
				beat = t.C
			}
		case <-beat:
			x.tellWaiting()
		case <-keep.C:
			x.write(x.out.comment)
		}
	}
}

// news writes what the gate told; true when the call waits for a person.
func (x *exchange) news() (waiting bool) {
	wait, progress := x.box.take()
	if wait != nil {
		x.wait, x.until = *wait, time.Time{}
		if wait.Left > 0 {
			x.until = time.Now().Add(wait.Left)
		}
		if x.held != nil {
			x.held()
		}
		x.write(x.out.comment)
		x.tellWaiting()
	}
	for _, params := range progress {
		x.relay(params)
	}
	return wait != nil
}

// The step between two of our own progress values. It is so small that an
// upstream that counts from 0 or in fractions of 1 goes on above it.
const progressStep = 1e-6

// above is the next progress value. Where numbers are so large that the step is
// lost between two of them, it is the next number there is.
func above(v float64) float64 { return max(v+progressStep, math.Nextafter(v, math.MaxFloat64)) }

func (x *exchange) tellWaiting() {
	if x.token == nil || x.wait.Waiting == "" {
		return
	}
	if x.last == math.MaxFloat64 {
		return // nothing is above it
	}
	x.last = above(x.last)
	x.sent = true
	b := append([]byte(`{"progressToken":`), x.token...)
	b = append(b, `,"progress":`...)
	b = append(b, number(x.last)...)
	b = append(b, `,"message":`...)
	b = append(b, quote(x.waitingText())...)
	b = append(b, '}')
	x.write(func() error { return x.out.notify("notifications/progress", b) })
}

func (x *exchange) waitingText() string {
	left := time.Until(x.until).Round(time.Second)
	if x.until.IsZero() || left <= 0 {
		return x.wait.Waiting
	}
	return fmt.Sprintf("%s (%d:%02d left)", x.wait.Waiting, int(left.Minutes()), int(left.Seconds())%60)
}

// relay passes an upstream's progress on, with the client's token and all else as
// sent. The value is moved only where it would not increase, which clients reject.
func (x *exchange) relay(params json.RawMessage) {
	if x.token == nil {
		return
	}
	raw, _ := action.Member(params, "progress")
	v, err := strconv.ParseFloat(string(raw), 64)
	if err != nil {
		return // not a progress notification
	}
	if x.sent && v <= x.last {
		if x.last == math.MaxFloat64 {
			return // nothing is above it
		}
		v = above(x.last)
		params = action.SetMember(params, "progress", number(v))
	}
	x.last, x.sent = v, true
	params = action.SetMember(params, "progressToken", x.token)
	x.write(func() error { return x.out.notify("notifications/progress", params) })
}

func number(v float64) json.RawMessage { return strconv.AppendFloat(nil, v, 'f', -1, 64) }

func (x *exchange) write(do func() error) {
	if x.broken {
		return
	}
	if err := do(); err != nil {
		x.broken = true
		if x.lost != nil {
			x.lost(err)
		}
	}
}

// guarded turns a panic below the edge into an error for this caller alone.
func (s *Server) guarded(do func() gate.Answer) (a gate.Answer) {
	defer func() {
		if p := recover(); p != nil {
			s.cfg.Log.Error("panic while answering a call", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			a = gate.Answer{Error: failure(codeInternal, "internal error")}
		}
	}()
	a = do()
	if a.Error == nil && len(a.Result) == 0 {
		return gate.Answer{Error: failure(codeInternal, "internal error: no answer")}
	}
	return a
}

// Progress that a client is too slow to take is dropped, oldest first: it is a
// hint, and whoever tells must not be held up.
const mailboxMax = 64

// mailbox takes news without ever blocking the teller.
type mailbox struct {
	ready chan struct{}

	mu       sync.Mutex
	wait     *gate.Update
	progress []json.RawMessage
}

func (m *mailbox) put(u gate.Update) {
	m.mu.Lock()
	if u.Waiting != "" {
		m.wait = &u
	}
	if len(u.Progress) > 0 {
		if len(m.progress) == mailboxMax {
			m.progress = m.progress[1:]
		}
		m.progress = append(m.progress, u.Progress)
	}
	m.mu.Unlock()
	select {
	case m.ready <- struct{}{}:
	default:
	}
}

func (m *mailbox) take() (*gate.Update, []json.RawMessage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	wait, progress := m.wait, m.progress
	m.wait, m.progress = nil, nil
	return wait, progress
}

// caller is who sent a request and over what.
type caller struct {
	actor   action.Actor
	front   string
	session string // id; "" when the era has none
	version string
	client  string
	modern  bool
	until   context.Context // over HTTP: ends when the request's token is found invalid
}

const (
	methodList = "tools/list"
	methodCall = "tools/call"
)

// data answers tools/list and tools/call. It returns when the answer is written,
// or when the request was cancelled.
func (s *Server) data(ctx context.Context, who caller, f action.Frame, x *exchange) {
	p, bad := split(f)
	var a gate.Answer
	switch {
	case bad != nil:
		s.misfit(ctx, who, f, bad)
		a = gate.Answer{Error: bad}
	case f.Method == methodList:
		x.token = p.token
		a = x.run(func(func(gate.Update)) gate.Answer {
			return s.cfg.Gate.Tools(ctx, who.front, who.actor, listParams(f, p))
		})
	default:
		x.token = p.token
		r := request(who, f, p)
		a = x.run(func(tell func(gate.Update)) gate.Answer {
			r.Tell = tell
			return s.cfg.Gate.Call(ctx, r)
		})
	}
	if x.landed != nil {
		x.landed() // the client may use the id again as soon as it reads the answer
	}
	switch who.ended(ctx) {
	case nil, errShutdown:
	case errRevoked:
		a = gate.Answer{Error: failure(codeInvalidRequest, sayRevoked)}
	default:
		x.out.silent()
		return
	}
	if who.modern {
		a = finishResult(f.Method, a)
	}
	x.write(func() error { return x.out.answer(f.ID, a) })
}

func request(who caller, f action.Frame, p parts) gate.Request {
	args := f.Args
	if args == nil {
		args = json.RawMessage("{}")
	}
	return gate.Request{
		Front: who.front, Name: f.Name, Client: who.client, Provenance: p.claim,
		Call: action.Call{
			Args: args, Meta: p.meta, Extra: p.extra, Actor: who.actor,
			Session: cmp.Or(who.session, p.session), Workflow: p.workflow, IdemKey: p.idemKey,
			Version: who.version, RequestID: f.ID,
		},
	}
}
