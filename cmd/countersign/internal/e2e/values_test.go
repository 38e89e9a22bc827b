package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/cmd/countersign/internal/e2e/testservers"
)

// Lengths are counted in characters, both ends are in, and what is no text or is not
// there does not pass: under version 1 and under version 2.
func TestLengthsOfArguments(t *testing.T) {
	t.Parallel()
	e := func(n int) string { return `"` + strings.Repeat("é", n) + `"` }
	for version, policy := range map[string]string{
		"1": `{"version": 1, "allow": ["read_thing", "do_thing"], "deny": ["hidden_thing", "do_thing"],
  "arg_rules": {"read_thing": {"id": {"min_len": 2, "max_len": 2000}}}}`,
		"2": `version: 2
tools:
  judge/read_thing: {tier: read, args: {id: {type: string, required: true, min_len: 2, max_len: 2000}}}
  judge/do_thing: deny
`,
	} {
		t.Run("version "+version, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, rigOptions{Policy: policy, Hold: time.Second})
			g := r.start("a", "")
			each(t, r, g, func(r *rig, c testservers.Client, _ int) {
				ask := func(tool, args string) testservers.Reply {
					r.t.Helper()
					res, err := c.Call(within(r.t, 30*time.Second), tool, json.RawMessage(args), testservers.Extra{})
					if err != nil {
						r.t.Fatal(err)
					}
					return res
				}
				for _, id := range []string{
					e(2000), e(2), `"` + strings.Repeat(`\u00e9`, 2000) + `"`, `"` + strings.Repeat(`\ud83d\ude00`, 2000) + `"`,
				} {
					if res := ask("read_thing", `{"id":`+id+`}`); !runs(res) {
						r.t.Errorf("%.20s, %d bytes: %s", id, len(id), res.Error)
					}
				}
				for _, args := range []string{
					`{"id":` + e(2001) + `}`, `{"id":` + e(1) + `}`, `{"id":""}`, `{"id":"` + strings.Repeat("e\u0301", 1001) + `"}`,
					`{}`, `{"other":"ab"}`, `{"ID":"ab"}`, `{"id":null}`, `{"id":12}`, `{"id":true}`, `{"id":["ab"]}`, `{"id":{"id":"ab"}}`,
				} {
					if res := ask("read_thing", args); res.Code() != -32602 || res.Reason() != "policy_denied" || !strings.Contains(string(res.Error), `"rule":"args:/id"`) {
						r.t.Errorf("%.30s: %s %s", args, res.Result, res.Error)
					}
				}
				for _, tool := range []string{"do_thing", "hidden_thing", "other_thing"} { // denied and allowed, denied, unlisted
					if res := ask(tool, `{"n":1}`); res.Code() != -32602 || res.Reason() != "unknown_tool" {
						r.t.Errorf("%s: %s %s", tool, res.Result, res.Error)
					}
				}
			})
			if ran := r.upstream.Executions(); len(ran) != 4*len(surfaces) || r.upstream.Ran("read_thing") != len(ran) {
				t.Errorf("%d calls ran", len(ran))
			}
			r.accounted()
			r.verify()
		})
	}
	for _, version := range []string{"true", `"1"`, "1.0", "3", "null"} {
		r := newRig(t, rigOptions{Policy: `{"version": ` + version + `, "allow": ["read_thing"]}`})
		if _, errs, code := countersign(within(t, 20*time.Second), nil, "serve", "--config", r.config("a")); code <= 0 || !strings.Contains(errs, "version") {
			t.Errorf("version %s: exit %d: %s", version, code, errs)
		}
	}
}

// An answer has one of three shapes, and which one tells who said no: the gate's is a
// JSON-RPC error with a reason; a tool's own is a result with isError; a server's own
// error is passed as it is. None of them is a success with the words of a failure.
func TestShapesOfErrors(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Policy: `version: 2
tools:
  judge/read_thing: read
  judge/do_thing: {tier: write, args: {n: {max: 1000}}}
`})
	g := r.start("a", "")
	each(t, r, g, func(r *rig, c testservers.Client, n int) {
		type shape struct {
			result  bool
			isError bool
			code    int
			reason  string
		}
		for _, tc := range []struct {
			what, tool, args string
			want             shape
			says             string
		}{
			{"success", "do_thing", `{"n":1}`, shape{result: true}, "do_thing done, n=1"},
			{"denied by its name", "hidden_thing", `{}`, shape{code: -32602, reason: "unknown_tool"}, "Nothing was run"},
			{"denied by an argument", "do_thing", `{"n":1001}`, shape{code: -32602, reason: "policy_denied"}, "Nothing was run"},
			{"the tool failed", "do_thing", `{"n":1,"fail":"no such order; try another"}`, shape{result: true, isError: true}, "no such order; try another"},
			{"the server failed", "do_thing", `{"n":1,"fault":-32050}`, shape{code: -32050}, "the thing broke"},
		} {
			res, err := c.Call(within(r.t, 30*time.Second), tc.tool, json.RawMessage(tc.args), testservers.Extra{})
			if err != nil {
				r.t.Fatalf("%s: %v", tc.what, err)
			}
			got := shape{res.Result != nil, res.IsError(), res.Code(), res.Reason()}
			if got != tc.want || res.Result != nil && res.Error != nil || !strings.Contains(res.Text(), tc.says) {
				r.t.Errorf("%s: %+v: %s %s", tc.what, got, res.Result, res.Error)
			}
		}
	})
	// A server that dies says nothing, and takes what runs there at once with it.
	if res := send(t, g.client(testservers.Modern), `{"n":1,"crash":"after"}`, testservers.Extra{}); !res.IsError() || res.Error != nil || !strings.Contains(res.Text(), "nobody knows whether it ran") {
		t.Errorf("nobody knows: %s %s", res.Result, res.Error)
	}
	// On the ledger: the outcome of each run is its own.
	count := map[string]int{}
	for _, m := range r.records() {
		if m["event"] == "result" {
			count[fmt.Sprint(m["status"])]++
		}
	}
	n := len(surfaces)
	if want := map[string]int{"ok": n, "tool_error": n, "protocol_error": n, "unknown": 1}; !maps.Equal(count, want) {
		t.Errorf("the ledger has %v, not %v", count, want)
	}
	r.accounted()
	r.verify()
}
