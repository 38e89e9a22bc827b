package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/approvals/keys"
)

// What stands in the hash of an upstream's pins: a pin under its tool's name, and
// a refusal under the digest of the change that was refused.
const (
	pinField    = "p:"
	refuseField = "d:"
)

func (k keyspace) pins(server string) string { return string(k) + "pn:" + server }

// sealedPin is a pin as it is sealed.
type sealedPin struct {
	Digest     string          `json:"digest"`
	Definition json.RawMessage `json:"definition"`
	Identity   string          `json:"identity"`
	Over       string          `json:"over,omitempty"`
	Rev        uint64          `json:"rev"`
	Approval   string          `json:"approval,omitempty"`
	By         string          `json:"by,omitempty"`
	At         int64           `json:"at"` // ms
}

// sealedRefusal is a person's no to a change.
type sealedRefusal struct {
	Approval string `json:"approval"`
	By       string `json:"by"`
}

// pinBound is the associated data of a pin: it can't be moved to another
// namespace, upstream, tool or kind.
func (s *Store) pinBound(server, field string) [][]byte {
	kind, name := field[:len(pinField)], field[len(pinField):]
	return [][]byte{[]byte(s.opt.Namespace), []byte(server), []byte(name), []byte("pin " + kind)}
}

func (s *Store) sealPin(server string, p approvals.Pin) (string, error) {
	v := sealedPin{
		Digest: p.Digest.Hex(), Definition: p.Definition, Identity: p.Identity.Hex(),
		Rev: p.Rev, Approval: p.Approval, By: p.By, At: p.At.UnixMilli(),
	}
	if !p.Over.IsZero() {
		v.Over = p.Over.Hex()
	}
	plain, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("writing the pin of %s: %w", p.Tool, err)
	}
	return string(s.opt.Ring.Seal(keys.PinSeal, plain, s.pinBound(server, pinField+p.Tool)...)), nil
}

// errPin says that a stored pin does not open or can't be read.
var errPin = errors.New("the pin does not open")

func (s *Store) openPin(server, tool, sealed string) (approvals.Pin, error) {
	plain, err := s.opt.Ring.Open(keys.PinSeal, []byte(sealed), s.pinBound(server, pinField+tool)...)
	if err != nil {
		return approvals.Pin{}, errPin
	}
	var v sealedPin
	if err := json.Unmarshal(plain, &v); err != nil {
		return approvals.Pin{}, errPin
	}
	p := approvals.Pin{Tool: tool, Definition: v.Definition, Rev: v.Rev, Approval: v.Approval, By: v.By, At: time.UnixMilli(v.At).UTC()}
	var e1, e2, e3 error
	p.Digest, e1 = action.ParseDigest(v.Digest)
	p.Identity, e2 = action.ParseDigest(v.Identity)
	if v.Over != "" {
		p.Over, e3 = action.ParseDigest(v.Over)
	}
	if errors.Join(e1, e2, e3) != nil || v.Rev == 0 {
		return approvals.Pin{}, errPin
	}
	return p, nil
}

// Pins reads what was pinned for an upstream at run time, and what was refused; with
// tools, the pins of those alone. A pin that does not
// open is told of and never returned as one. Pins under an older key of the ring
// are sealed again under the current one, as far as that works at once.
func (s *Store) Pins(ctx context.Context, server string, tools ...string) (approvals.Pins, error) {
	if err := s.ready(ctx); err != nil {
		return approvals.Pins{}, unavailable("reading the pins", err)
	}
	fields, err := s.pinFields(ctx, server, tools)
	if err != nil {
		return approvals.Pins{}, unavailable("reading the pins", err)
	}
	out := approvals.Pins{Tools: map[string]approvals.Pin{}, Refused: map[action.Digest]bool{}}
	var old []any
	for field, sealed := range fields {
		name, isPin := strings.CutPrefix(field, pinField)
		switch {
		case isPin:
			p, err := s.openPin(server, name, sealed)
			if err != nil {
				out.Forged = append(out.Forged, name)
				continue
			}
			out.Tools[name] = p
			old = append(old, s.renewed(server, p, sealed)...)
		case strings.HasPrefix(field, refuseField):
			if d, plain, ok := s.openRefusal(server, field, sealed); ok {
				out.Refused[d] = true
				if !s.current(sealed) {
					old = append(old, field, sealed, string(s.opt.Ring.Seal(keys.PinSeal, plain, s.pinBound(server, field)...)))
				}
			}
		}
	}
	slices.Sort(out.Forged)
	if len(old) > 0 { // it is done again at the next reading if it fails
		_, _ = s.setPins(ctx, server, nil, old)
	}
	return out, nil
}

// pinFields are all fields of an upstream's pins, or those of some tools.
func (s *Store) pinFields(ctx context.Context, server string, tools []string) (map[string]string, error) {
	if len(tools) == 0 {
		return s.rdb.HGetAll(ctx, s.k.pins(server)).Result()
	}
	names := make([]string, len(tools))
	for i, t := range tools {
		names[i] = pinField + t
	}
	values, err := s.rdb.HMGet(ctx, s.k.pins(server), names...).Result()
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for i, v := range values {
		if v, there := v.(string); there {
			out[names[i]] = v
		}
	}
	return out, nil
}

// renewed is the step of a pin from an older key to the current one, if it needs
// one.
func (s *Store) renewed(server string, p approvals.Pin, sealed string) []any {
	if s.current(sealed) {
		return nil
	}
	now, err := s.sealPin(server, p)
	if err != nil {
		return nil
	}
	return []any{pinField + p.Tool, sealed, now}
}

// openRefusal opens a refusal. One that does not open counts for nothing: people
// are asked once more than they need be.
func (s *Store) openRefusal(server, field, sealed string) (d action.Digest, plain []byte, ok bool) {
	plain, err := s.opt.Ring.Open(keys.PinSeal, []byte(sealed), s.pinBound(server, field)...)
	if err != nil {
		return d, nil, false
	}
	d, err = action.ParseDigest(strings.TrimPrefix(field, refuseField))
	return d, plain, err == nil
}

// current tells whether a value was sealed under the current key.
func (s *Store) current(sealed string) bool { return strings.HasPrefix(sealed, s.opt.Ring.ID()) }

// Pin writes pins of one upstream, all or none. A pin goes over one with a lower
// Rev, over one that does not open, and where there is none; Moved when another
// with the same or a higher Rev stands there. The same pins again are no error.
//
// With a grant, the pins are written only while its claim stands: AlreadyUsed when
// it does not any more.
func (s *Store) Pin(ctx context.Context, server string, under *approvals.Grant, ps ...approvals.Pin) error {
	if err := s.ready(ctx); err != nil {
		return unavailable("pinning", err)
	}
	fields := make([]string, len(ps))
	for i, p := range ps {
		fields[i] = pinField + p.Tool
	}
	if len(fields) == 0 {
		return nil
	}
	is, err := s.rdb.HMGet(ctx, s.k.pins(server), fields...).Result()
	if err != nil {
		return unavailable("pinning", err)
	}
	var sets []any
	for i, p := range ps {
		seen, _ := is[i].(string)
		if seen != "" {
			now, err := s.openPin(server, p.Tool, seen)
			switch {
			case err != nil: // whoever pins knows better
			case same(now, p):
				continue
			case now.Rev >= p.Rev:
				return fmt.Errorf("pinning %s: %w", p.Tool, approvals.Moved)
			}
		}
		sealed, err := s.sealPin(server, p)
		if err != nil {
			return err
		}
		sets = append(sets, fields[i], seen, sealed)
	}
	if len(sets) == 0 {
		return nil
	}
	r, err := s.setPins(ctx, server, under, sets)
	switch {
	case err != nil:
		return fmt.Errorf("pinning: %w", err)
	case r.code == "ok":
		return nil
	case r.code == "moved":
		return fmt.Errorf("pinning: %w", approvals.Moved)
	case r.code == "late":
		return fmt.Errorf("pinning: approval %s is %s: %w", under.ID, r.text, approvals.AlreadyUsed)
	}
	return unexpected("pinning", r)
}

// same compares two pins. The digest stands for the definition, whose bytes may be
// spelt in another way.
func same(a, b approvals.Pin) bool {
	return a.Digest == b.Digest && a.Identity == b.Identity && a.Over == b.Over && a.Rev == b.Rev &&
		a.Approval == b.Approval && a.By == b.By
}

// RefusePins remembers that people said no to changes of an upstream's tools, so
// that they are not asked the same again. It may be sent twice.
func (s *Store) RefusePins(ctx context.Context, server string, changes []action.Digest, approval, by string) error {
	if len(changes) == 0 {
		return nil
	}
	plain, err := json.Marshal(sealedRefusal{Approval: approval, By: by})
	if err != nil {
		return fmt.Errorf("writing the refusal: %w", err)
	}
	if err := s.ready(ctx); err != nil {
		return unavailable("remembering a refusal", err)
	}
	fields := make([]string, len(changes))
	for i, d := range changes {
		fields[i] = refuseField + d.Hex()
	}
	for range 3 {
		seen, err := s.rdb.HMGet(ctx, s.k.pins(server), fields...).Result()
		if err != nil {
			return unavailable("remembering a refusal", err)
		}
		var sets []any
		for i, field := range fields {
			was, _ := seen[i].(string)
			if _, _, known := s.openRefusal(server, field, was); known {
				continue
			}
			sets = append(sets, field, was, string(s.opt.Ring.Seal(keys.PinSeal, plain, s.pinBound(server, field)...)))
		}
		if len(sets) == 0 {
			return nil
		}
		switch r, err := s.setPins(ctx, server, nil, sets); {
		case err != nil:
			return fmt.Errorf("remembering a refusal: %w", err)
		case r.code == "ok":
			return nil
		case r.code != "moved": // else another remembered some of them meanwhile
			return unexpected("remembering a refusal", r)
		}
	}
	return unavailable("remembering a refusal", errors.New("the pins did not settle"))
}

// setPins sends the script. sets are triples of field, seen value, new value.
func (s *Store) setPins(ctx context.Context, server string, under *approvals.Grant, sets []any) (reply, error) {
	key := s.k.pins(server)
	ks, nonce := []string{key, key}, ""
	if under != nil {
		ks[1], nonce = s.k.record(under.ID), under.Nonce
	}
	return s.run(ctx, s.sc.pin, ks, append([]any{nonce, len(sets) / 3}, sets...)...)
}
