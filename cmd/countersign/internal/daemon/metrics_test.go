package daemon

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/approvals/ledger"
)

// kept is a log in memory.
type kept struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (k *kept) Write(p []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.b.Write(p)
}

func (k *kept) String() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.b.String()
}

func ask(t *testing.T, method, url, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(within(t, 20*time.Second), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// Whoever watches a gate finds every metric on the page.
func TestReadmeHasEveryMetric(t *testing.T) {
	page, err := os.ReadFile("../../../../webhook/README.md")
	if err != nil {
		t.Fatal(err)
	}
	m := newMetrics("1")
	m.follow(newGenerations(slog.New(slog.DiscardHandler)))
	m.observe("slack", "taken")
	told, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range told {
		if !strings.Contains(string(page), "| `"+one.GetName()+"` |") {
			t.Errorf("webhook/README.md has no line for %s", one.GetName())
		}
	}
}

// Whatever strangers send to the webhook listener leaves a number behind and
// nothing else: not a word of it on the ledger, in the log or in a label.
func TestUnverifiedRequestsAreOnlyCounted(t *testing.T) {
	s := newScene(t)
	var log kept
	o := s.options(newAsked())
	o.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	d := s.start(o)
	const canary = "canary-approve-everything"
	hooks, admin := "http://"+d.Addrs().Webhook, "http://"+d.Addrs().Admin
	for range 3 {
		if code, _ := ask(t, "POST", hooks+"/callbacks/desk", `{"data":"`+canary+`"}`); code != 401 {
			t.Errorf("unsigned: %d", code)
		}
	}
	if code, _ := ask(t, "GET", hooks+"/a/"+canary+"-aaaaaaaaaaaaaaaa", ""); code != 404 {
		t.Errorf("no such link: %d", code)
	}
	if code, _ := ask(t, "GET", admin+"/v1/approvals", ""); code != 401 {
		t.Errorf("no token: %d", code)
	}
	code, page := ask(t, "GET", admin+"/metrics", "")
	for _, want := range []string{
		`countersign_webhook_requests_total{outcome="bad_signature",route="callback"} 3`,
		`countersign_webhook_requests_total{outcome="gone",route="link"} 1`,
		`countersign_webhook_requests_total{outcome="no_token",route="admin"} 1`,
		`countersign_build_info{go_version="go`, `version="test"} 1`,
	} {
		if code != 200 || !strings.Contains(page, want) {
			t.Errorf("%d, no %s in\n%s", code, want, page)
		}
	}
	s.stop(d)
	files, err := filepath.Glob(filepath.Join(s.dir, "data", "ledger", "*.jsonl"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	if _, err := ledger.ReadFile(files[0], func(r ledger.Record) error {
		switch r.Event {
		case ledger.Opened, ledger.PolicyLoaded, ledger.Head:
		default:
			t.Errorf("on the ledger: %+v", r)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	for where, text := range map[string]string{"the ledger": string(b), "the log": log.String(), "the metrics": page} {
		if strings.Contains(text, canary) {
			t.Errorf("%s repeats what a stranger sent", where)
		}
	}
}

func TestLabelsAreWordsOfOurs(t *testing.T) {
	for _, good := range []string{"taken", "bad_signature", "store-unavailable", "self_approval"} {
		if label(good) != good {
			t.Errorf("%s is refused", good)
		}
	}
	for _, bad := range []string{"", "cs_0123", "ana@acme.test", "Taken", "a b", "a_b_c_d_e", strings.Repeat("a", 33), "k1.bound", "\xff"} {
		if got := label(bad); got != "other" {
			t.Errorf("%q became %q", bad, got)
		}
	}
}

// What net/http has to say goes where everything goes, not to standard error
// as it likes.
func TestServersLogThroughOurLog(t *testing.T) {
	s := newScene(t)
	var log kept
	o := s.options(newAsked())
	o.Log = slog.New(slog.NewTextHandler(&log, nil))
	d, err := New(s.config(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.stop(d)
	for _, srv := range d.servers {
		if srv.ErrorLog == nil {
			t.Fatalf("%s writes to standard error", srv.Addr)
		}
		srv.ErrorLog.Print("said by " + srv.Addr)
		if !strings.Contains(log.String(), `msg="said by `+srv.Addr+`"`) {
			t.Errorf("%s is not heard in the log", srv.Addr)
		}
	}
	if len(d.servers) != 3 {
		t.Errorf("%d servers", len(d.servers))
	}
}
