package e2e

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/cmd/countersign/internal/e2e/testservers"
)

// Two servers have a tool of one name, and one of them lists names that look like
// others': a call means one tool of one server, or none. What the policy says of one
// server's tool is not said of the other's.
func TestNamesOnTwoServers(t *testing.T) {
	t.Parallel()
	other := testservers.NewUpstream(t)
	r := newRig(t, rigOptions{
		Hold: time.Second,
		Policy: `version: 2
tools:
  judge/*: read
  other/read_thing: read
  other/do_thing: {tier: destructive, title: "Do thing {n}"}
routes:
  default: {channels: [slack:` + channel + `], approvers: [group:ops], timeout: 1m}
`,
		Beside: `, other: {command: ` + quoted(other.Command()) + `, env: ` + quoted(other.Env(false)) + `}`,
	})
	tool := func(name string) string { return `{"name":` + quoted(name) + `,"inputSchema":{"type":"object"}}` }
	lookalikes := []string{ // of read_thing, and of the other server's tools
		"re\u200bad_thing", "re\u00adad_thing", "re\u0430d_thing", "\uff52ead_thing", "read_thing\u202e", "read\u00a0thing", "read_thing\u0000", "e\u0301cho",
		"countersign/definitions", "countersign_collect", strings.Repeat("x", 257), "",
	}
	listed := []string{tool("read_thing"), tool("do_thing"), tool("twin_thing"), tool("Twin_Thing"), tool("same_thing"), tool("same_thing"), tool("other__do_thing")}
	for _, n := range lookalikes {
		listed = append(listed, tool(n))
	}
	r.lists(listed...)
	g := r.start("a", "")
	c := g.client(testservers.Modern)

	list, err := c.ListTools(within(t, 20*time.Second))
	want := []string{"judge__read_thing", "judge__do_thing", "judge__other__do_thing", "other__read_thing", "other__do_thing", "countersign_collect"}
	if err != nil || !slices.Equal(list.Tools(), want) {
		t.Fatalf("%v: listed %q", err, list.Tools())
	}
	unknown := func(name string) {
		t.Helper()
		res, err := c.Call(within(t, 20*time.Second), name, json.RawMessage(`{"n":1}`), testservers.Extra{Header: http.Header{"Mcp-Name": {mcpName(name)}}})
		if err != nil || res.Result != nil || res.Code() != -32602 && name != "" {
			t.Errorf("%q: %v: %s %s", name, err, res.Result, res.Error)
		}
	}
	for _, name := range append(lookalikes, "twin_thing", "Twin_Thing", "TWIN_THING", "same_thing") {
		if name != "countersign_collect" {
			unknown(name)
		}
		unknown("judge__" + name)
	}
	for _, name := range []string{
		"read_thing", "do_thing", "other/do_thing", "judge/do_thing", "judge_do_thing", "judge___do_thing", "Judge__do_thing", "other__Do_Thing",
		"judge__judge__do_thing", "other__judge__do_thing", "__do_thing", "judge__", "*__do_thing", "judge__*",
	} {
		unknown(name)
	}
	if n := len(r.upstream.Executions()) + len(other.Executions()); n != 0 {
		t.Errorf("%d calls ran", n)
	}

	// The same words to both: one runs, the other asks, each at its own server.
	for _, name := range []string{"judge__do_thing", "judge__other__do_thing"} {
		if res, err := c.Call(within(t, 20*time.Second), name, json.RawMessage(`{"n":1}`), testservers.Extra{}); err != nil || !runs(res) {
			t.Errorf("%s: %v: %s %s", name, err, res.Result, res.Error)
		}
	}
	res, err := c.Call(within(t, 20*time.Second), "other__do_thing", json.RawMessage(`{"n":1}`), testservers.Extra{})
	if err != nil {
		t.Fatal(err)
	}
	id := waiting(t, res)
	if r.upstream.Ran("do_thing") != 1 || r.upstream.Ran("other__do_thing") != 1 || len(other.Executions()) != 0 {
		t.Errorf("ran %v and %v", r.upstream.Executions(), other.Executions())
	}
	r.approve(r.cardOf(1).TS)
	if res := comeBack(t, c, id); !runs(res) || other.Ran("do_thing") != 1 || len(r.upstream.Executions()) != 2 {
		t.Errorf("%s %s: ran %v and %v", res.Result, res.Error, r.upstream.Executions(), other.Executions())
	}
	r.verify()
}
