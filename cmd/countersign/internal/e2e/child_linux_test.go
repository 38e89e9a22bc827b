package e2e

import (
	"os/exec"
	"syscall"
)

// dieWithUs ends a child when the tests are killed, which clean up nothing then.
func dieWithUs(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
