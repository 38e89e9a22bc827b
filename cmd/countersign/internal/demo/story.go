package demo

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Verdicts of [Options.Click].
const (
	Approve = "approve"
	Deny    = "deny"
	None    = "none" // nobody answers
)

// Options say how the story goes.
type Options struct {
	// Click plays the person's answer through the signed callback: Approve,
	// Deny or None. Empty waits for a person to open the link.
	Click string
}

// order is the one that the agent wants to cancel.
const order = "4417"

// Story plays one call from the agent's request to the ledger. It returns nil
// when the story ended as Options asked and as the desk's own count confirms.
func Story(ctx context.Context, p Parts, o Options) error {
	if !slices.Contains([]string{"", Approve, Deny, None}, o.Click) {
		return fmt.Errorf("a click is %s, %s or %s, not %q", Approve, Deny, None, o.Click)
	}
	ctx, cancel := context.WithTimeout(ctx, p.storyTime())
	defer cancel()
	a, err := connect(ctx, p.MCPURL, p.Token)
	if err != nil {
		return err
	}
	defer a.close()
	if err := p.begin(ctx, a); err != nil {
		return err
	}
	ended, l, err := p.park(ctx, a)
	if err != nil {
		return err
	}
	if err := p.answerFor(ctx, l, o.Click); err != nil {
		return err
	}
	end := <-ended // finish ends with ctx
	if end.err != nil {
		return end.err
	}
	if err := p.judge(end.told, o.Click); err != nil {
		return err
	}
	return p.showLedger(ctx, l.Approval)
}

// begin shows what an agent may do without asking.
func (p Parts) begin(ctx context.Context, a *agent) error {
	names, err := a.tools(ctx)
	if err != nil {
		return err
	}
	if !slices.Contains(names, "cancel_order") {
		return fmt.Errorf("the gate lists %s, and no cancel_order", strings.Join(names, ", "))
	}
	p.say("An agent asks what it may call: %s.", strings.Join(names, ", "))
	t, err := a.call(ctx, "lookup_order", map[string]any{"order_id": order})
	if err != nil {
		return err
	}
	if t.isError {
		return fmt.Errorf("looking up order %s: %s", order, t.text)
	}
	p.say("It looks up order %s, which runs at once: %s.", order, t.text)
	return nil
}

// ending is how the agent's call came out.
type ending struct {
	told told
	err  error
}

// park makes the agent's call and waits until a person was given the link.
func (p Parts) park(ctx context.Context, a *agent) (<-chan ending, Link, error) {
	ended := make(chan ending, 1)
	go func() {
		t, err := a.finish(ctx, "cancel_order", map[string]any{"order_id": order})
		ended <- ending{t, err}
	}()
	p.say("It calls cancel_order for order %s.", order)
	select {
	case l := <-p.Links:
		n, err := p.ran("cancel_order")
		if err == nil && n != 0 {
			err = fmt.Errorf("cancel_order has run %d times before anybody was asked", n)
		}
		p.say("The call is parked. Nothing has run. A person was sent this link:\n\n  %s\n", l.URL)
		return ended, l, err
	case e := <-ended:
		if e.err != nil {
			return nil, Link{}, e.err
		}
		return nil, Link{}, fmt.Errorf("the call ended before anybody was asked: %s", e.told.text)
	case <-ctx.Done():
		return nil, Link{}, ctx.Err()
	}
}

// answerFor plays the click, or says what a person is to do.
func (p Parts) answerFor(ctx context.Context, l Link, click string) error {
	switch click {
	case "":
		p.say("Open it and answer%s.", within(l.Deadline))
		return nil
	case None:
		p.say("Nobody answers. The call waits%s.", within(l.Deadline))
		return nil
	}
	p.say("The answer comes as a signed webhook: %s.", click)
	r, err := p.click(ctx, l, click, "you", "")
	if err != nil {
		return fmt.Errorf("sending the answer: %w", err)
	}
	if r.status != http.StatusAccepted {
		return fmt.Errorf("the answer was not taken: HTTP %d: %s", r.status, r.body)
	}
	return nil
}

func within(deadline time.Time) string {
	left := time.Until(deadline).Round(time.Second)
	if left <= 0 {
		return ""
	}
	return " until " + deadline.Local().Format("15:04:05") + " (" + strings.Replace(left.String(), "m0s", "m", 1) + ")"
}

// judge compares what the agent was told with what was asked for and with the
// desk's own count.
func (p Parts) judge(t told, click string) error {
	n, err := p.ran("cancel_order")
	if err != nil {
		return err
	}
	p.say("The agent is told: %s", indent(t.text))
	ran := !t.isError
	switch {
	case ran && n != 1:
		return fmt.Errorf("the agent was told that it ran, and the desk counts %d", n)
	case !ran && n != 0:
		return fmt.Errorf("the agent was told that it did not run (%s), and the desk counts %d", t.status, n)
	}
	p.say("The desk's own count: cancel_order ran %s.", times(n))
	want, known := map[string]string{Deny: "denied", None: "expired"}[click]
	switch {
	case click == Approve && !ran:
		return fmt.Errorf("it was approved and did not run: %s", t.text)
	case known && (ran || t.status != want):
		return fmt.Errorf("the call should have ended as %s and ended as %q", want, t.status)
	case !ran && t.status == "":
		return errors.New("the call ended without saying how")
	}
	return nil
}

func times(n int) string {
	switch n {
	case 0:
		return "0 times"
	case 1:
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// indent keeps a text of several lines together.
func indent(s string) string { return strings.ReplaceAll(strings.TrimSpace(s), "\n", "\n  ") }
