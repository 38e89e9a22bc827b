package upstream

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is a child in a process group of its own: a terminal's ctrl-C reaches
// us first, and we stop it in order.
type process struct {
	pid    int
	stdin  *os.File
	stdout *os.File
	stderr *os.File
	exited chan struct{} // closed when the child was waited for
	state  string        // how it exited; read it after exited is closed

	closeIn sync.Once

	mu     sync.Mutex
	waited bool                                  // the pid may be another's by now
	kill   func(pid int, s syscall.Signal) error // syscall.Kill, but for a test
}

// startProcess starts the child on an OS thread that stays locked until the
// child has ended: Linux sends the parent-death signal when the thread that
// started a child ends, not when the process does.
func startProcess(cfg Config) (*process, error) {
	type end struct {
		p   *process
		err error
	}
	started := make(chan end, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		p, cmd, err := spawn(cfg)
		started <- end{p, err}
		if err != nil {
			return
		}
		err = p.wait(cmd)
		if cmd.ProcessState == nil {
			p.state = fmt.Sprint(err)
		} else {
			p.state = cmd.ProcessState.String()
		}
		close(p.exited)
	}()
	s := <-started
	return s.p, s.err
}

func spawn(cfg Config) (*process, *exec.Cmd, error) {
	var open []*os.File
	closeAll := func() {
		for _, f := range open {
			f.Close()
		}
	}
	pipe := func() (r, w *os.File, err error) {
		if r, w, err = os.Pipe(); err == nil {
			open = append(open, r, w)
		}
		return r, w, err
	}
	inR, inW, err := pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("making a pipe: %w", err)
	}
	outR, outW, err := pipe()
	if err != nil {
		closeAll()
		return nil, nil, fmt.Errorf("making a pipe: %w", err)
	}
	errR, errW, err := pipe()
	if err != nil {
		closeAll()
		return nil, nil, fmt.Errorf("making a pipe: %w", err)
	}
	cmd := exec.Command(cfg.Command[0], cfg.Command[1:]...)
	cmd.Dir, cmd.Env = cfg.Dir, environ(cfg.Env)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = inR, outW, errW
	cmd.SysProcAttr = attributes()
	if err := cmd.Start(); err != nil {
		closeAll()
		return nil, nil, fmt.Errorf("starting %s: %w", cfg.Command[0], err)
	}
	inR.Close()
	outW.Close()
	errW.Close()
	return &process{
		pid: cmd.Process.Pid, stdin: inW, stdout: outR, stderr: errR, exited: make(chan struct{}), kill: syscall.Kill,
	}, cmd, nil
}

// inherited are the variables that a child gets from us. Everything else, our
// own secrets first of all, stays here.
var inherited = []string{
	"PATH", "HOME", "TMPDIR", "TMP", "TEMP", "LANG", "LANGUAGE", "TZ", "USER", "LOGNAME", "SHELL", "TERM",
}

func environ(own map[string]string) []string {
	env := map[string]string{}
	for _, kv := range os.Environ() {
		name, value, _ := strings.Cut(kv, "=")
		if slices.Contains(inherited, name) || strings.HasPrefix(name, "LC_") {
			env[name] = value
		}
	}
	maps.Copy(env, own)
	out := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		out = append(out, name+"="+env[name])
	}
	return out
}

func (p *process) closeStdin() { p.closeIn.Do(func() { p.stdin.Close() }) }

// wait waits for the child, and ends what it leaves behind in its group. Until it
// was waited for its pid is nobody else's, so that is the last moment to do so.
func (p *process) wait(cmd *exec.Cmd) error {
	if !awaitExit(p.pid) {
		err := cmd.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.waited = true
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.kill(-p.pid, syscall.SIGKILL)
	p.waited = true
	return cmd.Wait()
}

// signal reaches the whole group: a server started through npx or a shell is a
// grandchild. Once the child was waited for no group is surely its own.
func (p *process) signal(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.waited {
		_ = p.kill(-p.pid, s)
	}
}

// stop ends the child in the order that MCP asks for, and returns when it has
// been waited for.
func (p *process) stop(grace time.Duration) {
	p.closeStdin()
	if p.within(grace) {
		return
	}
	p.signal(syscall.SIGTERM)
	if p.within(grace) {
		return
	}
	p.signal(syscall.SIGKILL)
	<-p.exited
}

func (p *process) within(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-p.exited:
		return true
	case <-t.C:
		return false
	}
}

// readStderr keeps the pipe empty. A line's text is logged only where the
// configuration says so, since it may hold arguments.
func (u *Upstream) readStderr(p *process) {
	const most = 4 << 10
	defer p.stderr.Close()
	in := bufio.NewReaderSize(p.stderr, most)
	for {
		line, err := in.ReadSlice('\n')
		if n := len(line); n > 0 {
			if u.cfg.ShowStderr {
				u.log.Debug("upstream wrote to stderr", "bytes", n, "text", strings.TrimRight(string(line), "\r\n"))
			} else {
				u.log.Debug("upstream wrote to stderr", "bytes", n)
			}
		}
		if err != nil && err != bufio.ErrBufferFull {
			if err != io.EOF {
				u.log.Debug("reading the upstream's stderr ended", "error", err)
			}
			return
		}
	}
}
