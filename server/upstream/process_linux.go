package upstream

import "syscall"

// attributes: a group of its own, and the child dies when we are killed.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
