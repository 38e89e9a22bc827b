package gate

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/approvals/ledger"
)

// badStore is the real store, but for the steps that a test bends.
type badStore struct {
	Store
	mu   sync.Mutex
	bend map[string]func(real func() error) error
}

// on bends one method: f may call the real one, before or after failing.
func (s *badStore) on(method string, f func(real func() error) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bend == nil {
		s.bend = map[string]func(func() error) error{}
	}
	s.bend = maps.Clone(s.bend)
	s.bend[method] = f
}

func (s *badStore) do(method string, real func() error) error {
	s.mu.Lock()
	f := s.bend[method]
	s.mu.Unlock()
	if f == nil {
		return real()
	}
	return f(real)
}

func (s *badStore) Park(ctx context.Context, p approvals.Park) (t approvals.Ticket, fresh bool, err error) {
	err = s.do("Park", func() (e error) { t, fresh, e = s.Store.Park(ctx, p); return e })
	return t, fresh, err
}

func (s *badStore) Load(ctx context.Context, id string, who action.Actor) (p approvals.Parked, err error) {
	err = s.do("Load", func() (e error) { p, e = s.Store.Load(ctx, id, who); return e })
	return p, err
}

func (s *badStore) Recount(p approvals.Parked) error {
	return s.do("Recount", func() error { return s.Store.Recount(p) })
}

func (s *badStore) Claim(ctx context.Context, id string, rev uint64, d action.Digest, nonce string, policy action.Digest) (g approvals.Grant, err error) {
	err = s.do("Claim", func() (e error) { g, e = s.Store.Claim(ctx, id, rev, d, nonce, policy); return e })
	return g, err
}

func (s *badStore) Renew(ctx context.Context, g approvals.Grant) error {
	return s.do("Renew", func() error { return s.Store.Renew(ctx, g) })
}

func (s *badStore) Finish(ctx context.Context, g approvals.Grant, o approvals.Outcome) (t approvals.Ticket, err error) {
	err = s.do("Finish", func() (e error) { t, e = s.Store.Finish(ctx, g, o); return e })
	return t, err
}

func (s *badStore) Wait(ctx context.Context, id string, rev uint64) (t approvals.Ticket, err error) {
	err = s.do("Wait", func() (e error) { t, e = s.Store.Wait(ctx, id, rev); return e })
	return t, err
}

func (s *badStore) NotifierAlive(ctx context.Context) (ok bool, err error) {
	err = s.do("NotifierAlive", func() (e error) { ok, e = s.Store.NotifierAlive(ctx); return e })
	return ok, err
}

func (s *badStore) Labels(ctx context.Context, actor, session string) (l []string, err error) {
	err = s.do("Labels", func() (e error) { l, e = s.Store.Labels(ctx, actor, session); return e })
	return l, err
}

func (s *badStore) AddLabels(ctx context.Context, actor, session string, labels []string) (l []string, err error) {
	err = s.do("AddLabels", func() (e error) { l, e = s.Store.AddLabels(ctx, actor, session, labels); return e })
	return l, err
}

func (s *badStore) Pins(ctx context.Context, server string, tools ...string) (p approvals.Pins, err error) {
	step := "Pins"
	if len(tools) > 0 {
		step = "Pins of one tool"
	}
	err = s.do(step, func() (e error) { p, e = s.Store.Pins(ctx, server, tools...); return e })
	return p, err
}

func (s *badStore) Pin(ctx context.Context, server string, under *approvals.Grant, ps ...approvals.Pin) error {
	return s.do("Pin", func() error { return s.Store.Pin(ctx, server, under, ps...) })
}

func (s *badStore) RefusePins(ctx context.Context, server string, changes []action.Digest, approval, by string) error {
	return s.do("RefusePins", func() error { return s.Store.RefusePins(ctx, server, changes, approval, by) })
}

func (s *badStore) TurnToAsk(ctx context.Context, server string, mine approvals.Turn, rest time.Duration) (t approvals.Turn, err error) {
	err = s.do("TurnToAsk", func() (e error) { t, e = s.Store.TurnToAsk(ctx, server, mine, rest); return e })
	return t, err
}

var errLostReply = errors.Join(approvals.StoreUnavailable, errors.New("the reply was lost"))

// loseReply lets a step happen and loses its reply, n times.
func loseReply(n int) func(func() error) error {
	var mu sync.Mutex
	return func(real func() error) error {
		err := real()
		mu.Lock()
		defer mu.Unlock()
		if n > 0 && err == nil {
			n--
			return errLostReply
		}
		return err
	}
}

// badLedger is the real ledger, but for the records that a test refuses.
type badLedger struct {
	Ledger
	mu      sync.Mutex
	refuse  func(r ledger.Record) bool
	before  func(r ledger.Record)
	started func(id string) (bool, error)
}

func (l *badLedger) Append(ctx context.Context, recs ...ledger.Record) (ledger.Pos, error) {
	l.mu.Lock()
	refuse, before := l.refuse, l.before
	l.mu.Unlock()
	for _, r := range recs {
		if before != nil {
			before(r)
		}
		if refuse != nil && refuse(r) {
			return ledger.Pos{}, ledger.ErrUnwritable
		}
	}
	return l.Ledger.Append(ctx, recs...)
}

func (l *badLedger) Started(id string) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.started != nil {
		return l.started(id)
	}
	return l.Ledger.Started(id)
}

// refuseEvent makes the ledger unwritable for one kind of record.
func (l *badLedger) refuseEvent(e ledger.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refuse = func(r ledger.Record) bool { return r.Event == e }
}

// at runs f before a record of this kind is written.
func (l *badLedger) at(e ledger.Event, f func(ledger.Record)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.before = func(r ledger.Record) {
		if r.Event == e {
			f(r)
		}
	}
}
