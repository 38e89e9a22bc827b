package upstream

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/countersign-mcp/countersign/approvals/action"
)

// lineLimit bounds one message of an upstream; depthLimit its nesting, which is
// wider than a caller's since results are data and not what is judged.
const (
	lineLimit  = 16 << 20
	depthLimit = 256
)

// peer is one life of the child: what was sent and is not answered, the writer
// and the reader. It ends for good with its process.
type peer struct {
	proc    *process
	log     *slog.Logger
	changed func()

	modern string // the protocol version that each request must name; "" in the older era
	triple era    // what each request's _meta carries then

	queue chan *outgoing
	done  chan struct{} // closed when the peer is over

	mu      sync.Mutex
	waiting map[string]*pending // by request id; the id is the progress token too
	next    uint64
	over    bool
	reason  string // the first one that was given
}

// pending is a request that waits for its answer.
type pending struct {
	answer   chan action.Frame // gets exactly one, buffered
	progress chan json.RawMessage
}

// outgoing is a frame on its way to the child's stdin. Who takes it first, the
// writer or the one who gives up, decides whether it may be written.
type outgoing struct {
	line   []byte
	before time.Time // no write after it; zero: at any time
	taken  atomic.Bool
	wrote  chan struct{} // closed when the write has ended
	n      int           // bytes written; read it after wrote is closed
	late   chan struct{} // closed instead, when it was too late to write
}

func newOutgoing(line []byte, before time.Time) *outgoing {
	return &outgoing{line: line, before: before, wrote: make(chan struct{}), late: make(chan struct{})}
}

// tooLate asks both clocks: the monotonic one does not count the time that the
// machine was suspended, and the wall clock may be set.
func (o *outgoing) tooLate() bool {
	now := time.Now()
	return !o.before.IsZero() && (!now.Before(o.before) || !now.Round(0).Before(o.before.Round(0)))
}

func newPeer(proc *process, log *slog.Logger, changed func()) *peer {
	p := &peer{
		proc: proc, log: log, changed: changed,
		queue: make(chan *outgoing, 64), done: make(chan struct{}), waiting: map[string]*pending{},
	}
	go p.write()
	go p.read()
	return p
}

func (p *peer) alive() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

func (p *peer) why() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reason
}

func (p *peer) because(reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reason == "" {
		p.reason = reason
	}
}

// end makes the peer over.
func (p *peer) end(reason string) {
	p.because(reason)
	p.mu.Lock()
	first := !p.over
	p.over = true
	p.mu.Unlock()
	if first {
		close(p.done)
		p.proc.closeStdin()
	}
}

// kill ends the peer and its process. Nothing more of it is read.
func (p *peer) kill(reason string) {
	p.end(reason)
	p.proc.signal(syscall.SIGKILL)
}

// stop ends the process in order. Answers that come while it stops are read.
func (p *peer) stop(grace time.Duration) {
	p.because("stopped")
	p.proc.stop(grace)
	p.finish()
}

// finish ends the peer of an exited process once its last words were read. A
// grandchild may hold stdout open, so the wait has an end.
func (p *peer) finish() {
	select {
	case <-p.done:
	case <-time.After(time.Second):
	}
	p.end("ended")
}

// do sends one request and waits.
func (p *peer) do(ctx context.Context, r Request) (json.RawMessage, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", err, ErrNotSent)
	}
	id, wait := p.enlist()
	defer p.forget(id)
	params, err := p.params(r.Params, id, r.Progress != nil)
	if err != nil {
		return nil, fmt.Errorf("composing the request: %w: %w", err, ErrNotSent)
	}
	out := newOutgoing(requestLine(id, r.Method, params), r.Before)
	select {
	case p.queue <- out:
	case <-p.done:
		return nil, fmt.Errorf("the process ended: %w", ErrNotSent)
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", ctx.Err(), ErrNotSent)
	}
	return p.await(ctx, id, wait, out, r.Progress)
}

func (p *peer) await(ctx context.Context, id string, wait *pending, out *outgoing, progress func(json.RawMessage)) (json.RawMessage, error) {
	for {
		select {
		case f := <-wait.answer:
			drain(wait, progress)
			return unwrap(f)
		case params := <-wait.progress:
			pass(progress, params)
		case <-out.late:
			return nil, ErrTooLate
		case <-ctx.Done():
			if out.taken.CompareAndSwap(false, true) {
				return nil, fmt.Errorf("%w: %w", ctx.Err(), ErrNotSent)
			}
			p.cancel(id)
			return nil, fmt.Errorf("%w: %w", ctx.Err(), ErrLost)
		case <-p.done:
			select {
			case f := <-wait.answer: // read before the end
				drain(wait, progress)
				return unwrap(f)
			default:
			}
			if out.taken.CompareAndSwap(false, true) {
				return nil, fmt.Errorf("the process ended (%s): %w", p.why(), ErrNotSent)
			}
			select {
			case <-out.late:
				return nil, ErrTooLate
			case <-out.wrote: // stdin is closed now, so the write has ended or ends at once
			}
			if out.n == 0 {
				return nil, fmt.Errorf("the process ended (%s): %w", p.why(), ErrNotSent)
			}
			return nil, fmt.Errorf("the process ended (%s): %w", p.why(), ErrLost)
		}
	}
}

func drain(wait *pending, progress func(json.RawMessage)) {
	for {
		select {
		case params := <-wait.progress:
			pass(progress, params)
		default:
			return
		}
	}
}

// pass drops the progress that nobody asked for.
func pass(progress func(json.RawMessage), params json.RawMessage) {
	if progress != nil {
		progress(params)
	}
}

func unwrap(f action.Frame) (json.RawMessage, error) {
	if f.Error == nil {
		return f.Result, nil
	}
	fault := &Fault{Raw: f.Error}
	var e struct {
		Code    json.Number `json:"code"`
		Message string      `json:"message"`
	}
	if err := json.Unmarshal(f.Error, &e); err == nil {
		fault.Code, _ = strconv.Atoi(e.Code.String())
		fault.Message = e.Message
	}
	return nil, fault
}

func (p *peer) enlist() (string, *pending) {
	wait := &pending{answer: make(chan action.Frame, 1), progress: make(chan json.RawMessage, 64)}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next++
	id := "cs-" + strconv.FormatUint(p.next, 10)
	p.waiting[id] = wait
	return id, wait
}

func (p *peer) forget(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.waiting, id)
}

// send queues a frame that nobody waits for. It never blocks: with a full queue
// the child is not reading, and a notice more would not help.
func (p *peer) send(line []byte) {
	select {
	case p.queue <- newOutgoing(line, time.Time{}):
	case <-p.done:
	default:
		p.log.Debug("a message to the upstream was dropped: it does not read")
	}
}

func (p *peer) write() {
	for {
		select {
		case <-p.done:
			return
		case out := <-p.queue:
			if !out.taken.CompareAndSwap(false, true) {
				continue
			}
			if out.tooLate() {
				close(out.late)
				continue
			}
			n, err := p.proc.stdin.Write(out.line)
			out.n = n
			close(out.wrote)
			if err != nil {
				// Answers to earlier requests may still be in the pipe, so the
				// reader ends the peer, not this.
				p.because("its stdin is closed")
				p.proc.signal(syscall.SIGKILL)
				<-p.proc.exited
				p.finish()
				return
			}
		}
	}
}
