package daemon

import (
	"testing"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/ledger"
)

// A head goes round: told by one process, it stands in another's file, and a
// text that is no head of ours is only counted.
func TestHeads(t *testing.T) {
	a, err := ledger.Open(t.TempDir(), ledger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	pos, err := a.Append(t.Context(), ledger.Record{Event: ledger.PolicyLoaded})
	if err != nil {
		t.Fatal(err)
	}
	got := record(approvals.Event{Seq: 7, Kind: "head", Text: headText(a.Head())})
	if got.Event != ledger.Head || got.EventSeq != 7 || got.File != pos.File || got.Records != pos.Seq || got.HeadHash != pos.SHA256 {
		t.Errorf("told %+v, kept %+v", pos, got)
	}
	if _, err := a.Append(t.Context(), got); err != nil {
		t.Errorf("the ledger does not take it: %v", err)
	}
	for _, text := range []string{"", "file", "file x hash", "file -1 hash", "a b c d"} {
		if r := record(approvals.Event{Seq: 8, Kind: "head", Text: text}); r.Event != ledger.Malformed || r.EventSeq != 8 || r.File != "" {
			t.Errorf("%q became %+v", text, r)
		}
	}
}
