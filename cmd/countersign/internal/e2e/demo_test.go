package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/cmd/countersign/internal/e2e/testservers"
)

// The demo needs no Redis and no configuration: these tests run everywhere.

// Whatever the click, the demo ends as asked, says what happened, and leaves a
// ledger that it has verified.
func TestDemoClicks(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		click string
		says  []string
		never []string
	}{
		{"approve", []string{"Order 4417 is cancelled", "cancel_order ran once", "exec_start", "succeeded", "verified."}, []string{"denied", "expired"}},
		{"deny", []string{"A person denied this call (you)", "cancel_order ran 0 times", "denied", "verified."}, []string{"exec_start", "is cancelled"}},
		{"none", []string{"Nobody decided by", "Nobody said no", "cancel_order ran 0 times", "expired", "verified."}, []string{"exec_start", "is cancelled", "approval_vote"}},
	} {
		t.Run(row.click, func(t *testing.T) {
			t.Parallel()
			args := []string{"demo", "--click", row.click}
			if row.click == "none" {
				args = append(args, "--wait", "3s")
			}
			out, errs, code := countersign(within(t, 2*time.Minute), apart(t), args...)
			if code != 0 || errs != "" {
				t.Fatalf("exit %d\n%s%s", code, out, errs)
			}
			told(t, out, append(row.says, "The call is parked. Nothing has run.")...)
			for _, w := range row.never {
				if strings.Contains(out, w) {
					t.Errorf("it says %q:\n%s", w, out)
				}
			}
		})
	}
}

// Every attack is refused, and the ledger shown at the end repeats no line.
func TestDemoAttack(t *testing.T) {
	t.Parallel()
	out, errs, code := countersign(within(t, 2*time.Minute), apart(t), "demo", "--attack")
	if code != 0 || errs != "" {
		t.Fatalf("exit %d\n%s%s", code, out, errs)
	}
	_, played, _ := strings.Cut(out, "http://") // the link; the attacks follow
	_, played, _ = strings.Cut(played, "\n")
	played, ledger, _ := strings.Cut(played, "\nAll ")
	refused := 0
	for line := range strings.Lines(played) {
		switch line = strings.TrimSpace(line); {
		case strings.HasPrefix(line, "refused: "):
			refused++
		case line == "", strings.HasPrefix(line, "A person approves"), strings.HasPrefix(line, "The call ran;"):
		default:
			t.Errorf("an attack was not refused: %s", line)
		}
	}
	if refused < 20 {
		t.Errorf("%d attacks were played:\n%s", refused, out)
	}
	told(t, ledger, "attacks were refused. cancel_order ran once.", "refused: wrong_digest", "refused: self_approval", "already_decided", " times)")
	last := ""
	for line := range strings.Lines(ledger) {
		m := recordLine.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		if m[1] == last {
			t.Errorf("a line comes twice: %s", line)
		}
		last = m[1]
	}
	if last == "" {
		t.Errorf("no ledger is shown:\n%s", out)
	}
}

var recordLine = regexp.MustCompile(`^ +\d+  \d\d:\d\d:\d\d\.\d{3}  (.*?)(?: \(\d+ times\))?\n`)

// A link that is only opened decides nothing; the form behind it needs what the
// page gave out and a tick, and then the call that waits goes on.
func TestDemoLink(t *testing.T) {
	t.Parallel()
	d := startDemo(t)
	link := d.link()
	p := open(t, link)
	told(t, p.text, "Cancel order 4417", "agent@demo.test", "cancel_order", "&#34;order_id&#34;", "4417")
	if status, text := p.answer("approve", ""); status != http.StatusUnprocessableEntity || !strings.Contains(text, "Tick the box to approve") {
		t.Errorf("without the tick: HTTP %d\n%s", status, text)
	}
	if strings.Contains(d.out.String(), "is told") {
		t.Errorf("the call went on before anybody approved:\n%s", d.out)
	}
	p = open(t, link)
	if status, text := p.answer("approve", "read"); status != http.StatusOK || !strings.Contains(text, "approved") {
		t.Errorf("the answer: HTTP %d\n%s", status, text)
	}
	if code := d.end(); code != 0 {
		t.Errorf("exit %d\n%s", code, d.out)
	}
	told(t, d.out.String(), "Order 4417 is cancelled", "cancel_order ran once", "you: approve, link", "verified.")
}

// A gate that keeps running tells how to add it, serves whoever does so, and is
// stopped by one signal.
func TestDemoServe(t *testing.T) {
	t.Parallel()
	d := startDemo(t, "--serve")
	m := d.out.find(t, regexp.MustCompile(`claude mcp add --transport http orders (\S+) --header "Authorization: Bearer (\S+)"`), d.dead)
	c := testservers.NewHTTP(m[1], m[2], testservers.Modern)
	ctx := within(t, time.Minute)
	if _, err := c.Initialize(ctx); err != nil {
		t.Fatal(err)
	}
	got := make(chan answer, 1)
	go func() {
		r, err := c.Call(ctx, "cancel_order", json.RawMessage(`{"order_id":"4418"}`), testservers.Extra{})
		got <- answer{r, err}
	}()
	p := open(t, d.link())
	told(t, p.text, "Cancel order 4418")
	if status, text := p.answer("approve", "read"); status != http.StatusOK {
		t.Fatalf("the answer: HTTP %d\n%s", status, text)
	}
	if res := await(t, got); res.IsError() || res.Text() != "Order 4418 is cancelled" {
		t.Errorf("the agent got: %s %s", res.Result, res.Error)
	}
	if err := d.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if code := d.end(); code != 0 {
		t.Errorf("exit %d\n%s", code, d.out)
	}
}

// apart is the environment of a run that finds nothing of this machine.
func apart(t testing.TB) []string {
	dir := t.TempDir()
	return []string{"HOME=" + dir, "XDG_STATE_HOME=" + dir, "TMPDIR=" + dir}
}

// demoRun is a `countersign demo` that a test talks with.
type demoRun struct {
	t    testing.TB
	cmd  *exec.Cmd
	out  *tail
	dead chan struct{}
}

func startDemo(t testing.TB, args ...string) *demoRun {
	t.Helper()
	d := &demoRun{t: t, out: newTail(), dead: make(chan struct{})}
	d.cmd = exec.Command(binary, append([]string{"demo"}, args...)...)
	d.cmd.Env = append(os.Environ(), apart(t)...)
	d.cmd.Stdout, d.cmd.Stderr = d.out, d.out
	dieWithUs(d.cmd)
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = d.cmd.Wait(); close(d.dead) }()
	t.Cleanup(func() { _ = d.cmd.Process.Kill(); <-d.dead }) // it may have ended by itself
	return d
}

func (d *demoRun) link() string {
	d.t.Helper()
	return d.out.find(d.t, regexp.MustCompile(`http://\S+/a/[\w-]+`), d.dead)[0]
}

// end waits for the process and gives its exit code.
func (d *demoRun) end() int {
	d.t.Helper()
	select {
	case <-d.dead:
	case <-time.After(time.Minute):
		d.t.Fatalf("the demo did not end:\n%s", d.out)
	}
	return d.cmd.ProcessState.ExitCode()
}

// linkPage is the page behind a link, as a browser without scripts has it.
type linkPage struct {
	t     testing.TB
	url   string
	text  string
	nonce string
}

func open(t testing.TB, link string) linkPage {
	t.Helper()
	status, text := fetch(t, http.MethodGet, link, nil)
	m := regexp.MustCompile(`name="nonce" value="([^"]+)"`).FindStringSubmatch(text)
	if status != http.StatusOK || m == nil {
		t.Fatalf("the page: HTTP %d\n%s", status, text)
	}
	return linkPage{t: t, url: link, text: text, nonce: m[1]}
}

// answer sends the page's form as the browser would.
func (p linkPage) answer(decision, tick string) (int, string) {
	p.t.Helper()
	form := url.Values{"nonce": {p.nonce}, "decision": {decision}, "reason": {""}}
	if tick != "" {
		form.Set("confirm", tick)
	}
	return fetch(p.t, http.MethodPost, p.url, form)
}

func fetch(t testing.TB, method, link string, form url.Values) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(within(t, 20*time.Second), method, link, strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Origin", req.URL.Scheme+"://"+req.URL.Host)
		req.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}
