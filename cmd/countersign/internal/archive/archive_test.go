package archive

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/server/policy"
)

func keep(t *testing.T, dir, text string) string {
	t.Helper()
	if err := Keep(dir, []byte(text)); err != nil {
		t.Fatal(err)
	}
	return policy.DigestOf([]byte(text)).Hex()
}

func list(t *testing.T, dir string) []Kept {
	t.Helper()
	all, err := List(dir)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestKeepAndRead(t *testing.T) {
	dir := t.TempDir()
	if len(list(t, dir)) != 0 {
		t.Fatal("an archive that is not there holds something")
	}
	first := keep(t, dir, "one")
	path := filepath.Join(dir, "policies", first+".yaml")
	for name, want := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700 | os.ModeDir} {
		if info, err := os.Stat(name); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(path, old, old); err != nil {
		t.Fatal(err)
	}
	second := keep(t, dir, "two")
	if all := list(t, dir); len(all) != 2 || all[0].Digest != second {
		t.Fatalf("%v", all)
	}
	keep(t, dir, "one")
	if all := list(t, dir); len(all) != 2 || all[0].Digest != first {
		t.Errorf("loaded again, and not on the top: %v", all)
	}
	k, err := Find(dir, second[:12])
	if err != nil {
		t.Fatal(err)
	}
	if b, err := k.Read(); err != nil || string(b) != "two" {
		t.Errorf("%q, %v", b, err)
	}
	for _, prefix := range []string{"", "zz", strings.Repeat("0", 64), "../" + second} {
		if _, err := Find(dir, prefix); err == nil {
			t.Errorf("%q finds one", prefix)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "policies", ".*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestAPrefixOfTwoFindsNone(t *testing.T) {
	dir := t.TempDir()
	seen := map[string]bool{}
	for i := 0; ; i++ {
		d := keep(t, dir, fmt.Sprint("p", i))
		if seen[d[:1]] {
			if _, err := Find(dir, d[:1]); err == nil || !strings.Contains(err.Error(), "write more of it") {
				t.Errorf("a prefix of two: %v", err)
			}
			return
		}
		seen[d[:1]] = true
	}
}

func TestAChangedFileIsRefused(t *testing.T) {
	dir := t.TempDir()
	d := keep(t, dir, "one")
	k, err := Find(dir, d)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "policies", d+".yaml"), []byte("two"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Read(); err == nil || !strings.Contains(err.Error(), "was changed") {
		t.Errorf("%v", err)
	}
	keep(t, dir, "one") // loading it again puts it right
	if _, err := k.Read(); err != nil {
		t.Error(err)
	}
}

// The newest are kept, other files are left alone, and the one that is kept now
// stays also where the clock went back.
func TestTheOldestGo(t *testing.T) {
	dir := t.TempDir()
	mine := filepath.Join(dir, "policies", "notes.txt")
	first := keep(t, dir, "first")
	if err := os.WriteFile(mine, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	base := time.Now().Add(time.Hour)
	for i := range Most {
		d := keep(t, dir, fmt.Sprint(i))
		at := base.Add(time.Duration(i) * time.Second)
		if err := os.Chtimes(filepath.Join(dir, "policies", d+".yaml"), at, at); err != nil {
			t.Fatal(err)
		}
	}
	last := keep(t, dir, "last") // by its time the oldest
	all := list(t, dir)
	if _, err := Find(dir, first); err == nil {
		t.Error("the oldest is still kept")
	}
	if _, err := Find(dir, last); err != nil || len(all) > Most+1 {
		t.Errorf("%d are kept, %v", len(all), err)
	}
	if _, err := os.Stat(mine); err != nil {
		t.Error(err)
	}
}

// Root that puts a policy back for a gate leaves it the gate's.
func TestWriteKeepsTheOwner(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() != 0 || os.Chown(path, 12345, 12346) != nil {
		t.Skip("only root can give a file away")
	}
	was, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := Write(path, []byte("new"), 0o640, was); err != nil {
		t.Fatal(err)
	}
	now, err := os.Stat(path)
	if err != nil || now.Mode() != 0o640 {
		t.Fatalf("%v, %v", now.Mode(), err)
	}
	if a, b := was.Sys().(*syscall.Stat_t), now.Sys().(*syscall.Stat_t); a.Uid != b.Uid || a.Gid != b.Gid {
		t.Errorf("it belongs to %d:%d now", b.Uid, b.Gid)
	}
}
