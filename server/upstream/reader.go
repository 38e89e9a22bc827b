package upstream

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/countersign-mcp/countersign/approvals/action"
)

func (p *peer) read() {
	defer p.proc.stdout.Close()
	in := bufio.NewReaderSize(p.proc.stdout, 64<<10)
	for {
		line, err := readLine(in)
		if errors.Is(err, errLineTooLong) {
			p.log.Error("the upstream sent a line that is too long; it is stopped", "limit", lineLimit)
			p.kill("it sent a line that is too long")
			return
		}
		if err != nil {
			p.ranOut()
			return
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		f, err := action.Parse(line, action.Limits{Bytes: lineLimit, Depth: depthLimit})
		if err != nil {
			var m *action.Malformed
			reason := "unreadable"
			if errors.As(err, &m) {
				reason = m.Reason
			}
			p.log.Error("the upstream sent a malformed line; it is stopped", "bytes", len(line), "reason", reason)
			p.kill("it sent a malformed line")
			return
		}
		p.handle(f)
	}
}

// ranOut is the ordinary end: stdout was closed. A child that closed it and
// lives on can't be used any more.
func (p *peer) ranOut() {
	if p.proc.within(200 * time.Millisecond) {
		p.end(p.proc.state)
	}
	p.kill("it closed its stdout") // no more than the signal, if it is over already
}

var errLineTooLong = errors.New("line too long")

// readLine returns a line in memory of its own, since answers are kept.
func readLine(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		if len(line)+len(part) > lineLimit+1 {
			return nil, errLineTooLong
		}
		line = append(line, part...)
		switch {
		case err == nil:
			return line, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF):
			return nil, io.EOF // a last line without an end was cut off
		default:
			return nil, err
		}
	}
}

func (p *peer) handle(f action.Frame) {
	switch f.Kind {
	case action.Response:
		p.answer(f)
	case action.Request:
		p.refuse(f)
	case action.Notification:
		p.note(f)
	}
}

func (p *peer) answer(f action.Frame) {
	id, _ := action.Text(f.ID)
	p.mu.Lock()
	wait := p.waiting[id]
	delete(p.waiting, id)
	p.mu.Unlock()
	if wait == nil {
		p.log.Debug("the upstream answered a request that nobody waits for")
		return
	}
	wait.answer <- f
}

// refuse answers an upstream's own request. We declare no capability that would
// let it ask, and nobody here could answer for the caller.
func (p *peer) refuse(f action.Frame) {
	if f.Method == "ping" {
		p.send(resultLine(f.ID, json.RawMessage(`{}`)))
		return
	}
	p.log.Debug("the upstream made a request; it is refused")
	p.send(errorLine(f.ID, -32601, "this client answers no requests"))
}

func (p *peer) note(f action.Frame) {
	switch f.Method {
	case "notifications/progress":
		p.noteProgress(f)
	case "notifications/tools/list_changed":
		p.changed()
	default:
		p.log.Debug("a notification of the upstream is ignored")
	}
}

func (p *peer) noteProgress(f action.Frame) {
	raw, _ := action.Member(f.Params, "progressToken")
	token, ok := action.Text(raw)
	if !ok {
		return
	}
	p.mu.Lock()
	wait := p.waiting[token]
	p.mu.Unlock()
	if wait == nil {
		return
	}
	select {
	case wait.progress <- f.Params:
	default: // the caller is slow; a later one tells it more
	}
}
