package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/cmd/countersign/internal/e2e/testservers"
	"github.com/countersign-mcp/countersign/notifier/slacktest"
)

const abyss = 200_000 // how deep the deepest things of these tests are

var deep = strings.Repeat("[", abyss) + strings.Repeat("]", abyss)

// serves fails unless a harmless call is answered now.
func (g *gate) serves(when string) {
	g.r.t.Helper()
	if res := g.reads(); !runs(res) {
		g.r.t.Errorf("%s: a harmless call: %s %s", when, res.Result, res.Error)
	}
	select {
	case <-g.dead:
		g.r.t.Fatalf("%s: the gate is dead", when)
	default:
	}
}

// rejects waits until so many reloads were refused on the ledger, which is written
// after the log, and none was taken over.
func (r *rig) rejects(n int) {
	r.t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) { // a file can only be looked at again
		switch loaded, rejected := r.loads(); {
		case loaded == 1 && rejected == n:
			return
		case loaded != 1 || rejected > n || time.Now().After(end):
			r.t.Fatalf("%d loaded, %d rejected", loaded, rejected)
		}
	}
}

// laughs is a YAML file that is short and would be long.
func laughs() string {
	var b strings.Builder
	b.WriteString("version: 2\nroles:\n  r0: &r0 [ana]\n")
	for i := range 30 {
		fmt.Fprintf(&b, "  r%d: &r%d [%s]\n", i+1, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*r%d, ", i), 10), ", "))
	}
	return b.String()
}

func evilPolicies() map[string]string {
	const head = "version: 2\ntools: {judge/read_thing: deny, judge/do_thing: read}\n"
	when := func(cel string) string {
		return head + "rules: [{id: r, effect: deny, reason: x, when: " + quoted(cel) + "}]\n"
	}
	return map[string]string{
		"deep YAML":             head + "redact: " + strings.Repeat("[", abyss),
		"deep JSON":             `{"version": 2, "cases": ` + deep + `}`,
		"deep blocks":           head + "redact:\n" + strings.Repeat(" ", 2) + strings.Repeat("- ", abyss) + "x\n",
		"laughs":                laughs(),
		"a pattern":             "version: 2\ntools: {judge/do_thing: {tier: read, args: {s: {pattern: '((a{100}){100}){100}'}}}}\n",
		"parentheses":           when(strings.Repeat("(", abyss) + "true" + strings.Repeat(")", abyss)),
		"nots":                  when(strings.Repeat("!", abyss) + "true"),
		"a long condition":      when("true" + strings.Repeat(" || true", abyss)),
		"a condition's pattern": when(`args.s.matches("((a{100}){100}){100}")`),
		"no condition":          when(`args.n +`),
		"not a yes or no":       when(`args.n + 1`),
		"no such name":          when(`env("HOME") == ""`),
		"rules":                 head + "rules:\n" + strings.Repeat("  - {id: r, effect: deny, reason: x}\n", 50_000),
		"tools":                 "version: 2\ntools:\n" + many(50_000, "  judge/*%05d*: read\n"),
		"bytes":                 head + strings.Repeat("# x\n", 8<<20),
	}
}

func many(n int, format string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

// A policy made to keep the gate busy is refused at the start and at a reload, and
// calls are answered while it is read and after.
func TestEvilPolicies(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Policy: plain, Hold: time.Second})
	g := r.start("a", "")
	nth := 0
	for name, text := range evilPolicies() {
		r.write("policy.yaml", text)
		nth++
		if err := g.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			g.serves(name)
		}
		g.stderr.find(t, reloadedTimes(nth), g.dead)
		g.serves(name)
		r.rejects(nth)
		out, errs, code := countersign(within(t, 5*time.Minute), nil, "policy", "test", r.write("evil.yaml", text))
		if code <= 0 || strings.Contains(errs, "goroutine ") || len(errs)+len(out) > 64<<10 {
			t.Errorf("%s: exit %d, %d bytes: %.300s", name, code, len(errs)+len(out), errs)
		}
	}
	waiting(t, send(t, g.client(testservers.Modern), `{"n":1}`, testservers.Extra{})) // the old policy still holds
	g.stop()
	for name, text := range evilPolicies() {
		r.write("policy.yaml", text)
		if _, errs, code := countersign(within(t, 5*time.Minute), nil, "serve", "--config", r.config("b")); code <= 0 || strings.Contains(errs, "goroutine ") {
			t.Errorf("%s: exit %d: %.300s", name, code, errs)
		}
	}
	r.judge(0, "under evil policies")
	r.verify()
}

// Arguments made for a rule that loads to take long are cut and denied, by any
// number of callers, and a harmless call beside them is answered.
func TestEvilArguments(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Policy: `version: 2
tools:
  judge/read_thing: read
  judge/do_thing: {tier: write, args: {p: {pattern: '.*a.{900}b'}}}
rules:
  - {id: loops, tools: [judge/do_thing], effect: deny, when: 'has(args.l) && args.l.all(a, args.l.all(b, args.l.all(c, a + b + c > 0)))', reason: x}
  - {id: expressions, tools: [judge/do_thing], effect: deny, when: 'has(args.s) && args.s.matches("(.*a.{900}b)")', reason: x}
  - {id: growth, tools: [judge/do_thing], effect: deny, when: 'has(args.g) && args.g.map(a, args.g.map(b, args.g)).size() > 1000000', reason: x}
  - {id: equals, tools: [judge/do_thing], effect: deny, when: 'has(args.d) && args.d == [[["x"]]]', reason: x}
`})
	g := r.start("a", "")
	ones := "[" + strings.TrimSuffix(strings.Repeat("1,", 3000), ",") + "]"
	long := quoted(strings.Repeat("a", 1<<20))
	evil := map[string]string{
		`{"n":1,"l":` + ones + `}`: "loops", `{"n":1,"s":` + long + `}`: "expressions", `{"n":1,"g":` + ones + `}`: "growth", `{"n":1,"p":` + long + `}`: "args:/p",
		`{"n":1,"d":` + strings.Repeat("[", 25) + `1` + strings.Repeat("]", 25) + `}`: "equals",
	}
	var wg sync.WaitGroup
	for args, rule := range evil {
		for _, era := range []testservers.Era{testservers.Legacy, testservers.Modern} {
			wg.Go(func() {
				c := g.client(era)
				for range 4 {
					res, err := c.Call(within(t, 2*time.Minute), "do_thing", json.RawMessage(args), testservers.Extra{})
					if err != nil || res.Reason() != "policy_denied" || !strings.Contains(string(res.Error), quoted(rule)) {
						t.Errorf("%.60s: %v: %s %s", args, err, res.Result, res.Error)
					}
				}
			})
		}
	}
	for range 10 {
		g.serves("beside evil arguments")
	}
	wg.Wait()
	g.serves("after evil arguments")
	if res := send(t, g.client(testservers.Modern), `{"n":1,"l":[0],"s":"a","g":[1],"p":"`+strings.Repeat("a", 901)+`b"}`, testservers.Extra{}); !runs(res) {
		t.Errorf("ordinary arguments: %s %s", res.Result, res.Error)
	}
	r.judge(1, "with ordinary arguments")
	r.verify()
}

// JSON that goes 200,000 deep is refused at every door, whoever it comes from, and
// the gate goes on.
func TestDeepJSON(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Hold: time.Second})
	g := r.start("a", "")
	q := r.ask(g.client(testservers.Legacy), 1)
	await(t, q.got)

	each(t, r, g, func(r *rig, c testservers.Client, n int) {
		objects := strings.Repeat(`{"a":`, abyss) + "1" + strings.Repeat("}", abyss)
		for name, params := range map[string]string{
			"arguments": `{"name":"read_thing","arguments":{"id":` + deep + `}}`, "objects": `{"name":"do_thing","arguments":` + objects + `}`,
			"beside": `{"name":"read_thing","arguments":{},"x":` + deep + `}`, "unclosed": `{"name":"read_thing","arguments":{"id":` + strings.Repeat("[", abyss),
		} {
			body := []byte(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":` + params + `}`)
			switch c := c.(type) {
			case *testservers.HTTP:
				res, err := c.Send(within(r.t, time.Minute), body, testservers.Extra{Header: http.Header{"Mcp-Name": {"read_thing"}, "Mcp-Method": {"tools/call"}}})
				if err != nil || res.Result != nil || res.Status == 200 && res.Code() == 0 || res.Status >= 500 {
					r.t.Errorf("%s: %v: status %d %.200s", name, err, res.Status, res.Body)
				}
			case *pipe:
				if err := c.Line(body); err != nil {
					r.t.Errorf("%s: %v", name, err)
				}
			}
		}
		if res, err := c.Call(within(r.t, time.Minute), "read_thing", json.RawMessage(`{"id":"x"}`), testservers.Extra{}); err != nil || !runs(res) {
			r.t.Errorf("afterwards: %v: %s %s", err, res.Result, res.Error)
		}
	})
	ran := r.upstream.Ran("read_thing")
	if ran != len(surfaces) {
		t.Errorf("ran %d times", ran)
	}

	// People's answers, signed as they should be.
	in, err := r.slack.Prepare(slacktest.Click{User: olgaSlack, Channel: channel, TS: q.card.TS, Verdict: "approve", Mutate: func(p map[string]any) { p["x"] = json.RawMessage(`"HERE"`) }})
	if err != nil {
		t.Fatal(err)
	}
	in.Body = bytes.Replace(in.Body, []byte("%22HERE%22"), []byte(strings.NewReplacer("[", "%5B", "]", "%5D").Replace(deep)), 1)
	if !bytes.Contains(in.Body, []byte("%5B%5B%5B")) {
		t.Fatalf("the click is not deep: %.300s", in.Body)
	}
	sign(in, r.slack.SigningSecret())
	if x := r.slack.Send(within(t, time.Minute), in); x.Status < 400 || x.Status >= 500 {
		t.Errorf("a deep click: status %d %s", x.Status, x.Body)
	}
	r.open(q)
	for path, header := range map[string]http.Header{
		g.Webhook + "/callbacks/desk":                            {"Content-Type": {"application/json"}},
		g.Admin + "/v1/approvals/" + q.id() + "/decision":        {"Content-Type": {"application/json"}, "Authorization": {"Bearer " + olgaAdmin}},
		g.Admin + "/v1/approvals/" + q.id() + "/decision?deep=1": {"Content-Type": {"application/json"}},
	} {
		for _, body := range []string{deep, `{"verdict":"approve","x":` + deep + `}`} {
			req, err := http.NewRequestWithContext(within(t, time.Minute), http.MethodPost, path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header = header
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if res.StatusCode < 400 || res.StatusCode >= 500 {
				t.Errorf("%s: status %d", path, res.StatusCode)
			}
		}
	}
	r.open(q)
	g.serves("after deep answers")

	// A server's answer, and its list of tools.
	c := g.client(testservers.Modern)
	for range 2 {
		res, err := c.Call(within(t, time.Minute), "read_thing", json.RawMessage(fmt.Sprintf(`{"deep":%d}`, abyss)), testservers.Extra{})
		if err != nil {
			t.Errorf("a deep result: %v", err)
		}
		t.Logf("a deep result is answered with %.120s %s", res.Result, res.Error)
		g.serves("after a deep result")
	}
	r.verify()
}

// A schema made to keep whoever compares with it busy, or to crash it, costs its own
// tool; a list that can't be read costs its own server. What is beside is served.
func TestEvilSchemas(t *testing.T) {
	t.Parallel()
	fan := `{"type":"string"}`
	for range 10 { // more than a mebibyte; the list is read again and again
		fan = `{"anyOf":[` + strings.Repeat(fan+",", 2) + fan + `]}`
	}
	const asked, misfit, gone = "pending", "invalid_arguments", "upstream_unavailable"
	for name, tc := range map[string]struct{ schema, want string }{
		"recursion":       {`{"$ref":"#"}`, asked},
		"two in a circle": {`{"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"}`, asked},
		"a fan":           {`{"properties":{"free":` + fan + `}}`, asked},
		"a fan of refs": {`{"$defs":{"a":{"anyOf":[{"$ref":"#/$defs/b"},{"$ref":"#/$defs/b"}]},"b":{"anyOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/a"}]}},` +
			`"properties":{"free":{"$ref":"#/$defs/a"}}}`, asked},
		"an expression": {`{"properties":{"free":{"type":"string","pattern":"((a{100}){100}){100}"}}}`, asked},
		"backtracking":  {`{"properties":{"free":{"type":"string","pattern":"^(a+)+$"}}}`, misfit},
		"unique":        {`{"properties":{"list":{"uniqueItems":true,"items":{"uniqueItems":true}}}}`, misfit},
		"out of here":   {`{"$ref":"http://169.254.169.254/latest/meta-data"}`, asked},
		"a file":        {`{"$ref":"file:///etc/passwd"}`, asked},
		"no schema":     {`"yes"`, asked},
		"deep":          {strings.Repeat(`{"properties":{"a":`, 100) + `{}` + strings.Repeat(`}}`, 100), asked},
		"deeper":        {strings.Repeat(`{"properties":{"a":`, 400) + `{}` + strings.Repeat(`}}`, 400), gone},
		"abyss":         {strings.Repeat(`{"not":`, abyss) + `{}` + strings.Repeat(`}`, abyss), gone},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			other := testservers.NewUpstream(t)
			r := newRig(t, rigOptions{
				Hold: time.Second, Policy: strings.Replace(plain, "tools:\n", "tools:\n  other/read_thing: read\n", 1),
				Beside: `, other: {command: ` + quoted(other.Command()) + `, env: ` + quoted(other.Env(false)) + `}`,
			})
			r.lists(reads, `{"name":"do_thing","inputSchema":`+tc.schema+`}`)
			c := r.start("a", "").client(testservers.Modern)
			call := func(tool, args string) testservers.Reply {
				t.Helper()
				res, err := c.Call(within(t, 2*time.Minute), tool, json.RawMessage(args), testservers.Extra{})
				if err != nil {
					t.Fatal(err)
				}
				return res
			}
			args := `{"n":1,"free":"` + strings.Repeat("a", 50_000) + `!","list":[` + strings.Repeat("[1,2,[3]],", 5000) + `0]}`
			for range 2 {
				if res := call("judge__do_thing", args); res.Approval().Status+res.Reason() != tc.want {
					t.Errorf("%.200s %s", res.Result, res.Error)
				}
				if res := call("judge__read_thing", `{}`); runs(res) == (tc.want == gone) {
					t.Errorf("another tool of the server: %.200s %s", res.Result, res.Error)
				}
				if res := call("other__read_thing", `{}`); !runs(res) {
					t.Errorf("another server: %.200s %s", res.Result, res.Error)
				}
				list, err := c.ListTools(within(t, 20*time.Second))
				if err != nil || !slices.Contains(list.Tools(), "other__read_thing") || slices.Contains(list.Tools(), "judge__read_thing") == (tc.want == gone) {
					t.Errorf("%v: listed %v %s", err, list.Tools(), list.Error)
				}
			}
			r.judge(0, "unasked")
			r.verify()
		})
	}
}
