package notifier_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/notifier"
)

// book is a store in memory that obeys the Book contract, with time that a test
// can move.
type book struct {
	mu      sync.Mutex
	tickets map[string]approvals.Ticket
	opened  map[string]string // attempts, by id and channel
	leases  map[string]lease
	outbox  []*entry
	serial  int
	news    chan struct{} // closed when an entry comes

	idle  time.Duration // a nudge that is not done for so long is given to another
	down  bool
	marks func(owner string, m approvals.Mark) error // before a mark is written
	alive time.Time
}

type lease struct {
	owner string
	until time.Time
}

type entry struct {
	approvals.Nudge
	owner string
	given time.Time
}

func newBook() *book {
	return &book{
		tickets: map[string]approvals.Ticket{}, opened: map[string]string{}, leases: map[string]lease{},
		news: make(chan struct{}), idle: 20 * time.Second,
	}
}

var errDown = errors.New("the store is down")

// set writes a record's next version and its nudge, in one step.
func (b *book) set(id string, change func(*approvals.Ticket)) approvals.Ticket {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.tickets[id]
	t.ID = id
	if change != nil {
		change(&t)
	}
	t.Rev++
	b.tickets[id] = t
	b.nudge(id)
	return t
}

func (b *book) nudge(id string) {
	b.serial++
	b.outbox = append(b.outbox, &entry{Nudge: approvals.Nudge{EntryID: fmt.Sprint(b.serial), ID: id}})
	close(b.news)
	b.news = make(chan struct{})
}

func (b *book) ticket(id string) approvals.Ticket {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.tickets[id]
}

func (b *book) pending() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.outbox)
}

func (b *book) fail(down bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.down = down
}

// view is the book as one dispatcher has it.
type view struct {
	*book
	owner string
}

func (v view) Nudges(ctx context.Context, consumer string, most int, block time.Duration) ([]approvals.Nudge, error) {
	timer := time.NewTimer(block)
	defer timer.Stop()
	for {
		v.mu.Lock()
		if v.down {
			v.mu.Unlock()
			return nil, errDown
		}
		var out []approvals.Nudge
		for _, e := range v.outbox {
			if len(out) < most && (e.owner == "" || time.Since(e.given) >= v.idle) {
				e.owner, e.given = consumer, time.Now()
				out = append(out, e.Nudge)
			}
		}
		news := v.news
		v.mu.Unlock()
		if len(out) > 0 {
			return out, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-timer.C:
			return nil, nil
		case <-news:
		}
	}
}

func (v view) Done(_ context.Context, n approvals.Nudge) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.down {
		return errDown
	}
	v.outbox = slices.DeleteFunc(v.outbox, func(e *entry) bool { return e.EntryID == n.EntryID })
	return nil
}

func (v view) Ticket(_ context.Context, id string) (approvals.Ticket, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.down {
		return approvals.Ticket{}, errDown
	}
	t, ok := v.tickets[id]
	if !ok {
		return t, fmt.Errorf("reading: %w", approvals.NotFound)
	}
	t.Refs, t.Troubles = slices.Clone(t.Refs), slices.Clone(t.Troubles)
	return t, nil
}

func (v view) Lease(_ context.Context, id, owner string, ttl time.Duration) (bool, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.down {
		return false, errDown
	}
	if l := v.leases[id]; l.owner != "" && l.owner != owner && time.Now().Before(l.until) {
		return false, nil
	}
	v.leases[id] = lease{owner, time.Now().Add(ttl)}
	return true, nil
}

func (v view) Unlease(_ context.Context, id, owner string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.down {
		return errDown
	}
	if v.leases[id].owner == owner {
		delete(v.leases, id)
	}
	return nil
}

func (v view) Mark(_ context.Context, id string, m approvals.Mark) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.down {
		return errDown
	}
	if v.marks != nil {
		if err := v.marks(v.owner, m); err != nil {
			return err
		}
	}
	t, ok := v.tickets[id]
	if !ok {
		return approvals.NotFound
	}
	if m.Attempt != "" {
		v.opened[id+m.Channel] = m.Attempt
	}
	if m.Ref != nil {
		delete(v.opened, id+m.Channel)
		t.Refs = slices.DeleteFunc(slices.Clone(t.Refs), func(r approvals.Ref) bool { return r.Channel == m.Channel })
		t.Refs = append(t.Refs, *m.Ref)
	}
	t.Troubles = slices.DeleteFunc(slices.Clone(t.Troubles), func(x approvals.Trouble) bool { return x.Channel == m.Channel })
	if m.Trouble != nil {
		t.Troubles = append(t.Troubles, *m.Trouble)
	}
	v.tickets[id] = t
	return nil
}

func (v view) Attempt(_ context.Context, id, channel string) (string, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.down {
		return "", errDown
	}
	return v.opened[id+channel], nil
}

func (v view) Alive(context.Context) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.down {
		return errDown
	}
	v.alive = time.Now()
	return nil
}

// board is a place with messages. It fails the test when a card goes back to an
// older version or two deliveries of one approval overlap.
type board struct {
	tb testing.TB

	mu      sync.Mutex
	cards   map[string]*card // by reference id
	calls   []call
	flying  map[string]int
	took    time.Duration                     // of a delivery
	trouble func(call) (*notifier.Fail, bool) // a failure, and whether it comes after the commit
	serial  int
	pace    time.Duration
}

type card struct {
	id, channel, approval string
	versions              []uint64
	gone                  bool
}

type call struct {
	kind string // "post", "edit", "find"
	notifier.Message
	at time.Time
}

func newBoard(tb testing.TB) *board {
	return &board{tb: tb, cards: map[string]*card{}, flying: map[string]int{}}
}

func (b *board) Pace() time.Duration { return b.pace }

func (b *board) Deliver(ctx context.Context, m notifier.Message) (approvals.Ref, error) {
	b.enter(m.Ticket.ID)
	defer b.leave(m.Ticket.ID)
	if b.took > 0 {
		timer := time.NewTimer(b.took)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return approvals.Ref{}, &notifier.Fail{Reason: notifier.Unreachable, Maybe: true}
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	c := call{kind: "edit", Message: m, at: time.Now()}
	if m.Ref == nil {
		if c.kind = "post"; m.Find {
			c.kind = "find"
		}
	}
	b.calls = append(b.calls, c)
	var f *notifier.Fail
	late := false
	if b.trouble != nil {
		f, late = b.trouble(c)
	}
	if f != nil && !late {
		return approvals.Ref{}, f
	}
	r, err := b.carryOut(m)
	if f != nil {
		return approvals.Ref{}, f
	}
	return r, err
}

func (b *board) carryOut(m notifier.Message) (approvals.Ref, error) {
	if m.Ref != nil {
		c := b.cards[m.Ref.ID]
		if c == nil || c.gone {
			return approvals.Ref{}, &notifier.Fail{Reason: notifier.Gone}
		}
		if last := c.versions[len(c.versions)-1]; m.Ticket.Rev < last {
			b.tb.Errorf("%s goes back from %d to %d", c.id, last, m.Ticket.Rev)
		}
		c.versions = append(c.versions, m.Ticket.Rev)
		return approvals.Ref{ID: c.id, Rev: m.Ticket.Rev}, nil
	}
	if m.Attempt != "" {
		for _, c := range b.cards {
			if c.approval == m.Ticket.ID && c.channel == m.Channel && !c.gone {
				return approvals.Ref{ID: c.id}, nil
			}
		}
	}
	if m.Find {
		return approvals.Ref{}, nil
	}
	b.serial++
	c := &card{id: fmt.Sprintf("card%d", b.serial), channel: m.Channel, approval: m.Ticket.ID, versions: []uint64{m.Ticket.Rev}}
	b.cards[c.id] = c
	return approvals.Ref{ID: c.id, Rev: m.Ticket.Rev}, nil
}

func (b *board) enter(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.flying[id]++; b.flying[id] > 1 {
		b.tb.Errorf("two deliveries of %s at the same time", id)
	}
}

func (b *board) leave(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.flying[id]--
}

// of lists the cards of an approval that still exist.
func (b *board) of(id string) []card {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []card
	for _, c := range b.cards {
		if c.approval == id && !c.gone {
			out = append(out, *c)
		}
	}
	return out
}

func (b *board) made(kind string) []call {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []call
	for _, c := range b.calls {
		if kind == "" || c.kind == kind {
			out = append(out, c)
		}
	}
	return out
}

func (b *board) troubled(f func(call) (*notifier.Fail, bool)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.trouble = f
}

func (b *board) remove(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.cards {
		if c.approval == id {
			c.gone = true
		}
	}
}

// shows is the version that the only card of an approval shows; 0 without one.
func (b *board) shows(id string) uint64 {
	cards := b.of(id)
	if len(cards) > 1 {
		b.tb.Errorf("%s has %d cards", id, len(cards))
	}
	if len(cards) == 0 {
		return 0
	}
	v := cards[0].versions
	return v[len(v)-1]
}
