package daemon

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/countersign-mcp/countersign/approvals/fault"
	"github.com/countersign-mcp/countersign/approvals/ledger"
	"github.com/countersign-mcp/countersign/cmd/countersign/internal/archive"
	"github.com/countersign-mcp/countersign/server/policy"
)

// How a reload ended, for the metric.
const (
	reloadLoaded   = "loaded"
	reloadRejected = "rejected"
)

// Why a configuration was rejected, for the ledger: which part, and no word of it.
const (
	rejectedConfig = "configuration"
	rejectedRules  = "rules"  // the policy, tokens, people, secrets, or how they fit
	rejectedLedger = "ledger" // it could not be recorded
)

// rejected is a reload that changed nothing.
type rejected struct {
	part string
	err  error
}

func (e *rejected) Error() string { return e.err.Error() }
func (e *rejected) Unwrap() error { return e.err }

var errStopped = errors.New("the process is being stopped")

// Reload reads the whole configuration again and, if all of it is right, exchanges
// the policy, people, groups, tokens, secrets and upstreams at once. On an error
// everything stays as it was. Keys that take a restart keep their values; they are
// logged, and don't keep the rest from being exchanged: a policy that has to be
// tightened now must not wait for a port. Calls that come meanwhile are judged by
// the old configuration or by the new one as a whole.
func (d *Daemon) Reload(ctx context.Context) error {
	d.preparing.Lock()
	defer d.preparing.Unlock()
	next, fleet, restart, err := d.prepare()
	// Not before: a file that can't be read to its end must not keep Stop waiting.
	d.reloading.Lock()
	defer d.reloading.Unlock()
	if d.stopped {
		return errStopped
	}
	if err == nil {
		err = d.record(ctx, next)
	}
	for _, key := range restart {
		d.log.Warn("needs a restart: " + key + "; until then it stays as it was")
	}
	if err != nil {
		d.reject(err, next, restart)
		return err
	}
	d.exchange(ctx, next, fleet)
	d.metrics.reloads.WithLabelValues(reloadLoaded).Inc()
	d.log.Info("the configuration was reloaded", "policy", short(next.policy.Digest().Hex()))
	return nil
}

// prepare reads and checks everything, and changes nothing.
func (d *Daemon) prepare() (*rules, map[string]*ship, []string, error) {
	if d.opt.Load == nil {
		return nil, nil, nil, &rejected{rejectedConfig, errors.New("there is no file to read the configuration from again")}
	}
	read, err := d.opt.Load()
	if err != nil {
		return nil, nil, nil, &rejected{rejectedConfig, err}
	}
	was := d.rules.Load()
	cfg, restart, err := was.cfg.Take(read)
	if err != nil {
		return nil, nil, restart, &rejected{rejectedConfig, err}
	}
	next, err := readRules(cfg, d.reading())
	if err == nil && d.listeners[listenMCP] != nil {
		err = next.checkListener()
	}
	var fleet map[string]*ship
	if err == nil {
		fleet, err = d.fleet.plan(cfg)
	}
	if err == nil && d.hooks != nil {
		err = d.hooks.Check(next.secrets())
	}
	if err != nil {
		return next, nil, restart, &rejected{rejectedRules, err}
	}
	next.after(was)
	return next, fleet, restart, nil
}

// reading is how this process reads its configuration.
func (d *Daemon) reading() reading { return reading{links: d.opt.Links != nil} }

// record makes the reload durable before it is one.
func (d *Daemon) record(ctx context.Context, next *rules) error {
	ctx, cancel := context.WithTimeout(ctx, refusalEnd)
	defer cancel()
	if _, err := d.ledger.Append(ctx, policyLoaded(next.policy)); err != nil {
		return &rejected{rejectedLedger, fmt.Errorf("writing to the ledger: %w", err)}
	}
	d.keep(next)
	return nil
}

// keep puts the policy into the archive. That it can't be put back one day is no
// reason not to use it now.
func (d *Daemon) keep(r *rules) {
	if err := archive.Keep(d.cfg.DataPath(), r.text); err != nil {
		d.log.Warn("the loaded policy is not kept; countersign policy restore won't find it", "error", err)
	}
}

// exchange can't fail: everything was checked.
func (d *Daemon) exchange(ctx context.Context, next *rules, fleet map[string]*ship) {
	d.ledger.Remember(longest(next))
	for _, w := range next.policy.Warnings() {
		d.log.Warn("policy: " + w)
	}
	d.gate.Exchange(next.state(fleet), func() {
		d.generations.load(ctx, next.policy.Digest())
		fault.Point("reload.published")
		d.rules.Store(next)
	})
	// Who is let in by the old tokens in between is not let through by the gate,
	// which knows its callers itself.
	if err := d.tokens.Replace(next.tokens); err != nil {
		d.log.Error("the tokens could not be exchanged", "error", err) // they were checked
	}
	d.edge.Recheck()
	if d.hooks != nil {
		if err := d.hooks.Exchange(next.secrets()); err != nil {
			d.log.Error("the secrets of callbacks could not be exchanged", "error", err)
		}
	}
	d.start(d.fleet.sail(fleet))
}

// reject tells of a reload that changed nothing, wherever somebody may look.
func (d *Daemon) reject(err error, next *rules, restart []string) {
	d.metrics.reloads.WithLabelValues(reloadRejected).Inc()
	told := []any{"error", err}
	if len(restart) > 0 {
		told = append(told, "needs_a_restart", strings.Join(restart, ", "))
	}
	d.log.Error("the reload was refused, and everything stays as it was; put it right and send SIGHUP again", told...)
	part := rejectedConfig
	if r := (*rejected)(nil); errors.As(err, &r) {
		part = r.part
	}
	ctx, cancel := context.WithTimeout(context.Background(), refusalEnd)
	defer cancel()
	r := ledger.Record{Event: ledger.PolicyRejected, Reason: part}
	if next != nil && next.text != nil {
		r.PolicyDigest = policy.DigestOf(next.text).Hex()
	}
	if _, err := d.ledger.Append(ctx, r); err != nil {
		d.log.Error("that the reload was refused is not on the ledger", "error", err)
	}
}

// longest is how long the start of a call can matter: from the park over the claim
// to the end of the run.
func longest(r *rules) time.Duration {
	var timeout time.Duration
	for _, route := range r.policy.Routes() {
		timeout = max(timeout, route.Timeout)
	}
	return timeout + r.cfg.Approvals.ClaimTTL + r.cfg.Approvals.ExecTimeout
}

// start starts upstreams, so that the first agent finds them running and the gate
// can say who they are. One that does not start is tried again when it is needed.
func (d *Daemon) start(fleet map[string]*ship) {
	for name, u := range fleet {
		d.loops.Go(func() {
			if err := u.Start(d.loopCtx); err != nil && d.loopCtx.Err() == nil {
				d.log.Warn("an upstream did not start; it is tried again when it is needed", "upstream", name, "error", err)
			}
		})
	}
}
