package notifier_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"go.uber.org/goleak"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/approvals/keys"
	"github.com/countersign-mcp/countersign/approvals/store"
	"github.com/countersign-mcp/countersign/notifier"
	"github.com/countersign-mcp/countersign/notifier/slack"
	"github.com/countersign-mcp/countersign/notifier/slacktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// loop is the real store on an embedded server, the real Slack channel and a
// fake Slack.
type loop struct {
	t      *testing.T
	fake   *slacktest.Slack
	ring   *keys.Ring
	roster *approvals.Roster
	opt    store.Options
	st     *store.Store
	serial int
}

const room = "C0APPROVALS"

func newLoop(t *testing.T) *loop {
	t.Helper()
	l := &loop{t: t, fake: slacktest.New(t)}
	l.fake.AddUser(slacktest.User{ID: "U0BEN"})
	l.fake.AddChannel(slacktest.Channel{ID: room})
	var err error
	if l.ring, err = keys.NewRing(keys.NewSecret()); err != nil {
		t.Fatal(err)
	}
	if l.roster, err = approvals.NewRoster([]approvals.Person{{ID: "ana"}, {ID: "ben", Slack: "U0BEN"}}, nil); err != nil {
		t.Fatal(err)
	}
	l.opt = store.Options{
		URL: "redis://" + miniredis.RunT(t).Addr(), Embedded: true, Ring: l.ring, Owner: "file-a",
		Log: slog.New(slog.DiscardHandler), NudgeIdle: 300 * time.Millisecond,
	}
	l.st = l.open()
	return l
}

func (l *loop) open() *store.Store {
	l.t.Helper()
	st, err := store.Open(l.t.Context(), l.opt)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { st.Close() })
	return st
}

// park makes a pending approval and returns its id.
func (l *loop) park() string {
	l.t.Helper()
	l.serial++
	id := fmt.Sprintf("op-%d", l.serial)
	args := fmt.Sprintf(`{"order_id":"%d"}`, 1000+l.serial)
	route := approvals.Route{Name: "default", Approvers: []string{"ben"}, Quorum: 1, Timeout: 15 * time.Minute}
	_, fresh, err := l.st.Park(l.t.Context(), approvals.Park{
		Nonce: "park-" + id, Requester: "ana", Title: "Cancel order " + id, View: approvals.View{Text: args},
		Channels: []string{"slack:" + room}, Caps: approvals.DefaultCaps,
		Requirements: []approvals.Requirement{route.Require([]string{"ana"})},
		Envelope: action.Envelope{OperationID: id, Tier: "destructive", Call: action.Call{
			Server: "orders", Tool: "cancel_order", Args: json.RawMessage(args),
			Actor: action.Actor{ID: "ana@acme.test", Auth: "token"},
		}},
	})
	if err != nil || !fresh {
		l.t.Fatalf("Park: fresh %v, %v", fresh, err)
	}
	return id
}

func (l *loop) deny(id string) {
	l.t.Helper()
	_, err := l.st.Decide(l.t.Context(), approvals.Vote{ID: id, Nonce: "vote-" + id, Person: "ben", Verdict: approvals.Deny, Source: "admin"})
	if err != nil {
		l.t.Fatal(err)
	}
}

// tap is the store as a dispatcher sees it; a test can break its replies.
type tap struct {
	*store.Store
	mu   sync.Mutex
	mark func(m approvals.Mark, carryOut func() error) error
}

func (x *tap) Mark(ctx context.Context, id string, m approvals.Mark) error {
	x.mu.Lock()
	f := x.mark
	x.mu.Unlock()
	carryOut := func() error { return x.Store.Mark(ctx, id, m) }
	if f == nil {
		return carryOut()
	}
	return f(m, carryOut)
}

// start runs a dispatcher of another process.
func (l *loop) start(owner string, book *tap) (stop func()) {
	l.t.Helper()
	sl, err := slack.New(slack.Config{
		BotToken: l.fake.BotToken, APIURL: l.fake.URL(), Ring: l.ring,
		Roster: func() *approvals.Roster { return l.roster },
		Pace:   time.Nanosecond, Settle: time.Nanosecond, Timeout: 2 * time.Second,
	})
	if err != nil {
		l.t.Fatal(err)
	}
	d, err := notifier.New(notifier.Config{
		Book: book, Find: notifier.Channels{"slack": sl}.Find, Owner: owner,
		Lease: 3 * time.Second, Call: 1500 * time.Millisecond,
		Schedule: notifier.Schedule{First: 20 * time.Millisecond, Pending: 100 * time.Millisecond, Settled: 100 * time.Millisecond},
	})
	if err != nil {
		l.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(l.t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = d.Run(ctx) }()
	return func() { cancel(); <-done; sl.Close() }
}

func (l *loop) card(id string, ok func(slacktest.Message) bool) slacktest.Message {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), 20*time.Second)
	defer cancel()
	m, err := l.fake.WaitMessage(ctx, room, func(m slacktest.Message) bool {
		return m.Metadata != nil && m.Metadata.EventPayload["approval_id"] == id && ok(m)
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return m
}

func waiting(m slacktest.Message) bool { return len(m.Buttons()) == 2 }
func denied(m slacktest.Message) bool  { return strings.HasPrefix(m.PushText(), "Denied: ") }

// cards counts the cards of an approval.
func (l *loop) cards(id string) int {
	n := 0
	for _, m := range l.fake.Messages(room) {
		if m.Metadata != nil && m.Metadata.EventPayload["approval_id"] == id {
			n++
		}
	}
	return n
}

func TestLoop(t *testing.T) {
	l := newLoop(t)
	defer l.start("d1", &tap{Store: l.open()})()
	id := l.park()
	l.card(id, waiting)
	l.deny(id)
	l.card(id, denied)
	if n := l.cards(id); n != 1 {
		t.Errorf("%d cards", n)
	}
}

// Killed after Slack took the card and before the reference was stored: another
// process finds the card.
func TestLoopKilledAfterPost(t *testing.T) {
	l := newLoop(t)
	posted := make(chan struct{})
	dead := &tap{Store: l.open()}
	dead.mark = func(m approvals.Mark, carryOut func() error) error {
		if m.Ref == nil {
			return carryOut()
		}
		select {
		case <-posted:
		default:
			close(posted)
		}
		return errors.New("killed")
	}
	stop := l.start("d1", dead)
	id := l.park()
	<-posted
	stop()
	defer l.start("d2", &tap{Store: l.open()})()
	l.deny(id)
	l.card(id, denied)
	if n := l.cards(id); n != 1 {
		t.Errorf("%d cards", n)
	}
}

// Every reply of the store to a mark may be lost, before or after it was carried
// out, and every answer of Slack: with two processes at work there is one card.
func TestLoopLostReplies(t *testing.T) {
	l := newLoop(t)
	var mu sync.Mutex
	n := 0
	lossy := func(_ approvals.Mark, carryOut func() error) error {
		mu.Lock()
		n++
		turn := n % 5
		mu.Unlock()
		switch turn {
		case 1:
			return errors.New("not sent")
		case 3:
			_ = carryOut()
			return errors.New("the reply was lost")
		}
		return carryOut()
	}
	for range 5 {
		l.fake.FailNext("chat.postMessage", slacktest.DropAfterCommit(), slacktest.Fault{}, slacktest.ErrorBefore(), slacktest.Fault{}, slacktest.ErrorAfterCommit())
		l.fake.FailNext("chat.update", slacktest.ErrorAfterCommit(), slacktest.Fault{}, slacktest.DropBefore())
	}
	for _, owner := range []string{"d1", "d2"} {
		defer l.start(owner, &tap{Store: l.open(), mark: lossy})()
	}
	var ids []string
	for range 12 {
		ids = append(ids, l.park())
	}
	for _, id := range ids {
		l.card(id, waiting)
	}
	for _, id := range ids {
		l.deny(id)
	}
	for _, id := range ids {
		m := l.card(id, denied)
		if n := l.cards(id); n != 1 {
			t.Errorf("%s has %d cards", id, n)
		}
		checkOrder(t, m)
	}
}

// checkOrder looks for an edit that went back to buttons.
func checkOrder(t *testing.T, m slacktest.Message) {
	t.Helper()
	gone := false
	for _, v := range m.Edits {
		switch {
		case len(v.Buttons()) == 0:
			gone = true
		case gone:
			t.Errorf("the buttons of %s came back", m.TS)
		}
	}
}

// While Slack is down the record says so; afterwards the card appears.
func TestLoopSlackDown(t *testing.T) {
	l := newLoop(t)
	told := make(chan approvals.Trouble, 100)
	book := &tap{Store: l.open()}
	book.mark = func(m approvals.Mark, carryOut func() error) error {
		err := carryOut()
		if m.Trouble != nil && m.Attempt == "" && err == nil {
			select {
			case told <- *m.Trouble:
			default:
			}
		}
		return err
	}
	l.fake.Down()
	defer l.start("d1", book)()
	id := l.park()
	<-told
	tk, err := l.st.Ticket(t.Context(), id)
	if err != nil || tk.Delivered() || len(tk.Troubles) != 1 || tk.Troubles[0].Reason != string(notifier.Unreachable) || tk.Troubles[0].Next.IsZero() {
		t.Fatalf("%+v, %v", tk.Troubles, err)
	}
	l.fake.Up()
	l.card(id, waiting)
}
