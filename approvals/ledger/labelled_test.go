package ledger

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// The starts that labelled a session are found in all parts of a dead ledger, and
// nothing else is.
func TestLabelledStarts(t *testing.T) {
	dir := t.TempDir()
	l, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = l.Append(t.Context(),
		Record{Event: Decision, OperationID: "1", Outcome: Allow, Actor: "ana", Session: "s", Labels: []string{"session:old"}},
		Record{Event: ExecStart, OperationID: "1", Actor: "ana", Session: "s", Labels: []string{"session:model", "session:retrieved"}},
		Record{Event: ExecStart, OperationID: "2", Actor: "ana", Session: "s"},
		Record{Event: ExecStart, OperationID: "3", Actor: `"event":"exec_start","labels":["x"]`, Session: "é\u2028", Labels: []string{"session:retrieved"}},
	)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	dead, err := Adopt(dir)
	if err != nil || len(dead) != 1 {
		t.Fatal(dead, err)
	}
	defer dead[0].Release()
	for range 2 {
		var got []string
		if err := dead[0].Labelled(time.Time{}, func(r Record) { got = append(got, fmt.Sprint(r.OperationID, r.Actor, r.Session, r.Labels)) }); err != nil {
			t.Fatal(err)
		}
		want := []string{"1anas[session:model session:retrieved]", `3"event":"exec_start","labels":["x"]` + "é\u2028[session:retrieved]"}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if err := dead[0].Labelled(time.Now().Add(time.Minute), func(r Record) { t.Errorf("too old: %v", r) }); err != nil {
		t.Fatal(err)
	}
}

// A label that is no word is refused, as prose would be.
func TestLabelsAreWords(t *testing.T) {
	l, err := Open(t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, bad := range [][]string{{""}, {"two words"}, {"a\nb"}, {"é"}, make([]string, maxItems+1)} {
		r := Record{Event: Decision, OperationID: "1", Outcome: Deny, Labels: bad}
		if _, err := l.Append(t.Context(), r); err == nil {
			t.Errorf("%q was written", bad[:1])
		}
	}
}
