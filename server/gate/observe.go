package gate

import "github.com/countersign-mcp/countersign/approvals/ledger"

// allowed is the decision of a call that runs without anybody's yes. Where the
// policy only observes, it says who would have been asked: the rules and routes,
// and the reason if the call would have been refused instead, as that of a caller
// whom nobody knows. What the store would have said is not known: it is not asked.
func (k *call) allowed() ledger.Record {
	d := k.decision(ledger.Allow, "")
	if !k.observed {
		return d
	}
	d.Observed = true
	for _, r := range k.verdict.Routes {
		d.Routes = append(d.Routes, ledger.Route{Name: ledger.Clean(r.Name), Quorum: max(r.Quorum, 1)})
	}
	if _, no := k.askable(); no != nil {
		d.Reason = no.reason
	}
	return d
}
