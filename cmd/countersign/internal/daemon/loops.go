package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/countersign-mcp/countersign/approvals/store"
	"github.com/countersign-mcp/countersign/notifier"
)

const (
	sweepEvery   = time.Second
	sweepMax     = 500
	recoverEvery = time.Minute
	identifyMax  = time.Minute
)

// watchStore makes the checks at the first contact, then keeps the wake-up
// connection until ctx ends. A Redis that fails a check stops the process: it
// would lose approvals.
func (d *Daemon) watchStore(ctx context.Context) error {
	for ctx.Err() == nil {
		err := d.store.Check(ctx)
		if err == nil {
			break
		}
		var refused *store.Refusal
		if errors.As(err, &refused) {
			return err
		}
		d.log.Warn("the store can't be reached; calls that need a yes are refused", "error", err)
		rest(ctx, retryStore)
	}
	if ctx.Err() != nil {
		return nil
	}
	if d.tells() {
		// The notifier says this every few seconds; whoever reads that the store
		// is ready may ask for approvals at once.
		if err := d.store.Alive(ctx); err != nil {
			d.log.Warn("the notifier's sign of life could not be written", "error", err)
		}
	}
	if err := d.generations.once(ctx); err != nil && ctx.Err() == nil {
		d.log.Warn("the policy could not be published to the other processes yet", "error", err)
		d.generations.soon()
	}
	d.storeSeen.Store(true)
	d.log.Info("the store is ready")
	return d.store.Run(ctx)
}

// wake starts the upstreams of the start.
func (d *Daemon) wake(context.Context) error {
	d.fleet.mu.Lock()
	defer d.fleet.mu.Unlock()
	d.start(d.fleet.now)
	return nil
}

// recover settles the calls that dead processes of this machine left open: at
// the start until it was done once, then every minute, for a neighbour that died
// meanwhile and did not come back. What can't be settled again and again is
// tried ever less often, down to that.
func (d *Daemon) recover(ctx context.Context) error {
	for failures := 0; ctx.Err() == nil; {
		err := d.gate.Recover(ctx)
		if err == nil {
			failures = 0
			rest(ctx, recoverEvery)
			continue
		}
		if d.storeSeen.Load() && ctx.Err() == nil {
			d.log.Warn("calls of dead processes are not settled yet", "error", err)
			failures++ // before the store was seen, its absence says nothing
		}
		rest(ctx, backoff(failures))
	}
	return nil
}

// backoff is how long to wait after so many failures in a row: a second, doubled
// each time, to a minute at most.
func backoff(failures int) time.Duration {
	return min(retryStore<<min(max(failures-1, 0), 10), recoverEvery)
}

// sweep ends what has expired, once a second. Any number of processes may do it
// at the same time.
func (d *Daemon) sweep(ctx context.Context) error {
	for ctx.Err() == nil {
		n, err := d.store.Sweep(ctx, sweepMax)
		if err != nil && d.storeSeen.Load() && ctx.Err() == nil {
			d.log.Warn("expired approvals are not ended yet", "error", err)
		}
		if n < sweepMax {
			rest(ctx, sweepEvery)
		}
	}
	return nil
}

func (d *Daemon) newClerk() *clerk {
	return &clerk{
		store: d.store, ledger: d.ledger, consumer: d.ledger.ID(), log: d.log,
		ready: d.storeSeen.Load, approved: d.runner.hint,
	}
}

// identify learns once who the bot is: until then no click can be believed.
func (d *Daemon) identify(ctx context.Context) error {
	wait := time.Second
	for ctx.Err() == nil {
		id, err := d.slack.Identify(ctx)
		if err == nil {
			d.log.Info("Slack knows us", "team", id.TeamID, "app", id.AppID)
			return nil
		}
		msg := "Slack does not tell who we are; clicks are not taken yet"
		var f *notifier.Fail
		if errors.As(err, &f) && f.Reason == notifier.Auth {
			msg = "Slack refuses slack.bot_token; put the right one there and restart"
		}
		d.log.Warn(msg, "error", err)
		rest(ctx, wait)
		wait = min(2*wait, identifyMax)
	}
	return nil
}

// ready says why this process should get no new work; nil when it should.
func (d *Daemon) ready(ctx context.Context) error {
	if err := d.store.Check(ctx); err != nil {
		return fmt.Errorf("redis: %w", err)
	}
	// Calls that need a yes are refused until somebody can be told of them.
	switch alive, err := d.store.NotifierAlive(ctx); {
	case err != nil:
		return fmt.Errorf("redis: %w", err)
	case !alive:
		return errors.New("notifier: none is known to be alive yet")
	}
	if err := d.generations.ready(); err != nil {
		return err
	}
	if err := d.ledger.Trouble(); err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	if d.slack != nil && d.slack.AppID() == "" {
		return errors.New("slack: not reached yet")
	}
	return nil
}
