// Package archive keeps the policies that a gate has loaded, so that an older one
// can be put back. Each is a file of its own in data_dir/policies, named by its
// digest; it is the policy's exact bytes. The newest 50 are kept.
//
// It is written by every gate of a data_dir and read by `countersign policy
// restore`. Files appear whole or not at all.
package archive

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/countersign-mcp/countersign/server/policy"
)

// Most is how many policies are kept.
const Most = 50

const (
	dirName = "policies"
	ending  = ".yaml" // JSON is YAML too
)

var digest = regexp.MustCompile(`^[0-9a-f]{64}$`)

// Kept is one policy of the archive.
type Kept struct {
	Digest string    // in hex
	At     time.Time // when it was loaded last
	path   string
}

// Keep puts a policy in the archive of a data directory, or on its top if it is
// there already, and takes off what is too many.
func Keep(dataDir string, text []byte) error {
	dir := filepath.Join(dataDir, dirName)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("keeping the policy: %w", err)
	}
	path := filepath.Join(dir, policy.DigestOf(text).Hex()+ending)
	if err := Write(path, text, 0o600, nil); err != nil {
		return fmt.Errorf("keeping the policy: %w", err)
	}
	all, err := List(dataDir)
	if err != nil {
		return err
	}
	for _, k := range all[min(Most, len(all)):] {
		if k.path == path {
			continue // a clock that went back must not take the newest
		}
		if err := os.Remove(k.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("dropping an old policy: %w", err)
		}
	}
	return nil
}

// List is what is kept, the one that was loaded last first. A directory that is
// not there holds nothing.
func List(dataDir string) ([]Kept, error) {
	dir := filepath.Join(dataDir, dirName)
	files, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the kept policies: %w", err)
	}
	var out []Kept
	for _, f := range files {
		name, ok := strings.CutSuffix(f.Name(), ending)
		info, err := f.Info()
		if !ok || !digest.MatchString(name) || err != nil || !info.Mode().IsRegular() {
			continue // not ours, or gone in between
		}
		out = append(out, Kept{Digest: name, At: info.ModTime(), path: filepath.Join(dir, f.Name())})
	}
	slices.SortFunc(out, func(a, b Kept) int {
		if c := b.At.Compare(a.At); c != 0 {
			return c
		}
		return strings.Compare(a.Digest, b.Digest)
	})
	return out, nil
}

// Find is the one kept policy whose digest begins with prefix.
func Find(dataDir, prefix string) (Kept, error) {
	all, err := List(dataDir)
	if err != nil {
		return Kept{}, err
	}
	var found []Kept
	for _, k := range all {
		if prefix != "" && strings.HasPrefix(k.Digest, prefix) {
			found = append(found, k)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return Kept{}, fmt.Errorf("no kept policy has a digest that begins with %q; countersign policy restore lists them", prefix)
	}
	return Kept{}, fmt.Errorf("%d kept policies have a digest that begins with %q; write more of it", len(found), prefix)
}

// Read gives the policy's bytes, and refuses those that are not of its digest any
// more.
func (k Kept) Read() ([]byte, error) {
	b, err := os.ReadFile(k.path)
	if err != nil {
		return nil, fmt.Errorf("reading a kept policy: %w", err)
	}
	if policy.DigestOf(b).Hex() != k.Digest {
		return nil, fmt.Errorf("%s was changed since it was kept: its bytes are not of its digest; remove it, and take the policy from your version control", k.path)
	}
	return b, nil
}

// Write puts a file in its place as a whole, durably: a reader sees the old one or
// the new one. like, which may be nil, is the file whose owner it gets, as far as
// this process may give it away.
func Write(path string, b []byte, mode fs.FileMode, like fs.FileInfo) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".countersign-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // fails once it has its name
	_, err = f.Write(b)
	err = errors.Join(err, give(f, like), f.Chmod(mode), f.Sync(), f.Close())
	if err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}
