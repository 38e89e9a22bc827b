package server

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/server/gate"
)

// errRevoked: the token that a request came with is not valid any more. The caller
// is told that, and nothing else: not even the answer of its call.
var errRevoked = errors.New("the token is not valid any more")

const sayRevoked = "the token of this caller was removed or changed, so its call is not answered; what it asked people for stays as it is on the record"

// guests are the requests over HTTP that are not answered yet.
type guests struct {
	mu  sync.Mutex
	all map[*guest]struct{}
}

type guest struct {
	valid func() bool // asks the tokens again
	end   context.CancelCauseFunc
}

// admit registers a request. until ends when its token is found invalid by
// Recheck; leave must be called. False when it is invalid by now: the tokens may
// have been exchanged between its check and this.
func (s *Server) admit(r *http.Request, who action.Actor) (until context.Context, leave func(), ok bool) {
	until, end := context.WithCancelCause(context.Background())
	ctx := context.WithoutCancel(r.Context())
	token, _ := bearer(r.Header.Values("Authorization"))
	g := &guest{end: end, valid: func() bool {
		now, ok := s.cfg.Auth.Authenticate(ctx, token)
		return ok && gate.SameActor(now, who)
	}}
	s.guests.mu.Lock()
	s.guests.all[g] = struct{}{}
	s.guests.mu.Unlock()
	leave = func() {
		s.guests.mu.Lock()
		delete(s.guests.all, g)
		s.guests.mu.Unlock()
		end(nil)
	}
	if !g.valid() {
		leave()
		return nil, nil, false
	}
	return until, leave, true
}

// ended is why a call's context ended; nil if it has not. A removed token takes its
// session with it, and either may end the call first: the caller is told of the
// token in both cases.
func (c caller) ended(ctx context.Context) error {
	why := context.Cause(ctx)
	if errors.Is(why, errEnded) && c.until != nil && errors.Is(context.Cause(c.until), errRevoked) {
		return errRevoked
	}
	return why
}

// Recheck is called after the tokens were exchanged: requests that came with a
// token which is not valid any more, or stands for somebody else now, are ended
// and told so, and so are the sessions of actors who have no token left.
func (s *Server) Recheck() {
	s.guests.mu.Lock()
	list := make([]*guest, 0, len(s.guests.all))
	for g := range s.guests.all {
		list = append(list, g)
	}
	s.guests.mu.Unlock()
	for _, g := range list {
		if !g.valid() {
			g.end(errRevoked)
		}
	}
	if k, ok := s.cfg.Auth.(interface{ Knows(actor string) bool }); ok {
		s.sessions.dropAll(func(x *session) bool { return !k.Knows(x.actor) })
	}
}
