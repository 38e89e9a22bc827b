//go:build linux || darwin

package ledger

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// A child process of these tests is this test binary with childVariable set.
const (
	childVariable = "COUNTERSIGN_LEDGER_CHILD"
	dirVariable   = "COUNTERSIGN_LEDGER_DIR"
)

func TestMain(m *testing.M) {
	switch os.Getenv(childVariable) {
	case "":
		os.Exit(m.Run())
	case "append":
		appendForever(os.Getenv(dirVariable))
	case "full":
		fillTheDisk(os.Getenv(dirVariable))
	}
}

func child(t *testing.T, job, dir string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), childVariable+"="+job, dirVariable+"="+dir)
	cmd.Stderr = t.Output()
	return cmd
}

// appendForever prints a line for each append that was acknowledged, after the
// ledger's id, until it is killed.
func appendForever(dir string) {
	l, err := Open(dir, Options{})
	if err != nil {
		panic(err)
	}
	var mu sync.Mutex
	fmt.Println(l.ID())
	for w := range 8 {
		go func() {
			for i := 0; ; i++ {
				id := fmt.Sprintf("%s/%d/%d", l.ID(), w, i)
				pad := strings.Repeat("x", 900) // so that a batch is more than a page
				pos, err := l.Append(context.Background(), Record{Event: ExecStart, OperationID: id, Approval: &Approval{ID: id}, Session: pad, Workflow: pad})
				if err != nil {
					panic(err)
				}
				mu.Lock()
				fmt.Println(id, pos.Seq, pos.SHA256)
				mu.Unlock()
			}
		}()
	}
	select {}
}

// Killed at any moment, a process loses nothing that it acknowledged and leaves
// at most a torn last line.
func TestKill(t *testing.T) {
	dir := t.TempDir()
	rounds := 12
	if testing.Short() {
		rounds = 4
	}
	started := map[string]bool{}
	for round := range rounds {
		id, acked := killAfter(t, dir, 1+round*13)
		recs := map[uint64]Record{}
		rep, err := ReadFile(dir+"/"+id+Ext, func(r Record) error {
			recs[r.Seq] = r
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if rep.Kind != OK && rep.Kind != Torn {
			t.Fatalf("round %d: %s", round, rep)
		}
		for op, pos := range acked {
			if r := recs[pos.Seq]; r.OperationID != op || r.SHA256 != pos.SHA256 {
				t.Fatalf("round %d: %s was acknowledged at %d and is not there: %s", round, op, pos.Seq, rep)
			}
			started[op] = true
		}
	}
	l := mustOpen(t, dir, create)
	for op := range started {
		if !isStarted(t, l, op) {
			t.Fatalf("the start of %s is not known to the next process", op)
		}
	}
	dead, err := Adopt(dir)
	if err != nil || len(dead) != rounds {
		t.Fatalf("adopted %d of %d: %v", len(dead), rounds, err)
	}
	for _, d := range dead {
		d.Release()
	}
}

// killAfter runs a child until it has acknowledged n appends, kills it and
// returns all that it acknowledged.
func killAfter(t *testing.T, dir string, n int) (string, map[string]Pos) {
	t.Helper()
	cmd := child(t, "append", dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatal("the child said nothing")
	}
	id, acked := lines.Text(), map[string]Pos{}
	for lines.Scan() {
		var op string
		var pos Pos
		if c, _ := fmt.Sscan(lines.Text(), &op, &pos.Seq, &pos.SHA256); c == 3 && len(pos.SHA256) == 64 {
			acked[op] = pos
		}
		if len(acked) == n {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = cmd.Wait() // it was killed
	if len(acked) < n {
		t.Fatalf("the child ended after %d of %d appends", len(acked), n)
	}
	return id, acked
}

// fillTheDisk meets a real limit: no file may grow past 16 KiB. It prints what
// happened.
func fillTheDisk(dir string) {
	signal.Ignore(syscall.SIGXFSZ)
	l, err := Open(dir, Options{})
	if err != nil {
		panic(err)
	}
	limit(16 << 10)
	var r diskReport
	r.ID = l.ID()
	add := func() error {
		_, err := l.Append(context.Background(), start(strings.Repeat("x", 200)))
		return err
	}
	for err = nil; err == nil && r.Fitted < 1000; r.Fitted++ {
		err = add()
	}
	r.Full = errors.Is(err, ErrUnwritable) && errors.Is(err, syscall.EFBIG)
	r.Again = add() == nil // in a fresh file
	limit(0)
	for range 5 {
		if err := add(); errors.Is(err, ErrUnwritable) {
			r.Refused++
		}
	}
	limit(16 << 10)
	r.Back = add() == nil
	if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
		panic(err)
	}
}

type diskReport struct {
	ID                string
	Fitted            int
	Full, Again, Back bool
	Refused           int
}

func limit(n uint64) {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &l); err != nil {
		panic(err)
	}
	l.Cur = n
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &l); err != nil {
		panic(err)
	}
}

// A disk that is full stops everything, and everything goes on in a new file
// when it is not.
func TestDiskFull(t *testing.T) {
	dir := t.TempDir()
	cmd := child(t, "full", dir)
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	var got diskReport
	if err := json.NewDecoder(io.TeeReader(&out, t.Output())).Decode(&got); err != nil {
		t.Fatal(err)
	}
	if got.Fitted < 10 || !got.Full || !got.Again || !got.Back || got.Refused != 5 {
		t.Errorf("%+v", got)
	}
	files, err := Files(dir)
	if err != nil {
		t.Fatal(err)
	}
	reps, err := VerifyFiles(files...)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range reps {
		t.Log(r)
	}
	if len(reps) != 3 || reps[0].Kind != Torn || reps[1].Kind != OK || reps[2].Kind != OK || ExitCode(reps) != 3 {
		t.Errorf("want three files, the first one torn")
	}
}

// A lock that a living process holds is respected; a dead one's is not.
func TestAdoptTakesOnlyTheDead(t *testing.T) {
	dir := t.TempDir()
	self := mustOpen(t, dir, create)
	gone, acked := killAfter(t, dir, 3)

	cmd := child(t, "append", dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	living, err := lines.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	living = strings.TrimSpace(living)
	go func() { _, _ = io.Copy(io.Discard, lines) }()

	dead, err := Adopt(dir)
	if err != nil || len(dead) != 1 || dead[0].ID != gone {
		t.Fatalf("adopted %v (%v), want only %s; living: %s, %s", ids(dead), err, gone, living, self.ID())
	}
	for op := range acked {
		if !dead[0].Started(op) {
			t.Errorf("%s was acknowledged and is not known as started", op)
		}
	}
	if dead[0].Started("other") {
		t.Error("an operation that never was counts as started")
	}
	if again, err := Adopt(dir); err != nil || len(again) != 0 {
		t.Errorf("adopted twice at once: %v, %v", ids(again), err)
	}
	dead[0].Release()
	if again, err := Adopt(dir); err != nil || len(again) != 1 {
		t.Errorf("not to be had again after Release: %v, %v", ids(again), err)
	} else {
		again[0].Release()
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	dead, err = Adopt(dir)
	if err != nil || len(dead) != 2 {
		t.Errorf("after the kill: %v, %v", ids(dead), err)
	}
	for _, d := range dead {
		d.Release()
	}
}

func ids(dead []*Dead) []string {
	var out []string
	for _, d := range dead {
		out = append(out, d.ID)
	}
	return out
}
