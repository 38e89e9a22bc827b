package action

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"maps"
	"slices"
)

// ErrEnvelope says that bytes are not an envelope that Encode wrote.
var ErrEnvelope = errors.New("action: not an envelope of a version this build knows")

const envelopeMagic = "CSENV"

// Encode writes the envelope with every field, also the empty ones, and the
// exact bytes of arguments, meta, extra and request id. The form is a list of
// fields, each preceded by its length, so it is injective whatever the bytes;
// it holds readable arguments and is for sealing only.
//
// Nothing and empty are the same for lists and maps; for the byte members
// (arguments, meta, extra, request id) they differ.
func (e *Envelope) Encode() []byte {
	w := writer{b: []byte(envelopeMagic)}
	v := e.V
	if v == 0 {
		v = EnvelopeVersion
	}
	w.number(v)
	w.text(e.OperationID)
	c := &e.Call
	w.text(c.Server)
	w.text(c.Tool)
	w.raw(c.Args)
	w.raw(c.Meta)
	w.raw(c.Extra)
	w.text(c.Actor.ID)
	w.list(c.Actor.Roles)
	w.list(c.Actor.Owners)
	w.text(c.Actor.Auth)
	w.text(c.Session)
	w.text(c.Workflow)
	w.text(c.IdemKey)
	w.text(c.Version)
	w.raw(c.RequestID)
	w.text(e.Tier)
	w.bytes(e.ServerID.Bytes())
	w.text(e.ServerName)
	w.bytes(e.Manifest.Bytes())
	w.bytes(e.ToolDef.Bytes())
	w.bytes(e.Policy.Bytes())
	w.list(e.Rules)
	w.list(e.Routes)
	w.number(len(e.Provenance))
	for _, p := range slices.Sorted(maps.Keys(e.Provenance)) {
		w.text(p)
		w.list(e.Provenance[p])
	}
	w.list(e.Evidence)
	return w.b
}

// DecodeEnvelope reads what Encode wrote. Every envelope has one encoding: bytes
// that decode to an envelope with another encoding are refused.
func DecodeEnvelope(b []byte) (Envelope, error) {
	rest, ok := bytes.CutPrefix(b, []byte(envelopeMagic))
	if !ok {
		return Envelope{}, ErrEnvelope
	}
	r := reader{b: rest}
	var e Envelope
	if e.V = r.number(); e.V != EnvelopeVersion {
		return Envelope{}, ErrEnvelope
	}
	e.OperationID = r.text()
	c := &e.Call
	c.Server, c.Tool = r.text(), r.text()
	c.Args, c.Meta, c.Extra = r.raw(), r.raw(), r.raw()
	c.Actor = Actor{ID: r.text(), Roles: r.list(), Owners: r.list(), Auth: r.text()}
	c.Session, c.Workflow, c.IdemKey, c.Version = r.text(), r.text(), r.text(), r.text()
	c.RequestID = r.raw()
	e.Tier = r.text()
	e.ServerID, e.ServerName = r.digest(), r.text()
	e.Manifest, e.ToolDef, e.Policy = r.digest(), r.digest(), r.digest()
	e.Rules, e.Routes = r.list(), r.list()
	if n := r.count(); n > 0 {
		e.Provenance = make(map[string][]string, n)
		for range n {
			p := r.text()
			e.Provenance[p] = r.list()
		}
	}
	e.Evidence = r.list()
	if r.bad || len(r.b) > 0 || !bytes.Equal(e.Encode(), b) {
		return Envelope{}, ErrEnvelope
	}
	return e, nil
}

// writer appends fields. Numbers are uvarints, byte strings come after their
// length, a byte member after its length plus one, so that 0 is "nothing".
type writer struct{ b []byte }

func (w *writer) number(n int)  { w.b = binary.AppendUvarint(w.b, uint64(n)) }
func (w *writer) text(s string) { w.number(len(s)); w.b = append(w.b, s...) }
func (w *writer) bytes(b []byte) {
	w.number(len(b))
	w.b = append(w.b, b...)
}

func (w *writer) raw(m json.RawMessage) {
	if m == nil {
		w.number(0)
		return
	}
	w.number(len(m) + 1)
	w.b = append(w.b, m...)
}

func (w *writer) list(items []string) {
	w.number(len(items))
	for _, s := range items {
		w.text(s)
	}
}

// reader is the writer's mirror. After the first fault it returns zero values.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) number() int {
	n, used := binary.Uvarint(r.b)
	if r.bad || used <= 0 || n > 1<<31-1 {
		r.bad = true
		return 0
	}
	r.b = r.b[used:]
	return int(n)
}

// count is a number of fields to come; each takes a byte at least.
func (r *reader) count() int {
	n := r.number()
	if n > len(r.b) {
		r.bad = true
		return 0
	}
	return n
}

func (r *reader) take(n int) []byte {
	if r.bad || n > len(r.b) {
		r.bad = true
		return nil
	}
	out := r.b[:n:n]
	r.b = r.b[n:]
	return out
}

func (r *reader) text() string { return string(r.take(r.number())) }

func (r *reader) raw() json.RawMessage {
	n := r.number()
	if n == 0 {
		return nil
	}
	return append(json.RawMessage{}, r.take(n-1)...)
}

func (r *reader) list() []string {
	n := r.count()
	if n == 0 {
		return nil
	}
	out := make([]string, 0, min(n, 1024))
	for range n {
		out = append(out, r.text())
	}
	return out
}

func (r *reader) digest() Digest {
	var d Digest
	if b := r.take(r.number()); len(b) == len(d.sum) {
		copy(d.sum[:], b)
	} else {
		r.bad = true
	}
	return d
}
