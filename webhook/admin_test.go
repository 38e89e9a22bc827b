package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/countersign-mcp/countersign/approvals"
)

func bearerHeader(token string) http.Header {
	return http.Header{"Authorization": {"Bearer " + token}, "Content-Type": {"application/json"}}
}

func (w *world) client(token string) *Client {
	w.t.Helper()
	c, err := NewClient(w.admin.URL, token)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

func TestAdminNeedsAToken(t *testing.T) {
	w := newWorld(t)
	headers := map[string]http.Header{
		"none": nil, "wrong": bearerHeader("wrong"), "empty": {"Authorization": {"Bearer "}}, "basic": {"Authorization": {"Basic " + adminToken}},
		"two":        {"Authorization": {"Bearer " + adminToken, "Bearer " + adminToken}},
		"two in one": {"Authorization": {"Bearer " + adminToken + ", Bearer x"}},
		"the hash":   bearerHeader(hash(adminToken)),
		"of nobody":  bearerHeader("canary-token-of-nobody"),
	}
	paths := []string{"GET /v1/approvals", "GET /v1/approvals/" + theID, "POST /v1/approvals/" + theID + "/decision",
		"POST /v1/approvals/" + theID + "/revoke", "POST /v1/approvals/" + theID + "/resolve", "GET /v1/", "GET /v1/nothing", "DELETE /v1/approvals", "GET /other"}
	for name, h := range headers {
		for _, p := range paths {
			method, path, _ := strings.Cut(p, " ")
			a := w.send(w.request(method, w.admin.URL+path, []byte("{}"), h))
			if a.status != 401 || a.header.Get("WWW-Authenticate") != "Bearer" {
				t.Errorf("%s, %s: %d", name, p, a.status)
			}
		}
	}
	if c := w.desk.changes(); len(c) > 0 {
		t.Fatal(c)
	}
}

func TestAdminListAndShow(t *testing.T) {
	w := newWorld(t)
	c := w.client(adminToken)
	list, err := c.List(t.Context(), []approvals.State{approvals.Pending}, 5)
	if err != nil || len(list) != 1 || list[0].ID != theID {
		t.Fatal(list, err)
	}
	if list, err = c.List(t.Context(), []approvals.State{approvals.Denied}, 0); err != nil || len(list) != 0 {
		t.Fatal(list, err)
	}
	a, err := c.Show(t.Context(), theID)
	if err != nil {
		t.Fatal(err)
	}
	if a.View.Text != "{\n  \"order\": 1042\n}" || !a.Complete || a.Digest != "k1.bound" || a.Requirements[0].Quorum != 1 || a.DecidedAt != nil || a.Summary == "" {
		t.Fatalf("%+v", a)
	}
	_, err = c.Show(t.Context(), "op_other")
	var p *Problem
	if !errors.Is(err, approvals.NotFound) || !errors.As(err, &p) || p.Status != 404 {
		t.Fatal(err)
	}
	if _, err := c.Show(t.Context(), "../x"); err == nil {
		t.Fatal("an id that leads elsewhere was asked for")
	}
	for _, q := range []string{"?state=open", "?max=0", "?max=501", "?max=x", "?max=1&max=2", "?x=1", "?state=pending&state=denied"} {
		mustProblem(t, w.send(w.request("GET", w.admin.URL+"/v1/approvals"+q, nil, bearerHeader(adminToken))), 422)
	}
}

func TestAdminDecides(t *testing.T) {
	w := newWorld(t)
	a, err := w.client(adminToken).Decide(t.Context(), theID, approvals.Approve, "checked", "k1.bound")
	if err != nil || a.State != approvals.Approved || a.Votes[0].Person != "ana" || a.Votes[0].Source != "admin" {
		t.Fatalf("%+v %v", a, err)
	}
	if v := w.desk.votes[0]; v.Reason != "checked" || v.Link || v.Bound != "k1.bound" {
		t.Fatalf("%+v", v)
	}
	if _, err = w.client(adminToken).Decide(t.Context(), theID, approvals.Approve, "", "k1.bound"); !errors.Is(err, approvals.AlreadyDecided) {
		t.Fatal(err)
	}
	// Another operator's token is another person, under the same rules.
	w = newWorld(t)
	if _, err = w.client(otherToken).Decide(t.Context(), theID, approvals.Approve, "", "k1.bound"); !errors.Is(err, approvals.NotEligible) {
		t.Fatal(err)
	}
	if _, err = w.client(adminToken).Decide(t.Context(), theID, approvals.Deny, "", "k1.other"); !errors.Is(err, approvals.WrongDigest) {
		t.Fatal(err)
	}
	w.undecided()
	w.desk.fail = errDown
	_, err = w.client(adminToken).Decide(t.Context(), theID, approvals.Deny, "", "")
	var p *Problem
	if !errors.As(err, &p) || p.Status != 503 || strings.Contains(p.Detail, "canary") {
		t.Fatal(err)
	}
}

func TestAdminBodies(t *testing.T) {
	w := newWorld(t)
	post := func(path, body string, status int) {
		t.Helper()
		mustProblem(t, w.send(w.request("POST", w.admin.URL+"/v1/approvals/"+theID+path, []byte(body), bearerHeader(adminToken))), status)
	}
	for _, body := range []string{``, `null`, `[]`, `{}`, `{"decision":"yes"}`, `{"decision":true}`, `{"decision":"approve","decision":"deny"}`,
		`{"decision":"approve","extra":1}`, `{"Decision":"approve"}`, `{"decision":"approve","reason":1}`, `{"decision":"approve"} ` + "x",
		`{"decision":"approve","digest":null}`, `{"decision":"approve"}`, `{"decision":"approve","digest":""}`} {
		post("/decision", body, 422)
	}
	post("/decision?x=1", `{"decision":"approve"}`, 400)
	post("/decision", `{"decision":"approve","reason":"`+strings.Repeat("x", AdminBodyLimit)+`"}`, 413)
	for _, body := range []string{`{}`, `{"ran":true}`, `{"ran":"true","note":"x"}`, `{"ran":null,"note":"x"}`, `{"ran":1,"note":"x"}`, `{"ran":true,"note":" "}`} {
		post("/resolve", body, 422)
	}
	h := bearerHeader(adminToken)
	h.Set("Content-Type", "text/plain")
	mustProblem(t, w.send(w.request("POST", w.admin.URL+"/v1/approvals/"+theID+"/decision", []byte(`{"decision":"approve"}`), h)), 415)
	mustProblem(t, w.send(w.request("GET", w.admin.URL+"/v1/approvals/"+theID+"/decision", nil, bearerHeader(adminToken))), 405)
	if c := w.desk.changes(); len(c) > 0 {
		t.Fatal(c)
	}
}

func TestAdminRevokes(t *testing.T) {
	approved := func(t *approvals.Ticket) { t.State = approvals.Approved }
	w := newWorld(t)
	w.desk.set(approved)
	if a, err := w.client(adminToken).Revoke(t.Context(), theID, "second thoughts"); err != nil || a.State != approvals.Revoked || a.By != "ana" || a.Reason != "second thoughts" {
		t.Fatalf("%+v %v", a, err)
	}
	w = newWorld(t)
	w.desk.set(approved)
	if _, err := w.client(otherToken).Revoke(t.Context(), theID, ""); !errors.Is(err, approvals.NotEligible) {
		t.Fatal(err)
	}
	w.wantRefused(approvals.NotEligible)
	// Whoever may only deny may not revoke.
	w.desk.set(func(t *approvals.Ticket) { t.Requirements[0].Excluded = []string{"ana"} })
	if _, err := w.client(adminToken).Revoke(t.Context(), theID, ""); !errors.Is(err, approvals.SelfApproval) {
		t.Fatal(err)
	}
	if w.desk.ticket().State != approvals.Approved {
		t.Fatal("revoked all the same")
	}
	w = newWorld(t)
	w.desk.set(func(t *approvals.Ticket) { t.State = approvals.Executing })
	if _, err := w.client(adminToken).Revoke(t.Context(), theID, ""); !errors.Is(err, approvals.AlreadyUsed) {
		t.Fatal(err)
	}
}

func TestAdminResolves(t *testing.T) {
	for _, ran := range []bool{true, false} {
		w := newWorld(t)
		w.desk.set(func(t *approvals.Ticket) { t.State = approvals.Unknown })
		a, err := w.client(adminToken).Resolve(t.Context(), theID, ran, "saw it in the shop's log")
		want := map[bool]approvals.State{true: approvals.Succeeded, false: approvals.NotRun}[ran]
		if err != nil || a.State != want || a.By != "ana" {
			t.Fatalf("%+v %v", a, err)
		}
		if _, err = w.client(adminToken).Resolve(t.Context(), theID, ran, "again"); !errors.Is(err, approvals.AlreadyDecided) {
			t.Fatal(err)
		}
	}
}

func TestOnlyTheRouteResolves(t *testing.T) {
	unknown := func(t *approvals.Ticket) { t.State = approvals.Unknown }
	w := newWorld(t)
	w.desk.set(unknown)
	_, err := w.client(otherToken).Resolve(t.Context(), theID, true, "I say so")
	var p *Problem
	if !errors.Is(err, approvals.NotEligible) || !errors.As(err, &p) || p.Status != 403 {
		t.Fatal(err)
	}
	w.wantRefused(approvals.NotEligible)
	if got := w.desk.ticket().State; got != approvals.Unknown {
		t.Fatal("settled all the same: ", got)
	}
	// The requester can't approve, and may say what happened.
	w.desk.set(func(t *approvals.Ticket) { t.Requirements[0].Excluded = []string{"ana"} })
	if a, err := w.client(adminToken).Resolve(t.Context(), theID, false, "the shop has no such cancellation"); err != nil || a.State != approvals.NotRun {
		t.Fatal(a.State, err)
	}
}

func TestHealth(t *testing.T) {
	state := errors.New("redis is not reachable")
	w := newWorld(t, func(c *Config) {
		c.Ready = func(context.Context) error { return state }
		c.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "countersign_up 1") })
	})
	get := func(path string) answerOf { return w.send(w.request("GET", w.admin.URL+path, nil, nil)) }
	if a := get("/healthz"); a.status != 200 {
		t.Fatal(a)
	}
	a := get("/readyz")
	mustProblem(t, a, 503)
	if !strings.Contains(a.body, "redis is not reachable") {
		t.Fatal(a.body)
	}
	if a := get("/metrics"); a.status != 200 || a.body != "countersign_up 1" {
		t.Fatal(a)
	}
	// Off loopback they need a token too: without a local address nobody can
	// tell that it is loopback.
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		r := httptest.NewRequest("GET", path, nil)
		r.Host = "approvals.acme.test"
		cfg := w.cfg
		cfg.PublicURL = "https://approvals.acme.test"
		s, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		rec := httptest.NewRecorder()
		s.AdminHandler().ServeHTTP(rec, r)
		if rec.Code != 401 {
			t.Errorf("%s: %d", path, rec.Code)
		}
		r.Header.Set("Authorization", "Bearer "+adminToken)
		rec = httptest.NewRecorder()
		s.AdminHandler().ServeHTTP(rec, r)
		if rec.Code == 401 {
			t.Errorf("%s with a token: %d", path, rec.Code)
		}
	}
}

func TestTokens(t *testing.T) {
	good := hash("x")
	for _, list := range [][]Token{{{SHA256: "zz", Person: "ana"}}, {{SHA256: good[:10], Person: "ana"}}, {{SHA256: good}},
		{{SHA256: good, Person: "ana"}, {SHA256: strings.ToUpper(good), Person: "bob"}}} {
		if _, err := NewTokens(list); err == nil {
			t.Errorf("%v was accepted", list)
		}
	}
	var none *Tokens
	if none.person("x") != "" {
		t.Error("no tokens, and somebody")
	}
}

func TestNewClient(t *testing.T) {
	for _, row := range [][2]string{{"http://admin.acme.test", "t"}, {"127.0.0.1:8091", "t"}, {"http://127.0.0.1:8091", ""},
		{"ftp://127.0.0.1", "t"}, {"https://u:p@admin.acme.test", "t"}} {
		if _, err := NewClient(row[0], row[1]); err == nil {
			t.Errorf("%v was accepted", row)
		}
	}
	for _, u := range []string{"http://127.0.0.1:8091", "http://localhost:1", "http://[::1]:1/", "https://admin.acme.test"} {
		if _, err := NewClient(u, "t"); err != nil {
			t.Error(err)
		}
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Redirect(w, &http.Request{}, "https://evil.test", http.StatusFound)
	}))
	defer srv.Close()
	c, err := NewClient(srv.URL, "t")
	if err != nil {
		t.Fatal(err)
	}
	var p *Problem
	if _, err = c.Show(t.Context(), theID); !errors.As(err, &p) || p.Status != 302 {
		t.Fatal("a token was carried along a redirect: ", err)
	}
}
