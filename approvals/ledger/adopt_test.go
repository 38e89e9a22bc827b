package ledger

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestDeadTellsHowFarItCame(t *testing.T) {
	dir := t.TempDir()
	l := mustOpen(t, dir, create)
	mustAppend(t, l,
		Record{Event: Decision, OperationID: "judged", Outcome: Review},
		start("open"),
		start("done"), Record{Event: Result, OperationID: "done", Status: StatusToolError},
		// Answered before it was started for another caller.
		Record{Event: Result, OperationID: "refused", Status: StatusNotRun}, start("refused"),
	)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	dead, err := Adopt(dir)
	if err != nil || len(dead) != 1 {
		t.Fatalf("Adopt = %v, %v", dead, err)
	}
	d := dead[0]
	defer d.Release()
	if err := d.Load("judged", "open", "done"); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]struct {
		started bool
		status  string
	}{
		"judged":  {false, ""},
		"open":    {true, ""},
		"done":    {true, StatusToolError},
		"never":   {false, ""},
		"refused": {true, ""},
	} {
		end, ok := d.Result(id)
		if d.Started(id) != want.started || end.Status != want.status || ok != (want.status != "") {
			t.Errorf("%s: started %t, result %q %t", id, d.Started(id), end.Status, ok)
		}
	}
}

// A dead ledger may be long: of the operations that nobody asks for nothing is kept,
// and what a result says of its failure is.
func TestDeadKeepsOnlyWhatIsAskedFor(t *testing.T) {
	dir := t.TempDir()
	l := mustOpen(t, dir, create)
	for i := range 300 {
		id := fmt.Sprint(i)
		mustAppend(t, l, start(id), Record{Event: Result, OperationID: id, Status: StatusNotRun, ErrorType: "overslept"})
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	dead, err := Adopt(dir)
	if err != nil || len(dead) != 1 {
		t.Fatalf("Adopt = %v, %v", dead, err)
	}
	d := dead[0]
	defer d.Release()
	if err := d.Load("7", "299"); err != nil {
		t.Fatal(err)
	}
	if len(d.seen) != 2 {
		t.Errorf("%d operations are held for 2", len(d.seen))
	}
	for _, id := range []string{"7", "299", "8"} { // the last one is read now
		if end, ok := d.Result(id); !ok || end != (End{StatusNotRun, "overslept"}) || !d.Started(id) {
			t.Errorf("%s: %+v, %t, started %t", id, end, ok, d.Started(id))
		}
	}
}

// When a dead file can't be read, nothing may be taken for never started.
func TestUnreadableDeadCountsAsStarted(t *testing.T) {
	dir := t.TempDir()
	l := mustOpen(t, dir, create)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	dead, err := Adopt(dir)
	if err != nil || len(dead) != 1 {
		t.Fatalf("Adopt = %v, %v", dead, err)
	}
	_ = dead[0].files[0].Close() // reading it fails from here on
	if !dead[0].Started("x") {
		t.Error("an operation in a file that can't be read was called never started")
	}
	if _, ok := dead[0].Result("x"); ok || dead[0].Load("y") == nil {
		t.Error("a file that can't be read gave a result")
	}
}

func TestAdoptLeavesTheOldAndTheStrange(t *testing.T) {
	dir := t.TempDir()
	l := mustOpen(t, dir, create)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-AdoptWithin - time.Hour)
	if err := os.Chtimes(l.Path(), old, old); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"notes.txt", ".jsonl", "a.1.jsonl", "a.x.jsonl", "a.02.jsonl", "a.jsonl.new"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "d.jsonl"), 0o700); err != nil {
		t.Fatal(err)
	}
	if dead, err := Adopt(dir); err != nil || len(dead) != 0 {
		t.Errorf("adopted %v, %v", dead, err)
	}
	if dead, err := Adopt(filepath.Join(dir, "none")); err != nil || len(dead) != 0 {
		t.Errorf("a directory that is not there: %v, %v", dead, err)
	}
}

// A ledger of several files is read whole or not at all: what stood in a file that
// is gone, or that is old, is no "never started".
func TestAdoptNeedsEveryPart(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(first string) error
		whole  bool
	}{
		"all there":        {func(string) error { return nil }, true},
		"one that is old":  {func(p string) error { old := time.Now().Add(-2 * AdoptWithin); return os.Chtimes(p, old, old) }, true},
		"one that is gone": {os.Remove, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := &disk{}
			dir := t.TempDir()
			l := mustOpen(t, dir, d.create)
			mustAppend(t, l, start("early"))
			first := l.Path()
			d.set(func(d *disk) { d.noSync = true })
			if _, err := l.Append(t.Context(), start("lost")); err == nil {
				t.Fatal("no error from a disk that fails")
			}
			d.set(func(d *disk) { d.noSync = false })
			mustAppend(t, l, start("late"))
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			if err := tt.change(first); err != nil {
				t.Fatal(err)
			}
			dead, err := Adopt(dir)
			if err != nil || len(dead) != 1 {
				t.Fatalf("Adopt = %v, %v", dead, err)
			}
			defer dead[0].Release()
			if err := dead[0].Load("early"); (err == nil) != tt.whole {
				t.Errorf("Load: %v", err)
			}
			if !dead[0].Started("early") || !dead[0].Started("late") {
				t.Error("a start was called never started")
			}
			if dead[0].Started("never") == tt.whole {
				t.Errorf("what is not there counts as started: %t", tt.whole)
			}
		})
	}
}
