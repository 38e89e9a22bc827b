package daemon

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/countersign-mcp/countersign/approvals/ledger"
	"github.com/countersign-mcp/countersign/cmd/countersign/internal/archive"
)

// lookAtData looks at the directories without making them.
func lookAtData(_ context.Context, p *patient) []Finding {
	return append(directory("data_dir", p.cfg.DataPath()), directory("ledger.dir", p.cfg.LedgerPath())...)
}

func directory(key, path string) []Finding {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return []Finding{fine("%s: %s is not there yet; the first start makes it", key, path)}
	case err != nil:
		return []Finding{fail("let the user that runs the gate read and write it", "%s: %v", key, err)}
	case !info.IsDir():
		return []Finding{fail("name a directory", "%s: %s is not a directory", key, path)}
	}
	found := private(key, path, true)
	if err := writable(path); err != nil {
		found = append(found, fail("run countersign as the user that owns it, or change "+key, "%s: %v", key, err))
	}
	if gravest(found) == Fine {
		found = append(found, fine("%s: %s is ours alone", key, path))
	}
	return found
}

// writable tries it with a file that is gone at once; no part of the gate reads
// files of that name.
func writable(dir string) error {
	f, err := os.CreateTemp(dir, ".doctor-*")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

func lookAtLedger(_ context.Context, p *patient) []Finding {
	files, err := ledger.Files(p.cfg.LedgerPath())
	if err != nil {
		return []Finding{fail("let the user that runs the gate read it", "%v", err)}
	}
	if len(files) == 0 {
		return []Finding{fine("there is no ledger file yet")}
	}
	p.audit = newAudit()
	var found []Finding
	whole, records := 0, uint64(0)
	for _, f := range files {
		rep, err := ledger.ReadFile(f, p.audit.add)
		records += rep.Records
		switch {
		case errors.Is(err, fs.ErrNotExist): // another process took its unused file away
		case err != nil:
			found = append(found, fail("let the user that runs the gate read it", "%v", err))
		case rep.Kind == ledger.Torn:
			found = append(found, warn("nothing, if a crash or a full disk explains it: what was cut was never acknowledged", "%s", rep))
		case rep.Kind != ledger.OK:
			found = append(found, fail("keep the file and find out who changed it", "%s", rep))
		default:
			whole++
		}
		found = append(found, private("the ledger", f, true)...)
	}
	return append([]Finding{fine("%d of %s verify, %s", whole, count(len(files), "file", "files"), count(int(records), "record", "records"))}, found...)
}

// audit follows calls through the ledger: each start has a decision before it,
// and an end after it.
type audit struct {
	allowed   map[string]bool // decided, and not started yet
	reviewed  map[string]bool
	started   map[string]bool // without an end
	approved  map[string]bool // started after a yes
	unlinked  int             // started, and nothing says why
	starts    int
	decisions int
	workflows int // decisions that name what they were planned in

	policies map[string]bool // digests that were loaded
	lastAt   time.Time
	last     string // the digest that was loaded last
}

func newAudit() *audit {
	return &audit{
		allowed: map[string]bool{}, reviewed: map[string]bool{}, started: map[string]bool{}, approved: map[string]bool{}, policies: map[string]bool{},
	}
}

func (a *audit) add(r ledger.Record) error {
	switch r.Event {
	case ledger.PolicyLoaded:
		a.policies[r.PolicyDigest] = true
		if !r.Time.Before(a.lastAt) {
			a.lastAt, a.last = r.Time, r.PolicyDigest
		}
	case ledger.Decision:
		a.decisions++
		if r.Workflow != "" || r.Session != "" {
			a.workflows++
		}
		switch r.Outcome {
		case ledger.Allow:
			a.allowed[r.OperationID] = true
		case ledger.Review:
			a.reviewed[r.OperationID] = true
		}
	case ledger.ExecStart:
		a.starts++
		a.started[r.OperationID] = true
		switch {
		case r.EnvelopeDigest != "": // it may be of another process's file, read later
			a.approved[r.OperationID] = true
		case !a.allowed[r.OperationID]:
			a.unlinked++
		}
		delete(a.allowed, r.OperationID)
	case ledger.Result, ledger.Recovered:
		delete(a.started, r.OperationID)
		delete(a.allowed, r.OperationID)
	}
	return nil
}

// elsewhere counts approved calls that ran here and were asked for through a gate
// whose ledger is on another machine.
func (a *audit) elsewhere() int {
	n := 0
	for op := range a.approved {
		if !a.reviewed[op] {
			n++
		}
	}
	return n
}

// kept tells whether a policy can be put back by its digest.
func (p *patient) kept(digest string) bool {
	all, err := archive.List(p.cfg.DataPath())
	return err == nil && slices.ContainsFunc(all, func(k archive.Kept) bool { return k.Digest == digest })
}
