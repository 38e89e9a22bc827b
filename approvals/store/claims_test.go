package store

import "testing"

// A claim whose record does not open (its key is off the ring, or somebody wrote
// into it) keeps no other claim from being settled.
func TestABrokenRecordHidesNoOtherClaim(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		one, two := request(`{"order":"1"}`), request(`{"order":"2"}`)
		p.approved(t, one)
		p.approved(t, two)
		bad, good := p.claim(t, one, "n-bad"), p.claim(t, two, "n-good")
		p.set(t, bad.ID, "f", "not sealed by us")
		held, err := p.Claims(t.Context(), "file-a")
		if err != nil || len(held) != 1 || held[0].ID != good.ID || held[0].Nonce != "n-good" {
			t.Errorf("held %+v, %v", held, err)
		}
	})
}
