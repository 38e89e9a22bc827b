package daemon

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// reading is how a configuration is read, and by whom.
type reading struct {
	links    bool // links are handed out
	onlooker bool // by a command that looks at it for a gate
}

// readPolicyFile reads a policy that nobody but its owner can have written: this
// process's user or root. What is checked is the file that is read, at the end of
// all symbolic links, so that a mounted config map will do: its files belong to
// root, mode 0644 or less. Who may exchange the links or the directory is not
// looked at. A reader that is not the gate, but root looking at what is there, does
// not know who the gate runs as, and leaves the owner out.
func readPolicyFile(path string, how reading) ([]byte, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading the policy: there is no %s; countersign policy draft UPSTREAM writes one to begin with", path)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the policy: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("reading the policy: %w", err)
	}
	if mode := info.Mode().Perm(); mode&0o022 != 0 {
		return nil, fmt.Errorf("others may write to the policy %s (mode %04o); run: chmod go-w %s", path, mode, path)
	}
	self := os.Geteuid()
	if owner, ok := ownerOf(info); ok && !(how.onlooker && self == 0) && owner != 0 && owner != self {
		return nil, fmt.Errorf("the policy %s belongs to another user (%d), who may change it; run, as root: chown %d %s", path, owner, self, path)
	}
	b, err := io.ReadAll(f)
	if err != nil {
		return nil, fmt.Errorf("reading the policy: %w", err)
	}
	return b, nil
}
