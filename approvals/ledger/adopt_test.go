package ledger

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
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

// brokenLedger is a dead ledger of several parts, each begun after some tries in
// vain, with a start in each.
func brokenLedger(t *testing.T, starts ...string) (dir string, parts []string) {
	t.Helper()
	d, dir := &disk{}, t.TempDir()
	l := mustOpen(t, dir, d.create)
	for i, id := range starts {
		if i > 0 {
			d.set(func(d *disk) { d.noSync = true })
			for range 3 {
				if _, err := l.Append(t.Context(), start("lost")); err == nil {
					t.Fatal("no error from a disk that fails")
				}
			}
			d.set(func(d *disk) { d.noSync = false })
		}
		mustAppend(t, l, start(id))
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	parts, err := Files(dir)
	if err != nil || len(parts) != len(starts) {
		t.Fatalf("files %v, %v", parts, err)
	}
	return dir, parts
}

// A ledger of several files is read whole or not at all: what stood in a file that
// is gone, or that is old, is no "never started".
func TestAdoptNeedsEveryPart(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(parts []string) error
		whole  bool
	}{
		"all there": {func([]string) error { return nil }, true},
		"one that is old": {func(p []string) error {
			old := time.Now().Add(-2 * AdoptWithin)
			return os.Chtimes(p[0], old, old)
		}, true},
		"one that was never used": {func(p []string) error {
			return os.WriteFile(strings.TrimSuffix(p[0], Ext)+".99"+Ext, nil, 0o600)
		}, true},
		"the first is gone":     {func(p []string) error { return os.Remove(p[0]) }, false},
		"one between is gone":   {func(p []string) error { return os.Remove(p[1]) }, false},
		"the first was emptied": {func(p []string) error { return os.Truncate(p[0], 0) }, false},
		"none but one without a line": {func(p []string) error {
			return errors.Join(os.Remove(p[0]), os.Remove(p[1]), os.Truncate(p[2], 0))
		}, false},
		"a beginning was cut off": {func(p []string) error {
			b, err := os.ReadFile(p[1])
			_, rest, _ := bytes.Cut(b, []byte("\n"))
			return errors.Join(err, os.WriteFile(p[1], rest, 0o600))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir, parts := brokenLedger(t, "early", "between", "late")
			if err := tt.change(parts); err != nil {
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
			for _, id := range []string{"early", "between", "late"} {
				if !dead[0].Started(id) {
					t.Errorf("the start of %s was called never started", id)
				}
			}
			if dead[0].Started("never") == tt.whole {
				t.Errorf("what is not there counts as started: %t", tt.whole)
			}
		})
	}
}

// A part that can't be opened leaves its whole ledger to a later try, and no other's.
func TestAdoptTakesNoLedgerInPart(t *testing.T) {
	dir, parts := brokenLedger(t, "early", "late")
	other := mustOpen(t, dir, create)
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	for _, bad := range parts {
		dead, err := adoptBy(func(path string) (*os.File, bool, error) {
			if path == bad {
				return nil, false, errDisk
			}
			return take(path)
		}, dir)
		if !errors.Is(err, errDisk) || len(dead) != 1 || dead[0].ID != other.ID() {
			t.Errorf("without %s: %v, %v", filepath.Base(bad), dead, err)
		}
		for _, d := range dead {
			d.Release()
		}
	}
	dead, err := Adopt(dir)
	if err != nil || len(dead) != 2 {
		t.Errorf("afterwards: %v, %v", dead, err)
	}
	for _, d := range dead {
		d.Release()
	}
}
