package notifier

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/fault"
)

// step is one delivery that is due.
type step struct {
	channel string
	serves  Channel        // nil: nothing serves the channel
	ref     *approvals.Ref // nil: a post or a search
	find    bool
}

// wantsCard tells in which states a message is posted where none exists: while
// people can decide, and when nobody knows whether the call ran.
func wantsCard(s approvals.State) bool {
	return s == approvals.Pending || s == approvals.Unknown
}

// plan picks the next delivery. Without one it returns when the earliest may
// come; the zero time when none will, until the record changes. A channel that
// works goes before one that failed, since a failing call can take long.
func (d *Dispatcher) plan(j *job, t approvals.Ticket, now time.Time) (todo *step, later time.Time) {
	failing := false
	for _, channel := range t.Channels {
		s := d.need(j, t, channel)
		if s == nil {
			continue
		}
		trouble, troubled := j.trouble(t, channel)
		at, never := d.due(j, t, s, trouble, now)
		if never {
			continue
		}
		if at.After(now) {
			if later.IsZero() || at.Before(later) {
				later = at
			}
			continue
		}
		if todo == nil || failing && !troubled {
			todo, failing = s, troubled
		}
	}
	return todo, later
}

// need says what a channel lacks of the record's version; nil when nothing.
func (d *Dispatcher) need(j *job, t approvals.Ticket, channel string) *step {
	s := &step{channel: channel, serves: d.Find(channel)}
	behind, exists := messageBehind(t, channel)
	switch {
	case exists && behind == nil:
		return nil
	case exists:
		s.ref = behind
	case wantsCard(t.State):
	case j.looked[channel] == t.Rev:
		return nil
	default:
		s.find = true // an earlier post may have happened; otherwise there is nothing to tell
	}
	return s
}

// messageBehind finds the first message in a channel that shows an older version.
func messageBehind(t approvals.Ticket, channel string) (behind *approvals.Ref, exists bool) {
	for _, r := range t.Refs {
		if r.Channel != channel {
			continue
		}
		exists = true
		if r.Rev < t.Rev {
			return &r, true
		}
	}
	return nil, exists
}

// others tells whether a channel has more than one message of the approval.
func others(t approvals.Ticket, channel string) bool {
	n := 0
	for _, r := range t.Refs {
		if r.Channel == channel {
			n++
		}
	}
	return n > 1
}

// trouble is the last failure of a channel, by the record or, when that could
// not be written, by this process.
func (j *job) trouble(t approvals.Ticket, channel string) (approvals.Trouble, bool) {
	own, known := j.troubles[channel]
	i := slices.IndexFunc(t.Troubles, func(x approvals.Trouble) bool { return x.Channel == channel })
	if i < 0 || known && !t.Troubles[i].At.After(own.At) {
		return own, known
	}
	return t.Troubles[i], true
}

// due says when a step may be taken.
func (d *Dispatcher) due(j *job, t approvals.Ticket, s *step, last approvals.Trouble, now time.Time) (at time.Time, never bool) {
	rev := t.Rev
	if last.Rev == rev && last.Final {
		if !wantsCard(t.State) || !mendable(Reason(last.Reason)) {
			return time.Time{}, true
		}
		// Somebody may have invited the bot, or started us with another token.
		if again := last.At.Add(d.Schedule.mend(t)); again.After(now) {
			return again, false
		}
	}
	// A new version is news and is told at once, but not to a service that
	// asked for a pause.
	if last.Next.After(now) && (last.Rev == rev || Reason(last.Reason) == RateLimited) {
		return last.Next, false
	}
	if reserved, ok := j.slots[s.channel]; ok {
		return reserved, false
	}
	pacer, ok := s.serves.(Pacer)
	if !ok {
		return now, false
	}
	at = d.gate.slot(s.place(), now, pacer.Pace(), s.ref == nil && !s.find)
	j.slots[s.channel] = at
	return at, false
}

// place is what a service counts separately: posts and edits of one channel.
func (s *step) place() string {
	if s.ref != nil || s.find {
		return "edit " + s.channel
	}
	return "post " + s.channel
}

// act takes one step. An error is the store's; failed deliveries are recorded.
func (d *Dispatcher) act(ctx context.Context, j *job, t approvals.Ticket, s *step) error {
	delete(j.slots, s.channel)
	if s.serves == nil {
		return d.failed(ctx, j, t, s.channel, &Fail{Reason: NotConfigured, Final: true})
	}
	if s.ref == nil {
		return d.post(ctx, j, t, s)
	}
	ref, err := d.deliver(ctx, s, Message{Channel: s.channel, Ticket: t, Ref: s.ref})
	if err == nil {
		if ref.ID == "" {
			ref = *s.ref
		}
		ref.Rev = t.Rev
		return d.delivered(ctx, j, s.channel, ref)
	}
	if f := asFail(err); f.Reason != Gone {
		return d.failed(ctx, j, t, s.channel, f)
	}
	d.Log.Info("a message is gone", "approval", t.ID, "channel", s.channel)
	if others(t, s.channel) {
		return d.mark(ctx, j, approvals.Mark{Channel: s.channel, Gone: s.ref.ID})
	}
	// Somebody deleted the message. While it is needed another takes its place;
	// and an earlier replacement may exist that we lost sight of.
	s.find = !wantsCard(t.State)
	if ok, err := d.lease(ctx, j); err != nil || !ok {
		return err
	}
	return d.post(ctx, j, t, s)
}

// post marks the attempt, posts and stores the reference. With s.find it only
// looks for a message of an earlier attempt.
func (d *Dispatcher) post(ctx context.Context, j *job, t approvals.Ticket, s *step) error {
	call, cancel := context.WithTimeout(ctx, storeTime)
	open, err := d.Book.Attempt(call, j.id, s.channel)
	cancel()
	if err != nil {
		return err
	}
	m := Message{Channel: s.channel, Ticket: t, Find: s.find}
	if open != "" && j.clean[s.channel] != open {
		m.Attempt = open
	}
	if s.find && m.Attempt == "" {
		return d.nothing(ctx, j, t, s)
	}
	attempt := open
	if !s.find {
		attempt = newAttempt(m.Attempt, time.Now())
		mark := approvals.Mark{Channel: s.channel, Attempt: attempt}
		if last, ok := j.trouble(t, s.channel); ok {
			mark.Trouble = &last // an attempt is not yet a success
		}
		if err := d.mark(ctx, j, mark); err != nil {
			return err
		}
	}
	if time.Since(j.renewed) > d.Lease/4 {
		return nil // too late for this lease; the attempt is looked up next time
	}
	if !s.find {
		fault.Point("post.before")
	}
	ref, err := d.deliver(ctx, s, m)
	switch {
	case err != nil:
		f := asFail(err)
		if f.Unsent && m.Attempt != "" && attempt != open {
			// The earlier attempt is the last that can have posted. Left as it
			// is, each look would make the next one wait for itself.
			mark := approvals.Mark{Channel: s.channel, Attempt: open}
			if last, ok := j.trouble(t, s.channel); ok {
				mark.Trouble = &last
			}
			if err := d.mark(ctx, j, mark); err != nil {
				return err
			}
		}
		if !f.Maybe && m.Attempt == "" {
			j.clean[s.channel] = attempt // this attempt and all before it posted nothing
		}
		return d.failed(ctx, j, t, s.channel, f)
	case ref.ID == "":
		return d.nothing(ctx, j, t, s)
	}
	if !s.find {
		fault.Point("post.after")
	}
	if m.Attempt == "" {
		ref.Rev = t.Rev
	}
	return d.delivered(ctx, j, s.channel, ref)
}

// deliver makes the call. A stop of the process lets it finish: a call that was
// cut off would have to be looked up later.
func (d *Dispatcher) deliver(ctx context.Context, s *step, m Message) (approvals.Ref, error) {
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.Call)
	defer cancel()
	ref, err := s.serves.Deliver(call, m)
	ref.Channel = s.channel
	return ref, err
}

// delivered stores where the message is and what it shows.
func (d *Dispatcher) delivered(ctx context.Context, j *job, channel string, ref approvals.Ref) error {
	delete(j.troubles, channel)
	j.refs[channel] = ref
	return d.mark(context.WithoutCancel(ctx), j, approvals.Mark{Channel: channel, Ref: &ref})
}

// nothing remembers that a version needs no message in a channel. A message that
// is gone counts as showing it.
func (d *Dispatcher) nothing(ctx context.Context, j *job, t approvals.Ticket, s *step) error {
	if s.ref == nil {
		j.looked[s.channel] = t.Rev
		return nil
	}
	gone := *s.ref
	gone.Rev = t.Rev
	return d.delivered(ctx, j, s.channel, gone)
}

// failed records a failure and when the next try is.
func (d *Dispatcher) failed(ctx context.Context, j *job, t approvals.Ticket, channel string, f *Fail) error {
	now := time.Now()
	last, ok := j.trouble(t, channel)
	x := approvals.Trouble{Channel: channel, Reason: string(f.Reason), Final: f.Final, Tries: 1, At: now, Rev: t.Rev}
	if ok && last.Rev == t.Rev {
		x.Tries = last.Tries + 1
	}
	if !x.Final && d.Schedule.exhausted(t, x.Tries) {
		x.Final, x.Reason = true, string(GaveUp)
	}
	if !x.Final {
		x.Next = now.Add(d.Schedule.wait(t, x.Tries, f.After))
	}
	if f.Reason == RateLimited {
		until := now.Add(min(f.After, longestAfter))
		d.gate.close("post "+channel, until)
		d.gate.close("edit "+channel, until)
	}
	j.troubles[channel] = x
	d.Log.LogAttrs(ctx, slog.LevelWarn, "a message could not be delivered",
		slog.String("approval", t.ID), slog.String("channel", channel), slog.String("state", string(t.State)),
		slog.String("reason", x.Reason), slog.String("detail", f.Detail),
		slog.Bool("final", x.Final), slog.Int("tries", x.Tries))
	return d.mark(context.WithoutCancel(ctx), j, approvals.Mark{Channel: channel, Trouble: &x})
}

func asFail(err error) *Fail {
	var f *Fail
	if errors.As(err, &f) {
		return f
	}
	// A channel that breaks its contract: the text of its error could hold
	// anything, so it goes nowhere.
	return &Fail{Reason: Internal, Maybe: true}
}
