package ledger

import (
	"errors"
	"os"
	"syscall"
)

// syncData makes f's bytes and its length durable. fdatasync leaves out only
// what nobody needs to read them back, such as the modification time.
func syncData(f *os.File) error {
	for {
		err := syscall.Fdatasync(int(f.Fd()))
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
