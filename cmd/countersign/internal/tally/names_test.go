package tally

import (
	"fmt"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/approvals/ledger"
)

// Who calls makes up names of tools at will: the report stays as long as it can be
// read, and no call is lost from it.
func TestNamesWithoutEnd(t *testing.T) {
	const more = 500
	tally := New(Span{}, time.UTC)
	at := time.Date(2026, 5, 1, 10, 0, 0, 0, time.UTC)
	for i := range maxNames + more {
		op := fmt.Sprint("cs_", i)
		tally.Add(ledger.Record{Event: ledger.Decision, Time: at, OperationID: op, Actor: "a", Tool: fmt.Sprint("made_up_", i), Outcome: ledger.Review})
		if i%2 == 0 { // it turns out to have joined: what was counted is taken back where it was
			tally.Add(ledger.Record{Event: ledger.Attached, Time: at, OperationID: op, To: "cs_0"})
		}
	}
	r := tally.Report()
	if len(r.Tools) != maxNames+1 {
		t.Fatalf("%d names", len(r.Tools))
	}
	sum := Counts{}
	for _, row := range r.Tools {
		if row.Asked < 0 {
			t.Fatalf("%+v", row)
		}
		sum.Asked += row.Asked
		sum.Joined += row.Joined
		if row.Name == others && row.Calls() != more {
			t.Errorf("%+v", row)
		}
	}
	if sum != r.Total || sum.Calls() != maxNames+more {
		t.Errorf("%+v of %+v", sum, r.Total)
	}
}
