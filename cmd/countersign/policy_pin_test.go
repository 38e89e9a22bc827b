package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestReplaceFile(t *testing.T) {
	dir := t.TempDir()
	write := func(path, text string, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	read := func(path string) string {
		t.Helper()
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	real, link := filepath.Join(dir, "real.json"), filepath.Join(dir, "pins.json")
	write(real, "old", 0o600)
	if err := os.Symlink("real.json", link); err != nil {
		t.Fatal(err)
	}
	if err := replaceFile(link, []byte("new")); err != nil {
		t.Fatal(err)
	}
	if got := read(real); got != "new" {
		t.Errorf("behind the link stands %q", got)
	}
	if st, err := os.Lstat(link); err != nil || st.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is one no more: %v %v", st, err)
	}
	if st, err := os.Stat(real); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the file's mode is %v (%v)", st.Mode(), err)
	}

	// What can't be replaced stays, and nothing is left beside it.
	taken := filepath.Join(dir, "taken")
	if err := os.MkdirAll(filepath.Join(taken, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := replaceFile(taken, []byte("new")); err == nil {
		t.Error("a directory was replaced")
	}
	if err := replaceFile(filepath.Join(dir, "no", "pins.json"), []byte("new")); err == nil {
		t.Error("a directory that isn't there was written to")
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 3 {
		t.Errorf("left behind: %v %v", files, err)
	}
}
