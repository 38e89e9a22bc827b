package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/webhook"
)

// desk is an operators' API with one approval; it notes what it is sent.
func desk(t *testing.T, a webhook.Approval) (url string, votes *[]string) {
	votes = new([]string)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			b, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			*votes = append(*votes, string(b))
			a.State = approvals.Approved
		}
		if err := json.NewEncoder(w).Encode(a); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL, votes
}

// An approval is for what was shown: its digest goes with it, and what can't be
// shown whole takes another word than the one that is typed by habit.
func TestApproveAsks(t *testing.T) {
	t.Setenv(tokenVariable, "cst_test")
	whole := approvals.View{Text: `{"order": 1}`}
	partly := approvals.View{Text: "⟦not shown: it is too long⟧", Missing: []string{"the arguments: too long"}}
	for _, tc := range []struct {
		name, typed string
		view        approvals.View
		flags       []string
		approved    bool
	}{
		{name: "yes", view: whole, typed: "yes\n", approved: true},
		{name: "no", view: whole, typed: "no\n"},
		{name: "nothing", view: whole, typed: ""},
		{name: "--yes", view: whole, flags: []string{"--yes"}, approved: true},
		{name: "not whole, yes", view: partly, typed: "yes\n"},
		{name: "not whole, --yes", view: partly, flags: []string{"--yes"}, typed: ""},
		{name: "not whole, unseen", view: partly, typed: "unseen\n", approved: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			url, votes := desk(t, webhook.Approval{
				ID: "cs_1", State: approvals.Pending, View: tc.view, Complete: tc.view.Complete(), Digest: "k1.d",
			})
			var out, errs bytes.Buffer
			args := append([]string{"approvals", "--admin", url, "approve", "cs_1"}, tc.flags...)
			code := run(t.Context(), args, terminal{in: strings.NewReader(tc.typed), out: &out, err: &errs})
			if approved := len(*votes) == 1; approved != tc.approved || approved != (code == exitOK) {
				t.Fatalf("exit %d, votes %q\n%s%s", code, *votes, &out, &errs)
			}
			if tc.approved && !strings.Contains((*votes)[0], `"digest":"k1.d"`) {
				t.Errorf("sent %s", (*votes)[0])
			}
			if len(tc.flags) == 0 && !strings.Contains(out.String(), tc.view.Text) {
				t.Errorf("not shown:\n%s", &out)
			}
		})
	}
}
