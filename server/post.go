package server

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/server/gate"
)

// servePost reads one message and decides its era.
func (s *Server) servePost(w http.ResponseWriter, r *http.Request, rc *http.ResponseController, on *slot, who caller) {
	if !accepts(w, r) {
		return
	}
	b, ok := s.body(w, r, rc, on)
	if !ok {
		return
	}
	out := &httpStream{w: w, rc: rc, limit: s.cfg.WriteLimit}
	f, err := action.Parse(b, s.cfg.Limits)
	if err != nil {
		e, id := s.malformed(r.Context(), who, err)
		refuse(out, id, e)
		return
	}
	if !on.admit(w, f) {
		return
	}
	version, ok := one(r.Header, headVersion)
	if !ok {
		s.refuse(r, out, who, f, mismatch("%s is given twice", headVersion))
		return
	}
	said, bad := readClaim(f.Meta)
	if f.Kind == action.Request && bad != nil {
		s.refuse(r, out, who, f, bad)
		return
	}
	if f.Kind == action.Request && said.version != "" && said.version != version {
		s.refuse(r, out, who, f, mismatch("%s is not the body's %s", headVersion, metaVersion))
		return
	}
	if modern(version) {
		out.modern, who.modern = true, true
		who.version, who.client = version, said.client
		s.postModern(r, out, who, f, said)
		return
	}
	if version == "" {
		version = assumedVersion
	}
	if !slices.Contains(supportedVersions, version) {
		refuse(out, f.ID, failure(codeInvalidRequest, "unsupported protocol version"))
		return
	}
	who.version = version
	s.postLegacy(r, out, who, f)
}

// refuse answers a request that is wrong in itself.
func refuse(out *httpStream, id json.RawMessage, e *gate.Error) {
	_ = out.json(http.StatusBadRequest, id, gate.Answer{Error: e}) // a client that is gone can't be told
}

// refuse answers a request that doesn't fit what is around it, and tells of it.
func (s *Server) refuse(r *http.Request, out *httpStream, who caller, f action.Frame, e *gate.Error) {
	s.misfit(r.Context(), who, f, e)
	refuse(out, f.ID, e)
}

// postModern answers one message of the stateless era. A session id is ignored,
// as that era's specification asks.
func (s *Server) postModern(r *http.Request, out *httpStream, who caller, f action.Frame, said claim) {
	switch f.Kind {
	case action.Response:
		refuse(out, f.ID, failure(codeInvalidRequest, "a client sends no responses"))
		return
	case action.Notification:
		// The one this era has, notifications/cancelled, is for stdio: over HTTP
		// a client cancels by closing its stream.
		accept(out, f)
		return
	}
	if bad := checkTriple(f.Meta, said); bad != nil {
		s.refuse(r, out, who, f, bad)
		return
	}
	if bad := checkMirror(r.Header, f); bad != nil {
		s.refuse(r, out, who, f, bad)
		return
	}
	switch f.Method {
	case "server/discover":
		_ = out.answer(f.ID, s.sdk.discover(r.Context(), who.front, f.Params))
	case methodList, methodCall:
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		defer s.endWith(s.base, cancel)()
		defer s.endWith(who.until, cancel)()
		x := &exchange{s: s, out: out, lost: func(error) { cancel(errGone) }}
		s.data(ctx, who, f, x)
	default:
		_ = out.answer(f.ID, gate.Answer{Error: failure(codeMethodNotFound, "method not found")})
	}
}

// endWith cancels a call when parent ends, with the parent's cause.
func (s *Server) endWith(parent context.Context, cancel context.CancelCauseFunc) (stop func()) {
	release := context.AfterFunc(parent, func() { cancel(context.Cause(parent)) })
	return func() { release() }
}

// accept takes a notification that nothing follows from. A request's method
// without an id is no notification: it could never be answered.
func accept(out *httpStream, f action.Frame) {
	if !strings.HasPrefix(f.Method, "notifications/") {
		refuse(out, nil, failure(codeInvalidRequest, "a request needs an id"))
		return
	}
	out.w.WriteHeader(http.StatusAccepted)
}

// postLegacy answers one message of the era of sessions.
func (s *Server) postLegacy(r *http.Request, out *httpStream, who caller, f action.Frame) {
	id, ok := one(r.Header, headSession)
	if !ok {
		refuse(out, f.ID, failure(codeInvalidRequest, headSession+" is given twice"))
		return
	}
	if id == "" {
		if f.Kind == action.Request && f.Method == "initialize" {
			s.initialize(r, out, who, f)
			return
		}
		refuse(out, f.ID, failure(codeInvalidRequest, headSession+" is missing: initialize first"))
		return
	}
	sess := s.session(out.w, id, who.actor, who.front)
	if sess == nil {
		return
	}
	defer s.sessions.release(sess)
	who.session, who.version, who.client = sess.id, sess.version, sess.client
	switch f.Kind {
	case action.Response: // nothing was asked of this client
		out.w.WriteHeader(http.StatusAccepted)
	case action.Notification:
		if !strings.HasPrefix(f.Method, "notifications/") {
			refuse(out, nil, failure(codeInvalidRequest, "a request needs an id"))
			return
		}
		s.notified(r.Context(), sess, f)
		out.w.WriteHeader(http.StatusAccepted)
	default:
		s.requested(r, out, who, sess, f)
	}
}

// notified hears a session's notification. Those it has no use for are taken and
// forgotten: there is no way to answer them.
func (s *Server) notified(ctx context.Context, sess *session, f action.Frame) {
	switch f.Method {
	case "notifications/initialized":
		if sess.line != nil {
			sess.line.notify(ctx, f.Method, f.Params)
		}
	case "notifications/cancelled":
		id, _ := action.Member(f.Params, "requestId")
		sess.flights.cancel(id, errCancelled)
	}
}

func (s *Server) requested(r *http.Request, out *httpStream, who caller, sess *session, f action.Frame) {
	switch f.Method {
	case "initialize":
		_ = out.answer(f.ID, gate.Answer{Error: failure(codeInvalidRequest, "this session is initialized")})
	case "ping":
		_ = out.answer(f.ID, sess.line.ask(r.Context(), f.Method, f.Params))
	case methodList, methodCall:
		// The client's connection may break and the call goes on: only a
		// cancellation, the session's end or ours ends it.
		ctx, cancel := context.WithCancelCause(context.WithoutCancel(r.Context()))
		defer cancel(nil)
		fl, ok := sess.flights.add(f.ID, cancel)
		if !ok {
			refuse(out, f.ID, failure(codeInvalidRequest, "a request with this id is in flight"))
			return
		}
		defer sess.flights.remove(fl)
		defer s.endWith(sess.ctx, cancel)()
		defer s.endWith(s.base, cancel)()
		defer s.endWith(who.until, cancel)()
		s.data(ctx, who, f, &exchange{s: s, out: out, landed: func() { sess.flights.remove(fl) }})
	default:
		_ = out.answer(f.ID, gate.Answer{Error: failure(codeMethodNotFound, "method not found")})
	}
}

// session finds the session of a request, or refuses it. The caller releases it.
func (s *Server) session(w http.ResponseWriter, id string, actor action.Actor, front string) *session {
	sess := s.sessions.use(id)
	switch {
	case sess == nil:
	case sess.actor != actor.ID:
		s.sessions.release(sess)
		problem(w, http.StatusForbidden, "this session is another actor's")
		return nil
	case sess.front != front:
		s.sessions.release(sess)
	default:
		return sess
	}
	problem(w, http.StatusNotFound, "no such session: initialize again")
	return nil
}

// initialize opens a session. It is registered before the client hears its id.
func (s *Server) initialize(r *http.Request, out *httpStream, who caller, f action.Frame) {
	sess, a := s.openSession(r.Context(), who, f)
	if sess == nil {
		_ = out.answer(f.ID, a)
		return
	}
	if !s.sessions.add(sess) {
		sess.end()
		out.w.Header().Set("Retry-After", "60")
		problem(out.w, http.StatusServiceUnavailable, "too many sessions")
		return
	}
	out.w.Header().Set(headSession, sess.id)
	_ = out.answer(f.ID, a)
}

// handshakeMax bounds the params of initialize, in bytes: a session keeps them
// for as long as it lives, and one client may have many sessions.
const handshakeMax = 128 << 10

// openSession lets the SDK negotiate; nil when it refused.
func (s *Server) openSession(ctx context.Context, who caller, f action.Frame) (*session, gate.Answer) {
	if len(f.Params) > handshakeMax {
		return nil, gate.Answer{Error: failure(codeInvalidParams, "the params of initialize are longer than 128 KiB")}
	}
	ln, err := s.sdk.open(ctx, who.front)
	if err != nil {
		s.cfg.Log.Error("the handshake could not be opened", "error", err)
		return nil, gate.Answer{Error: failure(codeInternal, "the handshake could not be served")}
	}
	a := ln.ask(ctx, "initialize", f.Params)
	raw, _ := action.Member(a.Result, "protocolVersion")
	version, ok := action.Text(raw)
	if a.Error != nil || !ok {
		ln.close()
		if a.Error == nil {
			a = gate.Answer{Error: failure(codeInternal, "the handshake could not be read")}
		}
		return nil, a
	}
	sess := &session{
		actor: who.actor.ID, front: who.front, version: version,
		client: initializeClient(f.Params), line: ln,
	}
	sess.ctx, sess.stop = context.WithCancelCause(context.Background())
	return sess, a
}

// serveDelete ends a session and the waits in it.
func (s *Server) serveDelete(w http.ResponseWriter, r *http.Request, actor action.Actor, front string) {
	version, ok := one(r.Header, headVersion)
	if !ok {
		problem(w, http.StatusBadRequest, headVersion+" is given twice")
		return
	}
	if modern(version) {
		w.Header().Set("Allow", "POST")
		problem(w, http.StatusMethodNotAllowed, "this protocol version has no sessions")
		return
	}
	id, ok := one(r.Header, headSession)
	if !ok || id == "" {
		problem(w, http.StatusBadRequest, headSession+" is needed, once")
		return
	}
	sess := s.session(w, id, actor, front)
	if sess == nil {
		return
	}
	s.sessions.release(sess)
	s.sessions.drop(sess)
	w.WriteHeader(http.StatusNoContent)
}
