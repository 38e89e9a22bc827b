package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/approvals/keys"
)

// fixed is the part of a record that never changes. It is sealed: what a writer
// to Redis finds beside it are copies for the scripts' events.
type fixed struct {
	ID           string                  `json:"id"`
	Match        string                  `json:"match"` // the index key's MAC
	Bound        string                  `json:"bound"`
	Shown        string                  `json:"shown"`
	Actor        string                  `json:"actor"`
	Auth         string                  `json:"auth"`
	Requester    string                  `json:"requester"`
	Server       string                  `json:"server"`
	Tool         string                  `json:"tool"`
	Tier         string                  `json:"tier"`
	Rules        []string                `json:"rules"`
	Requirements []approvals.Requirement `json:"requirements"`
	Channels     []string                `json:"channels"`
	Links        string                  `json:"links"`
	Run          string                  `json:"run"`
	OnCancel     string                  `json:"on_cancel"`
	Deadline     int64                   `json:"deadline"` // ms; the earliest of the requirements'
	Denials      int                     `json:"denials,omitempty"`
	CloseMS      int64                   `json:"close_ms,omitempty"`
}

// shown is what was put before people.
type shown struct {
	Title string         `json:"title"`
	View  approvals.View `json:"view"`
}

// record is a record as it was read: the opened fixed part, the open fields and
// the ticket made of both.
type record struct {
	fixed
	fields map[string]string
	ticket approvals.Ticket
}

func (r *record) number(field string) int64 {
	n, _ := strconv.ParseInt(r.fields[field], 10, 64)
	return n
}

// bound is the associated data of everything sealed in a record: a value can't
// be moved to another namespace, record, place or call.
func (s *Store) bound(id, kind, digest string) [][]byte {
	return [][]byte{[]byte(s.opt.Namespace), []byte(id), []byte(kind), []byte(digest)}
}

func (s *Store) seal(p keys.Purpose, id, kind, digest string, v any) ([]byte, error) {
	plain, ok := v.([]byte)
	if !ok {
		var err error
		if plain, err = json.Marshal(v); err != nil {
			return nil, fmt.Errorf("store: writing the %s: %w", kind, err)
		}
	}
	return s.opt.Ring.Seal(p, plain, s.bound(id, kind, digest)...), nil
}

func (s *Store) open(p keys.Purpose, id, kind, digest, sealed string) ([]byte, error) {
	plain, err := s.opt.Ring.Open(p, []byte(sealed), s.bound(id, kind, digest)...)
	if err != nil {
		return nil, forged(id, "its "+kind+" does not open")
	}
	return plain, nil
}

func (s *Store) openJSON(p keys.Purpose, id, kind, digest, sealed string, into any) error {
	plain, err := s.open(p, id, kind, digest, sealed)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(plain, into); err != nil {
		return forged(id, "its "+kind+" can't be read")
	}
	return nil
}

// parts are the sealed values beside a record's hash.
type parts struct{ view, call, result string }

// read fetches a record, of one moment, with the server's clock. NotFound when
// there is none.
func (s *Store) read(ctx context.Context, id string) (*record, time.Time, error) {
	r, _, now, err := s.readParts(ctx, id, s.k.record(id), s.k.record(id))
	return r, now, err
}

func (s *Store) readParts(ctx context.Context, id, call, result string) (*record, parts, time.Time, error) {
	if err := s.ready(ctx); err != nil {
		return nil, parts{}, time.Time{}, unavailable("reading the approval", err)
	}
	out, err := s.sc.read.Run(ctx, s.rdb, []string{s.k.record(id), s.k.view(id), call, result}).StringSlice()
	if err != nil || len(out) < 4 {
		return nil, parts{}, time.Time{}, unavailable("reading the approval", err)
	}
	now := parseMS(out[0])
	p := parts{view: out[1], call: out[2], result: out[3]}
	fields := map[string]string{}
	for i := 4; i+1 < len(out); i += 2 {
		fields[out[i]] = out[i+1]
	}
	if len(fields) == 0 {
		return nil, p, now, fmt.Errorf("approval %s: %w", id, approvals.NotFound)
	}
	r, err := s.decode(id, fields, p.view)
	return r, p, now, err
}

func parseMS(text string) time.Time {
	n, _ := strconv.ParseInt(text, 10, 64)
	return fromMS(n)
}

// decode opens a record's parts and makes its ticket.
func (s *Store) decode(id string, fields map[string]string, sealedView string) (*record, error) {
	r := &record{fields: fields}
	if err := s.openJSON(keys.Record, id, "record", fields["b"], fields["f"], &r.fixed); err != nil {
		return nil, err
	}
	if r.fixed.ID != id || r.fixed.Bound != fields["b"] {
		return nil, forged(id, "its record is another's")
	}
	var v shown
	if err := s.openJSON(keys.ViewSeal, id, "view", r.fixed.Bound, sealedView, &v); err != nil {
		return nil, err
	}
	reason, err := s.reason(id, r.fixed.Bound, fields["rs"])
	if err != nil {
		return nil, err
	}
	f := r.fixed
	r.ticket = approvals.Ticket{
		ID: id, State: approvals.State(fields["st"]), Cause: fields["ca"], Rev: uint64(r.number("rev")),
		Server: f.Server, Tool: f.Tool, Tier: f.Tier, Title: v.Title, View: v.View,
		Bound: f.Bound, ShownDigest: f.Shown,
		Actor: f.Actor, ActorAuth: f.Auth, Requester: f.Requester, Rules: f.Rules,
		Requirements: f.Requirements, Channels: f.Channels, Links: f.Links, Run: f.Run, OnCancel: f.OnCancel,
		By: fields["by"], Reason: reason,
		CreatedAt: fromMS(r.number("cr")), Deadline: fromMS(f.Deadline), DecidedAt: fromMS(r.number("dat")),
		ClaimBy: fromMS(r.number("cb")), EndedAt: fromMS(r.number("ed")),
	}
	if !slices.Contains(approvals.States(), r.ticket.State) {
		return nil, forged(id, "its state is no state")
	}
	r.readVotes()
	r.readMarks()
	return r, nil
}

func (s *Store) reason(id, bound, sealed string) (string, error) {
	if sealed == "" {
		return "", nil
	}
	plain, err := s.open(keys.Comment, id, "comment", bound, sealed)
	return string(plain), err
}

func (s *Store) sealReason(id, bound, words string) (string, error) {
	if words == "" {
		return "", nil
	}
	b, err := s.seal(keys.Comment, id, "comment", bound, []byte(words))
	return string(b), err
}

// readVotes lists the votes as stored; [Store.Recount] says which are true.
func (r *record) readVotes() {
	for field, text := range r.fields {
		if !strings.HasPrefix(field, "v:") {
			continue
		}
		var c approvals.Cast
		if json.Unmarshal([]byte(text), &c) == nil {
			r.ticket.Votes = append(r.ticket.Votes, c)
		}
	}
	slices.SortFunc(r.ticket.Votes, func(a, b approvals.Cast) int {
		if d := a.At.Compare(b.At); d != 0 {
			return d
		}
		return strings.Compare(a.Requirement+"\x00"+a.Person, b.Requirement+"\x00"+b.Person)
	})
}

func (r *record) readMarks() {
	for _, channel := range r.Channels {
		r.readRefs(channel)
		var tr approvals.Trouble
		if json.Unmarshal([]byte(r.fields["tr:"+channel]), &tr) == nil {
			r.ticket.Troubles = append(r.ticket.Troubles, tr)
		}
	}
}

// readRefs adds the message that we posted in a channel and those that were
// adopted there.
func (r *record) readRefs(channel string) {
	fields := []string{"ref:" + channel}
	for f := range r.fields {
		if strings.HasPrefix(f, "ref:"+channel+" ") {
			fields = append(fields, f)
		}
	}
	slices.Sort(fields)
	for _, f := range fields {
		var ref approvals.Ref
		if json.Unmarshal([]byte(r.fields[f]), &ref) == nil {
			r.ticket.Refs = append(r.ticket.Refs, ref)
		}
	}
}

// Ticket reads an approval.
func (s *Store) Ticket(ctx context.Context, id string) (approvals.Ticket, error) {
	r, _, err := s.read(ctx, id)
	if err != nil {
		return approvals.Ticket{}, err
	}
	return r.ticket, nil
}

// Load reads an approval with what only the gate may hold: the envelope with the
// exact bytes, and the kept result. Another actor's approval is NotFound, like
// one that does not exist. The envelope of an ended approval may be gone; its
// OperationID is then empty.
func (s *Store) Load(ctx context.Context, id string, who action.Actor) (approvals.Parked, error) {
	r, sealed, now, err := s.readParts(ctx, id, s.k.envelope(id), s.k.result(id))
	if err != nil {
		return approvals.Parked{}, err
	}
	if r.Actor != who.ID {
		return approvals.Parked{}, fmt.Errorf("approval %s: %w", id, approvals.NotFound)
	}
	p := approvals.Parked{Ticket: r.ticket}
	if p.Envelope, err = s.openEnvelope(r, sealed.call); err != nil {
		return approvals.Parked{}, err
	}
	if sealed.result != "" && now.Before(fromMS(r.number("rx"))) {
		plain, err := s.open(keys.Result, id, "result", r.Bound, sealed.result)
		if err != nil {
			return approvals.Parked{}, err
		}
		if p.Result, err = decodeKept(plain); err != nil {
			return approvals.Parked{}, forged(id, "its result can't be read")
		}
	}
	return p, nil
}

func (s *Store) openEnvelope(r *record, sealed string) (action.Envelope, error) {
	if sealed == "" {
		if r.ticket.State.Over() {
			return action.Envelope{}, nil
		}
		return action.Envelope{}, forged(r.fixed.ID, "its call is gone")
	}
	plain, err := s.open(keys.Call, r.fixed.ID, "call", r.Bound, sealed)
	if err != nil {
		return action.Envelope{}, err
	}
	e, err := action.DecodeEnvelope(plain)
	if err != nil || e.OperationID != r.fixed.ID || e.Call.Actor.ID != r.Actor {
		return action.Envelope{}, forged(r.fixed.ID, "its call is another's")
	}
	return e, nil
}

// clock reads the server's time: the only clock that deadlines are made by.
func (s *Store) clock(ctx context.Context) (time.Time, error) {
	r, err := s.run(ctx, s.sc.clock, []string{s.k.due()})
	if err != nil {
		return time.Time{}, err
	}
	return parseMS(r.code), nil
}
