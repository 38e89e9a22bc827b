package webhook

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/keys"
)

const linkPath = "/a/" + linkOfAna

var nonceField = regexp.MustCompile(`name="nonce" value="([^"]+)"`)

func (w *world) open(path string, h ...http.Header) answerOf {
	w.t.Helper()
	var header http.Header
	if len(h) > 0 {
		header = h[0]
	}
	return w.send(w.request("GET", w.site.URL+path, nil, header))
}

// pageNonce opens the page as a person would, and takes the nonce of its form.
func (w *world) pageNonce() string {
	w.t.Helper()
	a := w.open(linkPath)
	m := nonceField.FindStringSubmatch(a.body)
	if a.status != 200 || m == nil {
		w.t.Fatalf("no form on the page: %d %s", a.status, a.body)
	}
	return m[1]
}

func answerForm(nonce, decision string, more ...string) url.Values {
	f := url.Values{"nonce": {nonce}, "decision": {decision}}
	for i := 0; i < len(more); i += 2 {
		f.Add(more[i], more[i+1])
	}
	return f
}

func (w *world) submit(f url.Values, change ...func(http.Header)) answerOf {
	w.t.Helper()
	return w.submitRaw(f.Encode(), change...)
}

func (w *world) submitRaw(body string, change ...func(http.Header)) answerOf {
	w.t.Helper()
	h := http.Header{}
	h.Set("Content-Type", "application/x-www-form-urlencoded")
	h.Set("Origin", w.site.URL)
	h.Set("Sec-Fetch-Site", "same-origin")
	for _, f := range change {
		f(h)
	}
	return w.send(w.request("POST", w.site.URL+linkPath, []byte(body), h))
}

// Two masked values can be told apart, or known as the same, by what of their digest
// is shown.
func TestLinkShowsWhatIsMasked(t *testing.T) {
	w := newWorld(t)
	if a := w.open(linkPath); !strings.Contains(a.body, "<code>/token</code>: string, 12 bytes, digest <code>Zm9vYmFyYmF6</code>") {
		t.Error(a.body)
	}
}

func TestLinkApprove(t *testing.T) {
	w := newWorld(t)
	f := answerForm(w.pageNonce(), "approve", "confirm", "read", "reason", " looked\tfine\u202e\n")
	a := w.submit(f)
	if a.status != 200 || !strings.Contains(a.body, "Your answer was recorded: approve. It was approved by ana and has not run yet.") {
		t.Fatal(a)
	}
	if strings.Contains(a.body, "<form") {
		t.Fatal("the page still offers an answer")
	}
	v := w.desk.votes[0]
	if v.Person != "ana" || !v.Link || v.Source != "link" || v.Bound != "k1.bound" || v.Reason != "looked fine" {
		t.Fatalf("%+v", v)
	}
	if a := w.submit(f); a.status != 200 || len(w.desk.votes) != 1 {
		t.Fatalf("the form sent twice: %d, %d votes", a.status, len(w.desk.votes))
	}
	if a := w.open(linkPath); a.status != 200 || !strings.Contains(a.body, "It was approved by ana and has not run yet.") || strings.Contains(a.body, "<form") {
		t.Fatal(a)
	}
}

func TestLinkDeny(t *testing.T) {
	w := newWorld(t)
	a := w.submit(answerForm(w.pageNonce(), "deny", "reason", "wrong order"))
	if got := w.desk.ticket(); a.status != 200 || got.State != approvals.Denied || got.Reason != "wrong order" {
		t.Fatalf("%d, %s, %q", a.status, got.State, got.Reason)
	}
}

// A link that was decided elsewhere in the meantime says so.
func TestLinkLate(t *testing.T) {
	w := newWorld(t)
	n := w.pageNonce()
	w.desk.set(func(t *approvals.Ticket) { t.State, t.By = approvals.Denied, "carol" })
	a := w.submit(answerForm(n, "approve", "confirm", "read"))
	if a.status != 409 || !strings.Contains(a.body, "It was denied by carol and will not run. Your answer changed nothing.") {
		t.Fatal(a)
	}
	if len(w.desk.votes) != 0 {
		t.Fatal("a late vote was counted")
	}
}

// Whatever is not the whole form, answered whole, decides nothing.
func TestLinkAnswersThatDecideNothing(t *testing.T) {
	rows := []struct {
		name   string
		f      func(nonce string) string
		change func(http.Header)
		status int
		says   string
	}{
		{name: "box not ticked", f: func(n string) string { return answerForm(n, "approve").Encode() }, status: 422, says: "Tick the box to approve."},
		{name: "box with another value", f: func(n string) string { return answerForm(n, "approve", "confirm", "on").Encode() }, status: 422, says: "Tick the box"},
		{name: "no decision", f: func(n string) string { return url.Values{"nonce": {n}, "confirm": {"read"}}.Encode() }, status: 422},
		{name: "empty decision", f: func(n string) string { return answerForm(n, "", "confirm", "read").Encode() }, status: 422},
		{name: "Approve", f: func(n string) string { return answerForm(n, "Approve", "confirm", "read").Encode() }, status: 422},
		{name: "yes", f: func(n string) string { return answerForm(n, "yes", "confirm", "read").Encode() }, status: 422},
		{name: "both decisions", f: func(n string) string { return answerForm(n, "approve", "confirm", "read", "decision", "deny").Encode() }, status: 422},
		{name: "two nonces", f: func(n string) string { return answerForm(n, "deny", "nonce", n).Encode() }, status: 422},
		{name: "an unknown field", f: func(n string) string { return answerForm(n, "deny", "x", "1").Encode() }, status: 422},
		{name: "a broken form", f: func(n string) string { return answerForm(n, "deny").Encode() + "&%zz" }, status: 422},
		{name: "empty", f: func(string) string { return "" }, status: 422},
		{name: "JSON", f: func(n string) string { return `{"decision":"deny"}` }, change: func(h http.Header) { h.Set("Content-Type", "application/json") }, status: 422},
		{name: "multipart", f: func(n string) string { return answerForm(n, "deny").Encode() }, change: func(h http.Header) { h.Set("Content-Type", "multipart/form-data; boundary=x") }, status: 422},
		{name: "no nonce", f: func(string) string { return "decision=deny" }, status: 409, says: "Nothing was recorded."},
		{name: "a made-up nonce", f: func(string) string { return answerForm("AAAA", "deny").Encode() }, status: 409},
		{name: "a button's token as nonce", f: nil, status: 409},
		{name: "from another site", f: func(n string) string { return answerForm(n, "deny").Encode() }, change: func(h http.Header) { h.Set("Origin", "https://evil.test"); h.Del("Sec-Fetch-Site") }, status: 403},
		{name: "origin null", f: func(n string) string { return answerForm(n, "deny").Encode() }, change: func(h http.Header) { h.Set("Origin", "null") }, status: 403},
		{name: "cross-site by its own word", f: func(n string) string { return answerForm(n, "deny").Encode() }, change: func(h http.Header) { h.Del("Origin"); h.Set("Sec-Fetch-Site", "cross-site") }, status: 403},
		{name: "same-site", f: func(n string) string { return answerForm(n, "deny").Encode() }, change: func(h http.Header) { h.Del("Origin"); h.Set("Sec-Fetch-Site", "same-site") }, status: 403},
		{name: "too large", f: func(n string) string {
			return answerForm(n, "deny", "reason", strings.Repeat("x", PageBodyLimit)).Encode()
		}, status: 413},
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			w := newWorld(t)
			n := w.pageNonce()
			if r.f == nil {
				r.f = func(string) string { return answerForm(w.button(approvals.Deny), "deny").Encode() }
			}
			var change []func(http.Header)
			if r.change != nil {
				change = append(change, r.change)
			}
			a := w.submitRaw(r.f(n), change...)
			if a.status != r.status || !strings.Contains(a.body, r.says) {
				t.Fatalf("status %d, want %d: %s", a.status, r.status, a.body)
			}
			if c := w.desk.changes(); len(c) > 0 {
				t.Fatal(c)
			}
		})
	}
}

// The nonce stands for what the page showed, in this link, for ten minutes.
func TestLinkNonce(t *testing.T) {
	approve := func(n string) url.Values {
		return answerForm(n, "approve", "confirm", "read", "reason", "typed before")
	}
	stale := func(t *testing.T, w *world, n string) {
		t.Helper()
		a := w.submit(approve(n))
		if a.status != 409 || len(w.desk.changes()) > 0 {
			t.Fatalf("%d, %v", a.status, w.desk.changes())
		}
		if !strings.Contains(a.body, "Nothing was recorded.") || !strings.Contains(a.body, "typed before") {
			t.Fatal("the page doesn't say so, or lost the person's words: ", a.body)
		}
	}
	t.Run("too old", func(t *testing.T) {
		w := newWorld(t)
		n := w.pageNonce()
		w.clock.advance(pageNonceTime)
		stale(t, w, n)
	})
	t.Run("just in time", func(t *testing.T) {
		w := newWorld(t)
		n := w.pageNonce()
		w.clock.advance(pageNonceTime - time.Second)
		if a := w.submit(approve(n)); a.status != 200 {
			t.Fatal(a)
		}
	})
	t.Run("the view is another", func(t *testing.T) {
		w := newWorld(t)
		n := w.pageNonce()
		w.desk.set(func(t *approvals.Ticket) { t.ShownDigest = "k1.other" })
		stale(t, w, n)
	})
	t.Run("the call is another", func(t *testing.T) {
		w := newWorld(t)
		n := w.pageNonce()
		w.desk.set(func(t *approvals.Ticket) { t.Bound = "k1.other" })
		stale(t, w, n)
	})
	t.Run("another link's", func(t *testing.T) {
		w := newWorld(t)
		sum := sha256.Sum256([]byte("another-link-token-bbbbbbbbbbbbbbbbbbbbbbbb"))
		exp := strconv.FormatInt(w.clock.now().Add(time.Minute).Unix(), 10)
		stale(t, w, w.ring.Token(keys.Page, "v1", hex.EncodeToString(sum[:]), theID, "k1.bound", "k1.shown", exp))
	})
}

// GET and HEAD change nothing, however often and by whatever they are sent.
func TestLinkIsSafeForScanners(t *testing.T) {
	w := newWorld(t)
	before := w.desk.ticket()
	for range 20 {
		if a := w.open(linkPath, http.Header{"User-Agent": {"Slackbot-LinkExpanding 1.0"}}); a.status != 200 {
			t.Fatal(a.status)
		}
		a := w.send(w.request("HEAD", w.site.URL+linkPath, nil, nil))
		if a.status != 200 || a.body != "" || a.header.Get("Content-Length") == "" {
			t.Fatal(a)
		}
	}
	for _, q := range []string{"?decision=approve&confirm=read", "?_method=POST"} {
		if a := w.open(linkPath + q); a.status != 200 {
			t.Fatal(a.status)
		}
	}
	over := http.Header{"X-Http-Method-Override": {"POST"}, "X-Http-Method": {"POST"}}
	w.send(w.request("GET", w.site.URL+linkPath, []byte("decision=deny"), over))
	if c := w.desk.changes(); len(c) > 0 {
		t.Fatal(c)
	}
	if now := w.desk.ticket(); now.Rev != before.Rev || now.State != before.State {
		t.Fatal("the record moved")
	}
	if n := w.pageNonce(); w.submit(answerForm(n, "approve", "confirm", "read")).status != 200 {
		t.Fatal("the link was used up by reading it")
	}
}
