//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"
)

// ignoreHangup keeps a terminal that goes away from ending a command in the
// middle. `serve` and `stdio` reload on it instead.
func ignoreHangup() { signal.Ignore(syscall.SIGHUP) }

// hangups are the signals that ask for a reload.
func hangups() (<-chan os.Signal, func()) {
	ch := make(chan os.Signal, 1) // one that comes during a reload is not lost, and two are one
	signal.Notify(ch, syscall.SIGHUP)
	return ch, func() { signal.Stop(ch); ignoreHangup() }
}
