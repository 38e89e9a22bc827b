package slacktest

import "net/http"

// Fault is what goes wrong with one call. The zero Fault is no fault.
type Fault struct {
	// Commit carries the call out before the fault shows: the caller can't
	// tell it from one that wasn't.
	Commit bool
	// Drop closes the connection without an answer.
	Drop bool
	// Status answers with this HTTP status and no useful body.
	Status int
	// RetryAfter, in seconds, is sent with Status when it isn't negative.
	RetryAfter int
	// Code answers 200 with {"ok":false,"error":Code}.
	Code string
	// Empty answers {"ok":false} with no error at all.
	Empty bool
	// Hold delays the call until the channel is closed, the caller gives up
	// or the test ends: before it is carried out, or, with Commit, between
	// that and the answer.
	Hold <-chan struct{}
}

// DropAfterCommit carries the call out and closes the connection.
func DropAfterCommit() Fault { return Fault{Commit: true, Drop: true} }

// DropBefore closes the connection and does nothing.
func DropBefore() Fault { return Fault{Drop: true} }

// ErrorAfterCommit carries the call out and answers 500.
func ErrorAfterCommit() Fault {
	return Fault{Commit: true, Status: http.StatusInternalServerError, RetryAfter: -1}
}

// ErrorBefore answers 500 and does nothing.
func ErrorBefore() Fault { return Fault{Status: http.StatusInternalServerError, RetryAfter: -1} }

// TooMany answers 429 with Retry-After; a negative number leaves the header out.
func TooMany(retryAfterSeconds int) Fault {
	return Fault{Status: http.StatusTooManyRequests, RetryAfter: retryAfterSeconds}
}

// Code answers 200 with this error code and does nothing.
func Code(code string) Fault { return Fault{Code: code} }

// Slow carries the call out only after release is closed.
func Slow(release <-chan struct{}) Fault { return Fault{Hold: release} }

// SlowAnswer carries the call out at once and answers after release is closed.
func SlowAnswer(release <-chan struct{}) Fault { return Fault{Hold: release, Commit: true} }

// FailNext queues faults for a method ("chat.postMessage"), or for any with
// "*": each call uses one up. A fault of the method's own comes before one of "*".
func (s *Slack) FailNext(method string, faults ...Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.once[method] = append(s.once[method], faults...)
}

// FailAlways makes every call of a method ("*" for all) fail until Heal.
// Faults queued by FailNext come first.
func (s *Slack) FailAlways(method string, f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.always[method] = f
}

// Heal ends FailAlways and drops what FailNext queued.
func (s *Slack) Heal(method string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.once, method)
	delete(s.always, method)
}

// Down closes every connection, now and later, without a word, until Up.
func (s *Slack) Down() {
	s.mu.Lock()
	s.down = true
	s.mu.Unlock()
	s.srv.CloseClientConnections()
}

// Up ends Down.
func (s *Slack) Up() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = false
}

// fault takes the next fault of a method. Needs mu.
func (s *Slack) fault(method string) Fault {
	for _, name := range []string{method, "*"} {
		if q := s.once[name]; len(q) > 0 {
			s.once[name] = q[1:]
			return q[0]
		}
	}
	for _, name := range []string{method, "*"} {
		if f, ok := s.always[name]; ok {
			return f
		}
	}
	return Fault{}
}

// ends says whether the fault replaces the answer.
func (f Fault) ends() bool { return f.Drop || f.Status != 0 || f.Code != "" || f.Empty }
