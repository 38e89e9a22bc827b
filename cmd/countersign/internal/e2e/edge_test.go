package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/cmd/countersign/internal/e2e/testservers"
)

// calls are the tools/call frames that reached the upstream.
func (r *rig) calls() []string {
	var out []string
	for _, m := range r.upstream.Received() {
		if m.Method == "tools/call" {
			out = append(out, string(m.Frame))
		}
	}
	return out
}

// What the gate has no business with passes as bytes, both ways: unknown members,
// unknown kinds of content, numbers that a double can't hold, an error's data.
func TestBytesPass(t *testing.T) {
	t.Parallel()
	for _, modern := range []bool{false, true} {
		t.Run(fmt.Sprintf("upstream modern=%v", modern), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, rigOptions{Modern: modern, Hold: time.Second})
			g := r.start("a", "")
			together(t, []testservers.Era{testservers.Legacy, testservers.Modern}, func(e testservers.Era) string { return string(e) }, func(t *testing.T, i int, era testservers.Era) {
				c := g.on(t).client(era)
				args := fmt.Sprintf(`{"n":%d, "odd":true,"big":9007199254740993,"tiny":1e-7,"one":1.0,"zz":{"b":1,"a":[]},"e":"\u00e9"}`, i)
				call := func() testservers.Reply {
					res, err := c.Request(within(t, 60*time.Second), "tools/call",
						json.RawMessage(`{"name":"do_thing","arguments":`+args+`,"x-future":{"n":9007199254740993}}`),
						testservers.Extra{Meta: json.RawMessage(`{"acme/trace":9007199254740993}`)})
					if err != nil {
						t.Fatal(err)
					}
					return res
				}
				approve := func() {
					if out, code := g.operate("approve", "--yes", waiting(t, call())); code != 0 {
						t.Fatal(out)
					}
				}
				approve()
				if res := call(); string(res.Result) != testservers.OddResult {
					t.Errorf("the result was changed:\n%s\n%s", res.Result, testservers.OddResult)
				}
				args = fmt.Sprintf(`{"n":%d,"fault":-32050}`, i)
				approve()
				const fault = `{"code":-32050,"message":"the thing broke","data":{"n":9007199254740993,"why":"asked to"},"extra":true}`
				if res := call(); string(res.Error) != fault {
					t.Errorf("the error was changed: %s", res.Error)
				}
				list, err := c.ListTools(within(t, 20*time.Second))
				if err != nil {
					t.Fatal(err)
				}
				told(t, string(list.Result), `"maximum":9007199254740993`, `"x-unknown":{"kept":true}`)
				if got := list.Tools(); !slices.Equal(got, []string{"read_thing", "do_thing", "countersign_collect"}) {
					t.Errorf("listed: %v", got)
				}
			})
			for i := range 2 {
				want := fmt.Sprintf(`"arguments":{"n":%d, "odd":true,"big":9007199254740993,"tiny":1e-7,"one":1.0,"zz":{"b":1,"a":[]},"e":"\u00e9"}`, i)
				got := 0
				for _, f := range r.calls() {
					if strings.Contains(f, want) && strings.Contains(f, `"x-future":{"n":9007199254740993}`) && strings.Contains(f, `"acme/trace":9007199254740993`) {
						got++
					}
				}
				if got != 1 {
					t.Errorf("the upstream got call %d as sent %d times:\n%s", i, got, strings.Join(r.calls(), ""))
				}
			}
			r.verify()
		})
	}
}

// A held call's headers are there before anybody decides, and a refusal still
// arrives after bytes were sent.
func TestHeldCallStreams(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	g := r.start("a", "")
	for i, era := range []testservers.Era{testservers.Legacy, testservers.Modern} {
		progressed := make(chan struct{}, 100)
		c := g.client(era)
		got := call(c, testservers.Do{N: i}, testservers.Extra{Progress: "p-1", On: func(f testservers.Frame) {
			if f.Method() == "notifications/progress" {
				progressed <- struct{}{}
			}
		}})
		select {
		case <-progressed:
		case a := <-got:
			t.Fatalf("answered before anybody decided: %s %s %v", a.Result, a.Error, a.err)
		case <-time.After(60 * time.Second):
			t.Fatal("no progress came")
		}
		card := r.cardOf(i)
		if x := r.click(olgaSlack, card.TS, "deny"); x.Status != 200 {
			t.Fatalf("%+v", x)
		}
		res := await(t, got)
		last := res.Frames[len(res.Frames)-1]
		if res.Approval().Status != "denied" || last.Event != "message" || string(res.ID) != "2" {
			t.Errorf("%s: status %d, event %q, id %s: %s", era, res.Status, last.Event, res.ID, res.Result)
		}
		for _, p := range res.Progress() {
			if !bytes.Contains(p, []byte(`"progressToken":"p-1"`)) {
				t.Errorf("progress with another token: %s", p)
			}
		}
	}
	// Without a progress token nothing but the headers can come.
	c := g.client(testservers.Legacy)
	req, err := http.NewRequestWithContext(within(t, 60*time.Second), http.MethodPost, g.MCP,
		strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"do_thing","arguments":{"n":7}}}`))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Authorization": "Bearer " + anaToken,
		"Mcp-Session-Id": c.Session(), "Mcp-Protocol-Version": string(testservers.Legacy),
	} {
		req.Header.Set(k, v)
	}
	res, err := http.DefaultClient.Do(req) // returns with the headers
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	card := r.cardOf(7)
	if got := res.Header.Get("Content-Type"); res.StatusCode != 200 || got != "text/event-stream" {
		t.Errorf("status %d, %s", res.StatusCode, got)
	}
	r.click(olgaSlack, card.TS, "deny")
	if b, err := io.ReadAll(res.Body); err != nil || !bytes.Contains(b, []byte(`"status":"denied"`)) {
		t.Errorf("%v: %s", err, b)
	}
	r.verify()
}

// Every method but the two data ones is answered by the edge itself: none
// reaches the upstream, in no era and over no transport, nor does a batch.
func TestOtherMethods(t *testing.T) {
	t.Parallel()
	methods := []string{
		"resources/list", "resources/read", "resources/templates/list", "resources/subscribe", "resources/unsubscribe",
		"prompts/list", "prompts/get", "completion/complete", "logging/setLevel", "roots/list", "sampling/createMessage",
		"elicitation/create", "tasks/get", "tasks/list", "tasks/cancel", "tasks/result", "tasks/update", "subscriptions/listen",
		"tools/execute", "TOOLS/CALL", "tools/Call", "tools/call/", "tools//call", "tools/ call", "exec", "call_any_tool", "rpc.discover",
	}
	r := newRig(t, rigOptions{})
	g := r.start("a", "")
	each(t, r, g, func(r *rig, c testservers.Client, _ int) {
		for _, m := range methods {
			res, err := c.Request(within(r.t, 20*time.Second), m, json.RawMessage(`{"name":"do_thing","uri":"file:///etc/passwd","arguments":{"n":1}}`), testservers.Extra{})
			if err != nil || res.Code() != -32601 {
				r.t.Errorf("%q: %v: %s %s", m, err, res.Result, res.Error)
			}
		}
		if h, ok := c.(*testservers.HTTP); ok {
			for _, body := range []string{
				`[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read_thing","arguments":{}}}]`, `[]`,
				`[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"do_thing"}}]`,
			} {
				res, err := h.Send(within(r.t, 20*time.Second), []byte(body), testservers.Extra{})
				if err != nil || res.Code() != -32600 || res.Status != 400 {
					r.t.Errorf("batch: %v: status %d %s", err, res.Status, res.Body)
				}
			}
		}
	})
	// A gate that ends takes back the list that it was just reading.
	known := []string{"initialize", "notifications/initialized", "notifications/cancelled", "server/discover", "tools/list", "ping"}
	for _, m := range r.upstream.Received() {
		if !slices.Contains(known, m.Method) {
			t.Errorf("the upstream received %s", m.Frame)
		}
	}
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPut} {
		req, _ := http.NewRequestWithContext(t.Context(), method, g.MCP, nil)
		req.Header.Set("Authorization", "Bearer "+anaToken)
		req.Header.Set("Accept", "text/event-stream")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("%s: status %d", method, res.StatusCode)
		}
	}
}

// A denied, unlisted or unknown tool is not shown, not called, and on the ledger
// as a no; names that only look like a listed one are unknown.
func TestDeniedToolIsNotTouched(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Policy: `version: 2
tools:
  judge/read_thing: {tier: read, args: {id: {type: string, max_len: 3, required: true}}}
  judge/do_thing: deny
`})
	g := r.start("a", "")
	each(t, r, g, func(r *rig, c testservers.Client, _ int) {
		ctx := within(r.t, 60*time.Second)
		list, err := c.ListTools(ctx)
		if err != nil || !slices.Equal(list.Tools(), []string{"read_thing"}) {
			r.t.Errorf("%v: listed %v", err, list.Tools())
		}
		for name, want := range map[string]string{
			"do_thing": "unknown_tool", "hidden_thing": "unknown_tool", "no_thing": "unknown_tool", "Do_Thing": "unknown_tool",
			"READ_THING": "unknown_tool", "read_thing ": "unknown_tool", "judge__do_thing": "unknown_tool", "judge/read_thing": "unknown_tool",
			"re\u0430d_thing": "unknown_tool", "read\u200b_thing": "unknown_tool", "read_thing\x00": "unknown_tool", "*": "unknown_tool", "": "",
		} {
			res, err := c.Call(ctx, name, json.RawMessage(`{"n":1,"id":"abc"}`), testservers.Extra{Header: http.Header{"Mcp-Name": {mcpName(name)}}})
			if err != nil || res.Code() != -32602 && (name != "" || res.Error == nil) || want != "" && res.Reason() != want {
				r.t.Errorf("%q: %v: status %d: %s %s", name, err, res.Status, res.Result, res.Error)
			}
		}
		for _, args := range []string{`{"id":"abcd"}`, `{"id":3}`, `{"id":null}`, `{}`, `{"id":["abc"]}`} {
			res, err := c.Call(ctx, "read_thing", json.RawMessage(args), testservers.Extra{})
			if err != nil || res.Code() != -32602 || res.Reason() != "policy_denied" || !strings.Contains(string(res.Error), `"rule":"args:/id"`) {
				r.t.Errorf("%s: %v: %s %s", args, err, res.Result, res.Error)
			}
		}
		if res, err := c.Call(ctx, "read_thing", json.RawMessage(`{"id":"äöü"}`), testservers.Extra{}); err != nil || res.Result == nil || res.IsError() {
			r.t.Errorf("three letters: %v: %s %s", err, res.Result, res.Error)
		}
	})
	n := len(surfaces)
	if ran := r.upstream.Executions(); len(ran) != n || r.upstream.Ran("read_thing") != n {
		t.Errorf("ran %v", ran)
	}
	denied := 0
	for _, rec := range r.records() {
		if rec["event"] == "decision" && rec["outcome"] == "deny" && rec["tool"] == "do_thing" {
			denied++
		}
	}
	if denied != n {
		t.Errorf("%d denials of do_thing on the ledger", denied)
	}
}

// mcpName is a tool's name as the mirrored header carries it.
func mcpName(name string) string {
	for _, c := range name {
		if c <= ' ' || c > '~' { // a space at an end would be trimmed
			return "=?base64?" + base64Of(name) + "?="
		}
	}
	return name
}
