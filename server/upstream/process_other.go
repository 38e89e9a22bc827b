//go:build !linux

package upstream

import "syscall"

// attributes: a group of its own. A child notices our death by its closed stdin.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// awaitExit can't tell here: what a child leaves behind notices its closed stdin.
func awaitExit(int) bool { return false }
