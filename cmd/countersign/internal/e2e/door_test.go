package e2e

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/cmd/countersign/internal/e2e/testservers"
)

func base64Of(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

const readCall = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read_thing","arguments":{"id":"x"},"_meta":{` +
	`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"e2e","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`

// A page in somebody's browser, or anybody without a token of ours, reaches
// nothing behind the door.
func TestFrontDoor(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	g := r.start("a", "")
	tests := map[string]struct {
		header http.Header
		status int
	}{
		"foreign origin":        {http.Header{"Origin": {"https://evil.test"}}, 403},
		"null origin":           {http.Header{"Origin": {"null"}}, 403},
		"origin of a lookalike": {http.Header{"Origin": {"http://localhost.evil.test"}}, 403},
		"rebound host":          {http.Header{"Host": {"evil.test"}}, 403},
		"rebound host, port":    {http.Header{"Host": {"evil.test:8080"}}, 403},
		"plain text":            {http.Header{"Content-Type": {"text/plain"}}, 415},
		"a form":                {http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}, 415},
		"no type":               {http.Header{"Content-Type": nil}, 415},
		"no token":              {http.Header{"Authorization": nil}, 401},
		"a made-up token":       {http.Header{"Authorization": {"Bearer x"}}, 401},
		"an empty token":        {http.Header{"Authorization": {"Bearer "}}, 401},
		"the token's hash":      {http.Header{"Authorization": {"Bearer " + hash(anaToken)}}, 401},
		"the operator's token":  {http.Header{"Authorization": {"Bearer " + olgaAdmin}}, 401},
		"two tokens":            {http.Header{"Authorization": {"Bearer " + anaToken, "Bearer " + anaToken}}, 401},
		"basic":                 {http.Header{"Authorization": {"Basic " + base64Of("ana:"+anaToken)}}, 401},
	}
	c := testservers.NewHTTP(g.MCP, anaToken, testservers.Modern)
	for name, tc := range tests {
		res, err := c.Send(within(t, 20*time.Second), []byte(readCall), testservers.Extra{Header: tc.header})
		if err != nil || res.Status != tc.status || res.Result != nil {
			t.Errorf("%s: %v: status %d, want %d: %s", name, err, res.Status, tc.status, res.Body)
		}
	}
	if got := r.calls(); len(got) != 0 {
		t.Errorf("the upstream received %v", got)
	}
	if res, err := c.Send(within(t, 20*time.Second), []byte(readCall), testservers.Extra{Header: http.Header{"Origin": {"http://localhost:3000"}}}); err != nil || res.Status != 403 && res.Result == nil {
		t.Errorf("%v: status %d %s", err, res.Status, res.Body)
	}
	r.verify()
}

// The headers that mirror a message may agree with it or nothing happens; what
// is decided on and done is the body's.
func TestHeadersMustAgree(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	g := r.start("a", "")
	c := testservers.NewHTTP(g.MCP, anaToken, testservers.Modern)
	for _, h := range []string{"Mcp-Method", "Mcp-Name", "Mcp-Protocol-Version"} {
		right := map[string]string{"Mcp-Method": "tools/call", "Mcp-Name": "read_thing", "Mcp-Protocol-Version": "2026-07-28"}[h]
		wrong := map[string]string{"Mcp-Method": "tools/list", "Mcp-Name": "do_thing", "Mcp-Protocol-Version": "2025-11-25"}[h]
		for name, values := range map[string][]string{
			"missing": nil, "empty": {""}, "wrong": {wrong}, "twice": {right, right}, "right and wrong": {right, wrong}, "wrong and right": {wrong, right},
			"another case": {strings.ToUpper(right) + "x"}, "joined": {right + ", " + wrong},
		} {
			res, err := c.Send(within(t, 20*time.Second), []byte(readCall), testservers.Extra{Header: http.Header{h: values}})
			if err != nil || res.Status != 400 || res.Code() != -32020 {
				t.Errorf("%s %s: %v: status %d %s", h, name, err, res.Status, res.Body)
			}
		}
	}
	if got := r.calls(); len(got) != 0 {
		t.Errorf("the upstream received %v", got)
	}
	if res, err := c.Send(within(t, 20*time.Second), []byte(readCall), testservers.Extra{}); err != nil || res.Result == nil || len(r.calls()) != 1 {
		t.Errorf("%v: status %d %s", err, res.Status, res.Body)
	}
	r.verify()
}

// A message that two readers could read differently is refused whole; what runs
// is what was decided on, to the byte, as a Go server decodes it.
func TestSmuggledCalls(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	g := r.start("a", "")
	c := g.client(testservers.Legacy)
	wrap := func(params string) string {
		return `{"jsonrpc":"2.0","method":"tools/call","params":` + params + `,"id":5}`
	}
	bad := []string{
		wrap(`{"name":"read_thing","name":"hidden_thing"}`),
		wrap(`{"name":"read_thing","n\u0061me":"hidden_thing"}`),
		wrap(`{"name":"read_thing","Name":"hidden_thing"}`),
		wrap(`{"name":"read_thing","NAME":"do_thing","arguments":{"n":1}}`),
		wrap(`{"name":"read_thing","arguments":{"id":"a"},"arguments":{"id":"b"}}`),
		wrap(`{"name":"read_thing","arguments":{"id":"a"},"argument` + "\u017f" + `":{"id":"b"}}`),
		wrap(`{"name":"read_thing","arguments":{"id":"a","ID":"b"}}`),
		wrap(`{"name":"read_thing","arguments":{"id":"a","\u0131d":"b","id\u0000":"c"}}`),
		wrap(`{"name":"read_thing","arguments":{"id":"a","i` + "\u200b" + `d":"b"}}`),
		wrap(`{"name":"read_thing","arguments":{"\u212aey":1,"key":2}}`),
		wrap("{\"name\":\"read_thing\",\"arguments\":{\"id\":\"\xff\"}}"),
		wrap(`{"name":"read_thing","arguments":{"id":"\ud800"}}`),
		wrap(`{"name":"read_thing","arguments":{"id":01}}`),
		wrap(`{"name":"read_thing","arguments":{"id":NaN}}`),
		wrap(`{"name":"read_thing","arguments":{"id":"a"},}`),
		wrap(`{"name":"read_thing"/**/}`),
		wrap(`{"name":["read_thing"]}`), wrap(`{"name":{"name":"read_thing"}}`), wrap(`["read_thing"]`), wrap(`"read_thing"`),
		wrap(`{"name":"read_thing","arguments":[]}`), wrap(`{"name":"read_thing","arguments":"{}"}`),
		"\ufeff" + wrap(`{"name":"read_thing"}`),
		wrap(`{"name":"read_thing"}`) + wrap(`{"name":"hidden_thing"}`),
		wrap(`{"name":"read_thing"}`) + "\x00",
		`{"jsonrpc":"2.0","id":5,"method":"tools/list","method":"tools/call","params":{"name":"hidden_thing"}}`,
		`{"jsonrpc":"2.0","id":5,"method":"tools/list","Method":"tools/call","params":{"name":"hidden_thing"}}`,
		`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"read_thing"},"Params":{"name":"hidden_thing"}}`,
		wrap(`{"name":"read_thing","arguments":` + strings.Repeat(`{"a":`, 40) + `1` + strings.Repeat(`}`, 40) + `}`),
	}
	for _, body := range bad {
		res, err := c.Send(within(t, 20*time.Second), []byte(body), testservers.Extra{})
		if err != nil || res.Status != 400 && res.Code() != -32602 || res.Result != nil {
			t.Errorf("%s\n%v: status %d %s", body, err, res.Status, res.Body)
		}
	}
	if got := r.calls(); len(got) != 0 {
		t.Errorf("the upstream received %v", got)
	}
	good := map[string]string{ // arguments as a reader must see them
		wrap(`{"n\u0061me":"re\u0061d_thing","arguments":{"id":"\u0000\u202e"}}`):                                   `{"id":"\u0000\u202e"}`,
		wrap(`{"arguments": {"id":1e400, "x":-0, "y":9007199254740993},"name":"read_thing"}`):                       `{"id":1e400, "x":-0, "y":9007199254740993}`,
		wrap(`{"name":"read_thing","arguments":{"name":"hidden_thing","arguments":{"n":1},"method":"tools/call"}}`): `{"name":"hidden_thing","arguments":{"n":1},"method":"tools/call"}`,
		wrap(`{"name":"read_thing","arguments":{"":1," ":2,"\"":"</script>"}}`):                                     `{"":1," ":2,"\"":"</script>"}`,
	}
	for body, args := range good {
		before := len(r.upstream.Executions())
		if res, err := c.Send(within(t, 20*time.Second), []byte(body), testservers.Extra{}); err != nil || res.Result == nil {
			t.Errorf("%s\n%v: status %d %s", body, err, res.Status, res.Body)
			continue
		}
		ran := r.upstream.Executions()
		if len(ran) != before+1 || ran[before].Tool != "read_thing" || string(ran[before].Args) != args {
			t.Errorf("%s ran as %+v", body, ran[before:])
		}
	}
	decided := 0
	for _, rec := range r.records() {
		if rec["event"] == "decision" && rec["outcome"] == "allow" && rec["tool"] == "read_thing" {
			decided++
		}
	}
	if ran := r.upstream.Executions(); decided != len(ran) || decided != len(good) {
		t.Errorf("decided %d, ran %d", decided, len(ran))
	}
	r.verify()
}

// child is the upstream as a gate would start it.
func (r *rig) child() *exec.Cmd {
	command := r.upstream.Command()
	cmd := exec.Command(command[0], command[1:]...)
	for k, v := range r.env() {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	return cmd
}

// unhinted are the tools of a list by name, in one form, without their hints.
func unhinted(t *testing.T, list json.RawMessage) map[string]string {
	t.Helper()
	var l struct{ Tools []map[string]json.RawMessage }
	if err := json.Unmarshal(list, &l); err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, tool := range l.Tools {
		delete(tool, "annotations")
		name := string(tool["name"])
		b, err := json.Marshal(tool) // the members in order, each with its own bytes
		if err != nil {
			t.Fatal(err)
		}
		out[strings.Trim(name, `"`)] = string(b)
	}
	return out
}

// A tool that says of itself that it only reads is asked for like any other.
func TestHintsAreNotBelieved(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Hold: time.Second, Upstream: map[string]string{testservers.EnvHarmless: "1"}})
	g := r.start("a", "")
	c := g.client(testservers.Modern)
	list, err := c.ListTools(within(t, 20*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	var shown struct {
		Tools []struct {
			Name        string
			Annotations struct{ ReadOnlyHint, DestructiveHint *bool }
		}
	}
	if err := json.Unmarshal(list.Result, &shown); err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, tool := range shown.Tools { // of its tiers, whatever the server says
		a := tool.Annotations
		if want := tool.Name == "do_thing"; tool.Name != "countersign_collect" {
			seen++
			if a.ReadOnlyHint == nil || a.DestructiveHint == nil || *a.ReadOnlyHint == want || *a.DestructiveHint != want {
				t.Errorf("%s is shown as %s", tool.Name, list.Result)
			}
		}
	}
	if seen != 2 {
		t.Errorf("listed %s", list.Result)
	}
	own := testservers.StartStdio(t, r.child(), testservers.Legacy) // the server itself does lie
	if _, err := own.Initialize(within(t, 20*time.Second)); err != nil {
		t.Fatal(err)
	}
	lies, err := own.ListTools(within(t, 20*time.Second))
	if err != nil || strings.Contains(string(lies.Result), `"destructiveHint":true`) {
		t.Fatalf("%v: the upstream does not lie: %s", err, lies.Result)
	}
	// All else of a tool is passed as the server said it.
	if ours, theirs := unhinted(t, list.Result), unhinted(t, lies.Result); ours["do_thing"] == "" || ours["do_thing"] != theirs["do_thing"] || ours["read_thing"] != theirs["read_thing"] {
		t.Errorf("shown as %v, not as %v", ours, theirs)
	}
	waiting(t, send(t, c, `{"n":1}`, testservers.Extra{}))
	if r.cardOf(1); len(r.calls()) != 0 {
		t.Errorf("the upstream received %v", r.calls())
	}
	r.verify()
}

// A session lives in one process; another one says that it has none, the client
// begins anew there, and finds its approval by who it is.
func TestSessionOfAnotherReplica(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Hold: time.Second})
	a, b := r.start("a", ""), r.start("b", "")
	at := a.client(testservers.Legacy)
	id := waiting(t, send(t, at, `{"n":1}`, testservers.Extra{}))
	card := r.cardOf(1)
	moved := testservers.NewHTTP(b.MCP, anaToken, testservers.Legacy)
	moved.SetSession(at.Session())
	res, err := moved.ListTools(within(t, 20*time.Second))
	if err != nil || res.Status != http.StatusNotFound || res.Result != nil {
		t.Fatalf("%v: status %d %s", err, res.Status, res.Body)
	}
	if _, err := moved.Initialize(within(t, 20*time.Second)); err != nil {
		t.Fatal(err)
	}
	if again := waiting(t, send(t, moved, `{"n":1}`, testservers.Extra{})); again != id {
		t.Errorf("a new approval %s", again)
	}
	if x := r.click(olgaSlack, card.TS, "approve"); x.Status != 200 {
		t.Fatalf("%+v", x)
	}
	if res := send(t, moved, `{"n":1}`, testservers.Extra{}); res.IsError() || r.ran(1) != 1 {
		t.Errorf("ran %d: %s %s", r.ran(1), res.Result, res.Error)
	}
	told(t, send(t, at, `{"n":1}`, testservers.Extra{}).Text(), "not run again")
	if len(r.cards(1)) != 1 || r.ran(1) != 1 {
		t.Errorf("%d cards, ran %d times", len(r.cards(1)), r.ran(1))
	}
	r.verify()
}

// In the older era a broken connection is no cancellation: the call still waits
// until its hold ends, runs once when it is approved, and its result is kept.
func TestOlderEraHangsUp(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	g := r.start("a", "")
	c := g.client(testservers.Legacy)
	ctx, hangUp := context.WithCancel(t.Context())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = c.Call(ctx, "do_thing", testservers.Do{N: 1}.Args(), testservers.Extra{}) // nobody reads the answer
	}()
	card := r.cardOf(1)
	hangUp()
	<-gone
	if x := r.click(olgaSlack, card.TS, "approve"); x.Status != 200 {
		t.Fatalf("%+v", x)
	}
	r.settled(card.TS, "It ran", "olga")
	told(t, send(t, c, string(testservers.Do{N: 1}.Args()), testservers.Extra{}).Text(), "do_thing done, n=1", "not run again")
	if r.ran(1) != 1 {
		t.Errorf("it ran %d times", r.ran(1))
	}
	r.verify()
}

// Five hundred waiting calls use up nothing that a call needs which nobody has to
// agree to.
func TestCrowdWaitsAndAReadIsServed(t *testing.T) {
	t.Parallel()
	const actors, each = 30, 17
	var tokens []string
	for i := range actors {
		tokens = append(tokens, fmt.Sprintf("      - {sha256: %s, actor: agent%d@acme.test, owners: [ana]}", hash(crowdToken(i)), i))
	}
	r := newRig(t, rigOptions{Hold: 5 * time.Minute, Timeout: 10 * time.Minute, Tokens: strings.Join(tokens, "\n")})
	g := r.start("a", "")
	var held, answered atomic.Int64
	all, early := make(chan struct{}), make(chan string, 1)
	ctx := within(t, 4*time.Minute)
	var wg sync.WaitGroup
	for i := range actors {
		c := g.client(testservers.Modern, crowdToken(i))
		for j := range each {
			wg.Go(func() {
				var once sync.Once
				res, err := c.Call(ctx, "do_thing", testservers.Do{N: j}.Args(), testservers.Extra{Progress: "p", On: func(f testservers.Frame) {
					once.Do(func() { // the gate says that it waits
						if f.Method() == "notifications/progress" && held.Add(1) == actors*each {
							close(all)
						}
					})
				}})
				if answered.Add(1) == 1 {
					early <- fmt.Sprintf("%v: %.300s", err, res.Body)
				}
			})
		}
	}
	select {
	case <-all:
	case first := <-early:
		t.Fatalf("one was answered while %d of %d calls wait: %s", held.Load(), actors*each, first)
	case <-ctx.Done():
		t.Fatalf("%d of %d calls wait", held.Load(), actors*each)
	}
	if out, code := g.operate("--json", "list", "--max", "500"); code != 0 || strings.Count(out, `"state":"pending"`) != 500 {
		t.Errorf("exit %d, %d listed", code, strings.Count(out, `"state":"pending"`))
	}
	for _, era := range []testservers.Era{testservers.Legacy, testservers.Modern} {
		c := g.client(era)
		for i := range 20 {
			res, err := c.Call(within(t, time.Minute), "read_thing", json.RawMessage(fmt.Sprintf(`{"id":"%d"}`, i)), testservers.Extra{})
			if err != nil || res.Result == nil || res.IsError() {
				t.Fatalf("a read among the waiting: %v: %s %s", err, res.Result, res.Error)
			}
		}
	}
	if answered.Load() != 0 || held.Load() != actors*each {
		t.Errorf("%d calls were answered before anybody decided", answered.Load())
	}
	g.stop() // lets go of all who wait
	wg.Wait()
	if r.upstream.Ran("do_thing") != 0 || r.upstream.Ran("read_thing") != 40 {
		t.Errorf("ran %d and %d", r.upstream.Ran("do_thing"), r.upstream.Ran("read_thing"))
	}
	r.verify()
}

func crowdToken(i int) string { return fmt.Sprintf("token-of-agent-number-%d", i) }
