//go:build !linux

package upstream

import "syscall"

// attributes: a group of its own. A child notices our death by its closed stdin.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
