package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/approvals/ledger"
	"github.com/countersign-mcp/countersign/cmd/countersign/internal/e2e/testservers"
	"github.com/countersign-mcp/countersign/server"
)

// shelf is a ledger in memory. While it is closed, Append waits.
type shelf struct {
	mu   sync.Mutex
	recs []ledger.Record
	open chan struct{}
}

func (s *shelf) Append(ctx context.Context, recs ...ledger.Record) (ledger.Pos, error) {
	select {
	case <-s.open:
	case <-ctx.Done():
		return ledger.Pos{}, errors.New("the disk is slow")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recs = append(s.recs, recs...)
	return ledger.Pos{}, nil
}

// told is how many messages of an actor the records speak of.
func (s *shelf) told(actor string) (records int, messages uint64) {
	for _, r := range s.recs {
		switch {
		case actor != "" && r.Actor != actor:
		case r.Reason == manyMalformed:
			records, messages = records+1, messages+r.Records
		default:
			records, messages = records+1, messages+1
		}
	}
	return records, messages
}

func newShelved() (*refusals, *shelf, *time.Time) {
	s := &shelf{open: make(chan struct{})}
	now := time.Unix(1e9, 0)
	f := newRefusals(nil, slog.New(slog.DiscardHandler))
	f.ledger, f.now = s, func() time.Time { return now }
	return f, s, &now
}

func sent(actor string) server.Malformed {
	return server.Malformed{Actor: action.Actor{ID: actor, Auth: "token"}, Front: "judge", Code: -32700}
}

// ended runs the loop's end alone.
func ended(t *testing.T, f *refusals) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.run(ctx); err != nil {
		t.Fatal(err)
	}
}

// Rubbish at line rate costs a few records, and its number is told when the
// sender goes on at a bearable rate.
func TestRubbishIsCounted(t *testing.T) {
	f, s, now := newShelved()
	close(s.open)
	for range 10_000 {
		f.take(t.Context(), sent("loud"))
	}
	f.take(t.Context(), sent("quiet"))
	*now = now.Add(time.Second)
	f.take(t.Context(), sent("loud"))
	ended(t, f)
	if n, all := s.told("loud"); n != refusalBurst+2 || all != 10_001 {
		t.Errorf("%d records tell of %d messages", n, all)
	}
	if n, all := s.told("quiet"); n != 1 || all != 1 {
		t.Errorf("the other: %d records tell of %d messages", n, all)
	}
}

// Those who never come back are summed up at the end; a summary names the actor.
func TestRubbishIsSummedUpAtTheEnd(t *testing.T) {
	f, s, _ := newShelved()
	close(s.open)
	for i := range 3 * refusalActors {
		for range refusalBurst + 5 {
			f.take(t.Context(), sent(fmt.Sprintf("actor%d", i)))
		}
	}
	if len(f.actors) > refusalActors+1 {
		t.Errorf("%d actors are kept", len(f.actors))
	}
	ended(t, f)
	if _, all := s.told(""); all != 3*refusalActors*(refusalBurst+5) {
		t.Errorf("%d messages are told of", all)
	}
}

// Nobody waits for the disk, and nothing is kept without end while it hangs.
func TestNobodyWaitsForTheLedger(t *testing.T) {
	f, s, _ := newShelved()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- f.run(ctx) }()
	for i := range 10_000 {
		f.take(ctx, sent(fmt.Sprintf("actor%d", i%100))) // returns, though the disk does not
	}
	close(s.open)
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if _, all := s.told(""); all != 10_000 {
		t.Errorf("%d messages are told of", all)
	}
}

// A message that can't be read is on the ledger, by its code and its sender.
func TestRefusedMessageIsOnTheLedger(t *testing.T) {
	s := newScene(t)
	d := s.start(s.options(newAsked()))
	c := s.client(d)
	if _, err := c.Send(within(t, 20*time.Second), []byte(`{"jsonrpc":"2.0","id":1,"id":2}`), testservers.Extra{}); err != nil {
		t.Fatal(err)
	}
	path := d.LedgerPath()
	s.stop(d)
	var got []string
	if _, err := ledger.ReadFile(path, func(r ledger.Record) error {
		if r.Event == ledger.Malformed {
			got = append(got, r.Actor+" "+r.Reason+" "+r.ErrorType)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if strings.Join(got, "\n") != "ana@acme.test malformed -32700" {
		t.Errorf("%q", got)
	}
}
