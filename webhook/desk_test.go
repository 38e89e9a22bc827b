package webhook

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
)

// desk is a record-keeping stand-in for the store: real judging by
// approvals.Eligible, first decision wins, repeated nonces repeat their answer.
type desk struct {
	mu      sync.Mutex
	now     func() time.Time
	tickets map[string]approvals.Ticket
	links   map[string][2]string
	nonces  map[string]string
	votes   []approvals.Vote // counted
	refused []approvals.Vote
	adopted []approvals.Ref
	calls   []string              // everything that could change something
	fail    error                 // of every call
	lose    bool                  // Decide happens, its answer is lost
	block   func(context.Context) // runs in Ticket, before it answers
}

func (d *desk) Ticket(ctx context.Context, id string) (approvals.Ticket, error) {
	if d.block != nil {
		d.block(ctx)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fail != nil {
		return approvals.Ticket{}, d.fail
	}
	t, ok := d.tickets[id]
	if !ok {
		return approvals.Ticket{}, approvals.NotFound
	}
	return t, nil
}

func (d *desk) Decide(_ context.Context, v approvals.Vote) (approvals.Ticket, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, "decide")
	if d.fail != nil {
		return approvals.Ticket{}, d.fail
	}
	t, ok := d.tickets[v.ID]
	if !ok {
		return t, approvals.NotFound
	}
	if v.Nonce == "" {
		panic("a vote without a nonce")
	}
	if v.Refused != "" {
		d.refused = append(d.refused, v)
		return t, nil
	}
	mine := v.Verdict.String() + ":" + v.Person
	if seen, again := d.nonces[v.Nonce]; again {
		if seen == mine {
			return t, nil
		}
		return t, approvals.AlreadyVoted
	}
	if c := d.bar(t, v); c != "" {
		return t, c
	}
	d.nonces[v.Nonce] = mine
	d.votes = append(d.votes, v)
	t.Votes = append(t.Votes, approvals.Cast{Requirement: t.Requirements[0].Route, Person: v.Person, Verdict: v.Verdict, Source: v.Source, At: d.now()})
	t.Rev++
	switch {
	case v.Verdict == approvals.Deny:
		t.State, t.By, t.Reason = approvals.Denied, v.Person, v.Reason
	case len(t.Votes) >= t.Requirements[0].Quorum:
		t.State, t.By = approvals.Approved, v.Person
	}
	d.tickets[v.ID] = t
	if d.lose {
		return approvals.Ticket{}, approvals.StoreUnavailable
	}
	return t, nil
}

func (d *desk) bar(t approvals.Ticket, v approvals.Vote) approvals.Conflict {
	st := approvals.Eligible(t.Requirements[0], v.Person, v.Memberships, d.now())
	switch {
	case t.State == approvals.Expired:
		return approvals.IsExpired
	case t.State == approvals.Withdrawn:
		return approvals.IsWithdrawn
	case t.State != approvals.Pending:
		return approvals.AlreadyDecided
	case !d.now().Before(t.Deadline):
		return approvals.IsExpired
	case v.Bound != "" && v.Bound != t.Bound:
		return approvals.WrongDigest
	case v.Bound == "" && v.Source != "admin":
		return approvals.WrongDigest
	case v.Verdict == approvals.Approve && !st.MayApprove:
		return st.Why
	case !st.MayDeny:
		return st.Why
	case v.Link && v.Verdict == approvals.Approve && t.Links != "approve":
		return approvals.NotEligible
	case castBy(t, v.Person, v.Verdict):
		return approvals.AlreadyVoted
	}
	return ""
}

func (d *desk) Adopt(_ context.Context, id string, ref approvals.Ref) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, "adopt")
	d.adopted = append(d.adopted, ref)
	return d.fail
}

func (d *desk) Link(_ context.Context, token string) (string, string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fail != nil {
		return "", "", d.fail
	}
	l, ok := d.links[token]
	if !ok {
		return "", "", approvals.NotFound
	}
	return l[0], l[1], nil
}

func (d *desk) List(_ context.Context, states []approvals.State, max int) ([]approvals.Ticket, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []approvals.Ticket
	for _, t := range d.tickets {
		if len(out) < max && (len(states) == 0 || states[0] == t.State) {
			out = append(out, t)
		}
	}
	return out, d.fail
}

func (d *desk) End(_ context.Context, id string, to approvals.State, cause, by, why string) (approvals.Ticket, error) {
	return d.move(id, "end", func(t *approvals.Ticket) approvals.Conflict {
		if t.State != approvals.Approved {
			return approvals.AlreadyUsed
		}
		t.State, t.Cause, t.By, t.Reason = to, cause, by, why
		return ""
	})
}

func (d *desk) Resolve(_ context.Context, id string, ran bool, by, note string) (approvals.Ticket, error) {
	return d.move(id, "resolve", func(t *approvals.Ticket) approvals.Conflict {
		if t.State != approvals.Unknown {
			return approvals.AlreadyDecided
		}
		t.State, t.By, t.Reason = approvals.NotRun, by, note
		if ran {
			t.State = approvals.Succeeded
		}
		return ""
	})
}

func (d *desk) move(id, name string, f func(*approvals.Ticket) approvals.Conflict) (approvals.Ticket, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, name)
	t, ok := d.tickets[id]
	if !ok {
		return t, approvals.NotFound
	}
	if c := f(&t); c != "" {
		return t, c
	}
	d.tickets[id] = t
	return t, nil
}

func (d *desk) set(f func(*approvals.Ticket)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.tickets[theID]
	f(&t)
	d.tickets[theID] = t
}

func (d *desk) ticket() approvals.Ticket { t, _ := d.Ticket(context.Background(), theID); return t }

func (d *desk) changes() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]string{}, d.calls...)
}

// directory answers for Slack.
type directory struct {
	mu     sync.Mutex
	people map[string]string
	groups map[string][]string // by person
	errs   map[string]error    // by Slack user
	fail   error
	asked  int
	now    func() time.Time
}

func (d *directory) Person(_ context.Context, user, team, enterprise string) (string, approvals.Memberships, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked++
	if d.fail != nil {
		return "", approvals.Memberships{}, d.fail
	}
	p := d.people[user]
	return p, approvals.Memberships{Groups: d.groups[p], AsOf: d.now()}, d.errs[user]
}

func (d *directory) Memberships(_ context.Context, person string) (approvals.Memberships, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked++
	return approvals.Memberships{Groups: d.groups[person], AsOf: d.now()}, d.fail
}

// mouth keeps the sentences that people were told.
type mouth struct {
	said chan string
	fail error
}

func (m *mouth) Ephemeral(_ context.Context, _, text string) error { m.said <- text; return m.fail }

func (m *mouth) hear(t *testing.T) string {
	t.Helper()
	select {
	case s := <-m.said:
		return s
	case <-time.After(5 * time.Second):
		t.Fatal("the clicker was told nothing")
		return ""
	}
}

func (m *mouth) silent(t *testing.T, s *Server) {
	t.Helper()
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case text := <-m.said:
		t.Fatalf("the clicker was told %q", text)
	default:
	}
}
