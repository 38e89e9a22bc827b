package webhook

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
)

// Unknown, used, malformed and foreign links can't be told apart.
func TestDeadLinksLookTheSame(t *testing.T) {
	w := newWorld(t)
	w.desk.links["canary-link-token-of-a-gone-approval-xxxxx"] = [2]string{"op_gone", "ana"}
	w.desk.links["canary-link-token-of-somebody-who-left-xxx"] = [2]string{theID, "mallory"}
	var bodies []string
	for _, token := range []string{"unknown-link-token-aaaaaaaaaaaaaaaaaaaaaaaaa", "canary-link-token-of-a-gone-approval-xxxxx",
		"canary-link-token-of-somebody-who-left-xxx", "short", "x%2Fy", strings.Repeat("a", 500), "%00", ".."} {
		a := w.open("/a/" + token)
		if token == ".." { // the path itself is another one
			continue
		}
		if a.status != 404 {
			t.Fatalf("%s: %d", token, a.status)
		}
		bodies = append(bodies, a.body+a.header.Get("Content-Type"))
		if p := w.send(w.request("POST", w.site.URL+"/a/"+token, []byte("decision=deny"), http.Header{"Content-Type": {"application/x-www-form-urlencoded"}})); p.body != a.body || p.status != 404 {
			t.Fatalf("%s: POST answers %d %s", token, p.status, p.body)
		}
	}
	for _, b := range bodies {
		if b != bodies[0] {
			t.Fatalf("%s\n\n%s", b, bodies[0])
		}
	}
}

func TestLinkOffers(t *testing.T) {
	rows := []struct {
		name    string
		change  func(*world)
		approve bool
		deny    bool
		says    string
	}{
		{"approve", func(*world) {}, true, true, "I have read the arguments above"},
		{"link can't approve", func(w *world) { w.desk.set(func(t *approvals.Ticket) { t.Links = "" }) }, false, true, "A link alone can&#39;t approve this"},
		{"incomplete", func(w *world) {
			w.desk.set(func(t *approvals.Ticket) { t.View.Missing = []string{"900 bytes of /body"} })
		}, false, true, "900 bytes of /body"},
		{"no view at all", func(w *world) { w.desk.set(func(t *approvals.Ticket) { t.View = approvals.View{} }) }, false, true, "This is not the whole."},
		{"the requester's", func(w *world) { w.desk.links[linkOfAna] = [2]string{theID, "bob"} }, false, true, "somebody else must approve it"},
		{"not on the route", func(w *world) { w.desk.links[linkOfAna] = [2]string{theID, "eve"} }, false, false, "not among the people"},
		{"over", func(w *world) { w.desk.set(func(t *approvals.Ticket) { t.State = approvals.Expired }) }, false, false, "It expired without a decision and did not run."},
		{"over, not swept", func(w *world) { w.desk.set(func(t *approvals.Ticket) { t.Deadline = w.clock.now() }) }, false, false, "Its time is over."},
		{"quorum", func(w *world) { w.desk.set(func(t *approvals.Ticket) { t.Requirements[0].Quorum = 2 }) }, true, true, "0 of 2 have approved"},
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			w := newWorld(t)
			r.change(w)
			a := w.open(linkPath)
			if got := strings.Contains(a.body, `value="approve"`); got != r.approve {
				t.Errorf("offers approve: %v", got)
			}
			if got := strings.Contains(a.body, `value="deny"`); got != r.deny {
				t.Errorf("offers deny: %v", got)
			}
			if !strings.Contains(a.body, r.says) {
				t.Errorf("does not say %q: %s", r.says, a.body)
			}
			if r.approve || !r.deny {
				return
			}
			// What isn't offered isn't taken either.
			n := nonceField.FindStringSubmatch(a.body)[1]
			if a := w.submit(answerForm(n, "approve", "confirm", "read")); a.status == 200 {
				t.Error("approve was taken all the same")
			}
			w.undecided()
			if a := w.submit(answerForm(n, "deny")); a.status != 200 {
				t.Errorf("deny: %d", a.status)
			}
		})
	}
}

func TestLinkHeadersAndEscaping(t *testing.T) {
	w := newWorld(t)
	w.desk.set(func(t *approvals.Ticket) {
		t.Title = `<script>alert(1)</script>`
		t.View.Text = "{\"x\": \"</pre><img src=x onerror=alert(1)>\"}"
		t.Rules = []string{`"><form action=https://evil.test>`}
	})
	a := w.open(linkPath)
	for _, bad := range []string{"<script", "<img", "<form action", "</pre><img"} {
		if strings.Contains(a.body, bad) {
			t.Errorf("the page holds %q", bad)
		}
	}
	for name, want := range map[string]string{
		"Cache-Control": "no-store", "Referrer-Policy": "same-origin", "X-Frame-Options": "DENY",
		"X-Content-Type-Options": "nosniff", "X-Robots-Tag": "noindex, nofollow, noarchive",
	} {
		if got := a.header.Get(name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
	csp := a.header.Get("Content-Security-Policy")
	for _, want := range []string{"default-src 'none'", "form-action 'self'", "frame-ancestors 'none'", "base-uri 'none'"} {
		if !strings.Contains(csp, want) {
			t.Errorf("no %s in %s", want, csp)
		}
	}
	if !strings.Contains(a.body, "<title>Approval request</title>") || strings.Contains(a.body, "og:") {
		t.Error("the title or an unfurl tag tells something of the request")
	}
	if a.header.Get("Strict-Transport-Security") != "" {
		t.Error("HSTS without https")
	}
}

func TestLinkWhenTheStoreIsDown(t *testing.T) {
	w := newWorld(t)
	n := w.pageNonce()
	w.desk.lose = true
	if a := w.submit(answerForm(n, "approve", "confirm", "read")); a.status != 503 || !strings.Contains(a.body, "not certain") {
		t.Fatal(a)
	}
	w.desk.fail = errDown
	a := w.open(linkPath)
	if a.status != 503 || strings.Contains(a.body, "canary-password") {
		t.Fatal(a)
	}
}

func TestLinkOnceUnderARace(t *testing.T) {
	w := newWorld(t)
	n := w.pageNonce()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			f := answerForm(n, "approve", "confirm", "read")
			if i%2 == 0 {
				f = answerForm(n, "deny")
			}
			w.submit(f)
		})
	}
	wg.Wait()
	if len(w.desk.votes) != 1 {
		t.Fatalf("%d votes", len(w.desk.votes))
	}
}

func TestLinkRateLimits(t *testing.T) {
	w := newWorld(t)
	n := w.pageNonce()
	for range linkBurst {
		w.submit(answerForm(n, "approve")) // never ticked
	}
	a := w.submit(answerForm(n, "deny"))
	if a.status != 429 || a.header.Get("Retry-After") == "" {
		t.Fatal(a.status)
	}
	w.undecided()
}

// Somebody who guesses at a proxy's or an office's address doesn't close the door
// for the others there.
func TestGuessesAreLimitedByAddressAndLinksByThemselves(t *testing.T) {
	w := newWorld(t)
	const unknown = "/a/unknown-link-token-aaaaaaaaaaaaaaaaaaaaaaaaa"
	for _, path := range []string{unknown, "/a/short"} {
		for range ipBurst / 2 {
			if a := w.open(path); a.status != 404 {
				t.Fatal(a.status)
			}
		}
	}
	for _, path := range []string{unknown, "/a/short"} {
		if a := w.open(path); a.status != 429 || a.header.Get("Retry-After") == "" {
			t.Fatal(path, a.status)
		}
	}
	for range viewBurst {
		if a := w.open(linkPath); a.status != 200 {
			t.Fatalf("a good link is closed by another's guesses: %d", a.status)
		}
	}
	if a := w.open(linkPath); a.status != 429 {
		t.Fatalf("a link is opened without end: %d", a.status)
	}
	w.clock.advance(time.Minute)
	for _, path := range []string{linkPath, unknown} {
		if a := w.open(path); a.status == 429 {
			t.Fatal(path, "is still closed a minute later")
		}
	}
}
