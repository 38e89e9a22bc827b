//go:build faultpoints

package fault

import (
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// Enabled tells whether this binary obeys fault points.
const Enabled = true

// Variable is read once: "NAME=ACTION" or "NAME#N=ACTION" for the N-th time the
// point is passed (1 is the first). ACTION is "kill" (SIGKILL to the own
// process) or "stop" (SIGSTOP; the test sends SIGCONT). Several are separated
// by commas.
const Variable = "COUNTERSIGN_FAULT"

type plan struct {
	nth    int
	signal syscall.Signal
}

var plans = sync.OnceValue(func() map[string]plan {
	out := map[string]plan{}
	for item := range strings.SplitSeq(os.Getenv(Variable), ",") {
		name, action, ok := strings.Cut(item, "=")
		if !ok {
			continue
		}
		p := plan{nth: 1, signal: syscall.SIGKILL}
		if base, n, numbered := strings.Cut(name, "#"); numbered {
			name = base
			p.nth, _ = strconv.Atoi(n)
		}
		if action == "stop" {
			p.signal = syscall.SIGSTOP
		}
		out[name] = p
	}
	return out
})

var (
	mu     sync.Mutex
	passed = map[string]int{}
)

// Point kills or stops this process when the environment asks for it here.
func Point(name string) {
	p, ok := plans()[name]
	if !ok {
		return
	}
	mu.Lock()
	passed[name]++
	now := passed[name] == p.nth
	mu.Unlock()
	if !now {
		return
	}
	// A signal to the own process may take effect in another thread first, and
	// nothing after this point may run meanwhile.
	goesOn := make(chan os.Signal, 1)
	signal.Notify(goesOn, syscall.SIGCONT)
	defer signal.Stop(goesOn)
	_ = syscall.Kill(syscall.Getpid(), p.signal)
	<-goesOn
}
