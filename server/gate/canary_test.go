package gate

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
)

// sink is a log in memory.
type sink struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *sink) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *sink) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

const canary = "CANARY7q-4417-xyz"

// given is the form in which a text gives the canary away; "" when it doesn't.
func given(text string) string {
	forms := []string{canary, "CANARY7q", hex.EncodeToString([]byte(canary)), `CANARY\u0037q`}
	for i := range 3 { // base64 at each of its three places
		b := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", i) + canary))
		forms = append(forms, b[4:len(b)-6])
	}
	for _, f := range forms {
		if strings.Contains(text, f) {
			return f
		}
	}
	return ""
}

func text(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// planted are arguments with the canary somewhere in them, in a form that a view
// must mask.
func planted(r *rand.Rand) string {
	secrets := []string{
		`{"password":` + text(canary) + `}`, `{"X-Api-Key":[` + text(canary) + `]}`, `{"pass\u0077ord":"\u0043ANARY7q-4417-xyz"}`, `{"name":"Authorization","value":"Bearer ` + canary + `"}`,
		`["--token",` + text(canary) + `]`, text("DB_PASSWORD=" + canary + " ./run"), text("curl -H 'X-Api-Key: " + canary + "' x"), text("https://ana:" + canary + "@db.acme.test/x?token=" + canary), text("password: " + canary),
		text(`{"secret":"` + canary + `"}`), text("-----BEGIN RSA PRIVATE KEY-----\n" + canary + "\n-----END RSA PRIVATE KEY-----"), text("Bearer " + canary), text(base64.StdEncoding.EncodeToString([]byte(`{"api_key":"` + canary + `"}`))),
		`{` + text("token="+canary) + `:1}`, `{` + text("https://u:"+canary+"@h") + `:{"a":1}}`, text("x%3Fapi_key%3D" + canary), text("<secret>" + canary + "</secret>"),
	}
	v := secrets[r.IntN(len(secrets))]
	for range r.IntN(4) {
		switch r.IntN(4) {
		case 0:
			v = `{"a":1,"b":` + v + `}`
		case 1:
			v = `[null,` + v + `]`
		case 2:
			v = text(v)
		case 3:
			v = text(`{"x":[` + v + `]}`)
		}
	}
	return fmt.Sprintf(`{"order":%s,"list":[1,%s],"n":%d}`, v, v, r.Int64())
}

// Whatever becomes of a call, no value of it is on the ledger, in the log, in Redis,
// in a refusal or in what a caller is told while it waits; and no secret in it is in
// what people are shown, with which the words of a refused or failed call count too.
func TestCanaryComesOutNowhere(t *testing.T) {
	var log sink
	b := newBench(t, settings(func(s *Settings) { s.Hold = 30 * time.Millisecond }), func(b *bench) {
		b.log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	r := rand.New(rand.NewPCG(7, 7))
	var told strings.Builder // refusals and waiting words
	forUs := func(a Answer) {
		if a.Error != nil && a.Error.Raw == nil {
			fmt.Fprintf(&told, "%d %s %s\n", a.Error.Code, a.Error.Message, a.Error.Data)
		} else if a.Error == nil {
			fmt.Fprintf(&told, "%s\n", a.Result)
		}
	}
	var shown strings.Builder
	for range 40 {
		args := planted(r)
		with := func(tool string) Request {
			q := req(ana, tool, args)
			q.Call.Meta, q.Call.Extra = json.RawMessage(args), json.RawMessage(args)
			q.Tell = func(u Update) { told.WriteString(u.Waiting + "\n") }
			return q
		}
		// Refused by a rule about an argument, by a list, by a name, and not understood.
		q := with("echo_note")
		q.Call.Args = json.RawMessage(`{"title":` + text("long "+canary) + `}`)
		forUs(b.Call(t.Context(), q))
		for _, tool := range []string{"hidden_tool", "unlisted_tool", "no_such_tool", CollectTool} {
			forUs(b.Call(t.Context(), with(tool)))
		}
		// Run, with errors that quote it; their words are the upstream's and the caller's.
		b.Call(t.Context(), with("leak_read"))
		b.Call(t.Context(), with("echo"))
		b.Call(t.Context(), with("fail_read"))
		// Parked, and asked for again.
		q = with("leak_it")
		forUs(b.Call(t.Context(), q))
		forUs(b.Call(t.Context(), q))
	}
	forUs(b.Call(t.Context(), req(ana, "spill_read", planted(r)))) // ends the upstream
	tickets, err := b.store.List(t.Context(), []approvals.State{approvals.Pending}, 1000)
	if err != nil || len(tickets) < 10 {
		t.Fatalf("%d are parked, %v", len(tickets), err)
	}
	for i, tk := range tickets {
		fmt.Fprintf(&shown, "%s\n%+v\n%q\n", tk.Title, tk.View, tk.Rules)
		if len(tk.View.Masked) == 0 {
			t.Errorf("nothing is masked in %s", tk.View.Text)
		}
		if i%2 == 0 {
			b.vote(tk, "ben", approvals.Approve, "fine")
			forEnd, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			a := b.Call(forEnd, Request{Front: "desk", Name: CollectTool, Call: req(ana, "", `{"approval_id":`+text(tk.ID)+`}`).Call})
			cancel()
			if a.Error == nil || a.Error.Raw == nil {
				forUs(a)
			}
		} else {
			b.vote(tk, "ben", approvals.Deny, "no")
		}
	}
	var led strings.Builder
	files, err := filepath.Glob(filepath.Join(b.ledDir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		led.Write(raw)
	}
	for name, s := range map[string]struct {
		text  string
		least int
	}{
		"the ledger": {led.String(), 100_000}, "the log": {log.String(), 5000}, "Redis": {b.mini.Dump(), 10_000},
		"what callers are told": {told.String(), 10_000}, "what people are shown": {shown.String(), 10_000},
	} {
		if f := given(s.text); f != "" {
			i := strings.Index(s.text, f)
			t.Errorf("%s has it as %q: …%s…", name, f, s.text[max(0, i-200):min(len(s.text), i+60)])
		}
		if len(s.text) < s.least {
			t.Errorf("%s is only %d bytes long", name, len(s.text))
		}
	}
}
