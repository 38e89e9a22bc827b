package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/keys"
)

// parkRounds bounds how often a park looks again because somebody else moved
// what it had found.
const parkRounds = 32

// Park keeps a call that needs a yes, or attaches it to the kept call with the
// same match key: fresh tells which. Attaching takes no budget. The same nonce
// gets the same answer.
//
// Errors: a NoRoom when a cap is reached or denials have closed the actor's way;
// Behind when the envelope's policy is not the newest generation's and there is
// nothing to attach to; StoreUnavailable when it is not known
// whether the call is parked (repeat with the same nonce, or let it expire).
func (s *Store) Park(ctx context.Context, p approvals.Park) (t approvals.Ticket, fresh bool, err error) {
	if err := validPark(p); err != nil {
		return t, false, err
	}
	digest := p.Envelope.Digest()
	f := fixed{
		ID: p.Envelope.OperationID, Bound: s.opt.Ring.MAC(keys.Bound, digest.Bytes()),
		Actor: p.Envelope.Call.Actor.ID, Auth: p.Envelope.Call.Actor.Auth, Requester: p.Requester,
		Server: p.Envelope.Call.Server, Tool: p.Envelope.Call.Tool, Tier: p.Envelope.Tier,
		Rules: p.Rules, Requirements: slices.Clone(p.Requirements), Channels: p.Channels,
		Links: p.Links, Run: p.Run, OnCancel: p.OnCancel,
		Denials: p.Closing.Denials, CloseMS: ms(p.Closing.For),
	}
	match := p.Envelope.Match()
	macs := s.opt.Ring.MACs(keys.Index, match.Bytes())
	f.Match = macs[0]
	seen, err := json.Marshal(shown{p.Title, p.View})
	if err != nil {
		return t, false, fmt.Errorf("parking: writing the view: %w", err)
	}
	f.Shown = s.opt.Ring.MAC(keys.Shown, seen)
	view, err := s.seal(keys.ViewSeal, f.ID, "view", f.Bound, seen)
	if err != nil {
		return t, false, err
	}
	call, err := s.seal(keys.Call, f.ID, "call", f.Bound, p.Envelope.Encode())
	if err != nil {
		return t, false, err
	}
	tidied := false
	for range parkRounds {
		r, err := s.parkOnce(ctx, p, f, macs, view, call)
		if err != nil {
			return t, false, fmt.Errorf("parking: %w", err)
		}
		switch r.code {
		case "fresh":
			t, err := s.Ticket(ctx, r.text)
			return t, true, err
		case "attached":
			t, err := s.attached(ctx, r.text, f.Actor, match.Bytes())
			if errors.Is(err, approvals.NotFound) {
				continue // forgotten in between
			}
			return t, false, err
		case "due":
			if err := s.tick(ctx, r.text); err != nil {
				return t, false, fmt.Errorf("parking: %w", err)
			}
		case "behind":
			return t, false, s.behind("parking", r)
		case "retry", "skew": // look again
		case "parked", "total", "hour", "allhour", "closed":
			if p.AttachOnly {
				return t, false, fmt.Errorf("parking: there is no such call: %w", approvals.NotFound)
			}
			if r.code == "parked" && !tidied {
				tidied = true
				if n, err := s.dropGone(ctx, f.Actor); err != nil {
					return t, false, fmt.Errorf("parking: %w", err)
				} else if n > 0 {
					continue
				}
			}
			return t, false, fmt.Errorf("parking: %w", noRoom(r))
		case "reused":
			return t, false, fmt.Errorf("parking: the id %s is taken", f.ID)
		default:
			return t, false, unexpected("parking", r)
		}
	}
	return t, false, unavailable("parking", errors.New("the index did not settle"))
}

// noRoom says why a new call was not kept.
func noRoom(r reply) *approvals.NoRoom {
	wait, _ := strconv.ParseInt(r.text, 10, 64) // "" where it is not known
	why := map[string]approvals.Conflict{
		"parked": approvals.TooManyPending, "total": approvals.TooManyPendingInAll,
		"hour": approvals.TooManyNew, "allhour": approvals.TooManyNewInAll, "closed": approvals.ReviewClosed,
	}[r.code]
	return &approvals.NoRoom{Why: why, After: time.Duration(wait) * time.Millisecond}
}

func yesNo(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// dropGone takes those off an actor's list of pending calls that have no record
// any more: one deleted by hand would count against the cap for ever. A record and
// its place on the list are made in one step, so what is listed and has no record
// never gets one.
func (s *Store) dropGone(ctx context.Context, actor string) (int, error) {
	ids, err := s.rdb.SMembers(ctx, s.k.parkedBy(actor)).Result()
	if err != nil {
		return 0, unavailable("looking at what is pending", err)
	}
	pipe := s.rdb.Pipeline()
	there := make([]*redis.IntCmd, len(ids))
	for i, id := range ids {
		there[i] = pipe.Exists(ctx, s.k.record(id))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return 0, unavailable("looking at what is pending", err)
	}
	var gone []any
	for i, id := range ids {
		if there[i].Val() == 0 {
			gone = append(gone, id)
		}
	}
	if len(gone) == 0 {
		return 0, nil
	}
	if err := s.rdb.SRem(ctx, s.k.parkedBy(actor), gone...).Err(); err != nil {
		return 0, unavailable("dropping what is gone", err)
	}
	return len(gone), nil
}

func validPark(p approvals.Park) error {
	switch {
	case p.Nonce == "" || p.Envelope.OperationID == "" || p.Envelope.Call.Actor.ID == "":
		return errors.New("parking: nonce, operation id and actor are needed")
	case len(p.Requirements) == 0:
		return errors.New("parking: no requirement: nobody could approve")
	case p.Caps.Parked <= 0 || p.Caps.NewPerHour <= 0 || p.Caps.Total <= 0 || p.Caps.NewInAll < 0:
		return errors.New("parking: a cap is missing")
	case p.Closing.Denials < 0 || p.Closing.Denials > 0 && (p.Closing.For < time.Millisecond || p.Closing.For > approvals.LongestClosing):
		return errors.New("parking: the time that denials close for is missing or too long")
	}
	routes := map[string]bool{}
	for _, q := range p.Requirements {
		if q.Route == "" || routes[q.Route] || q.Quorum < 1 || q.Timeout < time.Millisecond {
			return fmt.Errorf("parking: the requirement of route %q has no name of its own, no quorum or no timeout", q.Route)
		}
		routes[q.Route] = true
	}
	return nil
}

// parkOnce makes one try with deadlines of this moment.
func (s *Store) parkOnce(ctx context.Context, p approvals.Park, f fixed, macs []string, view, call []byte) (reply, error) {
	now, err := s.clock(ctx)
	if err != nil {
		return reply{}, err
	}
	f.Requirements = slices.Clone(f.Requirements)
	for i := range f.Requirements {
		q := &f.Requirements[i]
		q.Deadline = now.Add(q.Timeout.Truncate(time.Millisecond))
		if d := q.Deadline.UnixMilli(); f.Deadline == 0 || d < f.Deadline {
			f.Deadline = d
		}
	}
	sealed, err := s.seal(keys.Record, f.ID, "record", f.Bound, f)
	if err != nil {
		return reply{}, err
	}
	found, err := s.twins(ctx, macs)
	if err != nil {
		return reply{}, err
	}
	if p.AttachOnly {
		p.Caps = approvals.Caps{} // no room for a new one; attaching needs none
	}
	ks := s.k.moving(f.ID, f.Actor, s.k.newBy(f.Actor), s.k.all(), s.k.view(f.ID),
		s.k.newInAll(), s.k.denials(f.Actor))
	args := []any{
		f.ID, s.k.wakeChannel(), ms(s.opt.Retain), ms(s.opt.ResultTTL), now.UnixMilli(), f.Deadline, p.Nonce,
		sealed, view, call, f.Bound, f.Shown, f.Actor, f.Server, f.Tool,
		p.Caps.Parked, p.Caps.NewPerHour, p.Caps.Total, f.Run,
		p.Caps.NewInAll, yesNo(p.Closing.Denials > 0), len(macs),
	}
	for _, mac := range macs {
		ks = append(ks, s.k.index(mac))
	}
	for _, id := range found {
		args = append(args, id)
		if id == "" {
			ks = append(ks, s.k.record(f.ID))
		} else {
			ks = append(ks, s.k.record(id))
		}
	}
	ks = append(ks, s.k.generation())
	args = append(args, s.judgedBy(p.Envelope.Policy)...)
	return s.run(ctx, s.sc.park, ks, args...)
}

// twins looks the match key up under every key of the ring; "" where there is
// none.
func (s *Store) twins(ctx context.Context, macs []string) ([]string, error) {
	ks := make([]string, len(macs))
	for i, mac := range macs {
		ks[i] = s.k.index(mac)
	}
	vals, err := s.rdb.MGet(ctx, ks...).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, unavailable("looking for a twin", err)
	}
	out := make([]string, len(macs))
	for i, v := range vals {
		out[i], _ = v.(string)
	}
	return out, nil
}

// attached reads the twin and makes sure that it is one: an index entry is only
// a hint that anyone who can write to Redis could bend.
func (s *Store) attached(ctx context.Context, id, actor string, match []byte) (approvals.Ticket, error) {
	r, _, err := s.read(ctx, id)
	if err != nil {
		return approvals.Ticket{}, err
	}
	if r.Actor != actor || !s.opt.Ring.Verify(keys.Index, r.Match, match) {
		return approvals.Ticket{}, forged(id, "the index led to another call")
	}
	return r.ticket, nil
}
