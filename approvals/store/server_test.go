package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/store/redistest"
)

// own opens a store on a server of the test's own.
func own(t *testing.T, srv *redistest.Server, change ...func(*Options)) *place {
	o := options(srv.URL(), false)
	for _, c := range change {
		c(&o)
	}
	return &place{Store: openStore(t, o), raw: srv.Client(), opt: o}
}

func TestKilledRedisKeepsAll(t *testing.T) {
	srv := redistest.Start(t)
	p := own(t, srv)
	var reqs []approvals.Park
	for i := range 4 {
		r := request(fmt.Sprint(i))
		p.park(t, r)
		reqs = append(reqs, r)
	}
	id := func(i int) string { return reqs[i].Envelope.OperationID }
	p.decide(t, vote(id(1), "ben", approvals.Approve))
	p.decide(t, vote(id(2), "ben", approvals.Approve))
	p.decide(t, vote(id(3), "ben", approvals.Deny))
	g := p.claim(t, reqs[2], "n")

	srv.Kill()
	_, err := p.Decide(within(t, 5*time.Second), vote(id(0), "ben", approvals.Approve))
	want(t, err, approvals.StoreUnavailable)
	if err := srv.Restart(); err != nil {
		t.Fatal(err)
	}

	for i, s := range []approvals.State{approvals.Pending, approvals.Approved, approvals.Executing, approvals.Denied} {
		wantState(t, p.ticket(t, id(i)), s)
	}
	_, err = p.Claim(t.Context(), id(2), 3, reqs[2].Envelope.Digest(), "another", noPolicy)
	want(t, err, approvals.AlreadyUsed)
	if _, err := p.Finish(t.Context(), g, approvals.Outcome{State: approvals.Succeeded}); err != nil {
		t.Fatal(err)
	}
	p.decide(t, vote(id(0), "ben", approvals.Approve))
	p.claim(t, reqs[1], "n1")
	if evs := p.events(t); len(evs) != 4+3*2+1+1+2+1 {
		t.Errorf("%d events: %v", len(evs), kinds(evs))
	}
}

func TestAFlushedScriptCacheCostsNothing(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		flush := func() {
			if err := p.raw.ScriptFlush(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		}
		r := request(`1`)
		flush()
		p.park(t, r)
		flush()
		p.decide(t, vote(r.Envelope.OperationID, "ben", approvals.Approve))
		flush()
		if _, err := p.Sweep(t.Context(), 10); err != nil {
			t.Fatal(err)
		}
		flush()
		g := p.claim(t, r, "n")
		flush()
		if err := p.Renew(t.Context(), g); err != nil {
			t.Fatal(err)
		}
		flush()
		if _, err := p.Finish(t.Context(), g, approvals.Outcome{State: approvals.Succeeded}); err != nil {
			t.Fatal(err)
		}
	})
}

// A server that lost everything has lost the consumer groups too.
func TestAServerThatForgotEverything(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		if _, err := p.Nudges(t.Context(), "c", 1, 0); err != nil {
			t.Fatal(err)
		}
		p.raw.Del(t.Context(), p.k.outbox(), p.k.events())
		r := request(`1`)
		p.park(t, r)
		ns, err := p.Nudges(t.Context(), "c", 1, 0)
		if err != nil || len(ns) != 1 {
			t.Fatalf("%v, %v", ns, err)
		}
	})
}

func TestServersThatAreRefused(t *testing.T) {
	check := func(t *testing.T, p *place, part, override string) {
		t.Helper()
		err := p.Check(t.Context())
		var r *Refusal
		if !errors.As(err, &r) || !errors.Is(err, approvals.StoreUnavailable) {
			t.Fatalf("not refused: %v", err)
		}
		if !strings.Contains(r.Reason, part) || r.Override != override {
			t.Errorf("refused as %q, override %q", r.Reason, r.Override)
		}
		// The methods refuse too, without anybody calling Check.
		if _, _, err := p.Park(t.Context(), request(`1`)); !errors.As(err, &r) {
			t.Errorf("Park: %v", err)
		}
		if _, err := p.Wait(within(t, 50*time.Millisecond), "x", 0); err == nil {
			t.Error("Wait did not fail")
		}
		if n := p.raw.DBSize(t.Context()).Val(); n != 0 {
			t.Errorf("%d keys were written", n)
		}
	}
	fine := func(t *testing.T, p *place) {
		t.Helper()
		if err := p.Check(t.Context()); err != nil {
			t.Errorf("refused although accepted: %v", err)
		}
	}
	t.Run("evicts", func(t *testing.T) {
		srv := redistest.Start(t, "--maxmemory-policy", "allkeys-lru")
		check(t, own(t, srv), "allkeys-lru", "")
	})
	t.Run("no append-only file", func(t *testing.T) {
		srv := redistest.Start(t, "--appendonly", "no")
		check(t, own(t, srv), "append-only", "redis.accept_no_aof")
		fine(t, own(t, srv, func(o *Options) { o.AcceptNoAOF = true }))
	})
	t.Run("a replica", func(t *testing.T) {
		srv := redistest.Start(t, "--replicaof", "127.0.0.1 1")
		check(t, own(t, srv), "slave", "")
	})
	t.Run("not permitted to look", func(t *testing.T) {
		srv := redistest.Start(t)
		c := srv.Client()
		if err := c.Do(t.Context(), "acl", "setuser", "shy", "on", ">pw", "~*", "&*", "+@all", "-config", "-info").Err(); err != nil {
			t.Fatal(err)
		}
		shy := func(o *Options) { o.URL = "unix://shy:pw@" + srv.Addr }
		check(t, own(t, srv, shy), "not permitted", "redis.accept_unchecked")
		fine(t, own(t, srv, shy, func(o *Options) { o.AcceptUnchecked = true }))
		if err := c.Do(t.Context(), "acl", "setuser", "shy", "+info").Err(); err != nil {
			t.Fatal(err)
		}
		p := own(t, srv, shy)
		var r *Refusal
		if err := p.Check(t.Context()); !errors.As(err, &r) || r.Override != "redis.accept_unchecked" {
			t.Errorf("CONFIG alone not permitted: %v", err)
		}
	})
	t.Run("without CONFIG", func(t *testing.T) { // as managed servers have it
		srv := redistest.Start(t, "--rename-command", "CONFIG", "C0NFIG")
		check(t, own(t, srv), "not permitted", "redis.accept_unchecked")
		fine(t, own(t, srv, func(o *Options) { o.AcceptUnchecked = true }))
	})
	t.Run("away", func(t *testing.T) {
		p := &place{Store: openStore(t, options("unix:///nonexistent/socket", false))}
		err := p.Check(within(t, 2*time.Second))
		want(t, err, approvals.StoreUnavailable)
		var r *Refusal
		if errors.As(err, &r) {
			t.Error("a server that is away is told as refused")
		}
	})
	for v, ok := range map[string]bool{"6.2.14": false, "7.0.0": true, "7.4.1": true, "8.0": true, "10.1": true, "": false} {
		if atLeast7(v) != ok {
			t.Errorf("version %q", v)
		}
	}
}

// A server that writes its file once a second may forget a claim with the power:
// that is said, once, and only where it is so.
func TestAServerThatSyncsLateIsTold(t *testing.T) {
	for fsync, told := range map[string]int{"always": 0, "everysec": 1, "no": 1} {
		var out bytes.Buffer
		p := own(t, redistest.Start(t, "--appendfsync", fsync), func(o *Options) { o.Log = slog.New(slog.NewTextHandler(&out, nil)) })
		for range 3 {
			if err := p.Check(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if n := strings.Count(out.String(), "appendfsync="+fsync); n != told {
			t.Errorf("appendfsync %s is told %d times: %s", fsync, n, &out)
		}
	}
}

func TestTopologiesThatLoseClaims(t *testing.T) {
	for url, topo := range map[string]topology{
		"redis://127.0.0.1:1/0":                                   oneNode,
		"unix:///tmp/x":                                           oneNode,
		"redis://127.0.0.1:1/0?master_name=m":                     sentinel,
		"redis://127.0.0.1:1?addr=127.0.0.1:2":                    cluster,
		"redis://127.0.0.1:1?cluster=true":                        cluster,
		"rediss://u:p@127.0.0.1:1?cluster=true&addr=127.0.0.1:22": cluster,
	} {
		o := options(url, false)
		s, err := Open(t.Context(), o)
		var r *Refusal
		if refused := errors.As(err, &r); refused != (topo != oneNode) || (!refused && err != nil) {
			t.Fatalf("%s: %v", url, err)
		}
		if s != nil {
			s.Close()
		}
		for _, change := range []func(*Options){
			func(o *Options) { o.AcceptLostClaims = true }, func(o *Options) { o.WaitReplicas = 1 },
		} {
			o := o
			change(&o)
			s, err := Open(t.Context(), o)
			if err != nil || s.topo != topo {
				t.Fatalf("%s: %v", url, err)
			}
			s.Close()
		}
	}
	for _, url := range []string{"", "http://x", "redis://:s3cret@%zz", "redis://u:s3cret@h/notanumber"} {
		_, err := Open(t.Context(), options(url, false))
		if err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: %v", url, err)
		}
	}
}

// At maxmemory nothing new is parked, and what is parked can still be decided,
// run and finished.
func TestAFullServerStillDecides(t *testing.T) {
	srv := redistest.Start(t)
	p := own(t, srv)
	r, other := request(`1`), request(`2`)
	p.park(t, r)
	p.park(t, other)
	if err := srv.Client().ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	_, _, err := p.Park(t.Context(), request(`3`))
	want(t, err, approvals.StoreUnavailable)
	p.decide(t, vote(r.Envelope.OperationID, "ben", approvals.Approve))
	p.decide(t, vote(other.Envelope.OperationID, "ben", approvals.Deny))
	g := p.claim(t, r, "n")
	if err := p.Renew(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Finish(t.Context(), g, approvals.Outcome{State: approvals.Succeeded}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Sweep(t.Context(), 10); err != nil {
		t.Fatal(err)
	}
}

// With the replica's link frozen a claim is not confirmed, and neither is the
// same claim on a new connection: its script writes before the WAIT.
func TestAClaimWaitsForReplicas(t *testing.T) {
	master := redistest.Start(t, "--repl-diskless-sync-delay", "0")
	px, err := newProxy(func() (net.Conn, error) { return net.Dial("unix", master.Addr) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(px.stop)
	_, port, _ := net.SplitHostPort(px.Addr().String())
	replica := redistest.Start(t, "--replicaof", "127.0.0.1 "+port)
	confirmed := func() bool { // by the replica: a write and a WAIT on one connection
		pipe := master.Client().Pipeline()
		pipe.Incr(t.Context(), "probe")
		n := pipe.Do(t.Context(), "wait", 1, 1000)
		_, err := pipe.Exec(t.Context())
		got, _ := n.Int()
		return err == nil && got == 1
	}
	until(t, "the replica follows", confirmed)
	wait := func(o *Options) { o.WaitReplicas, o.WaitTimeout = 1, 200*time.Millisecond }
	p := own(t, master, wait)
	r := request(`1`)
	tk := p.approved(t, r)
	digest := r.Envelope.Digest()
	until(t, "the replica has it all", confirmed)
	px.freeze()
	for range 5 {
		fresh := p.another(t, wait) // a connection that has written nothing yet
		if _, err := fresh.Claim(t.Context(), tk.ID, tk.Rev, digest, "n1", noPolicy); !errors.Is(err, approvals.StoreUnavailable) {
			t.Fatalf("confirmed by nobody: %v", err)
		}
	}
	_, err = p.Claim(t.Context(), tk.ID, tk.Rev, digest, "n2", noPolicy)
	want(t, err, approvals.AlreadyUsed)
	px.thaw()
	var g approvals.Grant
	until(t, "the claim is confirmed", func() bool {
		g, err = p.Claim(t.Context(), tk.ID, tk.Rev, digest, "n1", noPolicy)
		return !errors.Is(err, approvals.StoreUnavailable)
	})
	if err != nil {
		t.Fatal(err)
	}
	if st := replica.Client().HGet(t.Context(), p.k.record(tk.ID), "cn").Val(); st != g.Nonce {
		t.Fatalf("the replica has the claim %q", st)
	}
}

// A connection whose reply is swallowed makes go-redis send the script again by
// itself; the nonces make that harmless.
func TestRetriesOfTheClientLibrary(t *testing.T) {
	srv := redistest.Start(t)
	cut := &cutter{}
	px, err := newProxy(func() (net.Conn, error) {
		c, err := net.Dial("unix", srv.Addr)
		return cut.wrap(c), err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(px.stop)
	direct := own(t, srv)
	p := &place{Store: direct.another(t, func(o *Options) { o.URL = "redis://" + px.Addr().String() }), raw: srv.Client(), opt: direct.opt}
	if err := p.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := request(`1`)
	warm := request(`0`) // the scripts are known to the server from here on
	direct.approved(t, warm)
	if _, err := direct.Finish(t.Context(), direct.claim(t, warm, "w"), approvals.Outcome{State: approvals.Failed}); err != nil {
		t.Fatal(err)
	}
	direct.events(t)
	cut.arm()
	p.park(t, r)
	id := r.Envelope.OperationID
	cut.arm()
	p.decide(t, vote(id, "ben", approvals.Approve))
	cut.arm()
	g := p.claim(t, r, "n")
	cut.arm()
	if _, err := p.Finish(t.Context(), g, approvals.Outcome{State: approvals.Succeeded}); err != nil {
		t.Fatal(err)
	}
	if cut.cuts() < 4 {
		t.Fatalf("only %d replies were swallowed", cut.cuts())
	}
	if evs := direct.events(t); strings.Join(kinds(evs), " ") != "requested vote approved executing succeeded" {
		t.Fatal(kinds(evs))
	}
}

func TestACallerWhoIsGoneIsNotWaitedFor(t *testing.T) {
	srv := redistest.Start(t)
	p := own(t, srv)
	tk := p.park(t, request(`1`))
	if err := srv.Client().Do(t.Context(), "client", "pause", "2000", "ALL").Err(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err := p.Ticket(ctx, tk.ID)
	want(t, err, approvals.StoreUnavailable)
	if took := time.Since(began); took > time.Second {
		t.Fatalf("waited %v", took)
	}
	if errors.Is(err, redis.Nil) {
		t.Fatal(err)
	}
}
