package e2e

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/cmd/countersign/internal/e2e/testservers"
)

// bodies of a tools/call of read_thing: some that decoders read in different ways,
// some that are only unusual.
func bodies() []string {
	call := func(params string) string {
		return `{"jsonrpc":"2.0","method":"tools/call","params":` + params + `,"id":5}`
	}
	var out []string
	for _, args := range []string{
		`{}`, `{"a":1,"b":"x"}`, `{ "b" : [ 1 , 2.50, -0, 1E+2, 1e400, 9007199254740993 ] }`, `{"2":1,"1":2,"10":3}`, `{"a":"\u2028` + "\u2028" + `\ud83d\ude00😀"}`, `{"a":"\u0000\u001f\/"}`, `{"n\u0061me":"x"}`,
		`{"e\u0301":1}`, `{"ключ":{"名前":[null,true,false]}}`, `{"constructor":1,"toString":2}`, `{"a":[[[[[[]]]]]]}`, `{"big":` + strings.Repeat("9", 400) + `}`, `{"":""}`, "{\"a\":\n\t1}",
		`{"a":1,"a":2}`, `{"a":1,"A":2}`, `{"a":1,"\u0061":2}`, `{"key":1,"\u212aey":2}`, `{"desst":1,"desſt":2}`, `{"a\u0000":1}`, `{"\u200ba":1}`, `{"a":"\ud800"}`, `{"a":"\udc00\ud800"}`, "{\"a\":\"\xff\"}", "{\"a\":\"\xed\xa0\x80\"}",
		`{"a":NaN}`, `{"a":Infinity}`, `{"a":01}`, `{"a":1,}`, `{"a":1/**/}`, `{"a":'x'}`, "{\"a\":\"\n\"}", `{"__proto__":{"a":1}}`, `{"é":1,"e\u0301":2}`, `{"a":` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + `}`,
	} {
		out = append(out, call(`{"name":"read_thing","arguments":`+args+`}`))
	}
	return append(out,
		call(`{"name":"read_thing","arguments":{},"name":"hidden_thing"}`), call(`{"name":"read_thing","Name":"hidden_thing","arguments":{}}`), call(`{"name":"read_thing","argumentſ":{"a":1},"arguments":{}}`),
		call(`{"name":"read_thing","arguments":{},"name\u0000":"hidden_thing"}`), call(`{"name":"read_thing","arguments":[1]}`), call(`{"name":["read_thing"],"arguments":{}}`),
		call(`{"name":"read_thing","arguments":{}}`)+call(`{"name":"hidden_thing","arguments":{}}`), "\ufeff"+call(`{"name":"read_thing","arguments":{}}`), "["+call(`{"name":"read_thing","arguments":{}}`)+"]",
		call(`{"name":"read_thing","arguments":{}}`)+"\x00", strings.Replace(call(`{"name":"read_thing","arguments":{}}`), `"id":5`, `"id":5,"ID":6`, 1), strings.Replace(call(`{"name":"read_thing","arguments":{}}`), `"method"`, `"method":"ping","method"`, 1),
	)
}

// What was decided is what runs: each body is refused, or a server in Go, one in
// Python and one in Node have executed the very name and arguments that the gate
// judged. What was refused is on the ledger, and in it no word of the body.
func TestDecidedIsExecuted(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	type server struct {
		front, file string
		number      func(string) string
	}
	servers := []server{{front: "judge", number: func(s string) string { return s }}}
	for _, s := range []struct {
		front, program, script string
		number                 func(string) string
	}{
		{"python", "python3", "echo.py", func(s string) string { return s }},
		{"node", "node", "echo.mjs", double},
	} {
		path, err := exec.LookPath(s.program)
		if err != nil {
			t.Logf("%s is not on the PATH: no server in it is asked", s.program)
			continue
		}
		script, err := filepath.Abs(filepath.Join("testdata", s.script))
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), s.front)
		r.o.Beside += fmt.Sprintf(", %s: {command: %s, env: {PATH: %s}}", s.front, quoted([]string{path, script, file}), quoted(os.Getenv("PATH")))
		servers = append(servers, server{s.front, file, s.number})
	}
	policy := "version: 2\ntools:\n"
	for _, s := range servers {
		policy += fmt.Sprintf("  %s/read_thing: read\n", s.front)
	}
	r.write("policy.yaml", policy)
	g := r.start("a", "")
	ran, refused := 0, 0
	for _, s := range servers {
		on := *g
		on.MCP += "/" + s.front
		c := on.client(testservers.Legacy)
		executed := func() (out []string) {
			if s.file == "" {
				for _, e := range r.upstream.Executions() {
					out = append(out, spell(e.Tool)+" "+branch(e.Args, s.number))
				}
				return out
			}
			b, err := os.ReadFile(s.file)
			if err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
			return strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
		}
		var want []string
		for _, body := range bodies() {
			res, err := c.Send(within(t, 30*time.Second), []byte(body), testservers.Extra{})
			if err != nil {
				t.Fatal(err)
			}
			f, bad := action.Parse([]byte(body), action.Limits{})
			switch {
			case bad == nil && res.Error == nil:
				ran++
				want = append(want, spell(f.Name)+" "+branch(f.Args, s.number))
			case bad != nil && res.Error != nil:
				refused++
			default:
				t.Errorf("%s: %q: we say %v, the gate %s %s", s.front, body, bad, res.Result, res.Error)
			}
		}
		got := executed()
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s executed\n%s\nand what was decided is\n%s", s.front, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	if ran < 14*len(servers) || refused < 30*len(servers) {
		t.Errorf("%d ran and %d were refused", ran, refused)
	}
	g.stop() // what was only counted is written now
	told := 0.0
	for _, rec := range r.records() {
		if rec["event"] != "malformed" {
			continue
		}
		told++
		if n, ok := rec["records"].(float64); ok {
			told += n - 1
		}
		for name, v := range rec {
			if s, ok := v.(string); ok && (strings.Contains(s, "thing") || strings.Contains(s, "desst") || strings.Contains(s, "proto")) {
				t.Errorf("the ledger has %s: %q", name, s)
			}
		}
	}
	if int(told) != refused {
		t.Errorf("the ledger tells of %v refused messages, and %d were refused", told, refused)
	}
	r.verify()
}

// double is the number that JSON.parse makes of a literal.
func double(s string) string {
	f, _ := strconv.ParseFloat(s, 64) // out of range is infinite there, too
	return fmt.Sprintf("%016x", math.Float64bits(f))
}

// branch writes a value as the echo servers do: null true false, n and the number,
// s and the text's UTF-16 in hex, [item,…], {name:value,…} sorted.
func branch(raw json.RawMessage, number func(string) string) string {
	switch action.TypeOf(raw) {
	case "object":
		var members []string
		for name, v := range action.Fields(raw) {
			members = append(members, spell(name)+":"+branch(v, number))
		}
		slices.Sort(members)
		return "{" + strings.Join(members, ",") + "}"
	case "array":
		var items []string
		for v := range action.Items(raw) {
			items = append(items, branch(v, number))
		}
		return "[" + strings.Join(items, ",") + "]"
	case "string":
		s, _ := action.Text(raw)
		return spell(s)
	case "number":
		return "n" + number(string(raw))
	}
	return string(raw)
}

func spell(s string) string {
	out := "s"
	for _, u := range utf16.Encode([]rune(s)) {
		out += fmt.Sprintf("%04x", u)
	}
	return out
}
