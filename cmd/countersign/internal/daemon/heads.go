package daemon

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/ledger"
)

const (
	headEvery = time.Minute
	headTime  = 5 * time.Second
)

// tellHeads puts the head of this process's ledger on the event stream at the
// start and every minute. Other processes copy it into their files, so that a
// file that was cut or rewritten contradicts its neighbours.
func (d *Daemon) tellHeads(ctx context.Context) error {
	for ctx.Err() == nil {
		if d.storeSeen.Load() {
			d.tellHead(ctx)
			rest(ctx, headEvery)
		} else {
			rest(ctx, retryStore)
		}
	}
	return nil
}

// tellHead tries a few times with one nonce: a lost reply is not told twice.
func (d *Daemon) tellHead(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, headTime)
	defer cancel()
	nonce, text := rand.Text(), headText(d.ledger.Head())
	var err error
	for range 3 {
		if err = d.store.Head(ctx, nonce, text); err == nil || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		d.log.Warn("the ledger's head was not told to the others", "error", err)
	}
}

// lastHead is a cleanup: the head at the stop.
func (d *Daemon) lastHead(ctx context.Context) error {
	if d.storeSeen.Load() {
		d.tellHead(ctx)
	}
	return nil
}

// headText is a head as an event carries it: file, number of records, hash.
func headText(p ledger.Pos) string { return fmt.Sprintf("%s %d %s", p.File, p.Seq, p.SHA256) }

// headRecord is another file's head, as the ledger keeps it.
func headRecord(e approvals.Event) ledger.Record {
	f := strings.Fields(e.Text)
	if len(f) != 3 {
		return unreadable(e.Seq)
	}
	n, err := strconv.ParseUint(f[1], 10, 64)
	if err != nil {
		return unreadable(e.Seq)
	}
	return ledger.Record{Event: ledger.Head, EventSeq: e.Seq, File: f[0], Records: n, HeadHash: f[2]}
}
