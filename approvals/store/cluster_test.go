package store

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/store/redistest"
)

// A Redis Cluster refuses a script whose keys are in several slots, and a
// pipeline has no node for a command without a key. One node is enough to find
// both.
func TestOnACluster(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("skipped: a Cluster needs fixed ports, and an address of the loopback net to itself")
	}
	pid := os.Getpid()
	host := fmt.Sprintf("127.%d.%d.%d", 64+pid>>16&63, pid>>8&255, 1+pid&127)
	srv := redistest.Start(t, "--cluster-enabled", "yes", "--bind", host, "--cluster-announce-ip", host, "--port", "7379")
	c := srv.Client()
	if err := c.Do(t.Context(), "cluster", "addslotsrange", 0, 16383).Err(); err != nil {
		t.Fatal(err)
	}
	until(t, "the cluster is up", func() bool {
		return strings.Contains(c.ClusterInfo(t.Context()).Val(), "cluster_state:ok")
	})
	o := options(fmt.Sprintf("redis://%s:7379?cluster=true", host), false)
	o.AcceptLostClaims = true
	p := &place{Store: openStore(t, o), raw: c, opt: o}
	running(t, p.Store)

	r := request(`1`)
	tk := p.park(t, r)
	out := waiting(t, p.Store, tk.ID, tk.Rev)
	p.decide(t, vote(tk.ID, "ben", approvals.Approve))
	wantState(t, <-out, approvals.Approved)
	if _, err := p.Sweep(t.Context(), 10); err != nil {
		t.Fatal(err)
	}
	g := p.claim(t, r, "n")
	if _, err := p.Finish(t.Context(), g, approvals.Outcome{State: approvals.Succeeded, Kept: &approvals.Kept{Result: []byte(`1`)}}); err != nil {
		t.Fatal(err)
	}
	if p.load(t, tk.ID).Result == nil {
		t.Fatal("no result")
	}
	if got := kinds(p.events(t)); len(got) != 5 {
		t.Fatal(got)
	}
	ns, err := p.Nudges(t.Context(), "a", 10, 0)
	if err != nil || len(ns) != 4 {
		t.Fatalf("%d nudges, %v", len(ns), err)
	}
	for _, n := range ns {
		if err := p.Done(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	if ts, err := p.List(t.Context(), nil, 10); err != nil || len(ts) != 1 {
		t.Fatalf("%d listed, %v", len(ts), err)
	}
	// A claim that waits for replicas goes to the slot's own node; there is no
	// replica here, so it is never confirmed.
	waits := p.another(t, func(o *Options) { o.WaitReplicas, o.WaitTimeout = 1, 50*time.Millisecond })
	second := request(`2`)
	tk = p.approved(t, second)
	_, err = waits.Claim(t.Context(), tk.ID, tk.Rev, second.Envelope.Digest(), "n", noPolicy)
	want(t, err, approvals.StoreUnavailable)
	if !strings.Contains(err.Error(), "0 of 1 replicas") {
		t.Fatal(err)
	}
}
