package ledger

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func isStarted(t testing.TB, l *Ledger, id string) bool {
	t.Helper()
	ok, err := l.Started(id)
	if err != nil {
		t.Fatal(err)
	}
	return ok
}

func TestStartedFromEarlierFiles(t *testing.T) {
	dir := t.TempDir()
	a := mustOpen(t, dir, create)
	mustAppend(t, a, Record{Event: Decision, OperationID: "judged", Outcome: Allow, Tool: `"event":"exec_start"`}, start("ran"))
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	b := mustOpen(t, dir, create)
	for id, want := range map[string]bool{"ran": true, "judged": false, "": false, "other": false} {
		if got := isStarted(t, b, id); got != want {
			t.Errorf("Started(%q) = %t", id, got)
		}
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(a.Path(), old, old); err != nil {
		t.Fatal(err)
	}
	l, err := Open(dir, Options{Young: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	for _, young := range []time.Duration{2 * time.Hour, time.Second} { // longer it may become, and never shorter
		if l.Remember(young); !isStarted(t, l, "ran") {
			t.Errorf("after Remember(%s) the hour-old start is not known", young)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for young, want := range map[time.Duration]bool{time.Minute: false, 2 * time.Hour: true} {
		l, err := Open(dir, Options{Young: young})
		if err != nil {
			t.Fatal(err)
		}
		if got := isStarted(t, l, "ran"); got != want {
			t.Errorf("an hour-old file, young %s: Started = %t", young, got)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Two processes may share a directory and live at the same time.
func TestStartedByALivingNeighbour(t *testing.T) {
	dir := t.TempDir()
	a, b := mustOpen(t, dir, create), mustOpen(t, dir, create)
	for _, id := range []string{"first", "second"} {
		if isStarted(t, b, id) {
			t.Errorf("%s counts as started before it was", id)
		}
		mustAppend(t, a, Record{Event: ExecStart, OperationID: "allowed"}, start(id))
		if !isStarted(t, b, id) {
			t.Errorf("the neighbour's start of %s is not known", id)
		}
	}
	if isStarted(t, b, "allowed") {
		t.Error("a call without an approval is remembered")
	}
	// Half a line is not a start yet, and is one when it is whole.
	c := filepath.Join(dir, "20260101T000000Z-00.jsonl")
	text := `{"approval":{"id":"third"},"event":"exec_start","operation_id":"third"}` + "\n"
	if err := os.WriteFile(c, []byte(text[:40]), 0o600); err != nil {
		t.Fatal(err)
	}
	if isStarted(t, b, "third") {
		t.Error("half a line counts as a start")
	}
	if err := os.WriteFile(c, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if !isStarted(t, b, "third") {
		t.Error("a line that was finished later is not known")
	}
}

func TestStartedIsNotKnownWithoutTheDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ledger")
	l := mustOpen(t, dir, create)
	mustAppend(t, l, start("own"))
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Started("other"); err == nil {
		t.Error("nothing could be read, and it says that it knows")
	}
	if !isStarted(t, l, "own") {
		t.Error("its own start is forgotten")
	}
}
