//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package ledger

import (
	"errors"
	"os"
)

// lock refuses: without flock two processes could not tell whose file is whose.
func lock(*os.File) (bool, error) {
	return false, errors.New("this system has no flock; the ledger can't be kept here")
}
