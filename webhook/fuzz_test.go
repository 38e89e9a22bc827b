package webhook

import (
	"encoding/json"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/webhook/page"
)

// Only an explicit yes approves: whatever else a body holds, it is refused or a
// no. The oracle reads the same bytes with encoding/json.
func FuzzCallbackBody(f *testing.F) {
	good := Decision{ApprovalID: "op_1", Verdict: approvals.Approve, Digest: "k.d", Actor: "a"}.Body(time.Unix(1e9, 0))
	f.Add(good)
	for _, s := range []string{`{"decision":"approve"}`, `{"type":"approval.decision","data":null}`, `{"type":"approval.decision","timestamp":"2026-01-01T00:00:00Z","data":{"approval_id":"x","decision":"Approve","digest":"d","actor":{"id":"a"}}}`, "\xef\xbb\xbf{}", `{"a":{"b":1,"b":2}}`} {
		f.Add([]byte(s))
	}
	for _, word := range []string{"cancel", "close", "decline", "", "yes", "approve ", "APPROVE", "aprove", "true"} {
		f.Add([]byte(strings.Replace(string(good), `"approve"`, `"`+word+`"`, 1)))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		d, ok := parseDecision(body)
		if !ok {
			if d.Verdict == approvals.Approve {
				t.Fatal("a refused body still says approve")
			}
			return
		}
		var m map[string]any
		if err := json.Unmarshal(body, &m); err != nil {
			t.Fatalf("accepted what isn't JSON: %v", err)
		}
		data, _ := m["data"].(map[string]any)
		actor, _ := data["actor"].(map[string]any)
		if m["type"] != DecisionType || data["decision"] != d.Verdict.String() || data["digest"] != d.Digest || d.Digest == "" ||
			data["approval_id"] != d.ApprovalID || actor["id"] != d.Actor || d.Actor == "" {
			t.Fatalf("%+v from %s", d, body)
		}
	})
}

func FuzzSlackPayload(f *testing.F) {
	w := &world{}
	for _, s := range []string{w.payload(ActionApprove, "v", anaInSlack), w.payload(ActionDeny, "v", anaInSlack), `{"type":"block_actions"}`, "null", `{"type":"view_closed"}`, `{"actions":[{}]}`} {
		f.Add(form(s))
	}
	f.Add([]byte("payload=%7B%7D&payload=%7B%7D"))
	f.Fuzz(func(t *testing.T, body []byte) {
		k, ok := parseClick(body)
		if !ok {
			return
		}
		if k.user == "" || k.app == "" || k.channel == "" || k.messageTS == "" || k.at == "" || k.action == "" {
			t.Fatalf("%+v from %q", k, body)
		}
	})
}

func FuzzPageAnswer(f *testing.F) {
	f.Add([]byte("decision=approve&nonce=x&confirm=read"))
	f.Add([]byte("decision=deny&nonce=x&reason=no"))
	f.Add([]byte("decision=approve&decision=deny"))
	f.Add([]byte("decision=%61pprove&nonce=x"))
	f.Fuzz(func(t *testing.T, body []byte) {
		req := httptest.NewRequest("POST", "/a/t", nil)
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		a, ok := parseAnswer(req, body)
		if !ok {
			return
		}
		form, err := url.ParseQuery(string(body))
		if err != nil || len(form["decision"]) != 1 || form["decision"][0] != a.verdict.String() {
			t.Fatalf("%q is taken as %s", body, a.verdict)
		}
		if a.confirmed && form.Get("confirm") != page.Confirmed {
			t.Fatalf("%q is taken as confirmed", body)
		}
	})
}
