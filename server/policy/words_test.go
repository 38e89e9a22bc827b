package policy

import (
	"slices"
	"testing"

	"github.com/countersign-mcp/countersign/server/provenance"
)

// Conditions ask for labels that package provenance gives, and the policy shares no
// code with it: a label that only one of the two knows could never be met.
func TestLabelsAreThoseThatAreGiven(t *testing.T) {
	mine, theirs := slices.Sorted(slices.Values(known)), slices.Sorted(slices.Values(provenance.All()))
	if !slices.Equal(mine, theirs) {
		t.Errorf("conditions know %v, and calls are labelled with %v", mine, theirs)
	}
	if Unknown != provenance.Unknown {
		t.Errorf("a value without a label is %q here and %q there", Unknown, provenance.Unknown)
	}
	for _, l := range producible {
		if !slices.Contains(theirs, l) {
			t.Errorf("tools may produce %q, which is no label", l)
		}
	}
}
